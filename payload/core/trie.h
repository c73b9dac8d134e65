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

#include "payload/core/walk.h"

#include <stdbool.h>
#include <stdint.h>

/*
 * The site of the stack that begins at @frame and ends at @high, or
 * HA_SITE_UNKNOWN: it is not known, or the loader has added modules since the
 * module index was made.
 */
uint32_t trie_find(const struct ha_shm *shm, const struct ha_frame *frame, uint64_t high);

/*
 * A walk from @start has found @site. Learns it if it is learnable and was met
 * before: stacks that never come back are not worth the room.
 */
void trie_learn(const struct walk_start *start, const struct walk_trace *trace,
		const struct walk_result *result, uint32_t site);

#endif
