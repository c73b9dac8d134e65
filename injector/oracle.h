/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A second opinion on stacks: unwinds a stopped thread with libunwind-ptrace,
 * which shares no code and no tables with our own walk. Slow (0.3-10 ms a
 * stack): for --selfcheck, `check` and the tests.
 *
 * An oracle belongs to the thread that traces the target.
 */
#ifndef INJECTOR_ORACLE_H
#define INJECTOR_ORACLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "resolver/error.h"

struct oracle;

struct oracle_frame {
	uint64_t pc;
	uint64_t sp;
	bool has_fde; /* false: libunwind guessed its way to the next frame */
};

MUST_CHECK struct error *oracle_create(struct oracle **ret);
/* NULL is fine. */
void oracle_free(struct oracle *oracle);

/*
 * Unwind @tid, which the calling thread traces and which is stopped.
 *
 * @frames    innermost first; room for @capacity
 * @count_ret how many were found; @frames is full if it equals @capacity
 *
 * ERROR_UNSUPPORTED: libunwind gave up before the first frame.
 */
MUST_CHECK struct error *oracle_unwind(struct oracle *oracle, pid_t tid,
				       struct oracle_frame *frames, size_t capacity,
				       size_t *count_ret);

/* Forget what was cached about the target's modules: call when they changed. */
void oracle_flush(struct oracle *oracle);

#endif
