/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Cases that cannot work, or are cut short: one clear sentence, the right
 * status, and an unharmed target.
 */
#include "resolver/cleanup.h"
#include "tests/e2e.h"
#include "tests/procstate.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>

static struct folder folder;
static struct child target;
static struct run run;
static struct procstate before, after;

static void setup(void)
{
	folder_create(&folder);
}

static void teardown(void)
{
	run_deinit(&run);
	child_end(&target);
	procstate_deinit(&before);
	procstate_deinit(&after);
	folder_remove(&folder);
}

/* It failed with @status, said why in one line that has @word, and how to go on in one more at
 * most. */
static void expect_refusal(int status, const char *word)
{
	size_t lines = 0;

	ck_assert_msg(run.status == status, "ended with %d, not %d: %s%s", run.status, status,
		      run.out, run.err);
	ck_assert_msg(strncmp(run.err, "heapattach: ", 12) == 0, "stderr: %s", run.err);
	for (const char *at = run.err; *at; at++)
		lines += *at == '\n';
	ck_assert_msg(lines >= 1 && lines <= 2, "%zu lines: %s", lines, run.err);
	ck_assert_msg(strcasestr(run.err, word) != NULL, "no \"%s\" in: %s", word, run.err);
	ck_assert_str_eq(run.out, "");
	run_deinit(&run);
}

static void attach(pid_t pid)
{
	run_program(&run, &folder, "-p %d --exact -d 1 -o %s", pid,
		    folder_file(&folder, "out.hap"));
}

static void expect_unharmed(void)
{
	child_expect(&target, "check", "ok");
	procstate_read(target.pid, &after);
	procstate_expect_same(&before, &after, PROCSTATE_HEAP);
	child_expect_clean_end(&target);
}

static void start_storm(const char *command)
{
	child_start_target(&target, &folder, "%s", command);
	procstate_read(target.pid, &before);
}

/* ---- usage */

START_TEST(usage_errors_end_with_2)
{
	static const char *const bad[] = {
		"-p", "-p x", "-p 1 --loader y", "--no-such-option", "-p 1 -d x", "report"};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		run_program(&run, &folder, "%s", bad[i]);
		ck_assert_msg(run.status == 2, "\"%s\" ended with %d", bad[i], run.status);
		ck_assert_str_ne(run.err, "");
		run_deinit(&run);
	}
}
END_TEST

/* ---- processes that cannot be attached to */

START_TEST(missing_process_is_refused)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(0);
	waitpid(pid, NULL, 0);
	attach(pid);
	expect_refusal(1, "there is no process");
}
END_TEST

START_TEST(kernel_thread_is_refused)
{
	/* kthreadd; a container may not show it. */
	if (procstate_status(getpid(), "NSpid", 10) != (uint64_t)getpid() ||
	    access("/proc/2/status", R_OK) != 0)
		return;
	attach(2);
	expect_refusal(1, "kernel");
}
END_TEST

START_TEST(zombie_is_refused)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(0);
	wait_ms(100);
	attach(pid);
	waitpid(pid, NULL, 0);
	expect_refusal(1, "has ended");
}
END_TEST

START_TEST(thread_that_is_no_process_is_refused)
{
	pid_t tid = 0;

	start_storm("storm -t 1");
	for (size_t i = 0; i < before.thread_count; i++) {
		if (before.thread[i].tid != target.pid)
			tid = before.thread[i].tid;
	}
	attach(tid);
	expect_refusal(1, "thread");
	expect_unharmed();
}
END_TEST

START_TEST(process_of_another_user_is_refused_without_the_right)
{
	CLEANUP(freep) char *program = tests_build_path("heapattach");
	const char *const argv[] = {"./heapattach", "-p", NULL, "-d", "1", NULL};
	const char *words[6];
	char pid[16];

	start_storm("storm -t 1");
	snprintf(pid, sizeof(pid), "%d", target.pid);
	memcpy(words, argv, sizeof(words));
	words[2] = pid;
	/* Where that user can get at it. */
	free(command_run(&folder, NULL, 10, "cp %s heapattach", program));
	ck_assert_int_eq(chmod(folder.path, 0777), 0);
	run.child = (struct child){0};
	child_start(&run.child, &folder, "nobody", words);
	run.status = child_wait(&run.child, 20000);
	run.out = strdup("");
	run.err = tests_read_file(folder_file(&folder, "heapattach.stderr"));
	expect_refusal(1, "user");
	expect_unharmed();
}
END_TEST

