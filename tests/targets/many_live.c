/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * many_live [-n BLOCKS]: ten million blocks that live at once.
 *
 *	go     allocate them all, by four functions in turn
 *	free   free every second one
 *	check  each block that lives still holds its number
 *	stop   print the sums by function, end
 */
#include "tests/targets/target.h"

#include <sys/mman.h>

#define FUNCTIONS 4

static uint64_t **block;
static size_t blocks = 10000000;
static uint64_t bytes[FUNCTIONS], counts[FUNCTIONS], freed_bytes[FUNCTIONS],
	freed_counts[FUNCTIONS];

#define ALLOCATE(number)                                     \
	static NOINLINE void *allocate_##number(size_t size) \
	{                                                    \
		void *data = malloc(size);                   \
		KEEP(data);                                  \
		return data;                                 \
	}
ALLOCATE(0)
ALLOCATE(1)
ALLOCATE(2)
ALLOCATE(3)

static void *(*const allocate[FUNCTIONS])(size_t) = {allocate_0, allocate_1, allocate_2,
						     allocate_3};

static size_t size_of(size_t index)
{
	return 8 + index % 5 * 8;
}

static void fill(void)
{
	for (size_t i = 0; i < blocks; i++) {
		unsigned int function = i % FUNCTIONS;

		block[i] = allocate[function](size_of(i));
		if (!block[i])
			target_fail("out of memory");
		*block[i] = i;
		bytes[function] += size_of(i);
		counts[function]++;
	}
}

static void free_half(void)
{
	for (size_t i = 0; i < blocks; i += 2) {
		unsigned int function = i % FUNCTIONS;

		if (!block[i])
			continue;
		free(block[i]);
		block[i] = NULL;
		freed_bytes[function] += size_of(i);
		freed_counts[function]++;
	}
}

static bool all_whole(void)
{
	for (size_t i = 0; i < blocks; i++) {
		if (block[i] && *block[i] != i)
			return false;
	}
	return true;
}

static void sums_print(void)
{
	printf("{\"sites\": [");
	for (int i = 0; i < FUNCTIONS; i++)
		printf("%s{\"function\": \"allocate_%d\", \"alloc_bytes\": %lu, "
		       "\"alloc_count\": %lu, \"freed_bytes\": %lu, \"freed_count\": %lu}",
		       i ? ", " : "", i, bytes[i], counts[i], freed_bytes[i], freed_counts[i]);
	target_say("]}");
}

int main(int argc, char **argv)
{
	char line[64];
	int option;

	target_begin();
	while ((option = getopt(argc, argv, "n:")) != -1) {
		if (option != 'n')
			return 2;
		blocks = strtoul(optarg, NULL, 10);
	}
	block = mmap(NULL, blocks * sizeof(block[0]), PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (block == MAP_FAILED)
		target_fail("mmap");
	target_say("ready");
	while (target_command(line, sizeof(line)) && strcmp(line, "stop") != 0) {
		if (strcmp(line, "go") == 0)
			fill();
		else if (strcmp(line, "free") == 0)
			free_half();
		target_say(all_whole() ? "ok" : "bad");
	}
	sums_print();
	return 0;
}
