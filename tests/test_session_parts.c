/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Small modules of a session: journal, worker, instances, exit status, memory figures, live line.
 */
#include "tests/tests.h"

#include "injector/exitstatus.h"
#include "injector/instances.h"
#include "injector/journal.h"
#include "injector/live.h"
#include "injector/prefault.h"
#include "injector/procmem.h"
#include "injector/worker.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- journal */

START_TEST(journal_is_shared_with_a_child)
{
	const struct ha_file file = {1, 2};
	struct journal *journal;
	pid_t child;

	assert_ok(journal_create(&journal));
	child = fork();
	if (!child) {
		journal->gate.state = JOURNAL_MAKING;
		_exit(journal_add_fd(journal, 17, &file) ? 0 : 1);
	}
	ck_assert_int_eq(waitpid(child, NULL, 0), child);
	ck_assert_uint_eq(journal->gate.state, JOURNAL_MAKING);
	ck_assert_int_eq(journal->fd[0], 17);
	ck_assert_uint_eq(journal_file(journal, 17)->inode, 2);
	ck_assert_ptr_null(journal_file(journal, 18));
	journal_free(journal);
}
END_TEST

START_TEST(journal_forgets_closed_descriptors)
{
	const struct ha_file file = {1, 2}, other = {3, 4};
	struct journal *journal;
	int i;

	assert_ok(journal_create(&journal));
	for (i = 0; i < JOURNAL_FDS; i++)
		ck_assert(journal_add_fd(journal, 10 + i, &file));
	ck_assert(!journal_add_fd(journal, 99, &file));
	journal_forget_fd(journal, 11);
	ck_assert_int_eq(journal->fd[1], -1);
	ck_assert(journal_add_fd(journal, 99, &file));
	ck_assert(journal_add_fd(journal, 99, &other));
	ck_assert_uint_eq(journal_file(journal, 99)->inode, 4);
	journal_clear_fds(journal);
	for (i = 0; i < JOURNAL_FDS; i++)
		ck_assert_int_eq(journal->fd[i], -1);
	journal_free(journal);
}
END_TEST

/* ---- worker */

static struct error *work_fine(void *context)
{
	(void)context;
	return NULL;
}

static struct error *work_fails(void *context)
{
	(void)context;
	return error_hint(error_create(ERROR_BUSY, "thread 5 is in malloc"), "try again");
}

static struct error *work_crashes(void *context)
{
	raise(SIGKILL);
	return context;
}

static struct error *work_sleeps(void *context)
{
	pause();
	return context;
}

static struct error *work_checks_its_state(void *context)
{
	sigset_t set;

	(void)context;
	sigprocmask(SIG_BLOCK, NULL, &set);
	if (!sigismember(&set, SIGINT) || getsid(0) != getpid())
		return error_create(ERROR_FAULT,
				    "signals are not blocked, or no session of its own");
	return NULL;
}

/* Where real-time priorities are allowed it has one, which nothing inherits. */
static struct error *work_checks_its_priority(void *context)
{
	const struct sched_param lowest = {.sched_priority = 1};
	int policy = sched_getscheduler(0);

	(void)context;
	if (sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &lowest))
		return NULL;
	if (policy != (SCHED_FIFO | SCHED_RESET_ON_FORK))
		return error_create(ERROR_FAULT, "the policy is %d", policy);
	return NULL;
}

START_TEST(worker_hands_on_its_result)
{
	struct error *err;

	assert_ok(worker_run(work_fine, NULL, 10000));
	assert_ok(worker_run(work_checks_its_state, NULL, 10000));
	assert_ok(worker_run(work_checks_its_priority, NULL, 10000));
	err = worker_run(work_fails, NULL, 10000);
	ck_assert(error_is(err, ERROR_BUSY));
	ck_assert_str_eq(error_message(err), "thread 5 is in malloc");
	ck_assert_str_eq(error_hint_text(err), "try again");
	error_free(err);
}
END_TEST

