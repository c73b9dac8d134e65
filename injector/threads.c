// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/threads.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "resolver/cleanup.h"

/* include/linux/sched.h; io_uring's threads had the first before Linux 6.4, now the second too. */
#define PF_EXITING     0x00000004u
#define PF_IO_WORKER   0x00000010u
#define PF_WQ_WORKER   0x00000020u
#define PF_USER_WORKER 0x00004000u
#define PF_KTHREAD     0x00200000u
#define PF_KERNEL      (PF_IO_WORKER | PF_WQ_WORKER | PF_USER_WORKER | PF_KTHREAD)

/* A thread with less CPU time than this many clock ticks has hardly run: it may have no arena. */
#define HARDLY_RUN_TICKS 1u

#define STATUS_MAX	 8192u

/* Read a small file of one thread whole, NUL-terminated. */
static struct error *read_file(const struct target *target, pid_t tid, const char *name, char *buf,
			       size_t size)
{
	CLEANUP(closep) int fd = -1;
	char path[80];
	ssize_t got;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/%s", target_pid(target), tid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	got = fd < 0 ? -1 : read(fd, buf, size - 1);
	if (got < 0 && (errno == ENOENT || errno == ESRCH))
		return error_create(ERROR_GONE, "thread %d of process %d has ended", tid,
				    target_pid(target));
	if (got < 0)
		return target_denied(error_os(errno, "cannot read %s", path));
	buf[got] = '\0';
	return NULL;
}

/* "TID (comm) S ppid ..."; comm may hold anything, parentheses and newlines too. */
static bool stat_parse(const char *text, struct thread *ret)
{
	const char *open = strchr(text, '('), *close = strrchr(text, ')');
	uint64_t user, system;
	size_t length;

	if (!open || !close || close < open)
		return false;
	length = (size_t)(close - open - 1);
	if (length >= sizeof(ret->comm))
		length = sizeof(ret->comm) - 1;
	memcpy(ret->comm, open + 1, length);
	ret->comm[length] = '\0';
	/* Fields 3, 9, 14, 15 and 39 of proc(5). */
	if (sscanf(close,
		   ") %c %*d %*d %*d %*d %*d %" SCNu32 " %*u %*u %*u %*u %" SCNu64 " %" SCNu64
		   " %*d %*d %*d %*d %*d %*d %*u %*u %*d %*u %*u %*u %*u %*u %*u %*u %*u %*u %*u "
		   "%*u %*u %*u %*d %d",
		   &ret->state, &ret->flags, &user, &system, &ret->cpu) != 5)
		return false;
	ret->cpu_time = user + system;
	ret->kernel = (ret->flags & PF_KERNEL) != 0;
	return true;
}

struct error *thread_read(const struct target *target, pid_t tid, struct thread *ret)
{
	char text[1024];
	struct thread thread = {.tid = tid};
	struct error *err = read_file(target, tid, "stat", text, sizeof(text));

	if (err)
		return err;
	if (!stat_parse(text, &thread))
		return error_create(ERROR_FORMAT, "cannot understand /proc/%d/task/%d/stat",
				    target_pid(target), tid);
	*ret = thread;
	return NULL;
}

struct error *thread_read_syscall(const struct target *target, pid_t tid,
				  struct thread_syscall *ret)
{
	struct thread_syscall call = {.blocked = true};
	uint64_t *args = call.args;
	struct error *err;
	char text[512];

	err = read_file(target, tid, "syscall", text, sizeof(text));
	if (err)
		return err;
	if (sscanf(text,
		   "%" SCNd64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64
		   " %" SCNx64 " %" SCNx64 " %" SCNx64,
		   &call.number, &args[0], &args[1], &args[2], &args[3], &args[4], &args[5],
		   &call.sp, &call.pc) == 9) {
		*ret = call;
	} else if (sscanf(text, "%" SCNd64 " %" SCNx64 " %" SCNx64, &call.number, &call.sp,
			  &call.pc) == 3) {
		memset(call.args, 0, sizeof(call.args));
		*ret = call;
	} else {
		*ret = (struct thread_syscall){.number = -1};
	}
	return NULL;
}

/* The number after "Key:" at the start of a line, or 0. */
static uint64_t status_number(const char *text, const char *key, int base)
{
	const char *line = strstr(text, key);

	return line ? strtoull(line + strlen(key), NULL, base) : 0;
}

struct error *thread_read_status(const struct target *target, pid_t tid, struct thread_status *ret)
{
	char text[STATUS_MAX];
	struct error *err = read_file(target, tid, "status", text, sizeof(text));

