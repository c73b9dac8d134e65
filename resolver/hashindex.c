// SPDX-License-Identifier: GPL-3.0-or-later
#include "resolver/hashindex.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_CAPACITY 64

void hashindex_deinit(struct hashindex *index)
{
	free(index->cell);
	*index = (struct hashindex){0};
}

static size_t slot_of(const struct hashindex *index, uint32_t high)
{
	/* The high half chooses, so that growing needs no second hash. */
	return (high * 0x9e3779b97f4a7c15ull >> 20) & (index->capacity - 1);
}

static void put(struct hashindex *index, struct hashindex_cell cell)
{
	size_t slot = slot_of(index, cell.hash);

	while (index->cell[slot].id)
		slot = (slot + 1) & (index->capacity - 1);
	index->cell[slot] = cell;
}

static struct error *grow(struct hashindex *index)
{
	struct hashindex bigger = {
		.capacity = index->capacity ? index->capacity * 2 : FIRST_CAPACITY,
		.count = index->count,
	};

	bigger.cell = calloc(bigger.capacity, sizeof(*bigger.cell));
	if (!bigger.cell)
		return error_memory();
	for (size_t i = 0; i < index->capacity; i++)
		if (index->cell[i].id)
			put(&bigger, index->cell[i]);
	free(index->cell);
	*index = bigger;
	return NULL;
}

struct error *hashindex_add(struct hashindex *index, uint64_t hash, uint32_t id)
{
	if (index->count * 2 >= index->capacity) {
		struct error *err = grow(index);

		if (err)
			return err;
	}
	put(index, (struct hashindex_cell){.hash = hash >> 32, .id = id + 1});
	index->count++;
	return NULL;
}

size_t hashindex_first(const struct hashindex *index, uint64_t hash)
{
	return index->capacity ? slot_of(index, hash >> 32) : 0;
}

bool hashindex_next(const struct hashindex *index, size_t *slot, uint64_t hash, uint32_t *id_ret)
{
	uint32_t high = hash >> 32;

	if (!index->capacity)
		return false;
	for (;;) {
		const struct hashindex_cell *cell = &index->cell[*slot];

		if (!cell->id)
			return false;
		*slot = (*slot + 1) & (index->capacity - 1);
		if (cell->hash == high) {
			*id_ret = cell->id - 1;
			return true;
		}
	}
}

uint64_t hash_u64(uint64_t hash, uint64_t value)
{
	/* Finalizer of splitmix64: every input bit reaches every output bit. */
	hash ^= value;
	hash += 0x9e3779b97f4a7c15ull;
	hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9ull;
	hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebull;
	return hash ^ (hash >> 31);
}

uint64_t hash_bytes(uint64_t hash, const void *data, size_t size)
{
	const unsigned char *byte = data;
	uint64_t word;

	hash = hash_u64(hash, size);
	for (; size >= sizeof(word); size -= sizeof(word), byte += sizeof(word)) {
		memcpy(&word, byte, sizeof(word));
		hash = hash_u64(hash, word);
	}
	if (size) {
		word = 0;
		memcpy(&word, byte, size);
		hash = hash_u64(hash, word);
	}
	return hash;
}
