/* SPDX-License-Identifier: GPL-3.0-or-later */
/* What libfault.so and the test that preloads it share: the content of a file. */
#ifndef TARGETS_FAULT_H
#define TARGETS_FAULT_H

#include <stdint.h>

enum fault_how {
	FAULT_ERROR, /* the call fails with EIO and does nothing */
	FAULT_KILL,  /* the process that makes it is killed */
};

enum fault_step {
	FAULT_NONE,
	FAULT_PTRACE,
	FAULT_PREAD,
	FAULT_PWRITE,
	FAULT_READV,
	FAULT_WAIT,
	FAULT_POLL,
	FAULT_RECV,
	FAULT_SEND,
};

struct fault {
	uint64_t at;	   /* the step that goes wrong, from 1; 0 = none */
	uint64_t steps;	   /* counted so far, over all processes */
	uint32_t how;	   /* enum fault_how */
	uint32_t happened; /* enum fault_step: of what kind that step was */
};

#endif
