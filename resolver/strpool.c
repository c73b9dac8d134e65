// SPDX-License-Identifier: GPL-3.0-or-later
#include "resolver/strpool.h"

#include <stdlib.h>
#include <string.h>

#include "resolver/array.h"
#include "resolver/hashindex.h"

struct entry {
	uint32_t id;
	uint32_t size;
	char text[];
};

struct strpool {
	struct hashindex index;
	struct entry **entry;
	size_t count;
};

static const struct entry *entry_of(const char *text)
{
	return (const struct entry *)(text - offsetof(struct entry, text));
}

struct error *strpool_create(struct strpool **ret)
{
	struct strpool *pool = calloc(1, sizeof(*pool));

	if (!pool)
		return error_memory();
	*ret = pool;
	return NULL;
}

void strpool_free(struct strpool *pool)
{
	if (!pool)
		return;
	for (size_t i = 0; i < pool->count; i++)
		free(pool->entry[i]);
	free(pool->entry);
	hashindex_deinit(&pool->index);
	free(pool);
}

static struct error *entry_create(struct strpool *pool, const char *text, size_t size,
				  uint64_t hash)
{
	struct error *err = array_grow(&pool->entry, pool->count, 1);
	struct entry *entry;

	if (err)
		return err;
	entry = malloc(sizeof(*entry) + size + 1);
	if (!entry)
		return error_memory();
	entry->id = pool->count;
	entry->size = size;
	memcpy(entry->text, text, size);
	entry->text[size] = '\0';
	err = hashindex_add(&pool->index, hash, entry->id);
	if (err) {
		free(entry);
		return err;
	}
	pool->entry[pool->count++] = entry;
	return NULL;
}

struct error *strpool_add(struct strpool *pool, const char *text, size_t size, const char **ret)
{
	uint64_t hash = hash_bytes(0, text, size);
	size_t slot = hashindex_first(&pool->index, hash);
	struct error *err;
	uint32_t id;

	while (hashindex_next(&pool->index, &slot, hash, &id)) {
		const struct entry *entry = pool->entry[id];

		if (entry->size == size && !memcmp(entry->text, text, size)) {
			*ret = entry->text;
			return NULL;
		}
	}
	if (size >= UINT32_MAX || pool->count >= UINT32_MAX - 1)
		return error_create(ERROR_FORMAT, "too many strings, or one of them too long");
	err = entry_create(pool, text, size, hash);
	if (err)
		return err;
	*ret = pool->entry[pool->count - 1]->text;
	return NULL;
}

size_t strpool_count(const struct strpool *pool)
{
	return pool->count;
}

const char *strpool_text(const struct strpool *pool, uint32_t id)
{
	return pool->entry[id]->text;
}

uint32_t strpool_id(const char *text)
{
	return entry_of(text)->id;
}

size_t strpool_size(const char *text)
{
	return entry_of(text)->size;
}
