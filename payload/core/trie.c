/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "payload/core/trie.h"

#include "payload/core/sites.h"

#include <stddef.h>

/* ---- layout of HA_REGION_TRIE ---- */

/* Tables of growing size; a fuller one is left for the next, and learned anew. */
#define LEVELS	       4u
#define LEVEL_BITS(l)  (15u + (l))
#define LEVEL_START(l) (((1u << (l)) - 1) << LEVEL_BITS(0))
#define NODES	       LEVEL_START(LEVELS)
#define SEEN_BITS      17u

struct trie {
	uint64_t node[NODES];
	uint32_t seen[1u << SEEN_BITS];		     /* fingerprints of stacks that were walked */
	uint32_t level __attribute__((aligned(64))); /* of the table in use */
	uint32_t added;				     /* nodes, in this table */
	uint32_t candidates;			     /* lines in use */
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
#define NODES_PER_LINE	     8u
#define DEPTH_MAX	     64u

static inline uint64_t hash_step(uint64_t hash, uint64_t word)
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

#define LINE_SIZE      64u
#define CANDIDATES_MAX ((uint32_t)(HA_CANDIDATES_SIZE / LINE_SIZE))
_Static_assert(CANDIDATES_MAX <= 1u << 24, "a node has 24 bits for a candidate");

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

#define META_FRAMES_SHIFT 19u
#define META_RBPS	  (1u << 27)
_Static_assert(META_FRAMES_SHIFT == HA_KEY_SITE_BITS, "a site has 19 bits");
_Static_assert(HA_FRAMES_MAX == 256, "frames - 1 has 8 bits");

static inline uint32_t candidate_site(const struct candidate *candidate)
{
	return candidate->meta & (HA_SITES_MAX - 1);
}

static inline uint32_t candidate_frames(const struct candidate *candidate)
{
	return (candidate->meta >> META_FRAMES_SHIFT & 0xff) + 1;
}

static inline uint32_t slots_filled(uint32_t frames)
{
	return (frames + 3) & ~3u;
}

static inline uint32_t candidate_rbps(const struct candidate *candidate)
{
	return candidate->meta & META_RBPS
		       ? candidate->slot[slots_filled(candidate_frames(candidate))]
		       : 0;
}

static inline const struct walk_rbp *candidate_rbp(const struct candidate *candidate)
{
	return (const struct walk_rbp *)&candidate
		->slot[slots_filled(candidate_frames(candidate)) + 1];
}

static inline struct candidate *candidate_at(const struct ha_shm *shm, uint32_t number)
{
	char *lines = shm_region(shm, HA_REGION_CANDIDATES);

	return (struct candidate *)(lines + (uint64_t)number * LINE_SIZE);
}

static inline uint64_t word_at(uint64_t base, uint32_t slot)
{
	return stack_load(base + slot * 8ull);
}

/*
 * The same for a word that is used once: it may become part of the instruction
 * that uses it, which a volatile one never does.
 */
__attribute__((no_sanitize("address", "thread"))) static inline uint64_t word_once(uint64_t base,
										   uint32_t slot)
{
	return *(const uint64_t *)(base + slot * 8ull);
}

/* Four lanes, since a multiplication waits for the one before it. */
static inline uint64_t words_hash(uint64_t base, const uint16_t *slot, uint32_t filled)
{
	uint64_t a = 1, b = 2, c = 3, d = 4;

	for (uint32_t i = 0; i < filled; i += 4) {
		a = (a ^ word_once(base, slot[i])) * HA_HASH_MULTIPLIER;
		b = (b ^ word_once(base, slot[i + 1])) * HA_HASH_MULTIPLIER;
		c = (c ^ word_once(base, slot[i + 2])) * HA_HASH_MULTIPLIER;
		d = (d ^ word_once(base, slot[i + 3])) * HA_HASH_MULTIPLIER;
	}
	/* Differences in high bits alone must not cancel out between the lanes. */
	a ^= a >> 32;
	b ^= b >> 29;
	c ^= c >> 31;
	d ^= d >> 27;
	a = (a + b * 3) * 0xd6e8feb86659fd93ull ^ (c * 5 + d * 7) * 0xc2b2ae3d27d4eb4full;
	return a ^ a >> 32;
}

static NOINLINE bool rbps_match(const struct candidate *candidate, uint64_t base)
{
	const struct walk_rbp *rbp = candidate_rbp(candidate);
	uint32_t count = candidate_rbps(candidate);
	uint64_t wrong = 0;

	for (uint32_t i = 0; i < count; i++)
		wrong |= walk_relative(word_at(base, rbp[i].slot), base) ^ rbp[i].value * 8ull;
	return !wrong;
}

/* Whether the stack at @base, with @room words, is the candidate's. */
static inline bool candidate_matches(const struct candidate *candidate, uint32_t version,
				     uint64_t base, uint64_t room)
{
	uint32_t frames = candidate_frames(candidate);

	if (load_relaxed(&candidate->version) != version || candidate->slot[frames - 1] >= room)
		return false;
	if (words_hash(base, candidate->slot, slots_filled(frames)) != candidate->check)
		return false;
	return LIKELY(!(candidate->meta & META_RBPS)) || rbps_match(candidate, base);
}

/* ---- finding ---- */

/* Where a stack begins. */
struct root {
	struct trie *trie;
	uint64_t *table;
	uint64_t mask;
	uint64_t base;
	uint64_t room; /* words from base to the end of the stack */
	uint64_t hash;
};

static inline struct root root_of(const struct ha_shm *shm, const struct ha_frame *frame,
				  uint64_t high)
{
	struct trie *trie = shm_region(shm, HA_REGION_TRIE);
	uint32_t level = load_acquire(&trie->level) % LEVELS;
	struct root root = {
		.trie = trie,
		.table = trie->node + LEVEL_START(level),
		.mask = (1ull << LEVEL_BITS(level)) - 1,
		.base = walk_base(frame),
	};

	root.room = (high - root.base) / 8;
	root.hash = hash_step(root.room * HA_HASH_MULTIPLIER, frame->ra);
	return root;
}

/* The i-th place to look for the node of @hash: all in one cache line. */
static inline uint64_t *node_place(uint64_t *table, uint64_t mask, uint64_t hash, uint32_t i)
{
	uint64_t first = hash >> 24 & mask;

	return &table[(first & ~(uint64_t)(NODES_PER_LINE - 1)) |
		      ((first + i) & (NODES_PER_LINE - 1))];
}

static inline bool node_is(uint64_t node, uint64_t hash)
{
	return (node ^ hash << NODE_TAG_SHIFT) >> NODE_TAG_SHIFT == 0;
}

/* The same where the first place has another node. */
static NOINLINE uint64_t node_find_further(uint64_t *table, uint64_t mask, uint64_t hash)
{
	for (uint32_t i = 1; i < NODES_PER_LINE; i++) {
		uint64_t node = load_acquire(node_place(table, mask, hash, i));

		if (node_is(node, hash) || !node)
			return node;
	}
	return 0;
}

/* The node of @hash, or 0. */
static inline uint64_t node_find(uint64_t *table, uint64_t mask, uint64_t hash)
{
	uint64_t node = load_acquire(&table[hash >> 24 & mask]);

	if (LIKELY(node_is(node, hash)) || !node)
		return node;
	return node_find_further(table, mask, hash);
}

static inline uint64_t branch_word(uint64_t node, uint64_t word, uint64_t base)
{
	return NODE_KIND(node) == NODE_BRANCH_RBP ? walk_relative(word, base) : word;
}

/* The modules as of now, as candidates know them; 0 if a walk may see others. */
static inline uint32_t version_now(const struct ha_shm *shm)
{
	uint64_t offset = load_acquire(&shm->module_index);
	const struct ha_module_index *index = shm_at(shm, offset);

	if (UNLIKELY(!offset || rules_loads_differ(shm, index)))
		return 0;
	return rules_version(offset);
}

uint32_t trie_find(const struct ha_shm *shm, const struct ha_frame *frame, uint64_t high)
{
	const struct root root = root_of(shm, frame, high);
	const struct candidate *candidate;
	uint32_t version = version_now(shm);
	uint64_t hash = root.hash, node;

	if (UNLIKELY(!version))
		return HA_SITE_UNKNOWN;
	for (uint32_t depth = 0;; depth++) {
		node = node_find(root.table, root.mask, hash);
		if (!node || depth == DEPTH_MAX)
			return HA_SITE_UNKNOWN;
		if (NODE_KIND(node) == NODE_LEAF)
			break;
		if (NODE_SLOT(node) >= root.room)
			return HA_SITE_UNKNOWN;
		hash = hash_step(hash,
				 branch_word(node, word_at(root.base, NODE_SLOT(node)), root.base));
	}
	candidate = candidate_at(shm, NODE_CANDIDATE(node));
	if (!candidate_matches(candidate, version, root.base, root.room))
		return HA_SITE_UNKNOWN;
	return candidate_site(candidate);
}

/* ---- learning ---- */

/* A stack that was walked just now. */
struct lesson {
	const struct ha_shm *shm;
	struct root root;
	const struct walk_trace *trace;
	const struct walk_result *result;
	uint32_t version;
	uint32_t site;
	uint32_t candidate; /* its own, once it has one */
};

#define NO_CANDIDATE UINT32_MAX

/* Where two stacks differ first, in the order in which a walk reads. */
enum difference_kind {
	DIFFERENCE_NONE,
	DIFFERENCE_WORD,  /* another return address in the same slot */
	DIFFERENCE_RBP,	  /* another saved rbp in the same slot */
	DIFFERENCE_SHAPE, /* other slots behind the same words: other code, by now */
};

struct difference {
	enum difference_kind kind;
	uint32_t position; /* words read before */
	uint32_t slot;
	uint64_t other_word; /* what the other stack has there */
};

static struct difference rbp_difference(const struct walk_rbp *mine, const struct walk_rbp *other,
					uint32_t position)
{
	struct difference difference = {DIFFERENCE_NONE, position, mine->slot, other->value * 8ull};

	if (mine->slot != other->slot || mine->frame != other->frame)
		difference.kind = DIFFERENCE_SHAPE;
	else if (mine->value != other->value)
		difference.kind = DIFFERENCE_RBP;
	return difference;
}

/* Compare with a candidate, whose words are the pcs of its site. */
static struct difference lesson_compare(const struct lesson *lesson, const struct candidate *other)
{
	const struct ha_site *site = sites_get(lesson->shm, candidate_site(other));
	uint32_t frames = lesson->result->frames, other_frames = candidate_frames(other);
	uint32_t rbps = lesson->result->rbps, other_rbps = candidate_rbps(other);
	const struct walk_rbp *rbp = candidate_rbp(other);
	struct difference difference = {.kind = DIFFERENCE_SHAPE};
	uint32_t i, j = 0;

