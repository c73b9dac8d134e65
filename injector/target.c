// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/target.h"

#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "injector/arch.h"
#include "injector/tracee.h"
#include "resolver/cleanup.h"
#include "resolver/maps.h"

#define PF_EXITING   0x00000004u
#define PF_KTHREAD   0x00200000u /* include/linux/sched.h */
#define PIDFD_THREAD O_EXCL	 /* include/uapi/linux/pidfd.h, Linux 6.9 */

/* From this size on process_vm_readv beats the memory file. */
#define READV_MIN 4096u
/* UIO_MAXIOV of the kernel, for one call. */
#define RANGES_MAX 1024u
/* More than any vDSO has. */
#define VDSO_MAX (64u * 1024u)
/* Of one mapping of code; loaders have some 200 KiB, static programs more. */
#define TEXT_MAX (16u * 1024u * 1024u)
#define AUXV_MAX (16u * 1024u)

struct target {
	pid_t pid;
	pid_t file_tid;
	int pidfd;
	int mem_fd;
	uint64_t start_time;
	uint64_t gadget; /* 0 = not looked for yet */
	struct target_guard_code guard_code;
	bool guard_code_searched;
	struct tracer tracer;
};

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

/* The address space is not the process's any more. */
static struct error *gone(const struct target *target)
{
	struct stat_fields fields;

	/* A process gives up its memory before it has ended. */
	if (target_is_alive(target) && stat_read(target->pid, target->file_tid, &fields) &&
	    !(fields.flags & PF_EXITING))
		return error_create(ERROR_GONE, "process %d has started another program",
				    target->pid);
	return error_create(ERROR_GONE, "process %d has ended", target->pid);
}

struct error *target_check(const struct target *target)
{
	uint8_t byte;

	if (!target_is_alive(target))
		return gone(target);
	/* Nothing is mapped at 0: EIO. An address space that is no more: 0 bytes. */
	return pread(target->mem_fd, &byte, 1, 0) == 0 ? gone(target) : NULL;
}

/* ---- memory */

static struct error *unmapped(const struct target *target, const char *what, uint64_t address)
{
	return error_create(ERROR_NOT_FOUND, "cannot %s memory of process %d at 0x%" PRIx64, what,
			    target->pid, address);
}

/* Up to the first page that is not there. */
static struct error *mem_read(const struct target *target, uint64_t address, void *buf, size_t size,
			      size_t *size_ret)
{
	size_t done = 0;

	while (done < size) {
		ssize_t got = pread(target->mem_fd, (char *)buf + done, size - done,
				    (off_t)(address + done));

		if (got == 0)
			return gone(target);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			break;
		done += (size_t)got;
	}
	*size_ret = done;
	return NULL;
}

/*
 * Of which address space process_vm_readv reads it does not say; after an exec
 * it is the new program's. So the memory file is asked for a byte afterwards.
 */
static struct error *vm_read(const struct target *target, uint64_t address, void *buf, size_t size,
			     size_t *size_ret)
{
	struct iovec local = {.iov_base = buf, .iov_len = size};
	struct iovec remote = {.iov_base = (void *)(uintptr_t)address, .iov_len = size};
	ssize_t got = process_vm_readv(target->file_tid, &local, 1, &remote, 1, 0);
	uint8_t byte;

	*size_ret = got > 0 ? (size_t)got : 0;
	if (got > 0 && pread(target->mem_fd, &byte, 1, (off_t)address) == 0)
		return gone(target);
	return NULL;
}

struct error *target_read_some(const struct target *target, uint64_t address, void *buf,
			       size_t size, size_t *size_ret)
{
	size_t done = 0, more;
	struct error *err = NULL;

	if (size >= READV_MIN)
		err = vm_read(target, address, buf, size, &done);
	if (!err && done < size) {
		err = mem_read(target, address + done, (char *)buf + done, size - done, &more);
		if (!err)
			done += more;
	}
	if (!err)
		*size_ret = done;
	return err;
}

struct error *target_read(const struct target *target, uint64_t address, void *buf, size_t size)
{
	size_t done;
	struct error *err = target_read_some(target, address, buf, size, &done);

	if (!err && done < size)
		err = unmapped(target, "read", address + done);
	return err;
}

/*
 * One call for @count ranges, at most RANGES_MAX. It stops in the first that is
 * not mapped; returns how many are complete.
 */
static size_t read_batch(const struct target *target, struct target_range *ranges, size_t count)
{
	struct iovec local[RANGES_MAX], remote[RANGES_MAX];
	ssize_t got;
	size_t i;

	for (i = 0; i < count; i++) {
		local[i] = (struct iovec){.iov_base = ranges[i].buf, .iov_len = ranges[i].size};
		remote[i] = (struct iovec){.iov_base = (void *)(uintptr_t)ranges[i].address,
					   .iov_len = ranges[i].size};
	}
	got = process_vm_readv(target->file_tid, local, count, remote, count, 0);
	for (i = 0; i < count && got >= (ssize_t)ranges[i].size; i++) {
		got -= (ssize_t)ranges[i].size;
		ranges[i].ok = true;
	}
	return i;
}

