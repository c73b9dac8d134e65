// SPDX-License-Identifier: GPL-3.0-or-later
/* A library that allocates through slots of its own. */
#include <stdlib.h>

void (*plugin_release)(void *) = free; /* an address relocation: a slot in data */

unsigned long plugin_work(unsigned long rounds)
{
	for (unsigned long i = 0; i < rounds; i++) {
		void *block = malloc(i % 100 + 1);

		__asm__ volatile("" : : "r"(block) : "memory");
		if (i % 2)
			free(block);
		else
			plugin_release(block);
	}
	return 0;
}
