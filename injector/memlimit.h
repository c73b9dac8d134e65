/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The bound on the memory that recording holds, in the target and here. Pure:
 * told how full it is, it says what may still be taken and which interval
 * between samples keeps it from filling up.
 *
 * The live table is given most of the memory. When it can grow no further and
 * is half full, the interval is 4 I / R, where I is what is in use and R how
 * many cells are left: while I grows by e, a quarter of R is taken. So R lasts
 * for any program, and there are always some thousand samples to go by.
 */
#ifndef INJECTOR_MEMLIMIT_H
#define INJECTOR_MEMLIMIT_H

#include <stdbool.h>
#include <stdint.h>

#define MEMLIMIT_LEAST	 (64ull << 20) /* tables that every session needs take two thirds of it */
#define MEMLIMIT_DEFAULT (1ull << 30)

struct memlimit {
	uint64_t limit_bytes;
	uint64_t interval;	/* that was asked for last; 0 or 1: none */
	uint32_t live_permille; /* at the last step */
};

struct memlimit_state {
	uint64_t held_bytes;
	bool can_grow;		/* the live table can */
	uint64_t live_cells;	/* that it has */
	uint32_t live_permille; /* of them are taken */
	uint64_t inuse_bytes;	/* of all blocks, as estimated */
};

/* Where the user has not said: at most a quarter of what the machine has to give. */
uint64_t memlimit_default(uint64_t available_bytes);

/* The least interval to use, a power of 2: 1 where memory is no matter. */
uint64_t memlimit_step(struct memlimit *limit, const struct memlimit_state *state);

/* So much more may be taken for segments, and for sites, which come last. */
uint64_t memlimit_segments_room(const struct memlimit *limit, uint64_t held_bytes);
uint64_t memlimit_sites_room(const struct memlimit *limit, uint64_t held_bytes);

/* Changes between snapshots to keep at most. */
uint64_t memlimit_changes(const struct memlimit *limit, uint64_t change_bytes);

#endif
