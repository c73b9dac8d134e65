/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The matrix: processes that change while they are recorded, and afterwards.
 */
#include "resolver/cleanup.h"
#include "tests/matrix.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* The loader's counter is looked at ten times a second. */
#define NOTICED_MS 250

static struct matrix matrix;

static void setup(void)
{
	matrix_setup(&matrix);
}

static void teardown(void)
{
	matrix_teardown(&matrix);
}

static const struct {
	const char *command, *situation;
} rows[] = {
	{"local", "dlopen, RUNPATH $ORIGIN, RTLD_LOCAL"},
	{"deepbind", "dlopen, RTLD_DEEPBIND"},
	{"space", "dlmopen"},
	{"nss", "C library loads NSS modules"},
	{"iconv", "C library loads iconv modules"},
	{"fork", "fork"},
	{"vfork", "vfork and exec"},
	{"spawn", "posix_spawn"},
	{"popen", "popen"},
	{"system", "system"},
	{"fibers", "fibers (ucontext) that allocate"},
	{"altstack", "handlers on a sigaltstack that allocate"},
	{"threads", "threads come and go"},
	{"close", "all unused descriptors closed"},
	{"setuid", "setuid, one thread"},
	{"setuids", "setuid, all threads"},
	{"undumpable", "becomes undumpable"},
};

/* In the middle of a recording, while its end comes, and after it. */
START_TEST(works_while_it_changes)
{
	const char *command = rows[_i].command;

	matrix_start(&matrix, "changer");
	matrix.ignore |= PROCSTATE_OBJECTS;
	/* What can be closed once is gone for good. */
	if (strcmp(command, "close") == 0) {
		child_expect(&matrix.target, command, "ok");
		matrix_look(&matrix);
	}
	matrix_record(&matrix, "");
	child_expect(&matrix.target, command, "ok");
	wait_ms(NOTICED_MS);
	child_expect(&matrix.target, command, "ok");
	matrix_keep(&matrix);
	matrix_check(&matrix);
	ck_assert_int_eq(kill(matrix.run.child.pid, SIGINT), 0);
	child_expect(&matrix.target, command, "ok");
	CLEANUP(json_freep) struct json *report = matrix_record_end(&matrix);
	matrix_expect_kept(&matrix, report);
	ck_assert_uint_eq(json_count(report, "coverage.nested_duplicates"), 0);
	child_expect(&matrix.target, command, "ok");
	matrix_expect_unharmed(&matrix);
	matrix_tell(rows[_i].situation, "works");
}
END_TEST

START_TEST(works_while_its_root_changes)
{
	const char *root = folder_file(&matrix.folder, "root");
	char command[256];

	ck_assert_int_eq(mkdir(root, 0755), 0);
	snprintf(command, sizeof(command), "chroot %s", root);
	matrix_start(&matrix, "changer");
	matrix_record(&matrix, "");
	child_expect(&matrix.target, command, "ok");
	matrix_keep(&matrix);
	CLEANUP(json_freep) struct json *report = matrix_record_end(&matrix);
	matrix_expect_kept(&matrix, report);
	matrix_expect_unharmed(&matrix);
	matrix_tell("chroot", "works");
}
END_TEST

START_TEST(ends_when_another_program_begins)
{
	matrix_start(&matrix, "changer");
	matrix_record(&matrix, "");
	matrix_keep(&matrix);
	child_send(&matrix.target, "exec");
	ck_assert_str_eq(child_line(&matrix.target), "ready");
	run_finish(&matrix.run, 60);
	ck_assert_msg(matrix.run.status == 0, "ended with %d: %s", matrix.run.status,
		      matrix.run.err);
	CLEANUP(json_freep)
	struct json *report =
		run_report_json(&matrix.folder, folder_file(&matrix.folder, "row.hap"));
	matrix_expect_kept(&matrix, report);
	run_deinit(&matrix.run);
	/* And the new one can be attached to. */
	unlink(folder_file(&matrix.folder, "row.hap"));
	matrix_look(&matrix);
	matrix.keeps = 0;
	matrix_row_works(&matrix, "exec");
}
END_TEST

/* ---- without privileges */

/* By Yama; without it they may. */
static bool may_users_trace(void)
{
	static const char path[] = "/proc/sys/kernel/yama/ptrace_scope";
	CLEANUP(freep) char *scope = access(path, R_OK) ? NULL : tests_read_file(path);

	return !scope || scope[0] == '0';
}

/* Both belong to the same user, who has no further rights. */
static void record_as_nobody(void)
{
	CLEANUP(freep) char *program = tests_build_path("heapattach");
	CLEANUP(freep) char *changer = tests_build_path("targets/changer");
	char pid[16];
	const char *const target_argv[] = {"./changer", NULL};
	const char *const argv[] = {"./heapattach", "-p", pid,	     "--exact",
				    "-q",	    "-o", "row.hap", NULL};

	/* Where that user can get at them. */
	free(command_run(&matrix.folder, NULL, 10, "cp %s %s .", program, changer));
	ck_assert_int_eq(chmod(matrix.folder.path, 0777), 0);
	matrix_start_user(&matrix, "nobody", target_argv);
	snprintf(pid, sizeof(pid), "%d", matrix.pid);
	run_start_argv(&matrix.run, &matrix.folder, "nobody", argv);
	run_wait_attached(&matrix.run, matrix.pid);
}

