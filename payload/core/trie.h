/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Known stacks, found without a walk.
 *
 * A walk is a function of the words that it reads: the return addresses, and
 * the saved rbp's that a CFA was computed from. If all of them hold what they
 * held at an earlier walk, at the same distances from sp, the result is the
 * same. A candidate is the list of these distances for one stack, and a hash
 * of the words: checking it costs one independent load for each frame, where a
 * walk has a chain of dependent ones.
 *
 * Which candidate to check is told by a trie. The root is chosen by the room
 * above sp and by the first return address; each further node names the slot
 * in which the stacks below it differ first, and the word there chooses the
 * child. All nodes are words of one hash table, and a child's place follows
 * from its parent's hash and the word:
 *
 *	 63    42    41..40    39..24    23..0
 *	   tag        kind      slot     candidate
 *
 * A leaf's candidate is the one to check. A branch also names a candidate, one
 * of those below: all of them agree up to the branch's slot.
 *
 * Nothing here can make a wrong site, since each candidate is checked; a lost
 * or stale node costs a walk. So nodes are published and replaced by one
 * compare-and-swap each, and when a line of the table is full one is dropped.
 * Candidates never change, but for the version of the module index that they
 * were last seen to be right under.
 */
#ifndef PAYLOAD_CORE_TRIE_H
#define PAYLOAD_CORE_TRIE_H

#include "payload/core/sites.h"
#include "payload/core/walk.h"

#include <stdbool.h>
#include <stdint.h>

/* ---- layout of HA_REGION_TRIE ---- */

/*
 * Tables of growing size, one behind the other; a fuller one is left for the next,
 * which is twice as large, and learned anew. A table is told by its mask.
 */
#define TRIE_MASK_FIRST	       ((1u << 15) - 1)
#define TRIE_MASK_LAST	       ((1u << 18) - 1)
#define TRIE_TABLE_START(mask) ((mask)-TRIE_MASK_FIRST)
#define TRIE_NODES	       (TRIE_TABLE_START(TRIE_MASK_LAST) + TRIE_MASK_LAST + 1)
#define TRIE_SEEN_BITS	       17u

struct trie {
	uint64_t node[TRIE_NODES];
	uint32_t seen[1u << TRIE_SEEN_BITS];	    /* fingerprints of stacks that were walked */
	uint32_t mask __attribute__((aligned(64))); /* of the table in use; 0: TRIE_MASK_FIRST */
	uint32_t added;				    /* nodes, in this table */
	uint32_t candidates;			    /* lines in use */
};
_Static_assert(sizeof(struct trie) <= HA_TRIE_SIZE, "the trie fits its region");

/* ---- nodes ---- */

enum node_kind {
	NODE_LEAF = 1,
	NODE_BRANCH = 2,     /* on a return address */
	NODE_BRANCH_RBP = 3, /* on a saved rbp, relative to base */
};

#define NODE_TAG_SHIFT	     42u
#define NODE_KIND(node)	     ((enum node_kind)((node) >> 40 & 3))
#define NODE_SLOT(node)	     ((uint32_t)((node) >> 24 & 0xffff))
#define NODE_CANDIDATE(node) ((uint32_t)((node)&0xffffff))
#define TRIE_NODES_PER_LINE  8u
#define TRIE_DEPTH_MAX	     64u

static inline uint64_t trie_hash_step(uint64_t hash, uint64_t word)
{
	hash = (hash ^ word) * HA_HASH_MULTIPLIER;
	return hash ^ hash >> 32;
}

static inline uint64_t node_make(uint64_t hash, enum node_kind kind, uint32_t slot,
				 uint32_t candidate)
{
	return hash << NODE_TAG_SHIFT | (uint64_t)kind << 40 | (uint64_t)slot << 24 | candidate;
}

/* ---- candidates ---- */

#define TRIE_LINE_SIZE	    64u
#define TRIE_CANDIDATES_MAX ((uint32_t)(HA_CANDIDATES_SIZE / TRIE_LINE_SIZE))
_Static_assert(TRIE_CANDIDATES_MAX <= 1u << 24, "a node has 24 bits for a candidate");

