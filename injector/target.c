// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/target_private.h"

#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "injector/arch.h"
#include "resolver/cleanup.h"

#define PF_EXITING   0x00000004u
#define PF_KTHREAD   0x00200000u /* include/linux/sched.h */
#define PIDFD_THREAD O_EXCL	 /* include/uapi/linux/pidfd.h, Linux 6.9 */

#define AUXV_MAX     (16u * 1024u)

pid_t target_pid(const struct target *target)
{
	return target->pid;
}

int target_pidfd(const struct target *target)
{
	return target->pidfd;
}

uint64_t target_start_time(const struct target *target)
{
	return target->start_time;
}

pid_t target_file_tid(const struct target *target)
{
	return target->file_tid;
}

struct tracer *target_tracer(struct target *target)
{
	return &target->tracer;
}

/* ---- files */

struct error *target_denied(struct error *err)
{
	CLEANUP(fclosep) FILE *file = NULL;
	int scope = 0;

	if (!error_is(err, ERROR_DENIED))
		return err;
	file = fopen("/proc/sys/kernel/yama/ptrace_scope", "re");
	if (file && fscanf(file, "%d", &scope) == 1 && scope > 0 && geteuid() != 0)
		return error_hint(err, "run as root: kernel.yama.ptrace_scope is %d", scope);
	if (geteuid() != 0)
		return error_hint(err, "run as root, or as the user that the process belongs to");
	return error_hint(err, "CAP_SYS_PTRACE in the user namespace of the process is needed, and "
			       "a security module may forbid it");
}

struct error *target_open_file(const struct target *target, const char *name, int flags,
			       int *fd_ret)
{
	CLEANUP(freep) char *path = NULL;
	int fd;

	if (asprintf(&path, "/proc/%d/task/%d/%s", target->pid, target->file_tid, name) < 0) {
		path = NULL;
		return error_memory();
	}
	/* map_files and some others are only in the process's directory. */
	fd = open(path, flags | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT) {
		free(path);
		if (asprintf(&path, "/proc/%d/%s", target->pid, name) < 0) {
			path = NULL;
			return error_memory();
		}
		fd = open(path, flags | O_CLOEXEC);
	}
	if (fd < 0 && (errno == ESRCH || !target_is_alive(target)))
		return error_create(ERROR_GONE, "process %d has ended", target->pid);
	if (fd < 0)
		return target_denied(error_os(errno, "cannot open %s", path));
	*fd_ret = fd;
	return NULL;
}

bool target_try_lock(struct target *target)
{
	return flock(target->mem_fd, LOCK_EX | LOCK_NB) == 0;
}

/* The fields of /proc/PID/task/TID/stat that we need. */
struct stat_fields {
	char state;
	unsigned int flags;
	uint64_t start_time;
};

static bool stat_read(pid_t pid, pid_t tid, struct stat_fields *ret)
{
	char path[64], text[1024];
	const char *tail;
	CLEANUP(closep) int fd = -1;
	ssize_t got;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", pid, tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	got = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (got <= 0)
		return false;
	text[got] = '\0';
	/* The name in parentheses may hold anything, parentheses too. */
	tail = strrchr(text, ')');
	return tail && sscanf(tail,
			      ") %c %*d %*d %*d %*d %*d %u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d "
			      "%*d %*d %" SCNu64,
			      &ret->state, &ret->flags, &ret->start_time) == 3;
}

/* A thread that has not ended; @pid itself if there is none. */
static pid_t live_thread(pid_t pid)
{
	struct stat_fields fields;
	struct dirent *entry;
	pid_t found = pid;
	char path[64];
	DIR *dir;

	if (stat_read(pid, pid, &fields) && fields.state != 'Z' && fields.state != 'X')
		return pid;
	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	dir = opendir(path);
	while (dir && found == pid && (entry = readdir(dir))) {
		pid_t tid = (pid_t)strtol(entry->d_name, NULL, 10);

		if (tid > 0 && tid != pid && stat_read(pid, tid, &fields) && fields.state != 'Z' &&
		    fields.state != 'X')
			found = tid;
	}
	if (dir)
		closedir(dir);
	return found;
}

/* ---- opening */

static struct error *open_pidfd(struct target *target)
{
	char path[64];

