/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * May we attach, and what is the target? Everything that can be known before
 * the target is touched, from /proc, then from its memory. The first reason
 * against it becomes an error of one sentence with one cause, and a hint with
 * the one way out.
 */
#ifndef INJECTOR_PREFLIGHT_H
#define INJECTOR_PREFLIGHT_H

#include "injector/modules.h"
#include "injector/slots.h"

#include <sys/types.h>

struct preflight_options {
	uint64_t virtual_size;	/* bytes of address space that we shall map into the target */
	uint64_t resident_size; /* bytes of memory that we expect to use */
	const char *proc;	/* where procfs is; NULL = "/proc". Tests set it */
};

struct preflight {
	pid_t pid;
	char *comm;    /* owned, never NULL */
	char *exe;     /* path as the target names it; "" if unreadable; owned */
	char *cmdline; /* arguments joined by spaces; owned, never NULL */
	uid_t uid;     /* real */
	gid_t gid;
	pid_t ns_pid;					/* its number in its own PID namespace */
	bool other_pid_ns, other_mnt_ns, other_user_ns; /* not ours */
	unsigned int threads;
	char state;	      /* as in /proc/PID/status: R S D T t */
	unsigned int seccomp; /* 0 off, 1 strict, 2 filter */
	bool no_new_privs;
	int yama;	     /* ptrace_scope; -1 = no Yama */
	uint64_t start_time; /* field 22 of /proc/PID/stat, in clock ticks */
	uint64_t rss_bytes, virtual_bytes;
	uint64_t map_count, map_count_max;
	enum libc_kind libc;
	bool deleted;	       /* its executable was unlinked or replaced */
	const char *allocator; /* "glibc", "musl", "jemalloc", "tcmalloc", "mimalloc", ...;
				  set by preflight_allocator(); static */
	char *allocator_path;  /* object that defines it; owned; NULL before */
};

/*
 * Checks that need /proc alone: exists, is a process, same PID namespace as
 * /proc, permissions, Yama, tracer, machine, seccomp strict mode,
 * room. On error *ret still holds what was found out, for `check`; give it to
 * preflight_deinit() in any case.
 */
MUST_CHECK struct error *preflight_process(pid_t pid, const struct preflight_options *options,
					   struct preflight *ret);

/*
 * Checks that need the target's memory: not static, no sanitizer, no session
 * of ours at work. Fills in libc.
 */
MUST_CHECK struct error *preflight_image(const struct memory_reader *memory,
					 const struct modules *modules,
					 struct preflight *preflight);

/* Which allocator the executable's calls reach, by the plan. */
MUST_CHECK struct error *preflight_allocator(const struct modules *modules,
					     const struct slots *slots,
					     struct preflight *preflight);

/* A zeroed struct is fine. */
void preflight_deinit(struct preflight *preflight);

#endif
