// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/preflight.h"
#include "injector/procfacts.h"
#include "resolver/cleanup.h"
#include "tests/subject.h"

#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static struct subject subject;
static struct preflight preflight;
static pid_t other; /* a process of the test's own making */

static const struct preflight_options options = {
	.virtual_size = 2ull << 30,
	.resident_size = 1 << 20,
};

static void teardown(void)
{
	preflight_deinit(&preflight);
	subject_end(&subject);
	if (other) {
		kill(other, SIGKILL);
		waitpid(other, NULL, 0);
	}
	other = 0;
}

/* A child that prepares itself by @prepare, tells that it is ready, and waits. */
static void fork_other(void (*prepare)(void))
{
	int ready[2];
	char byte;

	ck_assert_int_eq(pipe(ready), 0);
	other = fork();
	ck_assert_int_ge(other, 0);
	if (other == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		ck_assert_int_eq(write(ready[1], "r", 1), 1);
		if (prepare)
			prepare();
		for (;;)
			pause();
	}
	ck_assert_int_eq(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	close(ready[1]);
}

static void expect_error(struct error *err, enum error_code code, const char *message,
			 const char *hint)
{
	ck_assert_ptr_nonnull(err);
	ck_assert_msg(strstr(error_message(err), message) != NULL, "%s", error_message(err));
	ck_assert_int_eq(error_code(err), code);
	ck_assert_ptr_nonnull(error_hint_text(err));
	ck_assert_msg(strstr(error_hint_text(err), hint) != NULL, "%s", error_hint_text(err));
	error_free(err);
}

/* Wait until the check gives that error: the other process needs its time. */
static void expect_error_soon(pid_t pid, enum error_code code, const char *message,
			      const char *hint)
{
	for (int i = 0;; i++) {
		struct error *err = preflight_process(pid, &options, &preflight);

		if ((err && strstr(error_message(err), message)) || i == 500) {
			expect_error(err, code, message, hint);
			return;
		}
		error_free(err);
		preflight_deinit(&preflight);
		usleep(10000);
	}
}

/* ---- what it is */

START_TEST(collects_facts)
{
	subject_start(&subject, "slots_now");
	assert_ok(preflight_process(subject.child.pid, &options, &preflight));
	ck_assert_str_eq(preflight.comm, "slots_now");
	ck_assert(strstr(preflight.exe, "/targets/slots_now") != NULL);
	ck_assert(strstr(preflight.cmdline, "/targets/slots_now") != NULL);
	ck_assert_uint_eq(preflight.uid, getuid());
	ck_assert_uint_eq(preflight.threads, 1);
	ck_assert_int_eq(preflight.ns_pid, subject.child.pid);
	ck_assert_uint_eq(preflight.seccomp, 0);
	ck_assert_uint_gt(preflight.rss_bytes, 0);
	ck_assert_uint_gt(preflight.map_count, 10);
	ck_assert_uint_gt(preflight.start_time, 0);
	ck_assert(!preflight.other_pid_ns);
	assert_ok(preflight_image(&subject.memory, &subject.modules, &preflight));
	ck_assert_int_eq(preflight.libc, LIBC_GLIBC);
	subject_plan(&subject);
	assert_ok(preflight_allocator(&subject.modules, &subject.slots, &preflight));
	ck_assert_str_eq(preflight.allocator, "glibc");
}
END_TEST

START_TEST(names_a_preloaded_allocator)
{
	setenv("LD_PRELOAD", "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2", 1);
	subject_start(&subject, "slots_now");
	unsetenv("LD_PRELOAD");
	subject_plan(&subject);
	assert_ok(preflight_allocator(&subject.modules, &subject.slots, &preflight));
	ck_assert_str_eq(preflight.allocator, "jemalloc");
	ck_assert(strstr(preflight.allocator_path, "libjemalloc") != NULL);
}
END_TEST

START_TEST(refuses_a_number_that_is_no_process)
{
	expect_error(preflight_process(0x3fffffff, &options, &preflight), ERROR_NOT_FOUND,
		     "no process 1073741823", "pgrep");
}
END_TEST

static void *wait_forever(void *arg)
{
	*(pid_t *)arg = (pid_t)syscall(SYS_gettid);
	for (;;)
		pause();
	return NULL;
}

START_TEST(refuses_a_thread_and_names_its_process)
{
	pid_t volatile tid = 0;
	char hint[64];
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, wait_forever, (void *)&tid), 0);
	while (!tid)
		usleep(1000);
	snprintf(hint, sizeof(hint), "heapattach -p %d", getpid());
	expect_error(preflight_process(tid, &options, &preflight), ERROR_UNSUPPORTED,
		     "is a thread of process", hint);
}
END_TEST

