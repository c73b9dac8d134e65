/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A hash index over an array that somebody else keeps: finds the number of an
 * element by its hash and a comparison. Only adds; grows by doubling.
 *
 *	for (slot = hashindex_first(&index, hash); hashindex_next(&index, &slot, hash, &id);)
 *		if (same(&array[id], key))
 *			return id;
 */
#ifndef RESOLVER_HASHINDEX_H
#define RESOLVER_HASHINDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "resolver/error.h"

struct hashindex_cell {
	uint32_t hash; /* high half of the hash */
	uint32_t id;   /* element + 1; 0 = empty */
};

/* Zero is an empty index. */
struct hashindex {
	struct hashindex_cell *cell;
	size_t capacity; /* a power of two, or 0 */
	size_t count;
};

void hashindex_deinit(struct hashindex *index);

/* Add element @id (below UINT32_MAX), which must not be in the index. */
MUST_CHECK struct error *hashindex_add(struct hashindex *index, uint64_t hash, uint32_t id);

/* Start a search: where to look first. */
size_t hashindex_first(const struct hashindex *index, uint64_t hash);

/*
 * The next element whose hash may be @hash; false at the end. @slot: from
 * hashindex_first(), moved on.
 */
bool hashindex_next(const struct hashindex *index, size_t *slot, uint64_t hash, uint32_t *id_ret);

/* Mix @size bytes into @hash (start with 0). Not for untrusted peers' flooding, only for spread. */
uint64_t hash_bytes(uint64_t hash, const void *data, size_t size);
uint64_t hash_u64(uint64_t hash, uint64_t value);

#endif
