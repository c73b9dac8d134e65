/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/e2e.h"

#include "payload/protocol.h"
#include "resolver/cleanup.h"
#include "resolver/maps.h"
#include "tests/procstate.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ARGUMENTS_MAX 40

/* ---- folder */

bool folder_try_create(struct folder *ret)
{
	const char *parent = getenv(FOLDER_PARENT);

	snprintf(ret->path, sizeof(ret->path), "%s/heapattach-XXXXXX", parent ? parent : "/tmp");
	/* Servers run as users of their own. */
	return mkdtemp(ret->path) && !chmod(ret->path, 0755);
}

void folder_create(struct folder *ret)
{
	ck_assert(folder_try_create(ret));
}

static int entry_remove(const char *path, const struct stat *info, int kind, struct FTW *walk)
{
	remove(path);
	return 0;
}

void folder_remove(struct folder *folder)
{
	if (folder->path[0])
		nftw(folder->path, entry_remove, 16, FTW_DEPTH | FTW_PHYS);
	folder->path[0] = '\0';
}

const char *folder_file(const struct folder *folder, const char *format, ...)
{
	static char buffers[8][256];
	static unsigned int next;
	char *buffer = buffers[next++ % 8];
	int length = snprintf(buffer, sizeof(buffers[0]), "%s/", folder->path);
	va_list args;

	va_start(args, format);
	vsnprintf(buffer + length, sizeof(buffers[0]) - (size_t)length, format, args);
	va_end(args);
	return buffer;
}

void folder_write(const struct folder *folder, const char *name, const char *text)
{
	CLEANUP(fclosep) FILE *file = fopen(folder_file(folder, "%s", name), "we");

	ck_assert_ptr_nonnull(file);
	ck_assert_int_ge(fputs(text, file), 0);
}

/* ---- child */

/* Check handles these by signalling the whole group of the test. */
static void signals_reset(const sigset_t *mask)
{
	static const int handled[] = {SIGINT, SIGTERM, SIGALRM, SIGPIPE};

	for (size_t i = 0; i < sizeof(handled) / sizeof(handled[0]); i++)
		signal(handled[i], SIG_DFL);
	sigprocmask(SIG_SETMASK, mask, NULL);
}

static void child_exec(const struct folder *folder, const char *user, const char *const argv[],
		       int in, int out, const char *err_path)
{
	const struct passwd *account = user ? getpwnam(user) : NULL;
	int err = open(err_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);

	if (err < 0 || dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0 ||
	    chdir(folder->path))
		_exit(126);
	if (user && (!account || setgid(account->pw_gid) || setuid(account->pw_uid)))
		_exit(125);
	/* After setuid(), which clears it. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	execvp(argv[0], (char *const *)argv);
	_exit(127);
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* We and runs of the program have precedence: targets are given back what is usual. */
static bool ahead;
static int usual_niceness;

void runs_come_first(void)
{
	const struct sched_param lowest = {.sched_priority = 1};

	if (!ahead)
		usual_niceness = getpriority(PRIO_PROCESS, 0);
	ahead = true;
	/* Without the right to do so they take their turn. */
	if (sched_setscheduler(0, SCHED_RR, &lowest))
		setpriority(PRIO_PROCESS, 0, -20);
}

static void come_after(void)
{
	const struct sched_param none = {.sched_priority = 0};

	if (!ahead)
		return;
	sched_setscheduler(0, SCHED_OTHER, &none);
	setpriority(PRIO_PROCESS, 0, usual_niceness);
}

static void child_start_to(struct child *ret, const struct folder *folder, const char *user,
			   const char *const argv[], int out, const char *err_path, bool ordinary)
{
	sigset_t all, mask;
	int in[2];

	ck_assert_int_eq(pipe2(in, O_CLOEXEC), 0);
	ret->have = 0;
	ret->output = -1;
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, &mask);
	ret->pid = fork();
	if (ret->pid == 0) {
		signals_reset(&mask);
		if (ordinary)
			come_after();
		child_exec(folder, user, argv, in[0], out, err_path);
	}
	sigprocmask(SIG_SETMASK, &mask, NULL);
	ck_assert_int_ge(ret->pid, 0);
	close(in[0]);
	ret->input = in[1];
}

void child_start(struct child *ret, const struct folder *folder, const char *user,
		 const char *const argv[])
{
	int out[2];

	ck_assert_int_eq(pipe2(out, O_CLOEXEC), 0);
	child_start_to(ret, folder, user, argv, out[1],
		       folder_file(folder, "%s.stderr", base_name(argv[0])), true);
	close(out[1]);
	ret->output = out[0];
}

