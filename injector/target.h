/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The target process, from outside: is it there, is it still the same program,
 * and its memory. Nothing here stops it; see borrow.h for that.
 *
 * The memory file is bound to the address space that the process had when it
 * was opened. After an exec reads of it return nothing, which is how we notice:
 * every access then fails with ERROR_GONE.
 *
 * A process whose main thread has ended ("zombie leader") works too: all files
 * are then opened through one of its other threads.
 *
 * A target belongs to one thread at a time. A child made by fork may use its
 * copy.
 */
#ifndef INJECTOR_TARGET_H
#define INJECTOR_TARGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "resolver/error.h"

struct target;

/*
 * Open process @pid (a process, not a thread of one).
 *
 * ERROR_NOT_FOUND: there is none. ERROR_DENIED: its memory may not be opened;
 * the hint says why. ERROR_UNSUPPORTED: a kernel thread, or only a thread.
 */
MUST_CHECK struct error *target_open(pid_t pid, struct target **ret);
/* NULL is fine. */
void target_free(struct target *target);

pid_t target_pid(const struct target *target);
/* Readable (poll) when the whole process has ended. Owned by the target. */
int target_pidfd(const struct target *target);
/* Clock ticks since boot, field 22 of /proc/PID/stat. */
uint64_t target_start_time(const struct target *target);
/* The thread through which files are opened: the main thread, unless that has ended. */
pid_t target_file_tid(const struct target *target);

/*
 * Have the process to ourselves among those that ask so, until target_free()
 * and the end of all our children: two programs that put their objects into a
 * process at once would take each other's for what a dead one has left. A lock
 * on the memory file, which only those can open who may trace the process; it
 * leaves nothing. False: somebody else has it.
 */
bool target_try_lock(struct target *target);

/* The process has not ended. It may have become another program: target_check(). */
bool target_is_alive(const struct target *target);
/* It lives on, in another address space than it had: after exec. False while it ends. */
bool target_is_another_program(const struct target *target);
/* NULL, or ERROR_GONE with what happened: it ended, or it started another program. */
MUST_CHECK struct error *target_check(const struct target *target);

/*
 * Open /proc/PID/@name, e.g. "maps", "exe", "root", or a name below a
 * directory of it. The descriptor is close-on-exec and the caller's.
 */
MUST_CHECK struct error *target_open_file(const struct target *target, const char *name, int flags,
					  int *fd_ret);

/*
 * Value of an entry of the auxiliary vector (AT_PHDR, AT_ENTRY, AT_HWCAP2...).
 * ERROR_NOT_FOUND: it has no such entry.
 */
MUST_CHECK struct error *target_auxv(const struct target *target, uint64_t type, uint64_t *ret);

/* Duplicate descriptor @remote_fd of the target into our process (pidfd_getfd). */
MUST_CHECK struct error *target_take_fd(const struct target *target, int remote_fd, int *fd_ret);

/*
 * Read exactly @size bytes. Ignores page protections, as a debugger does.
 * ERROR_NOT_FOUND: not all of it is mapped (the buffer's content is then
 * undefined). ERROR_GONE.
 */
MUST_CHECK struct error *target_read(const struct target *target, uint64_t address, void *buf,
				     size_t size);

/* Read up to @size bytes: as many as there are before the first that is not mapped. */
MUST_CHECK struct error *target_read_some(const struct target *target, uint64_t address, void *buf,
					  size_t size, size_t *size_ret);

/* One piece of a scattered read. */
struct target_range {
	uint64_t address;
	void *buf;
	size_t size;
	bool ok; /* set by the call: all of it was read; if not, the content is undefined */
};

/*
 * Read many pieces with few system calls. A piece that is not mapped has ok ==
 * false and is no error. ERROR_GONE.
 */
MUST_CHECK struct error *target_read_ranges(const struct target *target,
					    struct target_range *ranges, size_t count);

/*
 * Write exactly @size bytes, also to pages without write permission (private
 * mappings get a page of their own; permissions do not change). Up to 8 bytes
 * that do not cross an 8-byte boundary are written at once: other threads see
 * the old or the new ones.
 *
 * ERROR_NOT_FOUND: not all of it is mapped or may be written. ERROR_GONE.
 */
MUST_CHECK struct error *target_write(const struct target *target, uint64_t address,
				      const void *buf, size_t size);

/*
 * Address of an instruction that makes a system call, in the vDSO or where
 * target_set_gadget() said. ERROR_NOT_FOUND: the target has no vDSO.
 */
MUST_CHECK struct error *target_gadget(struct target *target, uint64_t *address_ret);
/*
 * Code that guarded calls need (borrow_guard): a system call followed by a
 * return, and a call of rt_sigreturn, both in the loader or a static
 * executable. Searched for once: best before the target is stopped.
 * ERROR_NOT_FOUND.
 */
struct target_guard_code {
	uint64_t call_return;
	uint64_t sigreturn;
};
MUST_CHECK struct error *target_guard_code(struct target *target, struct target_guard_code *ret);

/* For targets without a vDSO: an address in some text, e.g. libc's. Verified before use. */
void target_set_gadget(struct target *target, uint64_t address);

/* Add to an ERROR_DENIED the hint what is missing. Takes @err and returns it; NULL stays NULL. */
MUST_CHECK struct error *target_denied(struct error *err);

/* For borrow.c: the state that tracee.h keeps for the calling process. */
struct tracer;
struct tracer *target_tracer(struct target *target);

#endif
