/* SPDX-License-Identifier: GPL-3.0-or-later */
/* A library that is loaded, unloaded and loaded again while it is watched. */
#include <stdlib.h>

#define NOINLINE __attribute__((noinline))

NOINLINE void *late_first(size_t size)
{
	void *volatile block = malloc(size);

	return block;
}

NOINLINE void *late_second(size_t size)
{
	void *volatile block = calloc(1, size);

	return block;
}

NOINLINE void *late_third(size_t size)
{
	void *volatile block = realloc(NULL, size);

	return block;
}
