// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/slots.h"

#include "injector/functions.h"
#include "resolver/cleanup.h"

#include <string.h>

#define REBOUND_MAX 3 /* times that one slot is written again */

void slots_place(struct slots *slots, uint64_t entry)
{
	slots->entry = entry;
	for (size_t i = 0; i < slots->count; i++)
		slots->slot[i].hook =
			entry + HA_ENTRY_STUBS + (uint64_t)slots->slot[i].pair * HA_STUB_SIZE;
}

static struct slot *find_slot(const struct slots *slots, uint64_t address)
{
	for (size_t i = 0; i < slots->count; i++) {
		if (slots->slot[i].address == address)
			return &slots->slot[i];
	}
	return NULL;
}

void slots_inherit(struct slots *slots, const struct slots *old)
{
	for (size_t i = 0; i < old->count; i++) {
		const struct slot *from = &old->slot[i];
		struct slot *slot;

		if (from->state != SLOT_WRITTEN)
			continue;
		slot = find_slot(slots, from->address);
		if (!slot || slot->module != from->module || slot->found != from->hook)
			continue;
		slot->restore = from->restore;
		slot->rebound = from->rebound;
		slot->state = SLOT_WRITTEN;
	}
}

/* ---- writing */

/* May @slot be written over @current? Lazy binding may have filled it meanwhile. */
static bool slot_accepts(struct slot *slot, uint64_t current)
{
	if (current == slot->found)
		return true;
	if (!slot->unbound || current != slot->call)
		return false;
	slot->found = slot->restore = current;
	slot->unbound = false;
	return true;
}

/*
 * What all slots hold now: of each the word that has its number; the caller frees *ret.
 * In order of writing, words of one page would be far apart.
 */
static struct error *slots_read(const struct memory_reader *memory, const struct slots *slots,
				struct memory_word **ret)
{
	struct memory_word *words = calloc(slots->count + 1, sizeof(*words));

	if (!words)
		return error_memory();
	for (size_t i = 0; i < slots->count; i++)
		words[slots->slot[i].word].address = slots->slot[i].address;
	memory_try_words(memory, words, slots->count);
	*ret = words;
	return NULL;
}

/* Is @slot to be written? Otherwise its state says why not. */
static bool slot_settle(struct slot *slot, const struct memory_word *word,
			struct slots_result *result)
{
	if (!word->ok) {
		slot->state = SLOT_GONE;
		result->gone++;
		return false;
	}
	if (word->value == slot->hook) {
		slot->state = SLOT_WRITTEN;
		result->already++;
		return false;
	}
	if (!slot_accepts(slot, word->value)) {
		slot->state = SLOT_SKIPPED;
		result->skipped++;
		return false;
	}
	return true;
}

struct error *slots_write(const struct memory_reader *memory, struct slots *slots,
			  struct changes *changes, struct slots_result *ret)
{
	CLEANUP(freep) struct memory_word *words = NULL;
	struct slots_result result = {0};
	struct error *err;

	if (!slots->entry)
		return error_create(ERROR_NOT_FOUND, "the slots have no entry object to point to");
	err = slots_read(memory, slots, &words);
	for (size_t i = 0; i < slots->count && !err; i++) {
		struct slot *slot = &slots->slot[i];

		if ((slot->state != SLOT_PLANNED && slot->state != SLOT_RESTORED) ||
		    !slot_settle(slot, &words[slot->word], &result))
			continue;
		result.written++;
		err = changes_add(changes, slot->address, words[slot->word].value, slot->hook,
				  slot->protection);
	}
	if (!err)
		*ret = result;
	return err;
}

/* ---- verifying */

/* Is @slot to be written again? */
static bool slot_was_rebound(struct slot *slot, const struct memory_word *word,
			     struct slots_result *result)
{
	if (!word->ok) {
		slot->state = SLOT_GONE;
		result->gone++;
		return false;
	}
	if (word->value == slot->hook) {
		result->already++;
		return false;
	}
	/* A binding that was in flight when we wrote: it has stored the definition. */
	if (word->value != slot->call || slot->rebound == REBOUND_MAX) {
		slot->state = SLOT_LOST;
		result->lost++;
		return false;
	}
	return true;
}