START_TEST(hooks_pass_calls_on_if_the_right_to_trace_is_lost)
{
	CLEANUP(run_deinit) struct run stop = {0};

	if (!may_users_trace()) {
		matrix_left_out("becomes undumpable, recorded by its own user",
				"users may not trace their own processes here");
		return;
	}
	record_as_nobody();
	matrix_keep(&matrix);
	child_expect(&matrix.target, "undumpable", "ok");
	matrix_keep(&matrix);
	ck_assert_int_eq(kill(matrix.run.child.pid, SIGINT), 0);
	run_finish(&matrix.run, 60);
	ck_assert_int_eq(matrix.run.status, 0);
	ck_assert_msg(strstr(matrix.run.err, "keeps our hooks, which pass calls on now"), "%s",
		      matrix.run.err);
	CLEANUP(json_freep)
	struct json *report =
		run_report_json(&matrix.folder, folder_file(&matrix.folder, "row.hap"));
	matrix_expect_kept(&matrix, report);
	matrix_keep(&matrix);
	matrix_check(&matrix);
	run_program(&stop, &matrix.folder, "stop -p %d", matrix.pid);
	ck_assert_msg(stop.status == 0, "%s", stop.err);
	ck_assert_ptr_nonnull(strstr(stop.out, "is clean"));
	procstate_expect_left(matrix.pid);
	matrix_expect_unharmed(&matrix);
	matrix_tell("becomes undumpable, recorded by its own user",
		    "works: hooks pass on, `stop` takes them out with the right to trace");
}
END_TEST

/* ---- daemons */

/* Who connects is the target from now on. It is our child since its parents are gone. */
static void daemon_accept(int listener)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);
	struct pollfd wait = {.fd = listener, .events = POLLIN};

	ck_assert_int_eq(child_wait(&matrix.target, 20000), 0);
	child_end(&matrix.target);
	ck_assert_int_eq(poll(&wait, 1, 60000), 1);
	matrix.target.input = accept(listener, NULL, NULL);
	matrix.target.output = dup(matrix.target.input);
	ck_assert_int_eq(getsockopt(matrix.target.input, SOL_SOCKET, SO_PEERCRED, &peer, &size), 0);
	matrix.pid = matrix.target.pid = peer.pid;
	ck_assert_str_eq(child_line(&matrix.target), "ok");
}

static int listen_at(struct sockaddr_un *address, const char *path)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	*address = (struct sockaddr_un){.sun_family = AF_UNIX};
	ck_assert_uint_lt(strlen(path), sizeof(address->sun_path));
	strcpy(address->sun_path, path);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)address, sizeof(*address)), 0);
	ck_assert_int_eq(listen(fd, 1), 0);
	return fd;
}

static void recording_ended_with_the_parent(void)
{
	run_finish(&matrix.run, 60);
	ck_assert_msg(matrix.run.status == 0, "ended with %d: %s", matrix.run.status,
		      matrix.run.err);
	ck_assert_msg(strstr(matrix.run.err, "forked children cleaned"), "%s", matrix.run.err);
	CLEANUP(json_freep)
	struct json *report =
		run_report_json(&matrix.folder, folder_file(&matrix.folder, "row.hap"));
	matrix_expect_kept(&matrix, report);
	ck_assert_str_eq(json_text(report, "end.reason"), "exited");
	ck_assert_int_eq(json_count(report, "end.status"), 0);
}

/* Two forks, setsid(), every descriptor closed: by the book. */
START_TEST(leaves_a_daemon_that_its_target_became)
{
	CLEANUP(closep) int listener = -1;
	struct sockaddr_un address;
	char command[160];

	prctl(PR_SET_CHILD_SUBREAPER, 1);
	listener = listen_at(&address, folder_file(&matrix.folder, "socket"));
	snprintf(command, sizeof(command), "daemonise %s", address.sun_path);
	matrix_start(&matrix, "changer");
	run_start(&matrix.run, &matrix.folder, "-p %d --exact -o %s", matrix.pid,
		  folder_file(&matrix.folder, "row.hap"));
	run_wait_attached(&matrix.run, matrix.pid);
	matrix_keep(&matrix);
	child_send(&matrix.target, command);
	daemon_accept(listener);
	recording_ended_with_the_parent();
	procstate_expect_left(matrix.pid);
	matrix_check(&matrix);
	/* And it can be attached to. */
	run_deinit(&matrix.run);
	unlink(folder_file(&matrix.folder, "row.hap"));
	matrix_look(&matrix);
	matrix.keeps = 0;
	matrix_row_works(&matrix, "becomes a daemon: the child runs on, all closed");
}
END_TEST

/*
 * Also when an attach opens descriptors for a moment, which are closed at once
 * and whose numbers are others' then. The attach may be refused for that.
 */
