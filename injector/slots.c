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
 * Writes the hook and reads it back. A value that lazy binding put there in
 * between is no failure: slots_verify() writes again.
 */
static struct error *slot_store(const struct memory_reader *memory,
				const struct memory_writer *writer, struct slot *slot)
{
	uint64_t current;
	struct error *err;

	err = writer->write(writer->ctx, slot->address, &slot->hook, sizeof(slot->hook));
	if (!err)
		err = memory_read_u64(memory, slot->address, &current);
	if (err)
		return error_prefix(err, "slot at 0x%llx", (unsigned long long)slot->address);
	if (current != slot->hook && current != slot->call)
		return error_create(ERROR_FAULT,
				    "the slot at 0x%llx reads 0x%llx after 0x%llx was "
				    "written",
				    (unsigned long long)slot->address, (unsigned long long)current,
				    (unsigned long long)slot->hook);
	return NULL;
}

/* Puts restore back whatever is there; used for slots that this call has just written. */
static void undo_writes(const struct memory_writer *writer, struct slots *slots, const bool *fresh,
			size_t count)
{
	while (count-- > 0) {
		struct slot *slot = &slots->slot[count];
		struct error *err;

		if (!fresh[count])
			continue;
		err = writer->write(writer->ctx, slot->address, &slot->restore,
				    sizeof(slot->restore));
		slot->state = err ? SLOT_WRITTEN : SLOT_PLANNED;
		error_free(err);
	}
}

static struct error *write_one(const struct memory_reader *memory,
			       const struct memory_writer *writer, struct slot *slot, bool *fresh,
			       struct slots_result *result)
{
	uint64_t current;

	if (!memory_try_u64(memory, slot->address, &current)) {
		slot->state = SLOT_GONE;
		result->gone++;
		return NULL;
	}
	if (current == slot->hook) {
		slot->state = SLOT_WRITTEN;
		result->already++;
		return NULL;
	}
	if (!slot_accepts(slot, current)) {
		slot->state = SLOT_SKIPPED;
		result->skipped++;
		return NULL;
	}
	/* Recorded before it is made. */
	slot->state = SLOT_WRITTEN;
	*fresh = true;
	result->written++;
	return slot_store(memory, writer, slot);
}

struct error *slots_write(const struct memory_reader *memory, const struct memory_writer *writer,
			  struct slots *slots, struct slots_result *ret)
{
	CLEANUP(freep) bool *fresh = calloc(slots->count + 1, sizeof(bool));
	struct slots_result result = {0};
	struct error *err = NULL;

	if (!fresh)
		return error_memory();
	if (!slots->entry)
		return error_create(ERROR_NOT_FOUND, "the slots have no entry object to point to");
	for (size_t i = 0; i < slots->count; i++) {
		struct slot *slot = &slots->slot[i];

		if (slot->state != SLOT_PLANNED && slot->state != SLOT_RESTORED)
			continue;
		err = write_one(memory, writer, slot, &fresh[i], &result);
		if (err) {
			undo_writes(writer, slots, fresh, i + 1);
			return err;
		}
	}
	*ret = result;
	return NULL;
}

/* ---- verifying */

static struct error *verify_one(const struct memory_reader *memory,
				const struct memory_writer *writer, struct slot *slot,
				struct slots_result *result)
{
	uint64_t current;

	if (!memory_try_u64(memory, slot->address, &current)) {
		slot->state = SLOT_GONE;
		result->gone++;
		return NULL;
	}
	if (current == slot->hook) {
		result->already++;
		return NULL;
	}
	/* A binding that was in flight when we wrote: it has stored the definition. */
	if (current != slot->call || slot->rebound == REBOUND_MAX) {
		slot->state = SLOT_LOST;
		result->lost++;
		return NULL;
	}
	slot->rebound++;
	result->written++;
	return slot_store(memory, writer, slot);
}

struct error *slots_verify(const struct memory_reader *memory, const struct memory_writer *writer,
			   struct slots *slots, struct slots_result *ret)
{
	struct slots_result result = {0};
	struct error *err;

	for (size_t i = 0; i < slots->count; i++) {
		struct slot *slot = &slots->slot[i];

		if (slot->state != SLOT_WRITTEN)
			continue;
		err = verify_one(memory, writer, slot, &result);
		if (err)
			return err;
	}
	*ret = result;
	return NULL;
}

/* ---- putting back */

static bool module_is_there(const struct modules *modules, uint32_t id)
{
	for (size_t i = 0; i < modules->count; i++) {
		if (modules->module[i]->id == id)
			return true;
	}
	return false;
}

/* @return the error of the write, for the first one to be reported. */
static struct error *restore_one(const struct memory_reader *memory,
				 const struct memory_writer *writer, const struct modules *modules,
				 struct slot *slot, struct slots_result *result)
{
	uint64_t current;
	struct error *err;

	if (!module_is_there(modules, slot->module) ||
	    !memory_try_u64(memory, slot->address, &current)) {
		slot->state = SLOT_GONE;
		result->gone++;
		return NULL;
	}
	if (current != slot->hook) {
		slot->state = current == slot->restore ? SLOT_RESTORED : SLOT_LOST;
		result->restored += slot->state == SLOT_RESTORED;
		result->lost += slot->state == SLOT_LOST;
		return NULL;
	}
	err = writer->write(writer->ctx, slot->address, &slot->restore, sizeof(slot->restore));
	if (!err)
		err = memory_read_u64(memory, slot->address, &current);
	if (!err && current == slot->hook && slot->hook != slot->restore)
		err = error_create(ERROR_FAULT, "the slot at 0x%llx keeps its old value",
				   (unsigned long long)slot->address);
	if (err) {
		result->failed++;
		return err;
	}
	slot->state = SLOT_RESTORED;
	result->restored++;
	return NULL;
}

struct error *slots_restore(const struct memory_reader *memory, const struct memory_writer *writer,
			    const struct modules *modules, struct slots *slots,
			    struct slots_result *ret)
{
	struct slots_result result = {0};
	struct error *first = NULL;

	for (size_t i = slots->count; i-- > 0;) {
		struct slot *slot = &slots->slot[i];
		struct error *err;

		if (slot->state != SLOT_WRITTEN)
			continue;
		err = restore_one(memory, writer, modules, slot, &result);
		if (!first)
			first = err;
		else
			error_free(err);
	}
	*ret = result;
	if (first)
		return error_prefix(first, "%zu slots could not be put back", result.failed);
	return NULL;
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
