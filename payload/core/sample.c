/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "payload/core/sample.h"

/* Fixed point: numbers with so many bits behind the point. */
#define Q24	   HA_VARIANCE_BITS
#define Q32	   32u
#define ONE_Q24	   (1ull << Q24)
#define ONE_Q32	   (1ull << Q32)

#define LN_2_Q32   2977044472ull /* ln 2 */
#define LOG2_E_Q32 6196328019ull /* 1 / ln 2 */
#define CERTAIN	   32u		 /* intervals: exp(-32) is nothing in Q24 */
#define EXP_TERMS  11u		 /* enough for an argument below ln 2 */

typedef unsigned __int128 wide;

/* ---- the draw ---- */

/* Behind the point of log2(@mantissa), which is in [1, 2) with 63 bits behind its own. */
static uint64_t log2_fraction_q32(uint64_t mantissa)
{
	uint64_t result = 0;

	for (uint32_t i = 0; i < Q32; i++) {
		wide square = (wide)mantissa * mantissa;
		uint64_t carry = (uint64_t)(square >> 127);

		result = result << 1 | carry;
		mantissa = (uint64_t)(square >> (63 + carry));
	}
	return result;
}

uint64_t sample_draw(uint64_t interval, uint64_t random)
{
	/* @random / 2^64 is in (0, 1]; the lost possibility of 0 is that of 1. */
	uint64_t value = random ? random : 1;
	uint32_t zeros = (uint32_t)__builtin_clzll(value);
	uint64_t log2_q32 = ((uint64_t)(zeros + 1) << Q32) - log2_fraction_q32(value << zeros);
	uint64_t ln_q32 = (uint64_t)((wide)log2_q32 * LN_2_Q32 >> Q32);

	if (interval <= 1)
		return 0;
	return (uint64_t)((wide)ln_q32 * interval >> Q32);
}

/* ---- 1 / p ---- */

/*
 * x / (1 - exp(-x)) for x up to 1. The next term of the series is below 6e-10.
 */
static uint64_t series_q32(uint64_t x_q32)
{
	uint64_t x2 = (uint64_t)((wide)x_q32 * x_q32 >> Q32);
	uint64_t x4 = (uint64_t)((wide)x2 * x2 >> Q32);
	uint64_t x6 = (uint64_t)((wide)x4 * x2 >> Q32);
	uint64_t x8 = (uint64_t)((wide)x4 * x4 >> Q32);
	uint64_t x10 = (uint64_t)((wide)x8 * x2 >> Q32);

	return ONE_Q32 + x_q32 / 2 + x2 / 12 - x4 / 720 + x6 / 30240 - x8 / 1209600 +
	       x10 / 47900160;
}

/* exp(-x) for x up to CERTAIN. */
static uint64_t exp_minus_q32(uint64_t x_q24)
{
	uint64_t log2_q32 = (uint64_t)((wide)x_q24 * LOG2_E_Q32 >> Q24);
	uint64_t rest_q32 = (uint64_t)((wide)(log2_q32 & (ONE_Q32 - 1)) * LN_2_Q32 >> Q32);
	uint64_t sum_q32 = ONE_Q32;

	for (uint64_t k = EXP_TERMS; k > 0; k--)
		sum_q32 = ONE_Q32 - (uint64_t)((wide)rest_q32 * sum_q32 >> Q32) / k;
	return sum_q32 >> (log2_q32 >> Q32);
}

/* 1 / (1 - exp(-need / interval)): how many such blocks a sample stands for. */
static uint64_t inverse_q24(uint64_t interval, uint64_t need)
{
	uint64_t x_q24;

	if (need / interval >= CERTAIN)
		return ONE_Q24;
	x_q24 = (need / interval << Q24) + (need % interval << Q24) / interval;
	if (need > interval)
		return (1ull << (Q24 + Q32)) / (ONE_Q32 - exp_minus_q32(x_q24));
	return (uint64_t)((wide)series_q32(x_q24 << (Q32 - Q24)) * ((interval << Q24) / need) >>
			  Q32);
}

/* ---- weights ---- */

/* Before rounding. */
struct exact_weight {
	wide bytes_q24;
	uint64_t count_q24;
};

static struct exact_weight weight_of(uint64_t interval, uint64_t size)
{
	uint64_t inverse = interval > 1 ? inverse_q24(interval, size + 1) : ONE_Q24;

	return (struct exact_weight){(wide)inverse * size, inverse};
}

/*
 * What a sample of @size (1 for the count) adds to the variance: the mean of
 * w * (w - size), where w is @weight_q24 rounded at random.
 */
