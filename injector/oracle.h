/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A second opinion on stacks: libunwind, which shares no code and no tables
 * with our own walk. It unwinds a stopped thread (0.3-10 ms a stack), or the
 * copy of a stack whose thread runs on. For --selfcheck, `check` and the tests.
 *
 * An oracle of stopped threads belongs to the thread that traces the target,
 * one of copies to one thread at a time.
 */
#ifndef INJECTOR_ORACLE_H
#define INJECTOR_ORACLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "injector/memory.h"
#include "injector/modules.h"
#include "resolver/error.h"

struct oracle;
struct oracle_copy;

struct oracle_frame {
	uint64_t pc;
	uint64_t sp;
	bool has_fde; /* false: libunwind guessed its way to the next frame */
	/* Of copies only: a signal came at pc; otherwise pc is a return address. */
	bool interrupted;
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

/* A thread's state as it was, innermost frame first to be called. */
struct oracle_state {
	uint64_t pc;	  /* a return address */
	uint64_t reg[16]; /* after that return, by DWARF number (enum ha_ext_base) */
	uint32_t known;	  /* bit i: reg[i] is known */
	uint64_t low;	  /* the stack's bytes: [low, low + size) of the target */
	const uint8_t *stack;
	size_t size;
};

/* Why an unwind of a copy ended. */
enum oracle_end {
	ORACLE_COMPLETE, /* with the outermost frame */
	ORACLE_NO_TABLE, /* no FDE contains the last frame: its caller would be a guess */
	ORACLE_OUTSIDE,	 /* a word was needed that is not in the copy */
	ORACLE_FAILED,	 /* libunwind gave up */
	ORACLE_FULL,	 /* more frames than there is room for */
};

/*
 * The tables are read from the target's own memory, module by module through
 * .eh_frame_hdr. @memory's context and @modules must outlive the oracle.
 */
MUST_CHECK struct error *oracle_copy_create(const struct memory_reader *memory,
					    const struct modules *modules,
					    struct oracle_copy **ret);
/* NULL is fine. */
void oracle_copy_free(struct oracle_copy *oracle);

/* Forget what was read of the target: call when its modules changed. */
void oracle_copy_flush(struct oracle_copy *oracle);

/* Unwind @state, as oracle_unwind(); has_fde is false at most for the last frame. */
MUST_CHECK struct error *oracle_copy_unwind(struct oracle_copy *oracle,
					    const struct oracle_state *state,
					    struct oracle_frame *frames, size_t capacity,
					    size_t *count_ret, enum oracle_end *end_ret);

#endif
