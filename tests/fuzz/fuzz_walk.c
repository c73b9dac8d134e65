/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The stack walk and the trie on any unwind table and any stack. Both lie
 * against pages that cannot be read. The input is
 *
 *	u16   bytes of the table
 *	u16   where sp is on the stack
 *	...   the table: a struct ha_table, its arrays behind it
 *	...   9 bytes for each word from struct ha_frame outwards: how to read
 *	      the word (as it is, as an address in the module, as one on the
 *	      stack), and the word
 */
#include "payload/core/trie.h"
#include "payload/core/walk.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define TEXT	    0x555500000000ull
#define TEXT_SIZE   0x10000u
#define STACK_SIZE  (2 * HA_PAGE)
#define TABLES_SIZE (16 * HA_PAGE)

static struct ha_shm *shm;
static char *stack; /* STACK_SIZE bytes between two guard pages */
static uint32_t generation;

static void *map_guarded(size_t size)
{
	char *memory = mmap(NULL, size + 2 * HA_PAGE, PROT_NONE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (memory == MAP_FAILED || mprotect(memory + HA_PAGE, size, PROT_READ | PROT_WRITE) != 0)
		abort();
	return memory + HA_PAGE;
}

/* The tables come last, with a guard page behind them. */
static void world_make(void)
{
	static const struct {
		enum ha_region_id id;
		uint64_t size;
	} regions[] = {
		{HA_REGION_MODULES, HA_PAGE},
		{HA_REGION_STACKS, HA_PAGE},
		{HA_REGION_PC_CACHE, HA_PC_CACHE_SIZE},
		{HA_REGION_TRIE, HA_TRIE_SIZE},
		{HA_REGION_CANDIDATES, HA_CANDIDATES_SIZE},
		{HA_REGION_SITE_INDEX, HA_PAGE},
		{HA_REGION_TABLES, TABLES_SIZE},
	};
	uint64_t at = (sizeof(*shm) + HA_PAGE - 1) & ~(uint64_t)(HA_PAGE - 1);
	struct ha_stack_index *stacks;

	stack = map_guarded(STACK_SIZE);
	shm = map_guarded(at + HA_PC_CACHE_SIZE + HA_TRIE_SIZE + HA_CANDIDATES_SIZE + TABLES_SIZE +
			  3 * HA_PAGE);
	for (size_t i = 0; i < sizeof(regions) / sizeof(regions[0]); i++) {
		shm->region[regions[i].id] = (struct ha_region){at, regions[i].size};
		at += regions[i].size;
	}
	shm->module_index = shm->region[HA_REGION_MODULES].offset;
	shm->stack_index = shm->region[HA_REGION_STACKS].offset;
	stacks = (void *)((char *)shm + shm->stack_index);
	stacks->count = 1;
	stacks->stack[0] = (struct ha_stack){(uint64_t)stack, (uint64_t)stack + STACK_SIZE};
}

/* One module, with these bytes for a table at the very end of the region. */
static void module_set(const uint8_t *table, size_t size)
{
	struct ha_module_index *index = (void *)((char *)shm + shm->module_index);
	const struct ha_region *tables = &shm->region[HA_REGION_TABLES];
	uint64_t at = tables->offset + tables->size - ((size + 7) & ~7ull);

	memcpy((char *)shm + at, table, size);
	index->count = 1;
	index->generation = ++generation;
	index->module[0] = (struct ha_module){TEXT, TEXT + TEXT_SIZE, at, 1, 0};
}

static uint64_t word_read(const uint8_t *data)
{
	uint64_t word;

	memcpy(&word, data + 1, sizeof(word));
	if (data[0] % 4 == 1)
		return TEXT + word % TEXT_SIZE;
	if (data[0] % 4 == 2)
		return (uint64_t)stack - 64 + word % (STACK_SIZE + 128);
	return data[0] % 4 == 3 ? word % 4096 : word;
}

static struct ha_frame *stack_set(uint16_t where, const uint8_t *data, size_t size)
{
	uint64_t room = (STACK_SIZE - sizeof(struct ha_frame)) / 8;
	uint64_t *word = (uint64_t *)stack + where % room;
	struct ha_frame *frame = (struct ha_frame *)word;

	memset(stack, 0, STACK_SIZE);
	for (; size >= 9 && word < (uint64_t *)(stack + STACK_SIZE); size -= 9, data += 9)
		*word++ = word_read(data);
	return frame;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct walk_trace trace;
	uint16_t head[2], table_size;
	struct walk_result result;
	struct walk_start start;
	struct ha_frame *frame;
	uint32_t site;

	if (size < sizeof(head))
		return 0;
	if (!shm)
		world_make();
	memcpy(head, data, sizeof(head));
	data += sizeof(head);
	size -= sizeof(head);
	table_size = head[0] < size ? head[0] : (uint16_t)size;
	module_set(data, table_size);
	frame = stack_set(head[1], data + table_size, size - table_size);

	if (!walk_prepare(shm, frame, 0, &start))
		abort();
	/* Twice: from the table, then from the cache. */
	for (int i = 0; i < 2; i++) {
		walk_run(&start, &trace, &result);
		if (result.frames < 1 || result.frames > HA_FRAMES_MAX)
			abort();
	}
	trie_learn(&start, &trace, &result, 1);
	trie_learn(&start, &trace, &result, 1);
	site = trie_find(shm, frame, start.bounds.high);
	return 0;
}
