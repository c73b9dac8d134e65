// SPDX-License-Identifier: GPL-3.0-or-later
/*
 * A library with an allocator of its own under the usual names. Loaded with
 * RTLD_DEEPBIND its calls bind to it; whoever hands it another allocator's
 * block, or takes its blocks elsewhere, is found out.
 */
#include <stddef.h>
#include <stdlib.h>

static char arena[1 << 22];
static size_t used;
static unsigned long foreign;

void *malloc(size_t size)
{
	size_t at = used;

	size = (size + 31) & ~(size_t)15;
	if (size > sizeof(arena) - at)
		used = at = 0; /* the blocks are dead by then */
	used = at + size;
	return arena + at;
}

void free(void *block)
{
	if (block && ((char *)block < arena || (char *)block >= arena + sizeof(arena)))
		foreign++;
}

/* Blocks that were not from this library's malloc. */
unsigned long plugin_work(unsigned long rounds)
{
	for (unsigned long i = 0; i < rounds; i++) {
		char *block = malloc(64);

		__asm__ volatile("" : : "r"(block) : "memory");
		if (block < arena || block >= arena + sizeof(arena))
			foreign++;
		free(block);
	}
	return foreign;
}