	if (err)
		return err;
	/* The name in the first line cannot hold a newline here: it is escaped. */
	*ret = (struct thread_status){
		.tracer = (pid_t)status_number(text, "\nTracerPid:", 10),
		.seccomp = (unsigned int)status_number(text, "\nSeccomp:", 10),
		.pending =
			status_number(text, "\nSigPnd:", 16) | status_number(text, "\nShdPnd:", 16),
		.caught = status_number(text, "\nSigCgt:", 16),
	};
	return NULL;
}

static int compare_tid(const void *a, const void *b)
{
	const struct thread *x = a, *y = b;

	return (x->tid > y->tid) - (x->tid < y->tid);
}

static struct error *list_add(struct threads *threads, size_t *room, const struct thread *thread)
{
	if (threads->count == *room) {
		size_t more = *room ? *room * 2 : 16;
		struct thread *grown = realloc(threads->thread, more * sizeof(*grown));

		if (!grown)
			return error_memory();
		threads->thread = grown;
		*room = more;
	}
	threads->thread[threads->count++] = *thread;
	return NULL;
}

struct error *threads_read(const struct target *target, struct threads *ret)
{
	struct threads threads = {0};
	struct error *err = NULL;
	struct dirent *entry;
	size_t room = 0;
	char path[64];
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", target_pid(target));
	dir = opendir(path);
	if (!dir && errno == ENOENT)
		return error_create(ERROR_GONE, "process %d has ended", target_pid(target));
	if (!dir)
		return error_os(errno, "cannot open %s", path);
	while (!err && (entry = readdir(dir))) {
		pid_t tid = (pid_t)strtol(entry->d_name, NULL, 10);
		struct thread thread;

		if (tid <= 0)
			continue;
		err = thread_read(target, tid, &thread);
		if (!err)
			err = list_add(&threads, &room, &thread);
		else if (error_is(err, ERROR_GONE)) {
			error_free(err);
			err = NULL;
		}
	}
	closedir(dir);
	if (!err && !threads.count)
		err = error_create(ERROR_GONE, "process %d has ended", target_pid(target));
	if (err) {
		threads_deinit(&threads);
		return err;
	}
	qsort(threads.thread, threads.count, sizeof(*threads.thread), compare_tid);
	*ret = threads;
	return NULL;
}

void threads_deinit(struct threads *threads)
{
	free(threads->thread);
	*threads = (struct threads){0};
}

/* ---- whom to ask */

/* Of the thread, not of the process. False where the kernel does not tell. */
static bool has_children(const struct target *target, pid_t tid)
{
	char text[16];
	struct error *err = read_file(target, tid, "children", text, sizeof(text));
	bool some = !err && text[0] != '\0';

	error_free(err);
	return some;
}

bool thread_may_be_borrowed(const struct thread *thread)
{
	return !thread->kernel && !(thread->flags & PF_EXITING) && !strchr("DXZ", thread->state);
}

struct candidate {
	pid_t tid;
	unsigned int class;
	uint64_t cpu_time;
};

enum {
	CLASS_MAIN,
	CLASS_HAS_RUN,
	CLASS_PARENT,
	CLASS_HARDLY_RUN,
	CLASS_TRACED,
};

static unsigned int class_of(const struct target *target, const struct thread *thread)
{
	if (thread->state == 't')
		return CLASS_TRACED;
	if (thread->tid != target_pid(target) && thread->cpu_time <= HARDLY_RUN_TICKS)
		return CLASS_HARDLY_RUN;
	if (has_children(target, thread->tid))
		return CLASS_PARENT;
	return thread->tid == target_pid(target) ? CLASS_MAIN : CLASS_HAS_RUN;
}

static int compare_candidate(const void *a, const void *b)
{
	const struct candidate *x = a, *y = b;

	if (x->class != y->class)
		return x->class < y->class ? -1 : 1;
	if (x->cpu_time != y->cpu_time)
		return x->cpu_time > y->cpu_time ? -1 : 1;
	return (x->tid > y->tid) - (x->tid < y->tid);
}

struct error *threads_rank(const struct target *target, const struct threads *threads,
			   pid_t **tids_ret, size_t *count_ret)
{
	CLEANUP(freep)
	struct candidate *candidates = calloc(threads->count + 1, sizeof(*candidates));
	size_t count = 0;
	pid_t *tids;

	if (!candidates)
		return error_memory();
	for (size_t i = 0; i < threads->count; i++) {
		const struct thread *thread = &threads->thread[i];

		if (!thread_may_be_borrowed(thread))
			continue;
		candidates[count++] = (struct candidate){
			.tid = thread->tid,
			.class = class_of(target, thread),
			.cpu_time = thread->cpu_time,
		};
	}
	qsort(candidates, count, sizeof(*candidates), compare_candidate);
	tids = count ? calloc(count, sizeof(*tids)) : NULL;
	if (count && !tids)
		return error_memory();
	for (size_t i = 0; i < count; i++)
		tids[i] = candidates[i].tid;
	*tids_ret = tids;
	*count_ret = count;
	return NULL;
}
