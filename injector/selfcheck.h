/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * --selfcheck: the payload leaves behind, now and then, the registers and the
 * stack that it found a site for (struct ha_captures in payload/protocol.h);
 * here they are unwound by libunwind and compared with the site's stack.
 *
 * For one thread at a time.
 */
#ifndef INJECTOR_SELFCHECK_H
#define INJECTOR_SELFCHECK_H

#include <stddef.h>
#include <stdint.h>

#include "injector/memory.h"
#include "injector/modules.h"
#include "injector/oracle.h"
#include "injector/reader.h"
#include "resolver/error.h"

/* How often the payload captures to begin with: struct shm_options.capture_every. */
#define SELFCHECK_EVERY 1u

/* Differences of which the stacks are kept. */
#define SELFCHECK_SHOWN 3u

struct selfcheck;

struct selfcheck_counts {
	uint64_t compared;
	uint64_t distinct; /* sites among them */
	uint64_t different;
	uint64_t limited; /* of those compared: up to a frame for which libunwind has no table */
	/*
	 * Not compared: the copy of the stack was too short for libunwind, or the
	 * modules have changed between capture and comparison.
	 */
	uint64_t unchecked;
};

enum selfcheck_verdict {
	SELFCHECK_SAME,
	SELFCHECK_LIMITED, /* the same as far as libunwind has tables */
	SELFCHECK_DIFFERENT,
	SELFCHECK_UNCHECKED,
};

/*
 * Compare a recorded stack with what libunwind found for the same state, our
 * own frames left out, each @pc as struct ha_site has it. A truncated stack is
 * different unless libunwind stops there also.
 */
enum selfcheck_verdict selfcheck_compare(const struct reader_site *ours, const uint64_t *pc,
					 size_t count, enum oracle_end end);

/* All must outlive the selfcheck. ERROR_MEMORY. */
MUST_CHECK struct error *selfcheck_create(struct reader *reader, const struct memory_reader *memory,
					  const struct modules *modules, struct selfcheck **ret);
/* NULL is fine. */
void selfcheck_free(struct selfcheck *selfcheck);

/*
 * Compare what was captured, and say how often to capture from now on. To be
 * called each few milliseconds. ERROR_MEMORY.
 */
MUST_CHECK struct error *selfcheck_drain(struct selfcheck *selfcheck);

/* The modules have changed. */
void selfcheck_flush(struct selfcheck *selfcheck);

const struct selfcheck_counts *selfcheck_counts(const struct selfcheck *selfcheck);

/* Both stacks of the @index-th difference, in lines, or NULL. Valid until selfcheck_free(). */
const char *selfcheck_difference(const struct selfcheck *selfcheck, size_t index);

#endif
