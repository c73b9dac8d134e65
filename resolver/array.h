/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Arrays that grow. The capacity is not stored: it is the count rounded up to
 * a power of two, so that a pointer and a count are all there is.
 *
 *	err = array_grow(&list->item, list->count, 1);
 *	if (err)
 *		return err;
 *	list->item[list->count++] = item;
 */
#ifndef RESOLVER_ARRAY_H
#define RESOLVER_ARRAY_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "resolver/error.h"

#define ARRAY_SIZE(array) (sizeof(array) / sizeof((array)[0]))

static inline size_t array_capacity(size_t count)
{
	return count <= 8 ? 8 : (size_t)1 << (64 - __builtin_clzll(count - 1));
}

MUST_CHECK static inline struct error *array_grow_bytes(void **items, size_t item_size,
							size_t count, size_t more)
{
	size_t bytes;
	void *moved;

	if (*items && array_capacity(count) >= count + more)
		return NULL;
	if (more > SIZE_MAX / 4 - count ||
	    __builtin_mul_overflow(array_capacity(count + more), item_size, &bytes))
		return error_memory();
	moved = realloc(*items, bytes);
	if (!moved)
		return error_memory();
	*items = moved;
	return NULL;
}

/*
 * Make room for @more elements behind the @count that are there.
 * @pointer: address of the array's pointer, NULL at first; only ever grown here.
 */
#define array_grow(pointer, count, more) \
	array_grow_bytes((void **)(pointer), sizeof(**(pointer)), count, more)

#endif
