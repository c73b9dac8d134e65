/* SPDX-License-Identifier: GPL-3.0-or-later */
/* A small library of the target's own: leak_chain calls it through its PLT. */
#include "tests/targets/lib/chain.h"

#include <stdlib.h>

int chain_library_line;

void *chain_library_alloc(size_t size)
{
	/* clang-format off */
	chain_library_line = __LINE__; void *block = malloc(size);
	/* clang-format on */

	__asm__ volatile("" : "+r"(block) : : "memory");
	return block;
}

void chain_library_call(void (*function)(void *), void *argument)
{
	function(argument);
	__asm__ volatile("" : : : "memory");
}