/*
 * What the program has used the worker has as its own, and with its contents;
 * what it has never touched stays so.
 */
START_TEST(worker_has_its_memory_before_it_begins)
{
	const size_t pages = 64, size = pages * 4096;
	/* The first of all: what a sanitizer's heap holds must not use up the limit. */
	unsigned char *memory = mmap((void *)0x10000000, size, PROT_READ | PROT_WRITE,
				     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	bool can = madvise(memory, 4096, 23) == 0; /* MADV_POPULATE_WRITE, Linux 5.14 */
	struct rusage before, after;
	unsigned char resident[64];
	pid_t child;
	int status;

	ck_assert_ptr_ne(memory, MAP_FAILED);
	for (size_t i = 0; i < pages; i += 2)
		memory[i * 4096] = 7;
	child = fork();
	if (child == 0) {
		bool right = true;

		prefault_all(getppid());
		getrusage(RUSAGE_SELF, &before);
		for (size_t i = 0; i < pages; i += 2)
			right &= memory[i * 4096]++ == 7;
		getrusage(RUSAGE_SELF, &after);
		mincore(memory, size, resident);
		for (size_t i = 1; i < pages; i += 2)
			right &= !(resident[i] & 1);
		_exit(right && (!can || after.ru_minflt - before.ru_minflt < 4) ? 0 : 1);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	ck_assert_uint_eq(memory[0], 7);
	munmap(memory, size);
}
END_TEST

START_TEST(worker_that_dies_is_an_error)
{
	assert_fails(worker_run(work_crashes, NULL, 10000), ERROR_FAULT);
}
END_TEST

START_TEST(worker_that_hangs_is_ended)
{
	assert_fails(worker_run(work_sleeps, NULL, 50), ERROR_TIMEOUT);
	ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
}
END_TEST

/* ---- instances */

START_TEST(address_means_the_module_of_its_generation)
{
	struct instances instances = {0};
	const struct instance first = {
		.low = 0x1000, .high = 0x3000, .generation_first = 1, .profile_module = 10};
	const struct instance second = {
		.low = 0x2000, .high = 0x4000, .generation_first = 3, .profile_module = 20};

	assert_ok(instances_add(&instances, &first));
	instances_find_loaded(&instances, 0x1000, 0x3000, 0)->generation_last = 2;
	assert_ok(instances_add(&instances, &second));
	ck_assert_uint_eq(instances_find(&instances, 0x2800, 2)->profile_module, 10);
	ck_assert_uint_eq(instances_find(&instances, 0x2800, 3)->profile_module, 20);
	ck_assert_uint_eq(instances_find(&instances, 0x3fff, 9)->profile_module, 20);
	ck_assert_ptr_null(instances_find(&instances, 0x4000, 3));
	ck_assert_ptr_null(instances_find(&instances, 0x1000, 3));
	ck_assert_ptr_null(instances_find_loaded(&instances, 0x1000, 0x3000, 0));
	instances_deinit(&instances);
}
END_TEST

/* ---- how a process ended */

static enum exitstatus status_of_child(int how, bool reap, int32_t *value)
{
	pid_t child = fork();
	struct pollfd fd = {.events = POLLIN};
	enum exitstatus ret;

	if (!child) {
		if (how < 0)
			raise(-how);
		_exit(how);
	}
	fd.fd = (int)syscall(SYS_pidfd_open, child, 0);
	ck_assert_int_ge(fd.fd, 0);
	ck_assert_int_eq(poll(&fd, 1, 10000), 1);
	if (reap)
		waitpid(child, NULL, 0);
	ret = exitstatus_read(fd.fd, child, value);
	if (!reap)
		waitpid(child, NULL, 0);
	close(fd.fd);
	return ret;
}

START_TEST(zombie_tells_how_it_ended)
{
	int32_t value;

	ck_assert_int_eq(status_of_child(3, false, &value), EXITSTATUS_EXITED);
	ck_assert_int_eq(value, 3);
	ck_assert_int_eq(status_of_child(-SIGKILL, false, &value), EXITSTATUS_KILLED);
	ck_assert_int_eq(value, SIGKILL);
}
END_TEST

START_TEST(reaped_process_tells_it_through_the_pidfd_or_not_at_all)
{
	int32_t value;
	enum exitstatus how = status_of_child(-SIGUSR1, true, &value);

	/* Linux 6.15 and later keep the status. */
	ck_assert(how == EXITSTATUS_KILLED || how == EXITSTATUS_UNKNOWN);
	ck_assert_int_eq(value, how == EXITSTATUS_KILLED ? SIGUSR1 : -1);
}
END_TEST

/* ---- memory figures */

START_TEST(status_text_is_read_by_name)
{
	struct procmem memory;

	procmem_parse("Name:\tVmRSS:  5 kB\nVmLck:\t       8 kB\nVmRSS:\t    1234 kB\n"
		      "RssAnon:\t     200 kB\nRssFile:\t 1000 kB\nRssShmem:\t      34 kB\n",
		      &memory);
	ck_assert_uint_eq(memory.rss_bytes, 1234 * 1024);
	ck_assert_uint_eq(memory.anon_bytes, 200 * 1024);
	ck_assert_uint_eq(memory.file_bytes, 1000 * 1024);
	ck_assert_uint_eq(memory.shmem_bytes, 34 * 1024);
	ck_assert_uint_eq(memory.locked_bytes, 8 * 1024);
}
END_TEST

START_TEST(zombie_has_no_memory)
{
	struct procmem memory;

	procmem_parse("Name:\tx\nState:\tZ (zombie)\n", &memory);
	ck_assert_uint_eq(memory.rss_bytes, 0);
}
END_TEST

/* ---- live line */

START_TEST(live_line_stands_under_its_header)
{
	const struct live_line line = {.elapsed_ns = 3723ull * 1000000000,
				       .inuse_bytes = 1696 << 20,
				       .inuse_count = 61204,
				       .allocated_per_s = 140000,
				       .sites = 1841,
				       .rss_bytes = 3ull << 30};
	char header[128], text[128];

	live_header(header, sizeof(header));
	live_format(&line, text, sizeof(text));
	ck_assert_str_eq(header,
			 "    time      in use      blocks     alloc/s    sites         RSS");
	ck_assert_str_eq(text, "01:02:03    1.66 GiB       61204      140000     1841    3.00 GiB");
}
END_TEST

START_TEST(live_line_without_rss_says_so)
{
	const struct live_line line = {.inuse_bytes = 999};
	char text[128];

	live_format(&line, text, sizeof(text));
	ck_assert_str_eq(text, "00:00:00       999 B           0           0        0           -");
}
END_TEST

Suite *session_parts_suite(void)
{
	Suite *suite = suite_create("session_parts");
	TCase *tcase = tcase_create("session_parts");

	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, journal_is_shared_with_a_child);
	tcase_add_test(tcase, journal_forgets_closed_descriptors);
	tcase_add_test(tcase, worker_hands_on_its_result);
	tcase_add_test(tcase, worker_has_its_memory_before_it_begins);
	tcase_add_test(tcase, worker_that_dies_is_an_error);
	tcase_add_test(tcase, worker_that_hangs_is_ended);
	tcase_add_test(tcase, address_means_the_module_of_its_generation);
	tcase_add_test(tcase, zombie_tells_how_it_ended);
	tcase_add_test(tcase, reaped_process_tells_it_through_the_pidfd_or_not_at_all);
	tcase_add_test(tcase, status_text_is_read_by_name);
	tcase_add_test(tcase, zombie_has_no_memory);
	tcase_add_test(tcase, live_line_stands_under_its_header);
	tcase_add_test(tcase, live_line_without_rss_says_so);
	suite_add_tcase(suite, tcase);
	return suite;
}
