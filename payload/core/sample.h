/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Which allocations are samples, and what a sample stands for: Poisson by
 * bytes. See ha_line.left and HA_MARK_RATE in payload/protocol.h.
 *
 * Whole numbers only: the program may have unmasked floating-point exceptions
 * or chosen another rounding, under which a free would not take off what the
 * allocation added.
 */
#ifndef PAYLOAD_CORE_SAMPLE_H
#define PAYLOAD_CORE_SAMPLE_H

#include "payload/core/shm.h"
#include "payload/protocol.h"

#include <stdbool.h>
#include <stdint.h>

struct sample_weight {
	uint64_t bytes;
	uint64_t count;
	/* Of both, with HA_VARIANCE_BITS behind the point; whichever way was rounded. */
	unsigned __int128 bytes_variance;
	unsigned __int128 count_variance;
};

/*
 * Bytes to the next sample: distributed exponentially with the mean @interval
 * (1 up to HA_INTERVAL_MAX; 1 gives 0: each call is a sample). @random has 64
 * random bits.
 */
uint64_t sample_draw(uint64_t interval, uint64_t random);

/*
 * What a sample of @size bytes, drawn with @interval, stands for; @mark says
 * which way to round.
 */
struct sample_weight sample_weigh(uint64_t interval, uint64_t size, uint8_t mark);

/* The mark of such a sample; @rate is the index of @interval. */
uint8_t sample_mark(uint64_t interval, uint32_t rate, uint64_t size, uint64_t random);

/* Whether an allocation of @size bytes on the line of @stripe is a sample, and its mark. */
bool sample_take(struct ha_shm *shm, struct stripe stripe, uint64_t size, uint8_t *mark_ret);

#endif