START_TEST(leaves_descriptors_alone_that_were_its_own)
{
	matrix_start(&matrix, "changer");
	child_expect(&matrix.target, "close", "ok");
	matrix_look(&matrix);
	child_expect(&matrix.target, "closing", "ok");
	for (int i = 0; i < tests_cycles(8); i++) {
		run_program(&matrix.run, &matrix.folder, "-p %d --exact --loader %s -d 0.1 -q",
			    matrix.pid, i % 2 ? "map" : "dlopen");
		ck_assert_msg(matrix.run.status == 0 || matrix.run.status == 1, "ended with %d: %s",
			      matrix.run.status, matrix.run.err);
		ck_assert_msg(matrix.run.status == 0 ||
				      strstr(matrix.run.err, "closes descriptors"),
			      "%s", matrix.run.err);
		run_deinit(&matrix.run);
		matrix_check(&matrix);
		procstate_expect_left(matrix.pid);
	}
	child_expect(&matrix.target, "closed", "ok");
	matrix_tell("a thread closes unknown descriptors all the time", "refused");
	matrix_row_works(&matrix, "and has ceased to");
}
END_TEST

/* ---- prefork servers */

#define WORKERS 6

static void worker_is_attached_to(pid_t worker)
{
	const char *file = folder_file(&matrix.folder, "worker.hap");
	struct run *run = &matrix.run;

	run_deinit(run);
	run_program(run, &matrix.folder, "-p %d --exact -d 1 -q -o %s", worker, file);
	ck_assert_msg(run->status == 0, "ended with %d: %s", run->status, run->err);
	CLEANUP(json_freep) struct json *report = run_report_json(&matrix.folder, file);
	ck_assert_uint_gt(json_count(report, "totals.alloc_count"), 100);
	procstate_expect_left(worker);
}

/* Half of the workers that are forked meanwhile die soon, half are there at the end and after. */
START_TEST(works_on_a_prefork_server)
{
	uint64_t forks;
	pid_t worker;

	matrix_start(&matrix, "prefork -w %d", WORKERS);
	matrix_record(&matrix, "");
	child_expect(&matrix.target, "count", "ok");
	matrix_check(&matrix);
	matrix_keep(&matrix);
	matrix_check(&matrix);
	child_expect(&matrix.target, "clean", "hooked");
	forks = strtoull(child_ask(&matrix.target, "counted"), NULL, 10);
	ck_assert_uint_ge(forks, WORKERS / 2);
	CLEANUP(json_freep) struct json *report = matrix_record_end(&matrix);
	matrix_expect_kept(&matrix, report);
	ck_assert_uint_eq(matrix_blocks(report, "fork_counted"), forks);
	ck_assert_uint_eq(matrix_blocks(report, "request_serve"), 0);
	child_expect(&matrix.target, "clean", "clean");
	matrix_check(&matrix);
	ck_assert_int_eq(sscanf(child_ask(&matrix.target, "stay"), "staying %d", &worker), 1);
	procstate_expect_left(worker);
	worker_is_attached_to(worker);
	child_expect(&matrix.target, "clean", "clean");
	matrix_expect_unharmed(&matrix);
	matrix_tell("prefork server, workers die and are replaced", "works");
}
END_TEST

START_TEST(prefork_server_is_not_harmed_by_attaches)
{
	static const char *const modes[] = {"--exact", "", "--interval 64K"};

	matrix_start(&matrix, "prefork -w %d", WORKERS);
	matrix.ignore |= PROCSTATE_FILTER;
	for (int i = 0; i < tests_cycles(3); i++) {
		matrix_cycle(&matrix, modes[i % 3]);
		matrix_check(&matrix);
		child_expect(&matrix.target, "clean", "clean");
	}
	matrix_expect_unharmed(&matrix);
}
END_TEST

Suite *attach_changing_suite(void)
{
	Suite *suite = suite_create("attach_changing");
	TCase *tcase = tcase_create("changing"), *prefork = tcase_create("prefork");
	TCase *daemons = tcase_create("daemons"), *rights = tcase_create("rights");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 90);
	tcase_add_loop_test(tcase, works_while_it_changes, 0, sizeof(rows) / sizeof(rows[0]));
	tcase_add_test(tcase, works_while_its_root_changes);
	tcase_add_test(tcase, ends_when_another_program_begins);
	suite_add_tcase(suite, tcase);

	tcase_add_checked_fixture(rights, setup, teardown);
	tcase_set_timeout(rights, 60);
	tcase_add_test(rights, hooks_pass_calls_on_if_the_right_to_trace_is_lost);
	suite_add_tcase(suite, rights);

	tcase_add_checked_fixture(daemons, setup, teardown);
	tcase_set_timeout(daemons, 120);
	tcase_add_test(daemons, leaves_a_daemon_that_its_target_became);
	tcase_add_test(daemons, leaves_descriptors_alone_that_were_its_own);
	suite_add_tcase(suite, daemons);

	tcase_add_checked_fixture(prefork, setup, teardown);
	tcase_set_timeout(prefork, 90);
	tcase_add_test(prefork, works_on_a_prefork_server);
	tcase_add_test(prefork, prefork_server_is_not_harmed_by_attaches);
	suite_add_tcase(suite, prefork);
	return suite;
}
