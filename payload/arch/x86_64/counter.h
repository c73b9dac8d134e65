/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Adding to words of the shared memory that the injector reads at any time.
 */
#ifndef PAYLOAD_ARCH_COUNTER_H
#define PAYLOAD_ARCH_COUNTER_H

#include <stdint.h>

/*
 * Add to a word that only this thread writes. One instruction: a signal handler
 * of the same thread that adds to the same word comes before or after it.
 */
static inline void counter_add(uint64_t *counter, uint64_t amount)
{
#ifdef HA_TSAN
	*counter += amount; /* seen by the sanitizer: another thread's word is an error */
#else
	__asm__ volatile("addq %1, %0" : "+m"(*counter) : "er"(amount) : "cc");
#endif
}

/* Add to a word that several threads write. */
static inline void counter_add_shared(uint64_t *counter, uint64_t amount)
{
	__asm__ volatile("lock addq %1, %0" : "+m"(*counter) : "er"(amount) : "cc");
}

/*
 * The same for a number of 128 bits. The carry outlasts a handler between the
 * two instructions, which may add to the same number.
 */
static inline void counter_add_wide(uint64_t *low, uint64_t *high, uint64_t low_amount,
				    uint64_t high_amount)
{
	__asm__ volatile("addq %2, %0\n\tadcq %3, %1"
			 : "+m"(*low), "+m"(*high)
			 : "r"(low_amount), "r"(high_amount)
			 : "cc");
}

static inline void counter_add_wide_shared(uint64_t *low, uint64_t *high, uint64_t low_amount,
					   uint64_t high_amount)
{
	uint64_t before = __atomic_fetch_add(low, low_amount, __ATOMIC_RELAXED);

	counter_add_shared(high, high_amount + (before + low_amount < before));
}

#endif
