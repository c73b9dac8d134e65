/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Searching the 8 keys of a live table bucket at once, with SSE2.
 *
 * The vector loads are not atomic by the letter of C. Each 8-byte half of an
 * aligned 16-byte load is on every x86-64; and what is found is only a hint,
 * read again as a single word by who acts upon it.
 */
#ifndef PAYLOAD_ARCH_CELLS_H
#define PAYLOAD_ARCH_CELLS_H

#include "payload/protocol.h"

#include <emmintrin.h>
#include <stdint.h>

/* Which of four 64-bit words in @a and @b are zero: bits 0..3. */
static inline uint32_t cells_zero4(__m128i a, __m128i b)
{
	__m128 low = _mm_shuffle_ps(_mm_castsi128_ps(a), _mm_castsi128_ps(b), 0x88);
	__m128 high = _mm_shuffle_ps(_mm_castsi128_ps(a), _mm_castsi128_ps(b), 0xdd);
	__m128i both = _mm_or_si128(_mm_castps_si128(low), _mm_castps_si128(high));

	both = _mm_cmpeq_epi32(both, _mm_setzero_si128());
	return (uint32_t)_mm_movemask_ps(_mm_castsi128_ps(both));
}

/* The cells that hold the block of @key, whatever their site: bit i for cell i. */
__attribute__((no_sanitize("thread"))) static inline uint32_t cells_match(
	const struct ha_bucket *bucket, uint64_t key)
{
	const __m128i *keys = (const __m128i *)bucket->key;
	__m128i want = _mm_set1_epi64x((long long)key);
	__m128i x[4];

	for (int i = 0; i < 4; i++)
		x[i] = _mm_srli_epi64(_mm_xor_si128(keys[i], want), HA_KEY_SITE_BITS);
	return cells_zero4(x[0], x[1]) | cells_zero4(x[2], x[3]) << 4;
}

/* The cells that are empty: bit i for cell i. */
__attribute__((no_sanitize("thread"))) static inline uint32_t cells_empty(
	const struct ha_bucket *bucket)
{
	const __m128i *keys = (const __m128i *)bucket->key;

	return cells_zero4(keys[0], keys[1]) | cells_zero4(keys[2], keys[3]) << 4;
}

#endif
