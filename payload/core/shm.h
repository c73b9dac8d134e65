/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Reaching into the shared memory: regions, stripes, single words.
 */
#ifndef PAYLOAD_CORE_SHM_H
#define PAYLOAD_CORE_SHM_H

#include "payload/arch/x86_64/counter.h"
#include "payload/protocol.h"

#include <stdbool.h>
#include <stdint.h>

#define LIKELY(x)   __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#define NOINLINE    __attribute__((noinline))

/* On the way of every call, where it has one caller or a constant to be folded. */
#define HOT		    static inline __attribute__((always_inline))

#define load_relaxed(p)	    __atomic_load_n(p, __ATOMIC_RELAXED)
#define load_acquire(p)	    __atomic_load_n(p, __ATOMIC_ACQUIRE)
#define store_relaxed(p, v) __atomic_store_n(p, v, __ATOMIC_RELAXED)
#define store_release(p, v) __atomic_store_n(p, v, __ATOMIC_RELEASE)

/* One try: false if *p was not @old. */
static inline bool word_replace(uint64_t *p, uint64_t old, uint64_t new)
{
	return __atomic_compare_exchange_n(p, &old, new, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

/*
 * A byte that counts: one that has once been full no longer does, since it
 * cannot be taken down again. Nobody waits: a turn is lost only to who made
 * progress.
 */
enum byte_step { BYTE_UP = 1, BYTE_DOWN = UINT8_MAX };

static inline void byte_count(uint8_t *byte, enum byte_step step)
{
	uint8_t value = load_relaxed(byte);

	while (value != UINT8_MAX && (value || step == BYTE_UP) &&
	       !__atomic_compare_exchange_n(byte, &value, (uint8_t)(value + step), false,
					    __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
}

static inline void *shm_at(const struct ha_shm *shm, uint64_t offset)
{
	return (char *)shm + offset;
}

static inline void *shm_region(const struct ha_shm *shm, enum ha_region_id id)
{
	return shm_at(shm, shm->region[id].offset);
}

/* The injector is dead: whoever reads this passes through for good. */
static inline bool shm_is_orphan(const struct ha_shm *shm)
{
	return (load_relaxed((const uint32_t *)shm->owner) & HA_OWNER_DIED) != 0;
}

/* A thread's own part of the sums and counters. */
struct stripe {
	struct ha_stripe *counters;
	uint32_t line; /* its number */
	bool shared;   /* other threads add to it too */
};

/* Of a line that no other thread uses. */
static inline struct stripe stripe_own(const struct ha_shm *shm, uint64_t line_index)
{
	char *stripes = shm_region(shm, HA_REGION_STRIPES);

	return (struct stripe){(struct ha_stripe *)(stripes + line_index * shm->stripe_size),
			       (uint32_t)line_index, false};
}

static inline struct stripe stripe_of(const struct ha_shm *shm, uint64_t line_index)
{
	struct stripe stripe = stripe_own(shm, line_index);

	stripe.shared = line_index >= HA_LINES;
	return stripe;
}

static inline struct ha_sums *stripe_sums(struct stripe stripe, uint32_t site)
{
	return (struct ha_sums *)(stripe.counters + 1) + site;
}

static inline struct ha_variances *stripe_variances(const struct ha_shm *shm, struct stripe stripe,
						    uint32_t site)
{
	struct ha_variances *variances = shm_region(shm, HA_REGION_VARIANCES);

	return variances + stripe.line * shm->site_capacity + site;
}

static inline void stripe_add(struct stripe stripe, uint64_t *counter, uint64_t amount)
{
	if (UNLIKELY(stripe.shared))
		counter_add_shared(counter, amount);
	else
		counter_add(counter, amount);
}

#endif
