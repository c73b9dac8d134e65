/* SPDX-License-Identifier: GPL-3.0-or-later */
/* One of thousands: each copy of this file is a library of its own. */
#include <stdint.h>
#include <stdlib.h>

/* Keeps a block. */
void *crowd_work(size_t size)
{
	void *volatile block = malloc(size);

	return block;
}

/* What the word holds that the call above goes through. */
uint64_t crowd_word(void)
{
	void *(*volatile word)(size_t) = malloc;

	return (uint64_t)word;
}