	target->pidfd = (int)syscall(SYS_pidfd_open, target->pid, 0);
	if (target->pidfd >= 0)
		return NULL;
	snprintf(path, sizeof(path), "/proc/%d/task", target->pid);
	/* A thread that is no main thread: EINVAL, since Linux 6.9 ENOENT. */
	if ((errno == EINVAL || errno == ENOENT) && access(path, F_OK) == 0)
		return error_hint(error_create(ERROR_UNSUPPORTED, "%d is a thread, not a process",
					       target->pid),
				  "give the process id: Tgid in /proc/%d/status", target->pid);
	if (errno == ESRCH || errno == EINVAL || errno == ENOENT)
		return error_create(ERROR_NOT_FOUND, "there is no process %d", target->pid);
	return error_os(errno, "cannot open process %d", target->pid);
}

struct error *target_open(pid_t pid, struct target **ret)
{
	struct target *target = calloc(1, sizeof(*target));
	struct stat_fields fields;
	struct error *err;

	if (!target)
		return error_memory();
	target->pid = pid;
	target->pidfd = -1;
	target->mem_fd = -1;
	err = open_pidfd(target);
	if (!err) {
		target->file_tid = live_thread(pid);
		if (!stat_read(pid, target->file_tid, &fields))
			err = error_create(ERROR_NOT_FOUND, "there is no process %d", pid);
		else if (fields.flags & PF_KTHREAD)
			err = error_create(ERROR_UNSUPPORTED, "%d is a thread of the kernel", pid);
		else if (fields.state == 'Z' || fields.state == 'X')
			err = error_create(ERROR_GONE, "process %d has ended", pid);
	}
	if (!err)
		err = target_open_file(target, "mem", O_RDWR, &target->mem_fd);
	if (err) {
		target_free(target);
		return err;
	}
	arch_prepare();
	target->start_time = fields.start_time;
	*ret = target;
	return NULL;
}

void target_free(struct target *target)
{
	if (!target)
		return;
	tracer_release(&target->tracer);
	if (target->mem_fd >= 0)
		close(target->mem_fd);
	if (target->pidfd >= 0)
		close(target->pidfd);
	free(target);
}

/* ---- is it there? */

bool target_is_alive(const struct target *target)
{
	struct pollfd poll_fd = {.fd = target->pidfd, .events = POLLIN};

	/* Even a poll that does not wait may be interrupted. */
	return poll(&poll_fd, 1, 0) <= 0;
}

bool target_is_another_program(const struct target *target)
{
	struct stat_fields fields;
	uint8_t byte;

	/*
	 * Nothing is mapped at 0: EIO. An address space that is no more: 0 bytes. A
	 * process that ends gives it up, too, while it still counts as alive.
	 */
	return pread(target->mem_fd, &byte, 1, 0) == 0 && target_is_alive(target) &&
	       stat_read(target->pid, target->pid, &fields) && !(fields.flags & PF_EXITING);
}

struct error *target_gone(const struct target *target)
{
	if (target_is_another_program(target))
		return error_create(ERROR_GONE, "process %d has started another program",
				    target->pid);
	return error_create(ERROR_GONE, "process %d has ended", target->pid);
}

struct error *target_check(const struct target *target)
{
	uint8_t byte;

	if (!target_is_alive(target))
		return target_gone(target);
	return pread(target->mem_fd, &byte, 1, 0) == 0 ? target_gone(target) : NULL;
}

/* ---- what it has */

struct error *target_take_fd(const struct target *target, int remote_fd, int *fd_ret)
{
	CLEANUP(closep) int thread_pidfd = -1;
	int pidfd = target->pidfd;
	int fd;

	if (target->file_tid != target->pid) {
		thread_pidfd = (int)syscall(SYS_pidfd_open, target->file_tid, PIDFD_THREAD);
		if (thread_pidfd >= 0)
			pidfd = thread_pidfd;
	}
	fd = (int)syscall(SYS_pidfd_getfd, pidfd, remote_fd, 0);
	if (fd < 0)
		return target_denied(error_os(errno, "cannot take descriptor %d of process %d",
					      remote_fd, target->pid));
	*fd_ret = fd;
	return NULL;
}

struct error *target_auxv(const struct target *target, uint64_t type, uint64_t *ret)
{
	CLEANUP(freep) Elf64_auxv_t *auxv = malloc(AUXV_MAX);
	CLEANUP(closep) int fd = -1;
	struct error *err;
	ssize_t got;

	if (!auxv)
		return error_memory();
	err = target_open_file(target, "auxv", O_RDONLY, &fd);
	if (err)
		return err;
	got = read(fd, auxv, AUXV_MAX);
	for (ssize_t i = 0; i < got / (ssize_t)sizeof(*auxv); i++) {
		if (auxv[i].a_type == type) {
			*ret = auxv[i].a_un.a_val;
			return NULL;
		}
	}
	return error_create(ERROR_NOT_FOUND,
			    "process %d has no entry %" PRIu64 " in its auxiliary vector",
			    target->pid, type);
}