struct error *slots_verify(const struct memory_reader *memory, struct slots *slots,
			   struct slots_result *ret)
{
	CLEANUP(freep) struct memory_word *words = NULL;
	struct slots_result result = {0};
	struct error *err = slots_read(memory, slots, &words);

	for (size_t i = 0; i < slots->count && !err; i++) {
		struct slot *slot = &slots->slot[i];

		if (slot->state != SLOT_WRITTEN ||
		    !slot_was_rebound(slot, &words[slot->word], &result))
			continue;
		slot->rebound++;
		slot->found = words[slot->word].value;
		slot->state = SLOT_PLANNED;
		result.written++;
	}
	if (!err)
		*ret = result;
	return err;
}

/* ---- putting back */

/* Is @slot to be put back? Otherwise its state says why not. */
static bool slot_is_ours(struct slot *slot, const struct memory_word *word, const bool *there,
			 struct slots_result *result)
{
	if (!word->ok || !there[slot->module]) {
		slot->state = SLOT_GONE;
		result->gone++;
		return false;
	}
	if (word->value == slot->hook)
		return true;
	slot->state = word->value == slot->restore ? SLOT_RESTORED : SLOT_LOST;
	result->restored += slot->state == SLOT_RESTORED;
	result->lost += slot->state == SLOT_LOST;
	return false;
}

struct error *slots_restore(const struct memory_reader *memory, const struct modules *modules,
			    struct slots *slots, struct changes *changes, struct slots_result *ret)
{
	CLEANUP(freep) struct memory_word *words = NULL;
	CLEANUP(freep) bool *there = modules_flags(modules);
	struct slots_result result = {0};
	struct error *err;

	if (!there)
		return error_memory();
	for (size_t i = 0; i < modules->count; i++)
		there[modules->module[i]->id] = true;
	err = slots_read(memory, slots, &words);
	for (size_t i = slots->count; i-- > 0 && !err;) {
		struct slot *slot = &slots->slot[i];

		if (slot->state != SLOT_WRITTEN ||
		    !slot_is_ours(slot, &words[slot->word], there, &result))
			continue;
		result.restored++;
		err = changes_add(changes, slot->address, slot->hook, slot->restore,
				  slot->protection);
	}
	if (!err)
		*ret = result;
	return err;
}

void slots_tried(struct slots *slots)
{
	for (size_t i = 0; i < slots->count; i++) {
		struct slot *slot = &slots->slot[i];

		if (slot->state == SLOT_PLANNED && slot->rebound++ == REBOUND_MAX)
			slot->state = SLOT_SKIPPED;
	}
}

void slots_observe(const struct memory_reader *memory, struct slots *slots)
{
	CLEANUP(freep) struct memory_word *words = NULL;
	struct error *err = slots_read(memory, slots, &words);

	for (size_t i = 0; i < slots->count && !err; i++) {
		struct slot *slot = &slots->slot[i];
		const struct memory_word *word = &words[slot->word];

		if (!slot->hook || !word->ok)
			continue;
		if (word->value == slot->hook && slot->hook != slot->restore)
			slot->state = SLOT_WRITTEN;
		else if (slot->state == SLOT_WRITTEN && word->value == slot->restore)
			slot->state = SLOT_RESTORED;
	}
	error_free(err);
}

/* ---- copies of the functions' addresses */

#define SCAN_CHUNK (256u * 1024u)

struct scan {
	uint64_t value[HA_PAIRS];
	size_t value_count;
	uint64_t low, high; /* of the values */
	uint64_t *slot;	    /* addresses of all slots, sorted; owned */
	size_t slot_count;
	size_t found;
};

