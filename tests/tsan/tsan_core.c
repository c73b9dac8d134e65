/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * 64 threads record in one shared memory, under the thread sanitizer: it knows
 * every access of the payload's own code, so whatever two of them touch other
 * than by atomic operations is an error. Counters of a thread's own stripe are
 * plain additions in this build (payload/arch/), so a stripe that two threads
 * wrote would be found, too.
 *
 * Each thread has a line, a stack and a range of addresses; blocks are freed by
 * whoever gets them, reallocated now and then, and made on 500 call stacks.
 * Samples are taken in the second half. The sums must come out even.
 */
#include "payload/core/core.h"
#include "tests/core_stack.h"
#include "tests/core_world.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS	 64u
#define ROUNDS	 3000u
#define LIVE	 64u
#define CALLS	 500u

#define TEXT	 0x555500000000ull
#define CALL(n)	 (TEXT + 0x100 + (uint64_t)(n)*16)
#define START	 (TEXT + 0x40)
#define FIRST(t) (0x7f0000000000ull + ((uint64_t)(t) << 32))

struct worker {
	pthread_t thread;
	struct fake_stack stack;
	uint64_t made; /* blocks so far: an address is used again when it came back */
	uint64_t live[LIVE];
	uint64_t allocs, frees;
	uint32_t line;
};

static struct world world;
static struct worker workers[THREADS];
static uint64_t mail[THREADS]; /* a block for each to free; 0: none */

static void block_free(struct worker *worker, uint64_t ptr)
{
	if (!ptr)
		return;
	core_free(world.shm, ptr, worker->line);
	worker->frees++;
}

static uint64_t block_make(struct worker *worker, uint64_t random)
{
	uint64_t ptr = FIRST(worker->line) + ++worker->made * 16;

	worker->stack.frame->ra = CALL(random % CALLS);
	core_alloc(world.shm, worker->stack.frame, ptr, random >> 32 & 0xfff, worker->line);
	worker->allocs++;
	return ptr;
}

static uint64_t block_resize(struct worker *worker, uint64_t ptr, uint64_t random)
{
	uint64_t token = core_realloc_begin(world.shm, ptr, worker->line);
	uint64_t moved = random & 1 ? ptr : FIRST(worker->line) + ++worker->made * 16;

	worker->stack.frame->ra = CALL(random % CALLS);
	core_realloc_end(world.shm, worker->stack.frame, token, moved, random >> 40 & 0xfff,
			 worker->line);
	return moved;
}

static void *work(void *argument)
{
	struct worker *worker = argument;
	uint64_t state = worker->line + 1;

	for (uint32_t i = 0; i < ROUNDS; i++) {
		uint64_t random = world_random(&state);
		uint64_t *slot = &worker->live[random >> 8 & (LIVE - 1)];
		uint32_t to = (uint32_t)(random >> 16) & (THREADS - 1);

		if (*slot && random >> 60 == 0)
			*slot = block_resize(worker, *slot, random);
		else if (*slot && random >> 60 < 8)
			*slot = __atomic_exchange_n(&mail[to], *slot, __ATOMIC_ACQ_REL);
		block_free(worker, *slot);
		*slot = block_make(worker, random);
		block_free(worker, __atomic_exchange_n(&mail[worker->line], 0, __ATOMIC_ACQ_REL));
	}
	for (uint32_t i = 0; i < LIVE; i++)
		block_free(worker, worker->live[i]);
	return NULL;
}

static int stacks_compare(const void *a, const void *b)
{
	const struct ha_stack *x = a, *y = b;

	return (x->low > y->low) - (x->low < y->low);
}

static void world_make(void)
{
	static const struct world_row rows[] = {{0, HA_ESCAPE_END, NULL},
						{0x80, RULE(RULE_RSP, 24, 0), NULL}};
	struct ha_stack stacks[THREADS];

	world_init(&world, NULL);
	world_add_rows(&world, TEXT, 0x100000, rows, 2);
	world_publish_modules(&world);
	for (uint32_t i = 0; i < THREADS; i++) {
		workers[i].line = i;
		fake_stack_init(&workers[i].stack, 512);
		fake_stack_push(&workers[i].stack, 16, START);
		stacks[i] = (struct ha_stack){workers[i].stack.low, workers[i].stack.high};
	}
	qsort(stacks, THREADS, sizeof(stacks[0]), stacks_compare);
	world_publish_stacks(&world, stacks, THREADS);
}

static void run(void)
{
	for (uint32_t i = 0; i < THREADS; i++) {
		if (pthread_create(&workers[i].thread, NULL, work, &workers[i]))
			abort();
	}
	for (uint32_t i = 0; i < THREADS; i++)
		pthread_join(workers[i].thread, NULL);
	for (uint32_t i = 0; i < THREADS; i++) {
		block_free(&workers[0], mail[i]);
		mail[i] = 0;
		memset(workers[i].live, 0, sizeof(workers[i].live));
	}
}

/* 0 if all is even. */
static int check(const char *what)
{
	struct ha_sums sums = world_sums(&world);
	struct ha_stripe counters = world_counters(&world);
	uint64_t bytes, cells = world_live_cells(&world, &bytes);

	printf("tsan_core: %s: %llu events, %llu allocations, %llu sites\n", what,
	       (unsigned long long)counters.events, (unsigned long long)sums.alloc_count,
	       (unsigned long long)world.shm->site_next - 1);
	return cells || sums.alloc_count != sums.freed_count ||
	       sums.alloc_bytes != sums.freed_bytes || counters.missed_frees ||
	       counters.untracked || counters.no_site;
}

int main(void)
{
	int failed;

	world_make();
	run();
	failed = check("exact");
	world_set_interval(&world, 1, 10000);
	run();
	failed |= check("sampled");
	if (failed)
		fprintf(stderr, "tsan_core: the sums are not even\n");
	return failed;
}