struct candidate {
	uint64_t check;	  /* hash of the words in slot[] */
	uint32_t version; /* of the module index; written by whoever confirms it */
	uint32_t meta;	  /* site, frames - 1, whether rbp entries follow */
	/*
	 * The slots of the return addresses, ascending, filled up to a multiple of
	 * 4 with the first one. Behind them, if there are any: the number of rbp
	 * entries and the entries.
	 */
	uint16_t slot[];
};

#define TRIE_META_FRAMES_SHIFT 19u
#define TRIE_META_RBPS	       (1u << 27)
_Static_assert(TRIE_META_FRAMES_SHIFT == HA_KEY_SITE_BITS, "a site has 19 bits");
_Static_assert(HA_FRAMES_MAX == 256, "frames - 1 has 8 bits");

static inline uint32_t candidate_site(const struct candidate *candidate)
{
	return candidate->meta & (HA_SITES_MAX - 1);
}

static inline uint32_t candidate_frames(const struct candidate *candidate)
{
	return (candidate->meta >> TRIE_META_FRAMES_SHIFT & 0xff) + 1;
}

static inline uint32_t trie_slots_filled(uint32_t frames)
{
	return (frames + 3) & ~3u;
}

static inline uint32_t candidate_rbps(const struct candidate *candidate)
{
	return candidate->meta & TRIE_META_RBPS
		       ? candidate->slot[trie_slots_filled(candidate_frames(candidate))]
		       : 0;
}

static inline const struct walk_rbp *candidate_rbp(const struct candidate *candidate)
{
	return (const struct walk_rbp *)&candidate
		->slot[trie_slots_filled(candidate_frames(candidate)) + 1];
}

static inline struct candidate *candidate_at(const struct ha_shm *shm, uint32_t number)
{
	char *lines = shm_region(shm, HA_REGION_CANDIDATES);

	return (struct candidate *)(lines + (uint64_t)number * TRIE_LINE_SIZE);
}

static inline uint64_t trie_word(uint64_t base, uint32_t slot)
{
	return stack_load(base + slot * 8ull);
}

/*
 * The same for a word that is used once: it may become part of the instruction
 * that uses it, which a volatile one never does.
 */
__attribute__((no_sanitize("address", "thread"))) static inline uint64_t trie_word_once(
	uint64_t base, uint32_t slot)
{
	return *(const uint64_t *)(base + slot * 8ull);
}

/* Four lanes, since a multiplication waits for the one before it. */
static inline uint64_t trie_words_hash(uint64_t base, const uint16_t *slot, uint32_t filled)
{
	uint64_t a = 1, b = 2, c = 3, d = 4;

	for (const uint16_t *end = slot + filled; slot < end; slot += 4) {
		a = (a ^ trie_word_once(base, slot[0])) * HA_HASH_MULTIPLIER;
		b = (b ^ trie_word_once(base, slot[1])) * HA_HASH_MULTIPLIER;
		c = (c ^ trie_word_once(base, slot[2])) * HA_HASH_MULTIPLIER;
		d = (d ^ trie_word_once(base, slot[3])) * HA_HASH_MULTIPLIER;
	}
	/* Differences in high bits alone must not cancel out between the lanes. */
	a ^= a >> 32;
	b ^= b >> 29;
	c ^= c >> 31;
	d ^= d >> 27;
	a = (a + b * 3) * 0xd6e8feb86659fd93ull ^ (c * 5 + d * 7) * 0xc2b2ae3d27d4eb4full;
	return a ^ a >> 32;
}

bool trie_rbps_match(const struct candidate *candidate, uint64_t base);

/* Whether the stack at @base, with @room words, is the candidate's. */
static inline bool candidate_matches(const struct candidate *candidate, uint32_t version,
				     uint64_t base, uint64_t room)
{
	uint32_t frames = candidate_frames(candidate);

	if (load_relaxed(&candidate->version) != version || candidate->slot[frames - 1] >= room)
		return false;
	if (trie_words_hash(base, candidate->slot, trie_slots_filled(frames)) != candidate->check)
		return false;
	return LIKELY(!(candidate->meta & TRIE_META_RBPS)) || trie_rbps_match(candidate, base);
}

