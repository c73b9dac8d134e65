// SPDX-License-Identifier: GPL-3.0-or-later
#include "tests/snapshot.h"

#include <execinfo.h>
#include <stdlib.h>
#include <unistd.h>

#include "payload/core/capture.h"
#include "payload/core/sites.h"
#include "payload/core/stack.h"
#include "resolver/maps.h"
#include "tests/arch/x86_64/here.h"
#include "tests/tests.h"

#define NO_INLINE __attribute__((noinline))

void snapshot_init(void)
{
	void *trace[1];

	/* The first call loads libgcc_s. */
	backtrace(trace, 1);
}

/* Copied by a loop, since a sanitizer forbids to copy all of a stack at once. */
__attribute__((no_sanitize("address"))) static void stack_copy(struct snapshot *snapshot)
{
	uint64_t at = snapshot->address + sizeof(struct ha_frame);
	uint64_t *to = snapshot->words + sizeof(struct ha_frame) / 8;

	for (; at < snapshot->address + snapshot->size; at += 8)
		*to++ = stack_load(at);
}

static uint64_t stack_end(uint64_t sp)
{
	struct maps maps;
	uint64_t end;

	assert_ok(maps_read(getpid(), &maps));
	ck_assert_ptr_nonnull(maps_find(&maps, sp));
	end = maps_find(&maps, sp)->end;
	maps_deinit(&maps);
	return end;
}

static NO_INLINE void snapshot_take(struct snapshot *ret)
{
	struct ha_frame *frame = (struct ha_frame *)ret->words;
	uint64_t sp = here_fill(frame);
	void *trace[SNAPSHOT_FRAMES];
	int count = backtrace(trace, SNAPSHOT_FRAMES), first = 0;

	ret->address = sp - sizeof(*frame);
	ret->size = stack_end(sp) - ret->address;
	if (ret->size > sizeof(ret->words))
		ret->size = sizeof(ret->words);
	stack_copy(ret);
	/* Between this function and the trace there is a frame more with some sanitizers. */
	while (first < count && trace[first] != __builtin_return_address(0))
		first++;
	ck_assert_int_gt(count - first, 10);
	ret->frames = (uint32_t)(count - first) + 1;
	ret->pc[0] = frame->ra;
	for (uint32_t i = 1; i < ret->frames; i++)
		ret->pc[i] = (uint64_t)trace[first + (int)i - 1];
}

/* Some frames of different sizes in between. */
static NO_INLINE void snapshot_below(struct snapshot *ret, unsigned int depth)
{
	volatile char *room = __builtin_alloca(16 + 8 * (depth % 5));

	room[depth] = 1;
	if (depth)
		snapshot_below(ret, depth - 1);
	else
		snapshot_take(ret);
	room[depth] = 2;
}

struct snapshot *snapshot_create(void)
{
	struct snapshot *snapshot = calloc(1, sizeof(*snapshot));

	ck_assert_ptr_nonnull(snapshot);
	snapshot_below(snapshot, 7);
	return snapshot;
}

void snapshot_capture(const struct snapshot *snapshot, struct ha_shm *shm, uint16_t flags)
{
	const struct site_key key = {
		.pc = snapshot->pc, .frames = snapshot->frames, .flags = flags};
	struct walk_start start = {
		.shm = shm,
		.frame = (const struct ha_frame *)snapshot->words,
		.bounds = {(uint64_t)snapshot->words, (uint64_t)snapshot->words + snapshot->size},
	};
	uint32_t site = sites_intern(shm, &key);

	ck_assert_uint_ne(site, HA_SITE_UNKNOWN);
	ck_assert(rules_begin(shm, &start.rules));
	capture_take(&start, site);
}