START_TEST(traced_process_is_refused)
{
	start_storm("storm -t 1");
	ck_assert_int_eq(ptrace(PTRACE_SEIZE, target.pid, 0, 0), 0);
	attach(target.pid);
	expect_refusal(1, "traced");
	ck_assert_int_eq(ptrace(PTRACE_INTERRUPT, target.pid, 0, 0), 0);
	ck_assert_int_eq(waitpid(target.pid, NULL, __WALL), target.pid);
	ck_assert_int_eq(ptrace(PTRACE_DETACH, target.pid, 0, 0), 0);
	expect_unharmed();
}
END_TEST

START_TEST(static_process_is_refused)
{
	start_storm("storm_static -t 1");
	attach(target.pid);
	expect_refusal(1, "static");
	expect_unharmed();
}
END_TEST

static bool can_run(const char *path)
{
	pid_t pid = access(path, X_OK) == 0 ? fork() : -1;
	int status;

	if (pid == 0) {
		execl(path, path, "-?", NULL);
		_exit(126);
	}
	return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
	       WEXITSTATUS(status) == 2;
}

START_TEST(process_of_32_bits_is_refused)
{
	CLEANUP(freep) char *path = tests_build_path("targets/storm_32");

	/* Some kernels are built without 32-bit programs. */
	if (!can_run(path))
		return;
	start_storm("storm_32 -t 1");
	attach(target.pid);
	expect_refusal(1, "32");
	expect_unharmed();
}
END_TEST

/* ---- cut short */

/* Recorded to its end, or refused; however its end showed, it is told as what it was. */
static void expect_end_told(const char *end)
{
	ck_assert_msg((run.status == 0 && !run.err[0]) ||
			      (run.status == 1 &&
			       (strstr(run.err, end) || strstr(run.err, "there is no process"))),
		      "ended with %d: %s", run.status, run.err);
	run_deinit(&run);
}

START_TEST(target_that_exits_during_the_attach_is_reported)
{
	int cycles = tests_cycles(100);

	/* From before the program has looked at it until after it is attached. */
	for (int i = 0; i < cycles; i++) {
		int ms = 300 * i / cycles;

		child_start_target(&target, &folder, "exits_soon %d", ms);
		run_program(&run, &folder, "-p %d --exact -q -o %s", target.pid,
			    folder_file(&folder, "exit-%d.hap", i));
		expect_end_told("has ended");
		ck_assert_int_eq(child_wait(&target, 20000), 7);
		child_end(&target);
	}
}
END_TEST

START_TEST(target_that_is_killed_during_the_attach_is_reported)
{
	int cycles = tests_cycles(100);

	for (int i = 0; i < cycles; i++) {
		child_start_target(&target, &folder, "storm -t 4");
		run_start(&run, &folder, "-p %d --exact -q -o %s", target.pid,
			  folder_file(&folder, "kill-%d.hap", i));
		usleep((useconds_t)(60000 * i / cycles));
		ck_assert_int_eq(kill(target.pid, SIGKILL), 0);
		ck_assert_int_eq(child_wait(&target, 20000), 128 + SIGKILL);
		run_finish(&run, 60);
		expect_end_told("has ended");
		child_end(&target);
	}
}
END_TEST

START_TEST(target_that_becomes_another_program_is_let_go)
{
	for (int ms = 0; ms < 400; ms += 10) {
		child_start_target(&target, &folder, "exits_soon -e %d", ms);
		run_program(&run, &folder, "-p %d --exact -q -o %s", target.pid,
			    folder_file(&folder, "exec-%d.hap", ms));
		expect_end_told("has started another program");
		ck_assert_int_eq(child_wait(&target, 20000), 0);
		child_end(&target);
	}
}
END_TEST