static void exit_now(void)
{
	_exit(0);
}

START_TEST(refuses_a_zombie)
{
	fork_other(exit_now);
	expect_error_soon(other, ERROR_GONE, "only its parent has not noticed", "parent");
}
END_TEST

START_TEST(refuses_a_kernel_thread)
{
	struct procfacts facts;
	struct error *err = procfacts_read("/proc", 2, &facts);

	if (err || !facts.kernel_thread) { /* a container shows none */
		error_free(err);
		ck_assert(procfacts_parse_stat("7 (a) b) S 2 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 "
					       "1 0 99 0",
					       &facts));
		ck_assert(facts.kernel_thread);
		ck_assert_uint_eq(facts.start_time, 99);
		return;
	}
	expect_error(preflight_process(2, &options, &preflight), ERROR_UNSUPPORTED,
		     "is a kernel thread", "heap");
}
END_TEST

START_TEST(refuses_a_static_program)
{
	subject_start(&subject, "storm_static");
	assert_ok(preflight_process(subject.child.pid, &options, &preflight));
	expect_error(preflight_image(&subject.memory, &subject.modules, &preflight),
		     ERROR_UNSUPPORTED, "statically linked", "dynamically");
}
END_TEST

START_TEST(refuses_a_program_built_with_a_sanitizer)
{
	/* The allocator of a sanitizer would see blocks come and go behind its back. */
	setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
	subject_start(&subject, "slots_asan");
	expect_error(preflight_image(&subject.memory, &subject.modules, &preflight),
		     ERROR_UNSUPPORTED, "AddressSanitizer", "-fsanitize");
}
END_TEST

static void trace_parent_of_nobody(void)
{
	ptrace(PTRACE_TRACEME, 0, 0, 0);
}

START_TEST(refuses_a_traced_process_and_names_the_tracer)
{
	char tracer[64];

	fork_other(trace_parent_of_nobody);
	snprintf(tracer, sizeof(tracer), "traced by process %d", getpid());
	expect_error_soon(other, ERROR_BUSY, tracer, "one tracer");
}
END_TEST

static void enter_strict_seccomp(void)
{
	prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
	for (;;)
		;
}

START_TEST(refuses_strict_seccomp)
{
	fork_other(enter_strict_seccomp);
	expect_error_soon(other, ERROR_UNSUPPORTED, "strict seccomp", "PR_SET_SECCOMP");
}
END_TEST

#if !TESTS_ASAN
static void limit_address_space(void)
{
	const struct rlimit limit = {1u << 30, 1u << 30};

	setrlimit(RLIMIT_AS, &limit);
}

START_TEST(refuses_where_the_tables_would_not_fit)
{
	fork_other(limit_address_space);
	expect_error_soon(other, ERROR_UNSUPPORTED, "RLIMIT_AS", "prlimit");
}
END_TEST

/* They would fit, but the program's own allocations would fail soon after. */
START_TEST(leaves_half_of_the_addresses_to_the_target)
{
	struct preflight_options part = options;

	fork_other(limit_address_space);
	expect_error_soon(other, ERROR_UNSUPPORTED, "RLIMIT_AS", "prlimit");
	part.virtual_size = 700u << 20;
	expect_error(preflight_process(other, &part, &preflight), ERROR_UNSUPPORTED,
		     "heapattach needs 700", "prlimit");
	part.virtual_size = 64u << 20;
	assert_ok(preflight_process(other, &part, &preflight));
}
END_TEST
#endif

START_TEST(refuses_when_memory_is_short)
{
	struct preflight_options huge = options;

	huge.resident_size = 1ull << 50;
	subject_start(&subject, "slots_now");
	expect_error(preflight_process(subject.child.pid, &huge, &preflight), ERROR_MEMORY,
		     "are needed", "memory");
}
END_TEST

/* ---- a session of ours */

