/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * From a pc to the rule for stepping out of its frame: the module index, the
 * compiled tables, and in front of both a cache that all threads share.
 *
 * The cache is one word for each pc, so that it needs no lock and cannot tear:
 *
 *	 63     33 32        16 15      0
 *	 pc >> 16   generation    rule
 *
 * at the place (pc ^ pc >> 16) & 0xffff: place and tag together give all 47
 * bits of the pc. The generation is the module index's, taken modulo 2^17 - 1
 * and never 0, so that an empty word matches nothing.
 */
#ifndef PAYLOAD_CORE_RULES_H
#define PAYLOAD_CORE_RULES_H

#include "payload/core/shm.h"
#include "payload/core/stack.h"
#include "payload/protocol.h"

#include <stdint.h>

/* What is known beyond a packed rule; larger than any of these. */
#define RULE_NO_TABLE	  0x10000u /* in a module that has no table */
#define RULE_NO_MODULE	  0x10001u /* in no module that we know */

#define RULES_GENERATIONS 0x1ffffu
#define RULES_CACHE_MASK  (HA_PC_CACHE_SIZE / 8 - 1)
_Static_assert(RULES_CACHE_MASK == 0xffff, "16 bits of the pc choose the place");

/* The modules as of one moment. */
struct rules {
	const struct ha_shm *shm;
	const struct ha_module_index *index; /* immutable */
	uint64_t *cache;
	uint64_t generation; /* as in a cache word */
	uint32_t version;    /* of the index: another one for each that is published */
};

/* Of the module index at @offset; not 0. */
static inline uint32_t rules_version(uint64_t offset)
{
	return (uint32_t)(offset / 8);
}

/* The loader has added modules since @index was made. */
static inline bool rules_loads_differ(const struct ha_shm *shm, const struct ha_module_index *index)
{
	return LIKELY(shm->load_adds) && stack_load(shm->load_adds) != index->loads;
}

/* Take the current module index. False if there is none yet. */
static inline bool rules_begin(const struct ha_shm *shm, struct rules *ret)
{
	uint64_t offset = load_acquire(&shm->module_index);

	if (UNLIKELY(!offset))
		return false;
	ret->shm = shm;
	ret->index = shm_at(shm, offset);
	ret->cache = shm_region(shm, HA_REGION_PC_CACHE);
	ret->version = rules_version(offset);
	ret->generation = (uint64_t)(ret->index->generation % RULES_GENERATIONS + 1) << 16;
	return true;
}

/* The module that holds @pc, or NULL. */
const struct ha_module *rules_module(const struct rules *rules, uint64_t pc);

/* A hash of the instances of the modules that these call addresses lie in. */
uint64_t rules_modules_hash(const struct rules *rules, const uint64_t *pc, uint32_t count);

/* The packed rule for @pc from its module's table, or one of RULE_NO_*. */
uint32_t rules_read(const struct rules *rules, uint64_t pc);

/* The same, and remember it. */
uint32_t rules_read_cached(const struct rules *rules, uint64_t pc);

/* The ext rule for @pc, whose packed rule is HA_ESCAPE_EXT, or NULL. */
const struct ha_rule_ext *rules_ext(const struct rules *rules, uint64_t pc);

/* The rule for @pc, at best from the cache. */
static inline uint32_t rules_find(const struct rules *rules, uint64_t pc)
{
	uint64_t word = load_relaxed(&rules->cache[(pc ^ pc >> 16) & RULES_CACHE_MASK]);

	word ^= (pc >> 16) << 33 | rules->generation;
	if (LIKELY(word <= 0xffff && !(pc >> 47)))
		return (uint32_t)word;
	return rules_read_cached(rules, pc);
}

#endif
