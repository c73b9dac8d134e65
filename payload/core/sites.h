/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The table of sites: each distinct stack once, numbered from 1. Append-only.
 *
 * The body is written to the arena first, then its number is given a place in
 * the site index, and one compare-and-swap in the hash table makes it known to
 * other threads. Of two threads that add the same stack at once one loses, and
 * uses the other's site; its own room in the arena is lost, and its number has
 * no body.
 */
#ifndef PAYLOAD_CORE_SITES_H
#define PAYLOAD_CORE_SITES_H

#include "payload/core/shm.h"
#include "payload/protocol.h"

#include <stdint.h>

/*
 * A stack that a walk has found. The same addresses in other modules are
 * another stack; the same ones under another generation are not.
 */
struct site_key {
	const uint64_t *pc;
	uint32_t frames;     /* 1..HA_FRAMES_MAX */
	uint32_t generation; /* of the module index; kept if the site is new */
	uint64_t modules;    /* hash of the instances that the frames are in */
	uint16_t flags;	     /* enum ha_site_flags */
};

/* The site of this stack; HA_SITE_UNKNOWN if there is no room for a new one. */
uint32_t sites_intern(struct ha_shm *shm, const struct site_key *key);

/* The body of a published site, or NULL. */
const struct ha_site *sites_get(const struct ha_shm *shm, uint32_t site);

#endif