START_TEST(killed_target_is_reported_as_it_was_at_its_death)
{
	child_start_target(&target, &folder, "leak_chain -t 1 -r 100");
	run_start(&run, &folder, "-p %d --exact -q -o %s", target.pid,
		  folder_file(&folder, "killed.hap"));
	run_wait_attached(&run, target.pid);
	child_expect(&target, "go", "done");
	ck_assert_int_eq(kill(target.pid, SIGKILL), 0);
	ck_assert_int_eq(child_wait(&target, 20000), 128 + SIGKILL);
	run_finish(&run, 60);
	ck_assert_msg(run.status == 0, "ended with %d: %s", run.status, run.err);
	CLEANUP(json_freep)
	struct json *report = run_report_json(&folder, folder_file(&folder, "killed.hap"));
	ck_assert_uint_gt(json_count(report, "totals.inuse_bytes"), 0);
}
END_TEST

/* From before the attach until well after it. */
static void cut_short(int number, unsigned int step_us, int count)
{
	for (int i = 0; i < count; i++) {
		const char *file = folder_file(&folder, "cut-%d.hap", i);

		run_start(&run, &folder, "-p %d --exact -q -o %s", target.pid, file);
		usleep((unsigned int)i * step_us);
		kill(run.child.pid, number);
		run_finish(&run, 60);
		ck_assert_msg(number == SIGKILL || run.status == 0 || run.status == 1 ||
				      run.status == 128 + number,
			      "signal %d after %u us: ended with %d: %s", number,
			      (unsigned int)i * step_us, run.status, run.err);
		run_deinit(&run);
		child_expect(&target, "check", "ok");
	}
}

START_TEST(interrupt_at_any_moment_leaves_the_target_as_it_was)
{
	start_storm("storm -t 2 -m -w");
	cut_short(SIGINT, 4000, 45);
	expect_unharmed();
}
END_TEST

START_TEST(termination_at_any_moment_leaves_the_target_as_it_was)
{
	start_storm("storm -t 2 -w");
	cut_short(SIGTERM, 6000, 30);
	expect_unharmed();
}
END_TEST

/* The hooks pass through for good then: the target lives, and a later attach works. */
START_TEST(death_of_the_program_at_any_moment_leaves_a_target_that_works)
{
	start_storm("storm -t 2");
	cut_short(SIGKILL, 9000, 45);
	wait_ms(200);
	child_expect(&target, "check", "ok");
	attach(target.pid);
	ck_assert_msg(run.status == 0, "ended with %d: %s", run.status, run.err);
	child_expect(&target, "check", "ok");
	ck_assert_uint_eq(procstate_status(target.pid, "TracerPid", 10), 0);
	child_expect_clean_end(&target);
}
END_TEST

/* ---- files */

START_TEST(existing_output_is_not_overwritten)
{
	start_storm("storm -t 1");
	folder_write(&folder, "out.hap", "precious");
	attach(target.pid);
	expect_refusal(1, "exists");
	CLEANUP(freep) char *text = tests_read_file(folder_file(&folder, "out.hap"));
	ck_assert_str_eq(text, "precious");
	expect_unharmed();
}
END_TEST

START_TEST(recording_is_private)
{
	struct stat info;

	start_storm("storm -t 1");
	attach(target.pid);
	ck_assert_msg(run.status == 0, "ended with %d: %s", run.status, run.err);
	ck_assert_int_eq(stat(folder_file(&folder, "out.hap"), &info), 0);
	ck_assert_uint_eq(info.st_mode & 07777, 0600);
	expect_unharmed();
}
END_TEST

START_TEST(default_recording_is_named_after_the_process)
{
	start_storm("storm -t 1");
	run_program(&run, &folder, "-p %d --exact -d 1", target.pid);
	ck_assert_msg(run.status == 0, "ended with %d: %s", run.status, run.err);
	ck_assert_int_eq(access(folder_file(&folder, "heapattach.storm.%d.hap", target.pid), R_OK),
			 0);
	expect_unharmed();
}
END_TEST

