// SPDX-License-Identifier: GPL-3.0-or-later
/*
 * Waiting for a tracee that has a processor of its own: looked for, then
 * waited for asleep.
 */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "injector/tracee.h"
#include "tests/tests.h"

static struct tracer tracer;
static pid_t victim;

static void set_up(void)
{
	victim = fork();
	ck_assert_int_ge(victim, 0);
	if (victim == 0) {
		for (;;)
			pause();
	}
	tracer = (struct tracer){0};
	tracer_begin(&tracer);
	assert_ok(tracee_seize(victim));
}

static void tear_down(void)
{
	kill(victim, SIGKILL);
	waitpid(victim, NULL, __WALL);
	tracer_end(&tracer);
}

static struct tracee_stop stop_once(void)
{
	struct tracee_stop stop;

	assert_ok(tracee_interrupt(victim));
	stop = tracee_wait(&tracer, victim, tracee_deadline(10000));
	ck_assert_int_eq(stop.kind, TRACEE_EVENT);
	assert_ok(tracee_continue(victim, 0));
	return stop;
}

START_TEST(nobody_is_watched_at_first)
{
	ck_assert(!tracer_watches(&tracer));
	stop_once();
	ck_assert(!tracer_watches(&tracer));
}
END_TEST

/* On a busy machine a stop may take longer than it is looked for. */
START_TEST(watching_goes_on_while_stops_come_soon)
{
	bool watches = false;

	for (int i = 0; i < 1000 && !watches; i++) {
		tracer_watch(&tracer, true);
		stop_once();
		watches = tracer_watches(&tracer);
	}
	ck_assert(watches);
}
END_TEST

START_TEST(watching_ends_when_it_was_in_vain)
{
	struct tracee_stop stop;
	pid_t helper;

	tracer_watch(&tracer, true);
	helper = fork();
	ck_assert_int_ge(helper, 0);
	if (helper == 0) {
		usleep(20000);
		_exit(kill(victim, SIGUSR1));
	}
	stop = tracee_wait(&tracer, victim, tracee_deadline(10000));
	ck_assert_int_eq(stop.kind, TRACEE_SIGNAL);
	ck_assert_int_eq(stop.signal, SIGUSR1);
	ck_assert(!tracer_watches(&tracer));
	waitpid(helper, NULL, 0);
}
END_TEST

START_TEST(deadline_that_has_passed_is_not_watched_beyond)
{
	tracer_watch(&tracer, true);
	ck_assert_int_eq(tracee_wait(&tracer, victim, tracee_now_ns()).kind, TRACEE_RUNNING);
	ck_assert(tracer_watches(&tracer));
}
END_TEST

Suite *tracee_suite(void)
{
	Suite *suite = suite_create("tracee");
	TCase *tcase = tcase_create("watch");

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_set_timeout(tcase, 30);
	tcase_add_test(tcase, nobody_is_watched_at_first);
	tcase_add_test(tcase, watching_goes_on_while_stops_come_soon);
	tcase_add_test(tcase, watching_ends_when_it_was_in_vain);
	tcase_add_test(tcase, deadline_that_has_passed_is_not_watched_beyond);
	suite_add_tcase(suite, tcase);
	return suite;
}