/* Let the target's entry object say that a heapattach with this mutex word is at work. */
static void claim_session(uint32_t owner)
{
	CLEANUP(freep) char *path = tests_build_path("payload/entry.so");
	uint32_t state = HA_STATE_ON;
	uint64_t data, shm;
	char line[4096];

	subject_start(&subject, "slots_now");
	snprintf(line, sizeof(line), "entry %s", path);
	data = strtoull(child_ask(&subject.child, line), NULL, 16) + HA_ENTRY_DATA;
	subject_update(&subject);
	/* What is read of shm, put into entry's spare lines. */
	shm = data + offsetof(struct ha_entry, lines) + 4096 - offsetof(struct ha_shm, owner);
	assert_ok(target_write(subject.target, shm + offsetof(struct ha_shm, owner), &owner, 4));
	assert_ok(target_write(subject.target, data + offsetof(struct ha_entry, shm), &shm, 8));
	assert_ok(target_write(subject.target, data + offsetof(struct ha_entry, state), &state, 4));
}

START_TEST(refuses_while_another_heapattach_records)
{
	claim_session(4711);
	expect_error(preflight_image(&subject.memory, &subject.modules, &preflight), ERROR_BUSY,
		     "heapattach process 4711", "kill -INT 4711");
}
END_TEST

START_TEST(accepts_what_a_dead_heapattach_left)
{
	claim_session(4711 | HA_OWNER_DIED);
	assert_ok(preflight_image(&subject.memory, &subject.modules, &preflight));
}
END_TEST

/* ---- permissions, as another user */

#define NOBODY 65534

/* Run the check as nobody; the error's text comes back through a pipe. */
static void denied_as_nobody(pid_t pid, char text[1024])
{
	int out[2], status;
	pid_t child;
	ssize_t got;

	ck_assert_int_eq(pipe(out), 0);
	child = fork();
	if (child == 0) {
		struct error *err;

		if (setgid(NOBODY) != 0 || setuid(NOBODY) != 0)
			_exit(2);
		err = preflight_process(pid, &options, &preflight);
		if (err)
			dprintf(out[1], "%d|%s|%s", error_code(err), error_message(err),
				error_hint_text(err) ? error_hint_text(err) : "");
		_exit(err ? 0 : 1);
	}
	close(out[1]);
	got = read(out[0], text, 1023);
	text[got > 0 ? got : 0] = '\0';
	close(out[0]);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(WEXITSTATUS(status), 0);
}

START_TEST(says_whose_process_it_is)
{
	char text[1024], expected[64];

	if (geteuid() != 0)
		return;
	subject_start(&subject, "slots_now");
	denied_as_nobody(subject.child.pid, text);
	snprintf(expected, sizeof(expected), "%d|process %d (slots_now) belongs to user 'root'",
		 ERROR_DENIED, subject.child.pid);
	ck_assert_msg(strncmp(text, expected, strlen(expected)) == 0, "%s", text);
	ck_assert_msg(strstr(text, "you are 'nobody'") != NULL, "%s", text);
	ck_assert_msg(strstr(text, "run: sudo heapattach -p") != NULL, "%s", text);
}
END_TEST

static void become_undumpable_nobody(void)
{
	if (setgid(NOBODY) != 0 || setuid(NOBODY) != 0)
		_exit(2);
	prctl(PR_SET_DUMPABLE, 0);
}

START_TEST(says_that_a_process_is_undumpable)
{
	char text[1024];

	if (geteuid() != 0)
		return;
	fork_other(become_undumpable_nobody);
	for (int left = 500; left > 0; left--) {
		denied_as_nobody(other, text);
		if (strstr(text, "undumpable"))
			return;
		usleep(10000);
	}
	ck_abort_msg("%s", text);
}
END_TEST

/* ---- what this machine may not have, by a /proc of our own */

static struct folder fake;
static struct preflight_options fake_options;

/* The target's files, with this ptrace_scope, executable, and number of /proc/self. */
static void fake_proc_create(const char *scope, const char *exe, int self)
{
	static const char *const names[] = {"status", "stat",	"comm", "cmdline",
					    "auxv",   "limits", "maps"};
	int pid;

	subject_start(&subject, "slots_now");
	pid = subject.child.pid;
	folder_create(&fake);
	free(command_run(&fake, NULL, 10, "mkdir -p %d/ns sys/kernel/yama", pid));
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		free(command_run(&fake, NULL, 10, "cp /proc/%d/%s %d/%s", pid, names[i], pid,
				 names[i]));
	free(command_run(&fake, NULL, 10, "touch %d/mem", pid));
	free(command_run(&fake, NULL, 10, "ln -s %s %d/exe", exe, pid));
	free(command_run(&fake, NULL, 10, "ln -s %d self", self));
	folder_write(&fake, "sys/kernel/yama/ptrace_scope", scope);
	fake_options = options;
	fake_options.proc = fake.path;
}

