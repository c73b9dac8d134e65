/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "payload/core/rules.h"

#include <stddef.h>

#define BLOCK_SIZE 256u

const struct ha_module *rules_module(const struct rules *rules, uint64_t pc)
{
	const struct ha_module_index *index = rules->index;
	uint32_t first = 0, last = index->count;

	while (first < last) {
		uint32_t middle = first + (last - first) / 2;
		const struct ha_module *module = &index->module[middle];

		if (pc < module->low)
			last = middle;
		else if (pc >= module->high)
			first = middle + 1;
		else
			return module;
	}
	return NULL;
}

uint64_t rules_modules_hash(const struct rules *rules, const uint64_t *pc, uint32_t count)
{
	const struct ha_module *module = NULL;
	uint64_t hash = 0;

	for (uint32_t i = 0; i < count; i++) {
		uint64_t key = pc[i] - 1;

		/* Neighbours mostly lie in the same module. */
		if (module && key - module->low < module->high - module->low)
			continue;
		module = rules_module(rules, key);
		hash = (hash ^ (module ? module->id + 1ull : 0)) * HA_HASH_MULTIPLIER;
		hash ^= hash >> 32;
	}
	return hash;
}

/* A module's table, or NULL if there is none or it does not lie in the tables' region. */
static const struct ha_table *module_table(const struct rules *rules,
					   const struct ha_module *module)
{
	const struct ha_region *region = &rules->shm->region[HA_REGION_TABLES];
	uint64_t at = module->table - region->offset;
	const struct ha_table *table;

	if (!module->table || module->flags & HA_MODULE_NO_TABLE)
		return NULL;
	if (module->table < region->offset || module->table % 8 || region->size < sizeof(*table) ||
	    at > region->size - sizeof(*table))
		return NULL;
	table = shm_at(rules->shm, module->table);
	return table->size <= region->size - at ? table : NULL;
}

static bool array_fits(const struct ha_table *table, uint32_t offset, uint64_t count,
		       uint64_t item_size)
{
	uint64_t alignment = item_size & -item_size;

	return offset >= sizeof(*table) && offset % alignment == 0 &&
	       (uint64_t)offset + count * item_size <= table->size;
}

/* The number of the row that covers @pc. False if none does. */
static bool table_row(const struct ha_table *table, uint64_t pc, uint32_t *ret)
{
	uint64_t at = pc - table->bias - table->base;
	const char *bytes = (const char *)table;
	const uint32_t *block;
	const uint8_t *low;
	uint32_t row, end;

	if (at / BLOCK_SIZE >= table->nblocks ||
	    !array_fits(table, table->block, (uint64_t)table->nblocks + 1, sizeof(*block)) ||
	    !array_fits(table, table->low, table->nrows, sizeof(*low)) ||
	    !array_fits(table, table->rule, table->nrows, sizeof(uint16_t)))
		return false;
	block = (const uint32_t *)(bytes + table->block) + at / BLOCK_SIZE;
	low = (const uint8_t *)(bytes + table->low);
	row = block[0];
	end = block[1];
	if (row > end || end > table->nrows)
		return false;
	while (row < end && low[row] <= at % BLOCK_SIZE)
		row++;
	*ret = row - 1;
	return row > 0;
}

static uint32_t table_rule(const struct ha_table *table, uint64_t pc)
{
	uint32_t row;

	if (!table_row(table, pc, &row))
		return HA_ESCAPE_UNKNOWN;
	return ((const uint16_t *)((const char *)table + table->rule))[row];
}

uint32_t rules_read(const struct rules *rules, uint64_t pc)
{
	const struct ha_module *module = rules_module(rules, pc);
	const struct ha_table *table;

	if (!module)
		return RULE_NO_MODULE;
	table = module_table(rules, module);
	return table ? table_rule(table, pc) : RULE_NO_TABLE;
}

uint32_t rules_read_cached(const struct rules *rules, uint64_t pc)
{
	uint32_t rule = rules_read(rules, pc);
	uint64_t *word = &rules->cache[(pc ^ pc >> 16) & RULES_CACHE_MASK];

	if (rule <= 0xffff && !(pc >> 47))
		store_relaxed(word, (pc >> 16) << 33 | rules->generation | rule);
	return rule;
}

const struct ha_rule_ext *rules_ext(const struct rules *rules, uint64_t pc)
{
	const struct ha_module *module = rules_module(rules, pc);
	const struct ha_table *table = module ? module_table(rules, module) : NULL;
	const struct ha_rule_ext *ext;
	uint32_t first = 0, last, row;

	if (!table || !table_row(table, pc, &row) ||
	    !array_fits(table, table->ext, table->next, sizeof(*ext)))
		return NULL;
	ext = (const struct ha_rule_ext *)((const char *)table + table->ext);
	last = table->next;
	while (first < last) {
		uint32_t middle = first + (last - first) / 2;

		if (ext[middle].row < row)
			first = middle + 1;
		else
			last = middle;
	}
	return first < table->next && ext[first].row == row ? &ext[first] : NULL;
}
