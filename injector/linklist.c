// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/linklist.h"

#include "injector/modules.h"
#include "resolver/array.h"
#include "resolver/cleanup.h"

#include <string.h>
#include <time.h>

#define NAME_SPACES_MAX 64u /* glibc has room for 16 */
#define NAME_MAX_BYTES	4096u
#define TRIES		40 /* of which the last ones wait */
#define TRIES_AT_ONCE	4
#define WAIT_NS		500000L

/* The public part of <link.h>'s structs, as a 64-bit target has them. */
struct remote_r_debug {
	int32_t version, pad;
	uint64_t map, brk;
	int32_t state, pad2;
	uint64_t ldbase;
	uint64_t next; /* only if version >= 2: the next namespace's */
};
struct remote_link_map {
	uint64_t addr, name, dynamic, next, prev;
};
#define R_DEBUG_SIZE_1 offsetof(struct remote_r_debug, next)
#define RT_CONSISTENT_ 0
#define MAP_WORDS      (sizeof(struct remote_link_map) / sizeof(uint64_t))

/* Link maps that were read together: MAP_WORDS of each. */
struct ahead {
	struct memory_word *word;
	struct hashindex index; /* of link maps, by address */
};

static struct error *busy(const char *what)
{
	return error_hint(error_create(ERROR_BUSY, "the target's loader %s", what),
			  "try again in a moment");
}

static uint64_t hash_of(uint64_t bias, uint64_t dynamic)
{
	return hash_u64(hash_u64(0, bias), dynamic);
}

/* @map: 0 = whatever it is. */
static const struct link_entry *find(const struct link_list *list, uint64_t map, uint64_t bias,
				     uint64_t dynamic)
{
	uint64_t hash = hash_of(bias, dynamic);
	uint32_t id;
	size_t slot;

	for (slot = hashindex_first(&list->index, hash);
	     hashindex_next(&list->index, &slot, hash, &id);) {
		const struct link_entry *entry = &list->entry[id];

		if (entry->bias == bias && entry->dynamic == dynamic && (!map || entry->map == map))
			return entry;
	}
	return NULL;
}

static struct error *read_name(const struct memory_reader *memory, uint64_t address, char **ret)
{
	if (address)
		return memory_read_string(memory, address, NAME_MAX_BYTES, ret);
	*ret = strdup("");
	return *ret ? NULL : error_memory();
}

static struct error *add_entry(const struct memory_reader *memory, uint64_t address,
			       const struct remote_link_map *map, bool names,
			       struct link_list *list)
{
	struct link_entry entry = {
		.map = address,
		.bias = map->addr,
		.dynamic = map->dynamic,
		.name_space = list->name_spaces,
	};
	struct error *err;

	if (list->name_spaces && find(list, 0, map->addr, map->dynamic))
		return NULL;
	err = array_grow(&list->entry, list->count, 1);
	if (!err && names)
		err = read_name(memory, map->name, &entry.name);
	if (err)
		return err;
	list->entry[list->count++] = entry;
	return hashindex_add(&list->index, hash_of(entry.bias, entry.dynamic),
			     (uint32_t)list->count - 1);
}

static void ahead_deinit(struct ahead *ahead)
{
	free(ahead->word);
	hashindex_deinit(&ahead->index);
}

static struct error *ahead_read(const struct memory_reader *memory, const uint64_t *maps,
				size_t count, struct ahead *ahead)
{
	struct error *err = NULL;

	ahead->word = calloc(count * MAP_WORDS + 1, sizeof(*ahead->word));
	if (!ahead->word)
		return error_memory();
	for (size_t i = 0; i < count && !err; i++) {
		for (size_t k = 0; k < MAP_WORDS; k++)
			ahead->word[i * MAP_WORDS + k].address = maps[i] + k * sizeof(uint64_t);
		err = hashindex_add(&ahead->index, hash_u64(0, maps[i]), (uint32_t)i);
	}
	if (!err)
		memory_try_words(memory, ahead->word, count * MAP_WORDS);
	return err;
}

/* The words at @address, or NULL. */
static const struct memory_word *ahead_find(const struct ahead *ahead, uint64_t address)
{
	uint64_t hash = hash_u64(0, address);
	uint32_t id;
	size_t slot;

	for (slot = hashindex_first(&ahead->index, hash);
	     hashindex_next(&ahead->index, &slot, hash, &id);) {
		const struct memory_word *word = &ahead->word[id * MAP_WORDS];

		if (word->address == address)
			return word;
	}
	return NULL;
}

