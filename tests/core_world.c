/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/core_world.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MODULES_SIZE (64ull << 20)
#define TABLES_SIZE  (64ull << 20)
#define STACKS_SIZE  (1ull << 20)

static uint64_t or_default(uint64_t value, uint64_t otherwise)
{
	return value ? value : otherwise;
}

static void region_place(struct world *world, enum ha_region_id id, uint64_t size, uint64_t *at)
{
	world->shm->region[id] = (struct ha_region){*at, size};
	*at = (*at + size + HA_PAGE - 1) & ~(uint64_t)(HA_PAGE - 1);
}

static uint64_t stripe_size(uint64_t sites)
{
	return (sizeof(struct ha_stripe) + sites * sizeof(struct ha_sums) + HA_PAGE - 1) &
	       ~(uint64_t)(HA_PAGE - 1);
}

void world_init(struct world *world, const struct world_options *options)
{
	static const struct world_options none;
	const struct world_options *o = options ? options : &none;
	uint64_t sites = or_default(o->sites, 65536), buckets = or_default(o->buckets, 65536);
	uint64_t arena = or_default(o->arena_size, 64ull << 20);
	uint64_t live = or_default(o->live_buckets, buckets) * sizeof(struct ha_bucket);
	uint64_t stripes = HA_STRIPES * stripe_size(sites), at = 2 * HA_PAGE;
	uint64_t variances = HA_STRIPES * sites * sizeof(struct ha_variances);
	uint64_t histograms = HA_STRIPES * sites * sizeof(struct ha_histograms);
	struct ha_shm *shm;

	memset(world, 0, sizeof(*world));
	world->size = at + MODULES_SIZE + TABLES_SIZE + STACKS_SIZE + HA_PC_CACHE_SIZE +
		      HA_TRIE_SIZE + HA_CANDIDATES_SIZE + HA_SCRATCH_SIZE +
		      HA_SITE_HASH_SIZE(sites) + sites * 8 + arena + stripes + variances +
		      histograms + live + HA_REGIONS * HA_PAGE;
	shm = mmap(NULL, world->size, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (shm == MAP_FAILED)
		abort();
	if (o->huge)
		madvise(shm, world->size, MADV_HUGEPAGE);
	world->shm = shm;
	shm->magic = HA_MAGIC;
	shm->abi = HA_ABI;
	shm->session = 7;
	shm->size = world->size;
	shm->site_capacity = sites;
	shm->site_limit = (uint32_t)sites;
	shm->stripe_size = stripe_size(sites);
	shm->interval[HA_RATE_EXACT] = 1;
	shm->site_next = 1;
	region_place(world, HA_REGION_MODULES, MODULES_SIZE, &at);
	region_place(world, HA_REGION_TABLES, TABLES_SIZE, &at);
	region_place(world, HA_REGION_STACKS, STACKS_SIZE, &at);
	region_place(world, HA_REGION_PC_CACHE, HA_PC_CACHE_SIZE, &at);
	region_place(world, HA_REGION_TRIE, HA_TRIE_SIZE, &at);
	region_place(world, HA_REGION_CANDIDATES, HA_CANDIDATES_SIZE, &at);
	region_place(world, HA_REGION_SCRATCH, HA_SCRATCH_SIZE, &at);
	region_place(world, HA_REGION_SITE_HASH, HA_SITE_HASH_SIZE(sites), &at);
	region_place(world, HA_REGION_SITE_INDEX, sites * 8, &at);
	region_place(world, HA_REGION_SITE_ARENA, arena, &at);
	region_place(world, HA_REGION_STRIPES, stripes, &at);
	region_place(world, HA_REGION_LIVE, live, &at);
	region_place(world, HA_REGION_VARIANCES, variances, &at);
	region_place(world, HA_REGION_HISTOGRAMS, histograms, &at);
	shm->seed = 1;
	shm->lines = (uint64_t)world->lines;
	if (o->interval) {
		shm->sampling = 1;
		shm->filter = (uint64_t)world->filter;
		world_set_interval(world, 1, o->interval);
	}
	world_add_segment(world, buckets);
	world_publish_modules(world);
}

void world_deinit(struct world *world)
{
	munmap(world->shm, world->size);
}

void world_add_segment(struct world *world, uint64_t buckets)
{
	struct ha_shm *shm = world->shm;
	const struct ha_region *live = &shm->region[HA_REGION_LIVE];
	uint64_t size = buckets * sizeof(struct ha_bucket);

	if (world->live_used + size > live->size || shm->segments == HA_SEGMENTS)
		abort();
	shm->segment[shm->segments] = (struct ha_segment){live->offset + world->live_used, buckets};
	world->live_used += size;
	__atomic_store_n(&shm->newest, ha_newest(&shm->segment[shm->segments], shm->segments + 1),
			 __ATOMIC_RELEASE);
	__atomic_store_n(&shm->segments, shm->segments + 1, __ATOMIC_RELEASE);
}

uint64_t world_add_table(struct world *world, const struct ha_table *table, size_t size,
			 uint64_t bias)
{
	const struct ha_region *tables = &world->shm->region[HA_REGION_TABLES];
	uint64_t offset = tables->offset + world->tables_used;
	struct ha_table *copy = (struct ha_table *)((char *)world->shm + offset);

	if (size > tables->size - world->tables_used)
		abort();
	memcpy(copy, table, size);
	copy->bias = bias;
	world->tables_used += (size + 63) & ~63ull;
	return offset;
}

void world_add_module(struct world *world, uint64_t low, uint64_t high, uint64_t table,
		      uint32_t flags)
{
	uint32_t i = world->modules++;

	if (i == sizeof(world->module) / sizeof(world->module[0]))
		abort();
	for (; i > 0 && world->module[i - 1].low > low; i--)
		world->module[i] = world->module[i - 1];
	world->module[i] = (struct ha_module){low, high, table, world->next_module_id++, flags};
}

void world_add_rows(struct world *world, uint64_t low, uint64_t size, const struct world_row *rows,
		    size_t count)
{
	uint32_t blocks = (uint32_t)((size + 255) / 256), next = 0, row = 0;
	size_t bytes = sizeof(struct ha_table) + (blocks + 1) * 4 + count * 3 + 64 +
		       count * sizeof(struct ha_rule_ext);
	struct ha_table *table = calloc(1, bytes);
	struct ha_rule_ext *ext;
	uint32_t *block;

	if (!table)
		abort();
	table->nblocks = blocks;
	table->nrows = (uint32_t)count;
	table->block = sizeof(*table);
	table->rule = table->block + (blocks + 1) * 4;
	table->low = table->rule + (uint32_t)count * 2;
	table->ext = (table->low + (uint32_t)count + 16 + 7) & ~7u;
	block = (uint32_t *)((char *)table + table->block);
	ext = (struct ha_rule_ext *)((char *)table + table->ext);
	for (uint32_t b = 0; b <= blocks; b++) {
		while (row < count && rows[row].at < b * 256)
			row++;
		block[b] = row;
	}
	block[blocks] = (uint32_t)count;
	for (uint32_t i = 0; i < count; i++) {
		((uint8_t *)table + table->low)[i] = (uint8_t)rows[i].at;
		((uint16_t *)((char *)table + table->rule))[i] = rows[i].rule;
		if (rows[i].ext) {
			ext[next] = *rows[i].ext;
			ext[next++].row = i;
		}
	}
	table->next = next;
	table->size = table->ext + next * (uint32_t)sizeof(*ext);
	world_add_module(world, low, low + size, world_add_table(world, table, table->size, low),
			 0);
	free(table);
}

void world_publish_modules(struct world *world)
{
	const struct ha_region *modules = &world->shm->region[HA_REGION_MODULES];
	uint64_t size = sizeof(struct ha_module_index) + world->modules * sizeof(struct ha_module);
	uint64_t offset = modules->offset + world->modules_used;
	struct ha_module_index *index = (struct ha_module_index *)((char *)world->shm + offset);

	if (size > modules->size - world->modules_used)
		abort();
	index->count = world->modules;
	index->generation = world->generation;
	index->loads = 0;
	memcpy(index->module, world->module, world->modules * sizeof(struct ha_module));
	world->modules_used += (size + 63) & ~63ull;
	__atomic_store_n(&world->shm->module_index, offset, __ATOMIC_RELEASE);
}

void world_publish_stacks(struct world *world, const struct ha_stack *stacks, size_t count)
{
	const struct ha_region *region = &world->shm->region[HA_REGION_STACKS];
	uint64_t size = sizeof(struct ha_stack_index) + count * sizeof(*stacks);
	uint64_t offset = region->offset + world->stacks_used;
	struct ha_stack_index *index = (struct ha_stack_index *)((char *)world->shm + offset);

	if (size > region->size - world->stacks_used)
		abort();
	index->count = count;
	if (count)
		memcpy(index->stack, stacks, count * sizeof(*stacks));
	world->stacks_used += (size + 7) & ~7ull;
	__atomic_store_n(&world->shm->stack_index, offset, __ATOMIC_RELEASE);
}

/* Structs of counters: add word by word. */
static void words_add(void *sum, const void *part, size_t size)
{
	for (size_t i = 0; i < size / sizeof(uint64_t); i++)
		((uint64_t *)sum)[i] +=
			__atomic_load_n((const uint64_t *)part + i, __ATOMIC_RELAXED);
}

static const struct ha_stripe *stripe_at(const struct world *world, uint32_t stripe)
{
	const struct ha_shm *shm = world->shm;

	return (const struct ha_stripe *)((const char *)shm +
					  shm->region[HA_REGION_STRIPES].offset +
					  stripe * shm->stripe_size);
}

struct ha_sums world_site_sums(const struct world *world, uint32_t site)
{
	struct ha_sums sums = {0};

	for (uint32_t i = 0; i < HA_STRIPES; i++)
		words_add(&sums, (const struct ha_sums *)(stripe_at(world, i) + 1) + site,
			  sizeof(sums));
	return sums;
}

struct ha_sums world_sums(const struct world *world)
{
	struct ha_sums sums = {0};

	for (uint32_t site = 0; site < world->shm->site_next; site++) {
		struct ha_sums part = world_site_sums(world, site);

		words_add(&sums, &part, sizeof(sums));
	}
	return sums;
}

struct ha_stripe world_counters(const struct world *world)
{
	struct ha_stripe sum = {0};

	for (uint32_t i = 0; i < HA_STRIPES; i++)
		words_add(&sum, stripe_at(world, i), sizeof(sum));
	return sum;
}

void world_set_interval(struct world *world, uint32_t rate, uint64_t interval)
{
	world->shm->interval[rate] = interval;
	world->shm->rate = rate;
}

typedef unsigned __int128 wide;

static wide wide_value(const struct ha_wide *from)
{
	return (wide)from->high << 64 | from->low;
}

static const struct ha_variances *variances_at(const struct world *world, uint32_t line,
					       uint32_t site)
{
	const struct ha_variances *all =
		(const struct ha_variances *)((const char *)world->shm +
					      world->shm->region[HA_REGION_VARIANCES].offset);

	return &all[line * world->shm->site_capacity + site];
}

double world_alloc_variance(const struct world *world, uint32_t site)
{
	wide sum = 0;

	for (uint32_t i = 0; i < HA_STRIPES; i++)
		sum += wide_value(&variances_at(world, i, site)->alloc_bytes);
	return ldexp((double)sum, -(int)HA_VARIANCE_BITS);
}

double world_inuse_variance(const struct world *world, uint32_t site)
{
	wide sum = 0;

	for (uint32_t i = 0; i < HA_STRIPES; i++)
		sum += wide_value(&variances_at(world, i, site)->alloc_bytes) -
		       wide_value(&variances_at(world, i, site)->freed_bytes);
	return ldexp((double)sum, -(int)HA_VARIANCE_BITS);
}

double world_inuse_count_variance(const struct world *world, uint32_t site)
{
	wide sum = 0;

	for (uint32_t i = 0; i < HA_STRIPES; i++)
		sum += wide_value(&variances_at(world, i, site)->alloc_count) -
		       wide_value(&variances_at(world, i, site)->freed_count);
	return ldexp((double)sum, -(int)HA_VARIANCE_BITS);
}

uint64_t world_live_cells(const struct world *world, uint64_t *bytes)
{
	const struct ha_shm *shm = world->shm;
	uint64_t cells = 0;

	*bytes = 0;
	for (uint64_t s = 0; s < shm->segments; s++) {
		const struct ha_bucket *bucket =
			(const struct ha_bucket *)((const char *)shm + shm->segment[s].offset);

		for (uint64_t i = 0; i < shm->segment[s].buckets * HA_CELLS; i++) {
			const struct ha_bucket *b = &bucket[i / HA_CELLS];

			if (!b->key[i % HA_CELLS])
				continue;
			cells++;
			*bytes += HA_VALUE_SIZE(b->value[i % HA_CELLS]);
		}
	}
	return cells;
}

uint64_t world_random(uint64_t *state)
{
	uint64_t x = *state += 0x9e3779b97f4a7c15ull;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}
