// SPDX-License-Identifier: GPL-3.0-or-later
/*
 * The rules on real threads: each stays at a place of which it is known
 * whether a thread may be borrowed there.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/e2e.h"
#include "tests/unwind_fixture.h"

static struct folder folder;
static struct child child;
static struct unwind_process process;

static void setup(void)
{
	folder_create(&folder);
	child_start_target(&child, &folder, "places");
}

static void teardown(void)
{
	unwind_close(&process);
	child_end(&child);
	folder_remove(&folder);
}

static const struct {
	const char *name; /* as the thread calls itself */
	enum safepoint_reason reason;
	const char *wrapper;
} places[] = {
	{"loop", SAFEPOINT_SAFE, NULL},
	{"epoll", SAFEPOINT_SAFE, "epoll_wait"},
	{"read", SAFEPOINT_SAFE, "read"},
	{"mutex", SAFEPOINT_SAFE, "pthread_mutex_lock"},
	{"cond", SAFEPOINT_SAFE, "pthread_cond_wait"},
	{"syscall", SAFEPOINT_SAFE, "syscall"},
	{"stdio", SAFEPOINT_IN_LIBC, NULL},
	{"signal", SAFEPOINT_SIGNAL_FRAME, NULL},
	{"once", SAFEPOINT_LIBC_FRAME, "pause"},
	{"qsort", SAFEPOINT_LIBC_FRAME, "pause"},
	{"destructor", SAFEPOINT_LIBC_FRAME, NULL},
	{"exit", SAFEPOINT_LIBC_FRAME, NULL},
	{"loader", SAFEPOINT_IN_LOADER, "pause"},
	{"fiber", SAFEPOINT_NO_CFI, NULL},
	{"clone", SAFEPOINT_BAD_END, NULL},
};
enum { PLACES = sizeof(places) / sizeof(places[0]) };

static pid_t find_thread(const char *name)
{
	struct threads threads = {0};
	pid_t tid = 0;

	assert_ok(threads_read(process.target, &threads));
	for (size_t i = 0; i < threads.count; i++) {
		if (strcmp(threads.thread[i].comm, name) == 0)
			tid = threads.thread[i].tid;
	}
	threads_deinit(&threads);
	return tid;
}

/* A thread takes its name just before it is there. */
static pid_t wait_for_thread(const char *name)
{
	pid_t tid = 0;

	for (int i = 0; i < 500 && !tid; i++) {
		tid = find_thread(name);
		wait_ms(20);
	}
	ck_assert_msg(tid != 0, "no thread %s", name);
	wait_ms(50);
	return tid;
}

/* The modules as they are once all threads are at their places. */
static void open_process(void)
{
	struct maps maps;
	struct error *err;

	memset(&process, 0, sizeof(process));
	assert_ok(target_open(child.pid, &process.target));
	wait_for_thread("loader");
	target_free(process.target);
	/* The thread in dlopen keeps the loader's list in the state of being changed. */
	for (int i = 0; i < 100; i++) {
		memset(&process, 0, sizeof(process));
		assert_ok(target_open(child.pid, &process.target));
		assert_ok(maps_read(child.pid, &maps));
		err = modules_read(process.target, &maps, &process.modules);
		maps_deinit(&maps);
		if (!err)
			break;
		ck_assert_msg(error_is(err, ERROR_BUSY), "%s", error_message(err));
		error_free(err);
		target_free(process.target);
		wait_ms(10);
	}
	process.memory = memory_reader_of(process.target);
	assert_ok(code_update(&process.code, &process.memory, &process.modules));
}

START_TEST(judges_places)
{
	struct safepoint_verdict verdict;
	struct safepoint_thread thread;
	struct borrow *borrow;
	pid_t tid;
	char *text;

	open_process();
	for (int i = 0; i < PLACES; i++) {
		tid = wait_for_thread(places[i].name);
		borrow = unwind_stop(&process, tid);
		ck_assert_ptr_nonnull(borrow);
		thread = unwind_thread(borrow);
		safepoint_check(&process.code.context, &thread, &verdict);
		text = safepoint_describe(&process.code.context, &verdict, tid);
		unwind_continue(borrow);
		ck_assert_msg(verdict.reason == places[i].reason, "%s: %s", places[i].name, text);
		if (places[i].wrapper)
			ck_assert_str_eq(verdict.wrapper, places[i].wrapper);
		free(text);
	}
}
END_TEST

Suite *safepoint_live_suite(void)
{
	Suite *suite = suite_create("safepoint_live");
	TCase *tcase = tcase_create("places");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, judges_places);
	suite_add_tcase(suite, tcase);
	return suite;
}