static wide variance_q24(wide weight_q24, uint64_t size)
{
	uint64_t whole = (uint64_t)(weight_q24 >> Q24);
	uint64_t rest_q24 = (uint64_t)weight_q24 & (ONE_Q24 - 1);

	return ((wide)whole * (whole - size) << Q24) + (wide)rest_q24 * (2 * whole + 1 - size);
}

struct sample_weight sample_weigh(uint64_t interval, uint64_t size, uint8_t mark)
{
	struct exact_weight weight = weight_of(interval, size);

	return (struct sample_weight){
		.bytes = (uint64_t)(weight.bytes_q24 >> Q24) + !!(mark & HA_MARK_BYTES_UP),
		.count = (weight.count_q24 >> Q24) + !!(mark & HA_MARK_COUNT_UP),
		.bytes_variance = variance_q24(weight.bytes_q24, size),
		.count_variance = variance_q24(weight.count_q24, 1),
	};
}

uint8_t sample_mark(uint64_t interval, uint32_t rate, uint64_t size, uint64_t random)
{
	struct exact_weight weight = weight_of(interval, size);
	uint64_t bytes_rest = (uint64_t)weight.bytes_q24 & (ONE_Q24 - 1);
	uint64_t count_rest = weight.count_q24 & (ONE_Q24 - 1);
	uint32_t mark = HA_MARK_RATE(rate);

	if ((random & (ONE_Q24 - 1)) < bytes_rest)
		mark |= HA_MARK_BYTES_UP;
	if ((random >> Q32 & (ONE_Q24 - 1)) < count_rest)
		mark |= HA_MARK_COUNT_UP;
	return (uint8_t)mark;
}

/* ---- who is a sample ---- */

/* Steele, Lea, Flood: Fast splittable pseudorandom number generators (2014). */
static uint64_t random_mix(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

/* A counter, not a state: a handler in between gets numbers of its own. */
static uint64_t random_next(const struct ha_shm *shm, struct stripe stripe)
{
	uint64_t number = __atomic_fetch_add(&stripe.counters->randoms, 1, __ATOMIC_RELAXED);
	uint64_t stream = random_mix(shm->seed + stripe.line * HA_HASH_MULTIPLIER);

	return random_mix(stream + (number + 1) * HA_HASH_MULTIPLIER);
}

static uint64_t rate_interval(const struct ha_shm *shm, uint32_t rate)
{
	return rate == HA_RATE_EXACT ? 1 : load_relaxed(&shm->interval[HA_MARK_RATE(rate)]);
}

/* 0 where all is recorded, which needs no random number. */
static uint64_t draw(const struct ha_shm *shm, struct stripe stripe, uint32_t rate)
{
	if (rate == HA_RATE_EXACT)
		return 0;
	return sample_draw(rate_interval(shm, rate), random_next(shm, stripe));
}

static void line_draw(struct ha_shm *shm, struct stripe stripe, struct ha_line *line)
{
	uint32_t rate = load_acquire(&shm->rate);

	store_relaxed(&line->rate, rate);
	store_relaxed(&line->session, shm->session);
	store_relaxed(&line->left, draw(shm, stripe, rate));
}

/* The thread's own countdown. */
static bool line_take(struct ha_shm *shm, struct stripe stripe, uint64_t need, uint32_t *rate_ret)
{
	struct ha_line *line = (struct ha_line *)shm->lines + stripe.line;
	uint64_t left;

	/*
	 * An end that was not drawn means nothing: it would make the first call a
	 * sample. Since a countdown has no memory, one can be drawn anew at any time
	 * that does not depend on what is left of it.
	 */
	if (UNLIKELY(load_relaxed(&line->session) != shm->session ||
		     HA_LEFT_IS_ANEW(load_relaxed(&line->left))))
		line_draw(shm, stripe, line);
	left = load_relaxed(&line->left);
	if ((int64_t)left >= 0 && left >= need) {
		counter_add(&line->left, -need);
		return false;
	}
	*rate_ret = load_relaxed(&line->rate);
	line_draw(shm, stripe, line);
	return true;
}

bool sample_take(struct ha_shm *shm, struct stripe stripe, uint64_t size, uint8_t *mark_ret)
{
	uint64_t need = size < HA_VALUE_SIZE_MAX ? size + 1 : HA_VALUE_SIZE_MAX;
	uint32_t rate;

	if (stripe.shared) {
		rate = load_acquire(&shm->rate);
		if (draw(shm, stripe, rate) >= need)
			return false;
	} else if (!line_take(shm, stripe, need, &rate)) {
		return false;
	}
	*mark_ret = 0;
	if (rate != HA_RATE_EXACT)
		*mark_ret =
			sample_mark(rate_interval(shm, rate), rate, size, random_next(shm, stripe));
	return true;
}