START_TEST(names_yamas_value)
{
	fake_proc_create("3\n", "/bin/sh", getpid());
	expect_error(preflight_process(subject.child.pid, &fake_options, &preflight), ERROR_DENIED,
		     "ptrace_scope is 3", "reboot");
	ck_assert_int_eq(preflight.yama, 3);
	folder_remove(&fake);
}
END_TEST

START_TEST(refuses_a_proc_of_another_namespace)
{
	fake_proc_create("0\n", "/bin/sh", 1);
	expect_error(preflight_process(subject.child.pid, &fake_options, &preflight),
		     ERROR_UNSUPPORTED, "another PID namespace", "mount");
	folder_remove(&fake);
}
END_TEST

START_TEST(refuses_programs_of_other_machines)
{
	char header[81];

	memset(header, '.', sizeof(header));
	memcpy(header, "\177ELF\1\1\1", 7);
	header[80] = '\0';
	fake_proc_create("0\n", "../program", getpid());
	folder_write(&fake, "program", header);
	expect_error(preflight_process(subject.child.pid, &fake_options, &preflight),
		     ERROR_UNSUPPORTED, "32-bit", "64-bit");
	preflight_deinit(&preflight);
	header[4] = 2;
	folder_write(&fake, "program", header);
	expect_error(preflight_process(subject.child.pid, &fake_options, &preflight),
		     ERROR_UNSUPPORTED, "another machine", "built for that machine");
	folder_remove(&fake);
}
END_TEST

/* ---- parsing */

START_TEST(parses_names_that_try_to_confuse)
{
	struct procfacts facts = {0};

	ck_assert(procfacts_parse_stat("12 (a) R 1 (b) S 5 5 5 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 "
				       "0 4242 0",
				       &facts));
	ck_assert_uint_eq(facts.start_time, 4242);
	ck_assert(!facts.kernel_thread);
	ck_assert(!procfacts_parse_stat("12 (a", &facts));
	ck_assert(!procfacts_parse_stat("", &facts));
	ck_assert(!procfacts_parse_stat("12 (a) S 1", &facts));
	procfacts_parse_status("Name:\tx\nState:\tT (stopped)\nTgid:\t7\nNSpid:\t7\t3\t1\n"
			       "Uid:\t1\t2\t3\t4\nThreads:\t9\nVmRSS:\t 12 kB\n",
			       &facts);
	ck_assert_int_eq(facts.state, 'T');
	ck_assert_int_eq(facts.ns_pid, 1);
	ck_assert_uint_eq(facts.uid[2], 3);
	ck_assert_uint_eq(facts.threads, 9);
	ck_assert_uint_eq(facts.rss_bytes, 12 * 1024);
}
END_TEST

Suite *preflight_suite(void)
{
	Suite *suite = suite_create("preflight");
	TCase *tcase = tcase_create("process");

	tcase_add_checked_fixture(tcase, NULL, teardown);
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, collects_facts);
	tcase_add_test(tcase, names_a_preloaded_allocator);
	tcase_add_test(tcase, refuses_a_number_that_is_no_process);
	tcase_add_test(tcase, refuses_a_thread_and_names_its_process);
	tcase_add_test(tcase, refuses_a_zombie);
	tcase_add_test(tcase, refuses_a_kernel_thread);
	tcase_add_test(tcase, refuses_a_static_program);
	tcase_add_test(tcase, refuses_a_program_built_with_a_sanitizer);
	tcase_add_test(tcase, refuses_a_traced_process_and_names_the_tracer);
	tcase_add_test(tcase, refuses_strict_seccomp);
#if !TESTS_ASAN
	tcase_add_test(tcase, refuses_where_the_tables_would_not_fit);
	tcase_add_test(tcase, leaves_half_of_the_addresses_to_the_target);
#endif
	tcase_add_test(tcase, refuses_when_memory_is_short);
	tcase_add_test(tcase, refuses_while_another_heapattach_records);
	tcase_add_test(tcase, accepts_what_a_dead_heapattach_left);
	tcase_add_test(tcase, says_whose_process_it_is);
	tcase_add_test(tcase, says_that_a_process_is_undumpable);
	tcase_add_test(tcase, names_yamas_value);
	tcase_add_test(tcase, refuses_a_proc_of_another_namespace);
	tcase_add_test(tcase, refuses_programs_of_other_machines);
	tcase_add_test(tcase, parses_names_that_try_to_confuse);
	suite_add_tcase(suite, tcase);
	return suite;
}