struct error *target_read_ranges(const struct target *target, struct target_range *ranges,
				 size_t count)
{
	size_t done = 0;

	while (done < count) {
		size_t batch = count - done < RANGES_MAX ? count - done : RANGES_MAX;
		size_t complete = read_batch(target, ranges + done, batch);
		struct target_range *range = &ranges[done + complete];
		struct error *err;
		size_t got;

		done += complete;
		if (complete == batch)
			continue;
		/* Perhaps readable through the memory file, which ignores protections. */
		err = mem_read(target, range->address, range->buf, range->size, &got);
		if (err)
			return err;
		range->ok = got == range->size;
		done++;
	}
	return count ? target_check(target) : NULL;
}

struct error *target_write(const struct target *target, uint64_t address, const void *buf,
			   size_t size)
{
	size_t done = 0;

	while (done < size) {
		ssize_t got = pwrite(target->mem_fd, (const char *)buf + done, size - done,
				     (off_t)(address + done));

		if (got == 0)
			return gone(target);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return unmapped(target, "write", address + done);
		done += (size_t)got;
	}
	return NULL;
}

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

/* ---- auxiliary vector, gadget */

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

void target_set_gadget(struct target *target, uint64_t address)
{
	target->gadget = address;
}

struct error *target_gadget(struct target *target, uint64_t *address_ret)
{
	CLEANUP(freep) uint8_t *text = NULL;
	const uint8_t *found;
	struct error *err;
	uint64_t vdso;
	size_t size;

	if (target->gadget) {
		*address_ret = target->gadget;
		return NULL;
	}
	err = target_auxv(target, AT_SYSINFO_EHDR, &vdso);
	if (err)
		return error_prefix(err, "cannot find the vDSO");
	text = malloc(VDSO_MAX);
	if (!text)
		return error_memory();
	err = target_read_some(target, vdso, text, VDSO_MAX, &size);
	if (err)
		return err;
	found = memmem(text, size, arch_syscall_instruction, arch_syscall_instruction_size);
	if (!found)
		return error_create(ERROR_NOT_FOUND,
				    "process %d has no vDSO with a system call in it", target->pid);
	target->gadget = vdso + (uint64_t)(found - text);
	*address_ret = target->gadget;
	return NULL;
}

static struct error *search_text(struct target *target, const struct map *map)
{
	size_t size = map->end - map->start < TEXT_MAX ? map->end - map->start : TEXT_MAX;
	CLEANUP(freep) uint8_t *text = malloc(size);
	struct target_guard_code *code = &target->guard_code;
	struct error *err;
	size_t at;

	if (!text)
		return error_memory();
	err = target_read_some(target, map->start, text, size, &size);
	if (err)
		return err;
	at = arch_find_call_return(text, size);
	if (!code->call_return && at != ARCH_NOT_FOUND)
		code->call_return = map->start + at;
	at = arch_find_sigreturn(text, size);
	if (!code->sigreturn && at != ARCH_NOT_FOUND)
		code->sigreturn = map->start + at;
	return NULL;
}

/* In all code of the file that is mapped at the address in entry @type of the auxiliary vector. */
static struct error *search_file(struct target *target, const struct maps *maps, uint64_t type)
{
	const struct map *file = NULL;
	struct error *err;
	uint64_t address;

	err = target_auxv(target, type, &address);
	if (!err)
		file = maps_find(maps, address);
	for (size_t i = 0; !err && file && i < maps->count; i++) {
		const struct map *map = &maps->map[i];

		if (map->exec && map->inode && map->inode == file->inode &&
		    map->major == file->major && map->minor == file->minor)
			err = search_text(target, map);
	}
	if (error_is(err, ERROR_NOT_FOUND)) {
		error_free(err);
		err = NULL;
	}
	return err;
}

struct error *target_guard_code(struct target *target, struct target_guard_code *ret)
{
	struct target_guard_code *code = &target->guard_code;
	struct error *err = NULL;
	struct maps maps = {0};

	if (!target->guard_code_searched) {
		err = maps_read(target->pid, &maps);
		/* AT_BASE is the loader; there is none in a static program. */
		if (!err)
			err = search_file(target, &maps, AT_BASE);
		if (!err && (!code->call_return || !code->sigreturn))
			err = search_file(target, &maps, AT_ENTRY);
		maps_deinit(&maps);
		target->guard_code_searched = !err;
	}
	if (err)
		return err;
	if (!code->call_return || !code->sigreturn)
		return error_create(ERROR_NOT_FOUND,
				    "process %d has no code that returns from a signal handler",
				    target->pid);
	*ret = *code;
	return NULL;
}
