/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * From the shared memory to the profile: what the reader found becomes sites,
 * locations and snapshots; addresses become functions and lines.
 *
 * For one thread at a time.
 */
#ifndef INJECTOR_FILL_H
#define INJECTOR_FILL_H

#include <stdint.h>

#include "injector/instances.h"
#include "injector/reader.h"
#include "resolver/error.h"
#include "resolver/profile.h"
#include "resolver/symbolizer.h"

struct fill {
	struct profile *profile;
	struct reader *reader;
	struct symbolizer *symbolizer;
	const struct instances *instances;
	uint32_t *site_map; /* reader's site number -> profile's, PROFILE_NONE = not yet */
	size_t site_map_size;
};

/* All four must outlive @fill. ERROR_MEMORY. */
MUST_CHECK struct error *fill_init(struct fill *fill, struct profile *profile,
				   struct reader *reader, struct symbolizer *symbolizer,
				   const struct instances *instances);
void fill_deinit(struct fill *fill);

/*
 * Add a snapshot of what the reader found in its last scan; @head has time and
 * memory. ERROR_MEMORY.
 */
MUST_CHECK struct error *fill_snapshot(struct fill *fill, const struct profile_snapshot *head);

/* Copy the reader's counters into the profile's coverage. */
void fill_counters(struct fill *fill);

/*
 * Name every location and say of each module where its names came from. Takes
 * the time that reading debug files takes; usually once, at the end.
 */
MUST_CHECK struct error *fill_names(struct fill *fill);

#endif
