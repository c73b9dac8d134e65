// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "injector/prefault.h"
#include "resolver/cleanup.h"

/* Above ordinary work, so that T is not kept stopped while others run. */
#define WORKER_NICE (-20)

/* What a child says when it is done; in shared memory. */
struct worker_report {
	int finished;
	int failed;
	enum error_code code;
	int errnum;
	char message[1024];
	char hint[512];
};

static void report_fill(struct worker_report *report, const struct error *err)
{
	if (err) {
		report->failed = 1;
		report->code = error_code(err);
		report->errnum = error_errno(err);
		strncpy(report->message, error_message(err), sizeof(report->message) - 1);
		if (error_hint_text(err))
			strncpy(report->hint, error_hint_text(err), sizeof(report->hint) - 1);
	}
	__atomic_store_n(&report->finished, 1, __ATOMIC_RELEASE);
}

static struct error *report_read(const struct worker_report *report)
{
	struct error *err;

	if (!report->failed)
		return NULL;
	err = error_create(report->code, "%s", report->message);
	return report->hint[0] ? error_hint(err, "%s", report->hint) : err;
}

/*
 * T is stopped while we wait for a processor: before all ordinary work, since
 * niceness counts only among the tasks of one session (sched(7), autogroup) and
 * one control group. The lowest of the real-time priorities is enough. Where
 * none is allowed, niceness has to do.
 */
static void be_first(void)
{
	const struct sched_param lowest = {.sched_priority = 1};

	sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &lowest);
}

/*
 * T has been let go, and needs the processor that we are bound to: to end takes
 * milliseconds, for which we are ordinary again, and run anywhere.
 */
static void be_ordinary(void)
{
	const struct sched_param none = {.sched_priority = 0};
	cpu_set_t all;

	sched_setscheduler(0, SCHED_OTHER, &none);
	setpriority(PRIO_PROCESS, 0, 0);
	memset(&all, 0xff, sizeof(all));
	sched_setaffinity(0, sizeof(all), &all);
}

/*
 * The program ignores or handles signals; a child with T in its hands takes
 * none. Nor does it end with the program (PR_SET_PDEATHSIG): killed in the
 * middle of a call on T it would leave T there, while on its own it is done
 * within its time-outs, and hooks of a dead program pass through.
 */
static void child_prepare(void)
{
	sigset_t all;
	int fd;

	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, NULL);
	setsid();
	setpriority(PRIO_PROCESS, 0, WORKER_NICE);
	fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
	if (fd >= 0) {
		if (write(fd, "-1000", 5) < 0)
			errno = 0; /* not permitted: no harm done */
		close(fd);
	}
	prefault_all(getppid());
	be_first();
}

static struct error *child_wait(pid_t child, int pidfd, unsigned int timeout_ms,
				const struct worker_report *report)
{
	struct pollfd poll_fd = {.fd = pidfd, .events = POLLIN};
	struct error *err = NULL;
	int status, rc;

	do {
		rc = poll(&poll_fd, 1, (int)timeout_ms);
	} while (rc < 0 && errno == EINTR);
	if (rc <= 0) {
		kill(child, SIGKILL);
		err = error_create(ERROR_TIMEOUT,
				   "the worker process did not finish within %u ms and was ended",
				   timeout_ms);
	}
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	if (__atomic_load_n(&report->finished, __ATOMIC_ACQUIRE)) {
		error_free(err);
		return report_read(report);
	}
	if (err)
		return err;
	if (WIFSIGNALED(status))
		return error_create(ERROR_FAULT, "the worker process was ended by signal %d",
				    WTERMSIG(status));
	return error_create(ERROR_FAULT, "the worker process ended without a result");
}

struct error *worker_run(worker_function *function, void *context, unsigned int timeout_ms)
{
	struct worker_report *report;
	struct error *err;
	pid_t child;
	int pidfd;

	report = mmap(NULL, sizeof(*report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (report == MAP_FAILED)
		return error_os(errno, "cannot start a worker process");
	child = fork();
	if (child == 0) {
		struct error *result;

		child_prepare();
		result = function(context);
		be_ordinary();
		report_fill(report, result);
		_exit(0);
	}
	if (child < 0) {
		err = error_os(errno, "cannot start a worker process");
		munmap(report, sizeof(*report));
		return err;
	}
	pidfd = (int)syscall(SYS_pidfd_open, child, 0);
	err = child_wait(child, pidfd, timeout_ms, report);
	if (pidfd >= 0)
		close(pidfd);
	munmap(report, sizeof(*report));
	return err;
}
