/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What procfs says of a process: /proc/PID/status and a few neighbours, parsed.
 * No permission is needed for any of it but where noted.
 */
#ifndef INJECTOR_PROCFACTS_H
#define INJECTOR_PROCFACTS_H

#include "resolver/error.h"

#include <stdint.h>
#include <sys/types.h>

struct procfacts {
	pid_t tgid, parent, tracer, ns_pid;
	uid_t uid[3]; /* real, effective, saved */
	gid_t gid[3];
	char state;
	unsigned int threads, seccomp;
	bool no_new_privs;
	uint64_t virtual_bytes, rss_bytes; /* 0: it has no memory (kernel thread, zombie) */
	bool kernel_thread;
	uint64_t start_time; /* clock ticks since boot */
};

/*
 * The whole of a file in procfs, NUL-terminated; the size goes to *size_ret
 * (may be NULL). At most 16 MiB. The caller frees *ret.
 */
MUST_CHECK struct error *procfacts_file(char **ret, size_t *size_ret, const char *format, ...)
	PRINTF(3, 4);

/* Parse the text of /proc/PID/status; fields that are not there stay 0. */
void procfacts_parse_status(const char *text, struct procfacts *ret);

/* Parse the text of /proc/PID/stat: kernel_thread and start_time. False if malformed. */
bool procfacts_parse_stat(const char *text, struct procfacts *ret);

/* Read both. ERROR_NOT_FOUND: there is no such process. @proc: "/proc". */
MUST_CHECK struct error *procfacts_read(const char *proc, pid_t pid, struct procfacts *ret);

/*
 * Does a cgroup's freezer hold this thread? By /proc/PID/wchan, which needs the
 * right to trace it; false where the kernel does not tell. Such a thread can be
 * stopped, but executes nothing.
 */
bool procfacts_is_frozen(const char *proc, pid_t tid);

#endif