/* Split @line at its spaces, in place. */
static void words_split(char *line, const char *argv[ARGUMENTS_MAX], size_t count)
{
	char *save, *word = strtok_r(line, " ", &save);

	for (; word; word = strtok_r(NULL, " ", &save)) {
		ck_assert_uint_lt(count + 1, ARGUMENTS_MAX);
		argv[count++] = word;
	}
	argv[count] = NULL;
}

static char *format_line(const char *format, va_list args)
{
	char *line;

	ck_assert_int_ge(vasprintf(&line, format, args), 0);
	return line;
}

void child_start_target(struct child *ret, const struct folder *folder, const char *command, ...)
{
	const char *argv[ARGUMENTS_MAX];
	va_list args;

	va_start(args, command);
	CLEANUP(freep) char *line = format_line(command, args);
	va_end(args);
	words_split(line, argv, 0);
	CLEANUP(freep) char *path = tests_build_path("targets/%s", argv[0]);
	argv[0] = path;
	child_start(ret, folder, NULL, argv);
	ck_assert_str_eq(child_line(ret), "ready");
}

const char *child_line(struct child *child)
{
	static char line[sizeof(child->buffer)];
	double deadline = now_ms() + 240000;
	char *end;

	while (!(end = memchr(child->buffer, '\n', child->have))) {
		struct pollfd wait = {.fd = child->output, .events = POLLIN};
		ssize_t got;

		ck_assert_msg(now_ms() < deadline, "process %d does not answer", child->pid);
		if (poll(&wait, 1, 100) <= 0)
			continue;
		got = read(child->output, child->buffer + child->have,
			   sizeof(child->buffer) - child->have);
		ck_assert_msg(got > 0, "process %d ended: %d", child->pid, child_wait(child, 1000));
		child->have += (size_t)got;
	}
	*end = '\0';
	strcpy(line, child->buffer);
	child->have -= (size_t)(end + 1 - child->buffer);
	memmove(child->buffer, end + 1, child->have);
	return line;
}

void child_send(struct child *child, const char *line)
{
	ck_assert_int_gt(dprintf(child->input, "%s\n", line), 0);
}

const char *child_ask(struct child *child, const char *line)
{
	child_send(child, line);
	return child_line(child);
}

void child_expect(struct child *child, const char *line, const char *answer)
{
	const char *got = child_ask(child, line);

	ck_assert_msg(strcmp(got, answer) == 0, "asked \"%s\", process %d answers \"%s\"", line,
		      child->pid, got);
}

int child_wait(struct child *child, unsigned int timeout_ms)
{
	double deadline = now_ms() + timeout_ms;
	int status;

	while (child->pid) {
		pid_t ended = waitpid(child->pid, &status, WNOHANG);

		if (ended == child->pid) {
			child->pid = 0;
			return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
		}
		ck_assert_msg(ended == 0, "waitpid %d: %s", child->pid, strerror(errno));
		if (now_ms() >= deadline)
			return -1;
		wait_ms(2);
	}
	return -1;
}

void child_expect_clean_end(struct child *child)
{
	child_expect(child, "stop", "ended");
	ck_assert_int_eq(child_wait(child, 20000), 0);
}

void child_end(struct child *child)
{
	if (child->pid) {
		kill(child->pid, SIGKILL);
		waitpid(child->pid, NULL, 0);
	}
	if (child->input > 0)
		close(child->input);
	if (child->output > 0)
		close(child->output);
	memset(child, 0, sizeof(*child));
}

/* ---- runs to the end */