	if (!site || site->frames != other_frames)
		return difference;
	/* Behind the last return address there may be an rbp that told the end. */
	for (i = 0;; i++) {
		while (j < rbps && j < other_rbps &&
		       (lesson->trace->rbp[j].frame == i || rbp[j].frame == i)) {
			difference = rbp_difference(&lesson->trace->rbp[j], &rbp[j], i + j);
			if (difference.kind != DIFFERENCE_NONE)
				return difference;
			j++;
		}
		if (i == frames || i == other_frames)
			break;
		difference =
			(struct difference){DIFFERENCE_WORD, i + j, other->slot[i], site->pc[i]};
		if (lesson->trace->slot[i] != other->slot[i])
			difference.kind = DIFFERENCE_SHAPE;
		else if (lesson->trace->pc[i] == site->pc[i])
			continue;
		return difference;
	}
	difference.position = i + j;
	difference.kind =
		frames == other_frames && rbps == other_rbps ? DIFFERENCE_NONE : DIFFERENCE_SHAPE;
	return difference;
}

/* How many words a walk of @candidate's stack reads before the one a branch is on. */
static uint32_t branch_position(const struct candidate *candidate, uint64_t node)
{
	const struct walk_rbp *rbp = candidate_rbp(candidate);
	uint32_t frames = candidate_frames(candidate), rbps = candidate_rbps(candidate), j = 0;

	for (uint32_t i = 0; i <= frames; i++) {
		for (; j < rbps && rbp[j].frame == i; j++) {
			if (NODE_KIND(node) == NODE_BRANCH_RBP && rbp[j].slot == NODE_SLOT(node))
				return i + j;
		}
		if (i < frames && NODE_KIND(node) == NODE_BRANCH &&
		    candidate->slot[i] == NODE_SLOT(node))
			return i + j;
	}
	return 0;
}

/* Write the lesson's own candidate. NO_CANDIDATE if there is no room. */
static uint32_t candidate_write(const struct lesson *lesson)
{
	const struct walk_trace *trace = lesson->trace;
	uint32_t frames = lesson->result->frames, rbps = lesson->result->rbps;
	uint32_t filled = slots_filled(frames);
	uint32_t size = sizeof(struct candidate) + filled * 2 +
			(rbps ? 2 + rbps * (uint32_t)sizeof(struct walk_rbp) : 0);
	uint32_t lines = (size + LINE_SIZE - 1) / LINE_SIZE, number;
	uint32_t *next = &lesson->root.trie->candidates;
	struct candidate *candidate;
	struct walk_rbp *rbp;

	if (load_relaxed(next) + lines > CANDIDATES_MAX)
		return NO_CANDIDATE;
	number = __atomic_fetch_add(next, lines, __ATOMIC_RELAXED);
	if (number + lines > CANDIDATES_MAX)
		return NO_CANDIDATE;
	candidate = candidate_at(lesson->shm, number);
	candidate->version = lesson->version;
	candidate->meta = lesson->site | (frames - 1) << META_FRAMES_SHIFT | (rbps ? META_RBPS : 0);
	for (uint32_t i = 0; i < filled; i++)
		candidate->slot[i] = trace->slot[i < frames ? i : 0];
	if (rbps) {
		candidate->slot[filled] = (uint16_t)rbps;
		rbp = (struct walk_rbp *)&candidate->slot[filled + 1];
		for (uint32_t i = 0; i < rbps; i++)
			rbp[i] = trace->rbp[i];
	}
	candidate->check = words_hash(lesson->root.base, candidate->slot, filled);
	return number;
}

/* The place of the node of @hash, or one for it. Sets *@node to what is there. */
static uint64_t *node_seat(const struct root *root, uint64_t hash, uint64_t *node)
{
	uint64_t *seat = NULL;

	for (uint32_t i = 0; i < NODES_PER_LINE; i++) {
		uint64_t *place = node_place(root->table, root->mask, hash, i);

		*node = load_acquire(place);
		if (node_is(*node, hash) && *node)
			return place;
		if (!*node) {
			seat = place;
			break;
		}
	}
	/* A full line loses the node that stands where this one would be looked for first. */
	if (!seat) {
		seat = node_place(root->table, root->mask, hash, 0);
		*node = load_acquire(seat);
	}
	return seat;
}

static void count_added(struct root *root)
{
	struct trie *trie = root->trie;
	uint32_t level = load_relaxed(&trie->level);

	if (__atomic_add_fetch(&trie->added, 1, __ATOMIC_RELAXED) <= (root->mask + 1) / 2 ||
	    level + 1 >= LEVELS || root->table != trie->node + LEVEL_START(level))
		return;
	if (__atomic_compare_exchange_n(&trie->level, &level, level + 1, false, __ATOMIC_RELEASE,
					__ATOMIC_RELAXED))
		store_relaxed(&trie->added, 0);
}

/* Put a leaf where no node of this hash is. */
static void leaf_put(struct root *root, uint64_t hash, uint32_t candidate)
{
	uint64_t old, *seat = node_seat(root, hash, &old);

	if (node_is(old, hash) && old)
		return;
	if (word_replace(seat, old, node_make(hash, NODE_LEAF, 0, candidate)))
		count_added(root);
}

/* The lesson's own leaf, in place of @old. */
static void lesson_put(struct lesson *lesson, uint64_t *seat, uint64_t old, uint64_t hash)
{
	uint32_t candidate = candidate_write(lesson);

	if (candidate == NO_CANDIDATE)
		return;
	if (word_replace(seat, old, node_make(hash, NODE_LEAF, 0, candidate)))
		count_added(&lesson->root);
}

/*
 * Make @node a branch at @difference, with the node's candidate as one child;
 * what stood below it is left behind.
 */
static bool branch_put(struct lesson *lesson, uint64_t *seat, uint64_t node, uint64_t hash,
		       const struct difference *difference)
{
	bool rbp = difference->kind == DIFFERENCE_RBP;

	leaf_put(&lesson->root, hash_step(hash, difference->other_word), NODE_CANDIDATE(node));
	return word_replace(seat, node,
			    node_make(hash, rbp ? NODE_BRANCH_RBP : NODE_BRANCH, difference->slot,
				      NODE_CANDIDATE(node)));
}

/* One node further down. False: done. */
static bool lesson_step(struct lesson *lesson, uint64_t *hash)
{
	const struct root *root = &lesson->root;
	uint64_t node, *seat = node_seat(root, *hash, &node);
	struct difference difference;
	struct candidate *other;
	bool differs, below;

	if (!node || !node_is(node, *hash)) {
		lesson_put(lesson, seat, node, *hash);
		return false;
	}
	other = candidate_at(lesson->shm, NODE_CANDIDATE(node));
	difference = lesson_compare(lesson, other);
	differs = difference.kind == DIFFERENCE_WORD || difference.kind == DIFFERENCE_RBP;
	if (NODE_KIND(node) != NODE_LEAF) {
		uint32_t position = branch_position(other, node);

		below = difference.kind == DIFFERENCE_NONE || difference.position > position ||
			(differs && difference.position == position);
		if (below && NODE_SLOT(node) < root->room) {
			uint64_t word = word_at(root->base, NODE_SLOT(node));

			*hash = hash_step(*hash, branch_word(node, word, root->base));
			return true;
		}
	}
	if (differs)
		return branch_put(lesson, seat, node, *hash, &difference);
	if (difference.kind == DIFFERENCE_NONE && candidate_site(other) == lesson->site)
		store_relaxed(&other->version, lesson->version);
	else
		lesson_put(lesson, seat, node, *hash);
	return false;
}

/*
 * Whether this stack was walked before, as far as is remembered; remembers it.
 * A fingerprint that stands where another one belongs gets a second chance
 * (bit 0), lest two stacks that take turns always displace each other.
 */
static bool seen_before(const struct lesson *lesson)
{
	uint64_t hash = lesson->root.hash ^ lesson->site;
	uint32_t *seen, mark, old;

	for (uint32_t i = 0; i < lesson->result->frames; i++)
		hash = hash_step(hash, lesson->trace->slot[i]);
	mark = (uint32_t)hash | 1;
	seen = &lesson->root.trie->seen[hash >> (64 - SEEN_BITS)];
	old = load_relaxed(seen);
	if ((old | 1) == mark)
		return true;
	store_relaxed(seen, old & 1 ? old & ~1u : mark);
	return false;
}

void trie_learn(const struct walk_start *start, const struct walk_trace *trace,
		const struct walk_result *result, uint32_t site)
{
	struct lesson lesson = {
		.shm = start->shm,
		.root = root_of(start->shm, start->frame, start->bounds.high),
		.trace = trace,
		.result = result,
		.version = start->rules.version,
		.site = site,
	};
	uint64_t hash = lesson.root.hash;

	if (!result->learnable || trace->slot[result->frames - 1] >= lesson.root.room ||
	    !seen_before(&lesson))
		return;
	for (uint32_t depth = 0; depth < DEPTH_MAX; depth++) {
		if (!lesson_step(&lesson, &hash))
			return;
	}
}
