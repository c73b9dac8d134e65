/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What the target*.c files share. For nobody else.
 */
#ifndef INJECTOR_TARGET_PRIVATE_H
#define INJECTOR_TARGET_PRIVATE_H

#include "injector/target.h"
#include "injector/tracee.h"

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

/* ERROR_GONE: the address space is not the process's any more. */
MUST_CHECK struct error *target_gone(const struct target *target);

#endif
