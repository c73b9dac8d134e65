/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Adding to a word of the shared memory that the injector reads at any time.
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
	__asm__ volatile("addq %1, %0" : "+m"(*counter) : "er"(amount) : "cc");
}

/* Add to a word that several threads write. */
static inline void counter_add_shared(uint64_t *counter, uint64_t amount)
{
	__asm__ volatile("lock addq %1, %0" : "+m"(*counter) : "er"(amount) : "cc");
}

#endif
