/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * many_sites [-n STACKS]: 50,000 distinct call stacks.
 *
 *	go     allocate by each stack: stack k makes 1 + k % 3 blocks of 16 + k % 64 bytes
 *	check  the blocks are whole
 *	stop   print the sums, end
 *
 * Each of 16 levels calls the next from one of two functions, so the bits of
 * the stack's number are its return addresses.
 */
#include "tests/targets/target.h"

#define LEVELS 16

static size_t stacks = 50000;
static uint64_t bytes, count;
/* A list through the first word of each block: nothing else is allocated. */
static void **blocks;

static NOINLINE void *step_zero(size_t stack, int level);
static NOINLINE void *step_one(size_t stack, int level);

INLINE void *step(size_t stack, int level)
{
	void *data;

	if (level == LEVELS)
		data = malloc(16 + stack % 64);
	else if (stack >> level & 1)
		data = step_one(stack, level + 1);
	else
		data = step_zero(stack, level + 1);
	KEEP(data);
	return data;
}

static NOINLINE void *step_zero(size_t stack, int level)
{
	return step(stack, level);
}

static NOINLINE void *step_one(size_t stack, int level)
{
	return step(stack, level);
}

static void work(void)
{
	for (size_t stack = 0; stack < stacks; stack++) {
		for (size_t i = 0; i < 1 + stack % 3; i++) {
			void **block = step_zero(stack, 0);

			if (!block)
				target_fail("out of memory");
			block[0] = blocks;
			block[1] = &blocks;
			blocks = block;
			bytes += 16 + stack % 64;
			count++;
		}
	}
}

static bool all_whole(void)
{
	uint64_t found = 0;

	for (void **block = blocks; block; block = block[0]) {
		if (block[1] != &blocks)
			return false;
		found++;
	}
	return found == count;
}

int main(int argc, char **argv)
{
	char line[64];
	int option;

	target_begin();
	while ((option = getopt(argc, argv, "n:")) != -1) {
		if (option != 'n')
			return 2;
		stacks = strtoul(optarg, NULL, 10);
		if (stacks > 1u << LEVELS)
			return 2;
	}
	target_say("ready");
	while (target_command(line, sizeof(line)) && strcmp(line, "stop") != 0) {
		if (strcmp(line, "go") == 0)
			work();
		target_say(all_whole() ? "ok" : "bad");
	}
	target_say("{\"stacks\": %zu, \"alloc_bytes\": %lu, \"alloc_count\": %lu}", stacks, bytes,
		   count);
	return 0;
}
