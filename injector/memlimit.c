// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/memlimit.h"

#include "payload/protocol.h"

/* Of the limit, in 16ths: what segments may fill, what sites may fill. */
#define SEGMENTS_SHARE 14u
#define SITES_SHARE    15u

/* Of the limit: snapshots. */
#define SNAPSHOTS_SHARE 16u

/*
 * Permille of the live table. Blocks without a cell have not been seen below
 * 80 %, but searches get long.
 */
#define PRESSURE_BEGIN 500u
#define PRESSURE_END   450u
#define PRESSURE_FULL  800u

/* So much of the table always counts as left. */
#define LEFT_LEAST     64u

#define INUSE_FACTOR   4u /* see the header */

#define INTERVAL_LEAST 64u
#define INTERVAL_MOST  (1ull << 36)

/* It falls if it would by this factor. */
#define RELIEF 4u

uint64_t memlimit_default(uint64_t available_bytes)
{
	uint64_t bytes = available_bytes / 4;

	if (bytes > MEMLIMIT_DEFAULT)
		return MEMLIMIT_DEFAULT;
	return bytes > MEMLIMIT_LEAST ? bytes : MEMLIMIT_LEAST;
}

static uint64_t room(const struct memlimit *limit, uint64_t held_bytes, uint64_t sixteenths)
{
	uint64_t bytes = limit->limit_bytes / 16 * sixteenths;

	return bytes > held_bytes ? bytes - held_bytes : 0;
}

uint64_t memlimit_segments_room(const struct memlimit *limit, uint64_t held_bytes)
{
	return room(limit, held_bytes, SEGMENTS_SHARE);
}

uint64_t memlimit_sites_room(const struct memlimit *limit, uint64_t held_bytes)
{
	return room(limit, held_bytes, SITES_SHARE);
}

uint64_t memlimit_changes(const struct memlimit *limit, uint64_t change_bytes)
{
	return limit->limit_bytes / SNAPSHOTS_SHARE / change_bytes;
}

/* How many cells will be left two steps on, if it goes on to fill as it does. */
static uint64_t cells_left(const struct memlimit *limit, const struct memlimit_state *state)
{
	uint32_t now = state->live_permille, last = limit->live_permille;
	uint32_t taken = now > last ? now + 2 * (now - last) : now;
	uint64_t least = state->live_cells / LEFT_LEAST + 1;
	uint64_t left =
		taken < PRESSURE_FULL ? state->live_cells / 1000 * (PRESSURE_FULL - taken) : 0;

	return left > least ? left : least;
}

static uint64_t interval_for_table(const struct memlimit *limit, const struct memlimit_state *state)
{
	uint32_t begin = limit->interval > 1 ? PRESSURE_END : PRESSURE_BEGIN;

	if (state->can_grow || state->live_permille < begin)
		return 1;
	return state->inuse_bytes / cells_left(limit, state) * INUSE_FACTOR + INTERVAL_LEAST;
}

/*
 * Sites, threads and our own lists may take more than was left for them: then
 * fewer samples are all that can be done. By 8 for each quarter of the last 16th.
 */
static uint64_t interval_for_rest(const struct memlimit *limit, uint64_t held_bytes)
{
	uint64_t quarter = limit->limit_bytes / 16 / 4;
	uint64_t sites = limit->limit_bytes / 16 * SITES_SHARE, quarters;

	if (held_bytes <= sites)
		return 1;
	quarters = (held_bytes - sites) / quarter;
	return INTERVAL_LEAST << 3 * (quarters < 8 ? quarters : 8);
}

static uint64_t power_of_2(uint64_t value)
{
	uint64_t power = 1;

	while (power < value && power < INTERVAL_MOST)
		power *= 2;
	return power;
}

uint64_t memlimit_step(struct memlimit *limit, const struct memlimit_state *state)
{
	uint64_t table = interval_for_table(limit, state);
	uint64_t rest = interval_for_rest(limit, state->held_bytes);
	uint64_t interval = power_of_2(table > rest ? table : rest);

	limit->live_permille = state->live_permille;
	if (interval > limit->interval || interval <= limit->interval / RELIEF)
		limit->interval = interval;
	return limit->interval;
}
