/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Targets that write over the shared memory and into the socket while they are
 * attached to: the program ends in time, by itself, with a report that can be
 * read, and has written nothing but its own file. What becomes of such a target
 * is its own affair.
 */
#include "resolver/cleanup.h"
#include "tests/e2e.h"

#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct folder folder;
static struct child target;
static struct run run;

static void setup(void)
{
	folder_create(&folder);
}

static void teardown(void)
{
	run_deinit(&run);
	child_end(&target);
	folder_remove(&folder);
}

/* Nothing but what we and the runner have made. */
static void expect_own_files(void)
{
	const struct dirent *entry;
	DIR *dir = opendir(folder.path);

	ck_assert_ptr_nonnull(dir);
	while ((entry = readdir(dir))) {
		const char *name = entry->d_name;

		ck_assert_msg(name[0] == '.' || !strncmp(name, "run-", 4) ||
				      !strcmp(name, "scribbler.stderr") || !strcmp(name, "x.hap"),
			      "a new file: %s", name);
	}
	closedir(dir);
}

static void expect_sane_end(void)
{
	const char *file = folder_file(&folder, "x.hap");

	ck_assert_msg(run.status == 0 || run.status == 1, "ended with %d: %s", run.status, run.err);
	ck_assert_msg(run.status == 0 || !strncmp(run.err, "heapattach: ", 12), "%s", run.err);
	expect_own_files();
	if (run.status == 0)
		json_free(run_report_json(&folder, file));
	unlink(file);
	run_deinit(&run);
}

/* The injector's patience with boot, in injector/inject_boot.c. */
#define MESSAGE_TIMEOUT_MS 5000

static const char *const ways[] = {"words", "counts", "zeros", "entry", "talk"};
static const char *const modes[] = {"--exact", "--selfcheck", "--interval 4K"};

START_TEST(what_a_target_scribbles_over_does_no_harm_to_us)
{
	for (int i = 0; i < tests_cycles(2); i++) {
		child_start_target(&target, &folder, "scribbler %s %d", ways[_i], i);
		run_start(&run, &folder, "-p %d -q -d 0.5 %s -o %s", target.pid,
			  modes[(_i + i) % 3], folder_file(&folder, "x.hap"));
		run_finish(&run, 120);
		expect_sane_end();
		child_end(&target);
	}
}
END_TEST

/* It has none of its own. */
static void expect_no_socket(pid_t pid)
{
	const struct dirent *entry;
	char path[64], to[64];
	DIR *fds;

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	fds = opendir(path);
	while (fds && (entry = readdir(fds))) {
		ssize_t size;

		snprintf(path, sizeof(path), "/proc/%d/fd/%.16s", pid, entry->d_name);
		size = readlink(path, to, sizeof(to) - 1);
		to[size > 0 ? size : 0] = '\0';
		ck_assert_msg(!strstr(to, "socket:") && !strstr(to, "memfd:heapattach"),
			      "child %d has descriptor %s: %s", pid, entry->d_name, to);
	}
	if (fds)
		closedir(fds);
}

/* Of one of the target's threads; how many there are. */
static unsigned int thread_expect_no_socket(const char *tid)
{
	CLEANUP(freep) char *pids = NULL;
	char path[64], *save = NULL;
	unsigned int count = 0;

	snprintf(path, sizeof(path), "/proc/%d/task/%.16s/children", target.pid, tid);
	pids = tests_read_file(path);
	for (char *pid = pids ? strtok_r(pids, " ", &save) : NULL; pid;
	     pid = strtok_r(NULL, " ", &save)) {
		expect_no_socket(atoi(pid));
		count++;
	}
	return count;
}

/* Each is without what it was forked with. How many there are. */
static unsigned int children_expect_no_socket(void)
{
	const struct dirent *entry;
	unsigned int count = 0;
	char path[64];
	DIR *threads;

	snprintf(path, sizeof(path), "/proc/%d/task", target.pid);
	threads = opendir(path);
	ck_assert_ptr_nonnull(threads);
	while ((entry = readdir(threads)))
		count += entry->d_name[0] == '.' ? 0 : thread_expect_no_socket(entry->d_name);
	closedir(threads);
	return count;
}

/* So the conversation with boot has no end that the kernel could tell. */
START_TEST(child_that_keeps_our_socket_open_delays_nothing)
{
	unsigned int children = 0;

	child_start_target(&target, &folder, "scribbler fork");
	/* It has to meet the moment: in some 4 of 10 stops. */
	for (int i = 0; i < 40 && children < 3; i++) {
		double start = now_ms();

		run_program(&run, &folder, "-p %d -q -d 0.1 --exact -o %s", target.pid,
			    folder_file(&folder, "x.hap-%d", i));
		ck_assert_msg(run.status == 0, "ended with %d: %s", run.status, run.err);
		ck_assert_double_lt(now_ms() - start, MESSAGE_TIMEOUT_MS);
		run_deinit(&run);
		child_expect(&target, "check", "ok");
		children = children_expect_no_socket();
	}
	ck_assert_uint_ge(children, 3);
	child_end(&target);
}
END_TEST

Suite *attach_hostile_suite(void)
{
	Suite *suite = suite_create("attach_hostile");
	TCase *tcase = tcase_create("hostile");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 240);
	tcase_add_loop_test(tcase, what_a_target_scribbles_over_does_no_harm_to_us, 0,
			    sizeof(ways) / sizeof(ways[0]));
	tcase_add_test(tcase, child_that_keeps_our_socket_open_delays_nothing);
	suite_add_tcase(suite, tcase);
	return suite;
}