static struct error *read_map(const struct memory_reader *memory, const struct ahead *ahead,
			      uint64_t address, struct remote_link_map *ret)
{
	const struct memory_word *word = ahead_find(ahead, address);
	uint64_t value[MAP_WORDS];

	for (size_t i = 0; i < MAP_WORDS; i++) {
		if (!word || !word[i].ok)
			return memory_read(memory, address, ret, sizeof(*ret));
		value[i] = word[i].value;
	}
	memcpy(ret, value, sizeof(*ret));
	return NULL;
}

static struct error *read_chain(const struct memory_reader *memory, const struct ahead *ahead,
				uint64_t first, bool names, struct link_list *list)
{
	uint64_t prev = 0;
	struct error *err;

	for (uint64_t at = first; at;) {
		struct remote_link_map map;

		if (list->count >= MODULES_MAX)
			return error_create(ERROR_FORMAT, "the loader lists more than %u objects",
					    MODULES_MAX);
		err = read_map(memory, ahead, at, &map);
		if (err)
			return err;
		if (map.prev != prev) /* in the middle of a change, or a loop */
			return busy("is changing its list of objects");
		err = add_entry(memory, at, &map, names, list);
		if (err)
			return err;
		prev = at;
		at = map.next;
	}
	return NULL;
}

static struct error *read_once(const struct memory_reader *memory, const struct ahead *ahead,
			       uint64_t r_debug, bool names, struct link_list *list)
{
	struct error *err;

	for (uint64_t at = r_debug; at && list->name_spaces < NAME_SPACES_MAX;) {
		struct remote_r_debug debug = {0};

		err = memory_read(memory, at, &debug, R_DEBUG_SIZE_1);
		if (!err && debug.version >= 2)
			err = memory_read_u64(memory, at + R_DEBUG_SIZE_1, &debug.next);
		if (err)
			return err;
		if (debug.state != RT_CONSISTENT_)
			return busy("is changing its list of objects");
		err = read_chain(memory, ahead, debug.map, names, list);
		if (err)
			return err;
		list->name_spaces++;
		at = debug.next;
	}
	if (!list->count)
		return busy("has not begun: the process is still being started");
	return NULL;
}

static bool lists_equal(const struct link_list *a, const struct link_list *b)
{
	if (a->count != b->count || a->name_spaces != b->name_spaces)
		return false;
	for (size_t i = 0; i < a->count; i++) {
		const struct link_entry *x = &a->entry[i], *y = &b->entry[i];

		if (x->map != y->map || x->bias != y->bias || x->dynamic != y->dynamic ||
		    strcmp(x->name, y->name) != 0)
			return false;
	}
	return true;
}

static struct error *read_twice(const struct memory_reader *memory, uint64_t r_debug,
				struct link_list *ret)
{
	CLEANUP(linklist_deinit) struct link_list first = {0}, second = {0};
	const struct ahead nothing = {0};
	struct error *err;

	err = read_once(memory, &nothing, r_debug, true, &first);
	if (!err)
		err = read_once(memory, &nothing, r_debug, true, &second);
	if (err)
		return err;
	if (!lists_equal(&first, &second))
		return busy("is changing its list of objects");
	*ret = first;
	first = (struct link_list){0};
	return NULL;
}

struct error *linklist_read(const struct memory_reader *memory, uint64_t r_debug,
			    struct link_list *ret)
{
	struct error *err;

	for (int try = 1;; try++) {
		err = read_twice(memory, r_debug, ret);
		if (!err || try == TRIES || error_is(err, ERROR_MEMORY) ||
		    error_is(err, ERROR_GONE))
			return err;
		if (try > TRIES_AT_ONCE)
			nanosleep(&(struct timespec){.tv_nsec = WAIT_NS}, NULL);
		error_free(err);
	}
}

struct error *linklist_read_frozen(const struct memory_reader *memory, uint64_t r_debug,
				   const uint64_t *maps, size_t count, struct link_list *ret)
{
	CLEANUP(linklist_deinit) struct link_list list = {0};
	CLEANUP(ahead_deinit) struct ahead ahead = {0};
	struct error *err = ahead_read(memory, maps, count, &ahead);

	if (!err)
		err = read_once(memory, &ahead, r_debug, false, &list);
	if (err)
		return err;
	*ret = list;
	list = (struct link_list){0};
	return NULL;
}

const struct link_entry *linklist_find(const struct link_list *list, uint64_t map, uint64_t bias,
				       uint64_t dynamic)
{
	return map ? find(list, map, bias, dynamic) : NULL;
}

void linklist_deinit(struct link_list *list)
{
	for (size_t i = 0; i < list->count; i++)
		free(list->entry[i].name);
	free(list->entry);
	hashindex_deinit(&list->index);
	*list = (struct link_list){0};
}