static int u64_compare(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static struct error *scan_init(const struct slots *slots, struct scan *scan)
{
	scan->low = UINT64_MAX;
	for (size_t i = 0; i < slots->pair_count; i++) {
		uint64_t call = slots->pair[i].call;

		scan->value[scan->value_count++] = call;
		scan->low = call < scan->low ? call : scan->low;
		scan->high = call > scan->high ? call : scan->high;
	}
	scan->slot = calloc(slots->count + slots->skip_count + 1, sizeof(uint64_t));
	if (!scan->slot)
		return error_memory();
	for (size_t i = 0; i < slots->count; i++)
		scan->slot[scan->slot_count++] = slots->slot[i].address;
	for (size_t i = 0; i < slots->skip_count; i++)
		scan->slot[scan->slot_count++] = slots->skip[i].address;
	qsort(scan->slot, scan->slot_count, sizeof(uint64_t), u64_compare);
	return NULL;
}

static void scan_words(struct scan *scan, uint64_t address, const uint64_t *words, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		uint64_t at = address + i * 8;

		if (words[i] < scan->low || words[i] > scan->high)
			continue;
		for (size_t k = 0; k < scan->value_count; k++) {
			if (words[i] != scan->value[k])
				continue;
			if (!bsearch(&at, scan->slot, scan->slot_count, 8, u64_compare))
				scan->found++;
			break;
		}
	}
}

/* Scan the pages of one chunk that the target has touched; the others hold nothing. */
static void scan_chunk(struct scan *scan, const struct memory_reader *memory, uint64_t address,
		       size_t size, uint64_t *words)
{
	bool resident[SCAN_CHUNK / HA_PAGE];
	size_t pages = size / HA_PAGE;
	size_t end;

	_Static_assert(SCAN_CHUNK / HA_PAGE <= MEMORY_RESIDENT_MAX, "a chunk is asked for at once");
	if (!memory_resident(memory, address, pages, resident))
		return;
	for (size_t i = 0; i < pages; i = end) {
		for (end = i + 1; end < pages && resident[end] == resident[i];)
			end++;
		if (resident[i] &&
		    memory_try(memory, address + i * HA_PAGE, words, (end - i) * HA_PAGE))
			scan_words(scan, address + i * HA_PAGE, words, (end - i) * HA_PAGE / 8);
	}
}

/* Memory that a program keeps pointers in; thread stacks look the same and are scanned too. */
static bool is_scanned(const struct map *map, const struct slots *slots)
{
	return map->read && map->write && !map->shared && strcmp(map->path, "[stack]") != 0 &&
	       !(slots->entry >= map->start && slots->entry < map->end) &&
	       map->start != slots->entry + HA_ENTRY_DATA;
}

struct error *slots_saved_pointers(const struct memory_reader *memory, const struct maps *maps,
				   const struct slots *slots, uint64_t limit_bytes,
				   size_t *count_ret, bool *truncated_ret)
{
	CLEANUP(freep) uint64_t *words = malloc(SCAN_CHUNK);
	CLEANUP(freep) uint64_t *addresses = NULL;
	struct scan scan = {0};
	uint64_t done = 0;
	struct error *err;

	if (!words)
		return error_memory();
	err = scan_init(slots, &scan);
	if (err)
		return err;
	addresses = scan.slot;
	*truncated_ret = false;
	for (size_t i = 0; i < maps->count; i++) {
		const struct map *map = &maps->map[i];

		if (!is_scanned(map, slots))
			continue;
		for (uint64_t at = map->start; at < map->end; at += SCAN_CHUNK) {
			size_t size = map->end - at < SCAN_CHUNK ? map->end - at : SCAN_CHUNK;

			if (done + size > limit_bytes) {
				*truncated_ret = true;
				break;
			}
			done += size;
			scan_chunk(&scan, memory, at, size, words);
		}
	}
	*count_ret = scan.found;
	return NULL;
}

size_t slots_modules(const struct slots *slots)
{
	size_t count = 0;

	for (size_t i = 0; i < slots->count; i++) {
		size_t k = i;

		/* From the last one back: those of one module come together mostly. */
		while (k > 0 && slots->slot[k - 1].module != slots->slot[i].module)
			k--;
		count += k == 0;
	}
	return count;
}