static void run_start_as(struct run *ret, const struct folder *folder, const char *user,
			 const char *const argv[], bool ordinary)
{
	static unsigned int number;
	int out;

	memset(ret, 0, sizeof(*ret));
	snprintf(ret->out_path, sizeof(ret->out_path), "%s/run-%u.out", folder->path, ++number);
	snprintf(ret->err_path, sizeof(ret->err_path), "%s/run-%u.err", folder->path, number);
	out = open(ret->out_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	ck_assert_int_ge(out, 0);
	child_start_to(&ret->child, folder, user, argv, out, ret->err_path, ordinary);
	close(out);
}

void run_start_argv(struct run *ret, const struct folder *folder, const char *user,
		    const char *const argv[])
{
	run_start_as(ret, folder, user, argv, false);
}

void run_finish(struct run *run, unsigned int timeout_s)
{
	run->status = child_wait(&run->child, timeout_s * 1000);
	run->out = tests_read_file(run->out_path);
	run->err = tests_read_file(run->err_path);
	ck_assert_msg(run->status >= 0, "still running after %u s; it wrote:\n%s%s", timeout_s,
		      run->out, run->err);
}

void run_deinit(struct run *run)
{
	child_end(&run->child);
	free(run->out);
	free(run->err);
	memset(run, 0, sizeof(*run));
}

char *command_run(const struct folder *folder, const char *user, unsigned int timeout_s,
		  const char *command, ...)
{
	CLEANUP(run_deinit) struct run run = {0};
	const char *argv[ARGUMENTS_MAX];
	va_list args;

	va_start(args, command);
	CLEANUP(freep) char *line = format_line(command, args);
	va_end(args);
	words_split(line, argv, 0);
	run_start_as(&run, folder, user, argv, true);
	run_finish(&run, timeout_s);
	ck_assert_msg(run.status == 0, "%s ended with %d:\n%s%s", argv[0], run.status, run.out,
		      run.err);
	return take(run.out);
}

static void run_start_line(struct run *ret, const struct folder *folder, char *line)
{
	CLEANUP(freep) char *program = tests_build_path("heapattach");
	const char *argv[ARGUMENTS_MAX] = {program};

	words_split(line, argv, 1);
	run_start_argv(ret, folder, NULL, argv);
}

void run_start(struct run *ret, const struct folder *folder, const char *arguments, ...)
{
	va_list args;

	va_start(args, arguments);
	CLEANUP(freep) char *line = format_line(arguments, args);
	va_end(args);
	run_start_line(ret, folder, line);
}

void run_program(struct run *ret, const struct folder *folder, const char *arguments, ...)
{
	va_list args;

	va_start(args, arguments);
	CLEANUP(freep) char *line = format_line(arguments, args);
	va_end(args);
	run_start_line(ret, folder, line);
	run_finish(ret, 120);
}

struct json *run_report_json(const struct folder *folder, const char *recording)
{
	CLEANUP(run_deinit) struct run run = {0};

	run_program(&run, folder, "report %s --format json", recording);
	ck_assert_msg(run.status == 0, "report ended with %d: %s", run.status, run.err);
	return json_parse(run.out);
}

struct json *run_interrupt_json(struct run *run, const struct folder *folder, const char *file)
{
	ck_assert_int_eq(kill(run->child.pid, SIGINT), 0);
	run_finish(run, 120);
	ck_assert_msg(run->status == 0, "ended with %d: %s", run->status, run->err);
	return run_report_json(folder, file);
}

/* Entry's own word: hooks record. T may have been let go a moment before. */
static bool is_recording(pid_t pid)
{
	CLEANUP(maps_deinit) struct maps maps = {0};
	uint32_t state = HA_STATE_OFF;
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/mem", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	error_free(maps_read(pid, &maps));
	for (size_t i = 0; i < maps.count && state != HA_STATE_ON; i++) {
		uint64_t at = maps.map[i].start + HA_ENTRY_DATA + offsetof(struct ha_entry, state);

		if (maps.map[i].exec && strstr(maps.map[i].path, "memfd:heapattach-entry") &&
		    pread(fd, &state, sizeof(state), (off_t)at) != sizeof(state))
			state = HA_STATE_OFF;
	}
	close(fd);
	return state == HA_STATE_ON;
}

bool run_try_attached(struct run *run, pid_t pid)
{
	uint64_t deadline = now_ms() + 60000;

	/* T is traced from before shared memory is mapped until the slots are written, or restores
	 * itself. */
	while (!procstate_mapped(pid, "memfd:heapattach (") ||
	       procstate_status(pid, "TracerPid", 10) || !is_recording(pid)) {
		siginfo_t ended = {0};

		ck_assert_msg(now_ms() < deadline, "not attached to %d after a minute", pid);
		waitid(P_PID, (id_t)run->child.pid, &ended, WEXITED | WNOHANG | WNOWAIT);
		if (ended.si_pid)
			return false;
		wait_ms(2);
	}
	return true;
}

void run_wait_attached(struct run *run, pid_t pid)
{
	if (run_try_attached(run, pid))
		return;
	run_finish(run, 1);
	ck_abort_msg("not attached to %d; ended with %d and wrote:\n%s%s", pid, run->status,
		     run->out, run->err);
}
