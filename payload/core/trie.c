/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "payload/core/trie.h"

#include <stddef.h>

/* ---- finding: what is rare ---- */

NOINLINE bool trie_rbps_match(const struct candidate *candidate, uint64_t base)
{
	const struct walk_rbp *rbp = candidate_rbp(candidate);
	uint32_t count = candidate_rbps(candidate);
	uint64_t wrong = 0;

	for (uint32_t i = 0; i < count; i++)
		wrong |= walk_relative(trie_word(base, rbp[i].slot), base) ^ rbp[i].value * 8ull;
	return !wrong;
}

NOINLINE uint64_t trie_node_further(uint64_t *table, uint64_t mask, uint64_t hash)
{
	for (uint32_t i = 1; i < TRIE_NODES_PER_LINE; i++) {
		uint64_t node = load_acquire(node_place(table, mask, hash, i));

		if (node_is(node, hash) || !node)
			return node;
	}
	return 0;
}

/* ---- learning ---- */

/* A stack that was walked just now. */
struct lesson {
	const struct ha_shm *shm;
	struct trie_root root;
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
	uint32_t filled = trie_slots_filled(frames);
	uint32_t size = sizeof(struct candidate) + filled * 2 +
			(rbps ? 2 + rbps * (uint32_t)sizeof(struct walk_rbp) : 0);
	uint32_t lines = (size + TRIE_LINE_SIZE - 1) / TRIE_LINE_SIZE, number;
	uint32_t *next = &lesson->root.trie->candidates;
	struct candidate *candidate;
	struct walk_rbp *rbp;

	if (load_relaxed(next) + lines > TRIE_CANDIDATES_MAX)
		return NO_CANDIDATE;
	number = __atomic_fetch_add(next, lines, __ATOMIC_RELAXED);
	if (number + lines > TRIE_CANDIDATES_MAX)
		return NO_CANDIDATE;
	candidate = candidate_at(lesson->shm, number);
	candidate->version = lesson->version;
	candidate->meta =
		lesson->site | (frames - 1) << TRIE_META_FRAMES_SHIFT | (rbps ? TRIE_META_RBPS : 0);
	for (uint32_t i = 0; i < filled; i++)
		candidate->slot[i] = trace->slot[i < frames ? i : 0];
	if (rbps) {
		candidate->slot[filled] = (uint16_t)rbps;
		rbp = (struct walk_rbp *)&candidate->slot[filled + 1];
		for (uint32_t i = 0; i < rbps; i++)
			rbp[i] = trace->rbp[i];
	}
	candidate->check = trie_words_hash(lesson->root.base, candidate->slot, filled);
	return number;
}

/* The place of the node of @hash, or one for it. Sets *@node to what is there. */
static uint64_t *node_seat(const struct trie_root *root, uint64_t hash, uint64_t *node)
{
	uint64_t *seat = NULL;

	for (uint32_t i = 0; i < TRIE_NODES_PER_LINE; i++) {
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

static void count_added(struct trie_root *root)
{
	struct trie *trie = root->trie;
	uint32_t mask = load_relaxed(&trie->mask);

	if (__atomic_add_fetch(&trie->added, 1, __ATOMIC_RELAXED) <= (root->mask + 1) / 2 ||
	    root->mask == TRIE_MASK_LAST || root->mask != (mask | TRIE_MASK_FIRST))
		return;
	if (__atomic_compare_exchange_n(&trie->mask, &mask, 2 * (uint32_t)root->mask + 1, false,
					__ATOMIC_RELEASE, __ATOMIC_RELAXED))
		store_relaxed(&trie->added, 0);
}

/* Put a leaf where no node of this hash is. */
static void leaf_put(struct trie_root *root, uint64_t hash, uint32_t candidate)
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

	leaf_put(&lesson->root, trie_hash_step(hash, difference->other_word), NODE_CANDIDATE(node));
	return word_replace(seat, node,
			    node_make(hash, rbp ? NODE_BRANCH_RBP : NODE_BRANCH, difference->slot,
				      NODE_CANDIDATE(node)));
}

/* One node further down. False: done. */
static bool lesson_step(struct lesson *lesson, uint64_t *hash)
{
	const struct trie_root *root = &lesson->root;
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
			uint64_t word = trie_word(root->base, NODE_SLOT(node));

			*hash = trie_hash_step(*hash, trie_branch_word(node, word, root->base));
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
		hash = trie_hash_step(hash, lesson->trace->slot[i]);
	mark = (uint32_t)hash | 1;
	seen = &lesson->root.trie->seen[hash >> (64 - TRIE_SEEN_BITS)];
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
		.root = trie_root_of(start->shm, start->frame, start->bounds.high),
		.trace = trace,
		.result = result,
		.version = start->rules.version,
		.site = site,
	};
	uint64_t hash = lesson.root.hash;

	if (!result->learnable || trace->slot[result->frames - 1] >= lesson.root.room ||
	    !seen_before(&lesson))
		return;
	for (uint32_t depth = 0; depth < TRIE_DEPTH_MAX; depth++) {
		if (!lesson_step(&lesson, &hash))
			return;
	}
}