START_TEST(full_disk_is_reported_and_the_target_left)
{
	const char *disk = folder_file(&folder, "disk");

	ck_assert_int_eq(mkdir(disk, 0777), 0);
	/* A file system that is full from the start. Needs root, as CI has. */
	if (mount("none", disk, "tmpfs", 0, "size=4k,nr_inodes=10") != 0)
		return;
	folder_write(&folder, "disk/filler", "x");
	start_storm("storm -t 4");
	run_program(&run, &folder, "-p %d --exact -d 1 -q -o %s/out.hap", target.pid, disk);
	ck_assert_int_eq(umount2(disk, MNT_DETACH), 0);
	ck_assert_msg(run.status == 1, "ended with %d: %s", run.status, run.err);
	ck_assert_msg(strstr(run.err, "No space left on device") != NULL, "%s", run.err);
	expect_unharmed();
}
END_TEST

START_TEST(file_that_is_no_recording_is_refused)
{
	folder_write(&folder, "bad.hap",
		     "this is not a recording at all, but long enough for one\n");
	run_program(&run, &folder, "report %s", folder_file(&folder, "bad.hap"));
	expect_refusal(1, "bad.hap");
	run_program(&run, &folder, "report %s", folder_file(&folder, "missing.hap"));
	expect_refusal(1, "missing.hap");
}
END_TEST

/* What is printed is all that these commands are for. */
START_TEST(output_that_cannot_be_written_is_an_error)
{
	static const char *const commands[] = {"--help", "--version", "check -p %d", "stop -p %d"};
	CLEANUP(freep) char *program = tests_build_path("heapattach");
	char words[64], command[4096];

	child_start_target(&target, &folder, "storm -t 0");
	snprintf(words, sizeof(words), commands[_i], target.pid);
	snprintf(command, sizeof(command), "%s %s >/dev/full 2>%s", program, words,
		 folder_file(&folder, "err"));
	ck_assert_int_eq(WEXITSTATUS(system(command)), 1);
	snprintf(command, sizeof(command), "grep -q 'cannot write to the standard output' %s",
		 folder_file(&folder, "err"));
	ck_assert_int_eq(system(command), 0);
	child_expect(&target, "check", "ok");
}
END_TEST

Suite *attach_bad_suite(void)
{
	Suite *suite = suite_create("attach_bad");
	TCase *refused = tcase_create("refused"), *cut = tcase_create("cut");
	TCase *files = tcase_create("files");

	tcase_add_checked_fixture(refused, setup, teardown);
	tcase_set_timeout(refused, 60);
	tcase_add_test(refused, usage_errors_end_with_2);
	tcase_add_test(refused, missing_process_is_refused);
	tcase_add_test(refused, kernel_thread_is_refused);
	tcase_add_test(refused, zombie_is_refused);
	tcase_add_test(refused, thread_that_is_no_process_is_refused);
	tcase_add_test(refused, process_of_another_user_is_refused_without_the_right);
	tcase_add_test(refused, traced_process_is_refused);
	tcase_add_test(refused, static_process_is_refused);
	tcase_add_test(refused, process_of_32_bits_is_refused);
	tcase_add_loop_test(refused, output_that_cannot_be_written_is_an_error, 0, 4);
	suite_add_tcase(suite, refused);

	tcase_add_checked_fixture(cut, setup, teardown);
	tcase_set_timeout(cut, 240);
	tcase_add_test(cut, target_that_exits_during_the_attach_is_reported);
	tcase_add_test(cut, target_that_is_killed_during_the_attach_is_reported);
	tcase_add_test(cut, target_that_becomes_another_program_is_let_go);
	tcase_add_test(cut, killed_target_is_reported_as_it_was_at_its_death);
	tcase_add_test(cut, interrupt_at_any_moment_leaves_the_target_as_it_was);
	tcase_add_test(cut, termination_at_any_moment_leaves_the_target_as_it_was);
	tcase_add_test(cut, death_of_the_program_at_any_moment_leaves_a_target_that_works);
	suite_add_tcase(suite, cut);

	tcase_add_checked_fixture(files, setup, teardown);
	tcase_set_timeout(files, 60);
	tcase_add_test(files, existing_output_is_not_overwritten);
	tcase_add_test(files, recording_is_private);
	tcase_add_test(files, default_recording_is_named_after_the_process);
	tcase_add_test(files, full_disk_is_reported_and_the_target_left);
	tcase_add_test(files, file_that_is_no_recording_is_refused);
	suite_add_tcase(suite, files);
	return suite;
}