/* ---- finding ---- */

/* Where a stack begins. */
struct trie_root {
	struct trie *trie;
	uint64_t *table;
	uint64_t mask;
	uint64_t base;
	uint64_t room; /* words from base to the end of the stack */
	uint64_t hash;
};

static inline struct trie_root trie_root_of(const struct ha_shm *shm, const struct ha_frame *frame,
					    uint64_t high)
{
	struct trie *trie = shm_region(shm, HA_REGION_TRIE);
	uint64_t mask = (load_acquire(&trie->mask) & TRIE_MASK_LAST) | TRIE_MASK_FIRST;
	struct trie_root root = {
		.trie = trie,
		.table = trie->node + TRIE_TABLE_START(mask),
		.mask = mask,
		.base = walk_base(frame),
	};

	root.room = (high - root.base) / 8;
	root.hash = trie_hash_step(root.room * HA_HASH_MULTIPLIER, frame->ra);
	return root;
}

/* The i-th place to look for the node of @hash: all in one cache line. */
static inline uint64_t *node_place(uint64_t *table, uint64_t mask, uint64_t hash, uint32_t i)
{
	uint64_t first = hash >> 24 & mask;

	return &table[(first & ~(uint64_t)(TRIE_NODES_PER_LINE - 1)) |
		      ((first + i) & (TRIE_NODES_PER_LINE - 1))];
}

static inline bool node_is(uint64_t node, uint64_t hash)
{
	return (node ^ hash << NODE_TAG_SHIFT) >> NODE_TAG_SHIFT == 0;
}

uint64_t trie_node_further(uint64_t *table, uint64_t mask, uint64_t hash);

/* The node of @hash, or 0. */
static inline uint64_t node_find(uint64_t *table, uint64_t mask, uint64_t hash)
{
	uint64_t node = load_acquire(&table[hash >> 24 & mask]);

	if (LIKELY(node_is(node, hash)) || !node)
		return node;
	return trie_node_further(table, mask, hash);
}

static inline uint64_t trie_branch_word(uint64_t node, uint64_t word, uint64_t base)
{
	return NODE_KIND(node) == NODE_BRANCH_RBP ? walk_relative(word, base) : word;
}

/* The modules as of now, as candidates know them; 0 if a walk may see others. */
static inline uint32_t trie_version_now(const struct ha_shm *shm)
{
	uint64_t offset = load_acquire(&shm->module_index);
	const struct ha_module_index *index = shm_at(shm, offset);

	if (UNLIKELY(!offset || rules_loads_differ(shm, index)))
		return 0;
	return rules_version(offset);
}

/*
 * The site of the stack that begins at @frame and ends at @high, or
 * HA_SITE_UNKNOWN: it is not known, or the loader has added modules since the
 * module index was made.
 */
HOT uint32_t trie_find(const struct ha_shm *shm, const struct ha_frame *frame, uint64_t high)
{
	const struct trie_root root = trie_root_of(shm, frame, high);
	const struct candidate *candidate;
	uint32_t version = trie_version_now(shm);
	uint64_t hash = root.hash, node;

	if (UNLIKELY(!version))
		return HA_SITE_UNKNOWN;
	for (uint32_t depth = 0;; depth++) {
		node = node_find(root.table, root.mask, hash);
		if (NODE_KIND(node) == NODE_LEAF)
			break;
		if (!node || depth == TRIE_DEPTH_MAX || NODE_SLOT(node) >= root.room)
			return HA_SITE_UNKNOWN;
		hash = trie_hash_step(
			hash,
			trie_branch_word(node, trie_word(root.base, NODE_SLOT(node)), root.base));
	}
	candidate = candidate_at(shm, NODE_CANDIDATE(node));
	if (!candidate_matches(candidate, version, root.base, root.room))
		return HA_SITE_UNKNOWN;
	return candidate_site(candidate);
}

/*
 * A walk from @start has found @site. Learns it if it is learnable and was met
 * before: stacks that never come back are not worth the room.
 */
void trie_learn(const struct walk_start *start, const struct walk_trace *trace,
		const struct walk_result *result, uint32_t site);

#endif
