// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/fill.h"

#include <stdlib.h>
#include <string.h>

#include "resolver/cleanup.h"

struct error *fill_init(struct fill *fill, struct profile *profile, struct reader *reader,
			struct symbolizer *symbolizer, const struct instances *instances)
{
	size_t i;

	fill->profile = profile;
	fill->reader = reader;
	fill->symbolizer = symbolizer;
	fill->instances = instances;
	fill->site_map_size = reader->shm->site_capacity;
	fill->site_map = malloc(fill->site_map_size * sizeof(*fill->site_map));
	if (!fill->site_map)
		return error_memory();
	for (i = 0; i < fill->site_map_size; i++)
		fill->site_map[i] = PROFILE_NONE;
	return NULL;
}

void fill_deinit(struct fill *fill)
{
	free(fill->site_map);
	fill->site_map = NULL;
}

static uint32_t site_flags(uint16_t flags)
{
	return (flags & HA_SITE_TRUNCATED ? PROFILE_SITE_TRUNCATED : 0) |
	       (flags & HA_SITE_GUESSED ? PROFILE_SITE_GUESSED : 0) |
	       (flags & HA_SITE_STALE ? PROFILE_SITE_STALE : 0) |
	       (flags & HA_SITE_DEEP ? PROFILE_SITE_DEEP : 0);
}

/* The profile's number of a site; added when it is met for the first time. */
static struct error *site_add(struct fill *fill, size_t number, uint32_t *ret)
{
	const struct reader_site *site = &fill->reader->site[number];
	uint32_t locations[HA_FRAMES_MAX];
	struct error *err;
	size_t i;

	if (!site->frames)
		return profile_add_site(fill->profile, NULL, 0, PROFILE_SITE_UNKNOWN, ret);
	for (i = 0; i < site->frames; i++) {
		const struct instance *instance =
			instances_find(fill->instances, site->pc[i] - 1, site->generation);
		uint32_t module = instance ? instance->profile_module : PROFILE_NONE;
		uint64_t bias = instance ? instance->bias : 0;

		err = profile_add_location(fill->profile, module, site->pc[i] - 1 - bias,
					   &locations[i]);
		if (err)
			return err;
	}
	return profile_add_site(fill->profile, locations, site->frames, site_flags(site->flags),
				ret);
}

static bool sums_any(const struct ha_sums *sums)
{
	return sums->alloc_count || sums->freed_count || sums->missed_frees;
}

static struct error *site_snapshot(struct fill *fill, size_t number)
{
	const struct ha_sums *sums = &fill->reader->site[number].sums;
	const struct profile_sums copy = {
		.alloc_bytes = sums->alloc_bytes,
		.alloc_count = sums->alloc_count,
		.freed_bytes = sums->freed_bytes,
		.freed_count = sums->freed_count,
	};
	struct error *err;

	if (!sums_any(sums))
		return NULL;
	/* A site whose stack is not published yet is looked at again next time. */
	if (!fill->reader->site[number].frames && number != HA_SITE_UNKNOWN)
		return NULL;
	if (fill->site_map[number] == PROFILE_NONE) {
		err = site_add(fill, number, &fill->site_map[number]);
		if (err)
			return err;
	}
	return profile_snapshot_add(fill->profile, fill->site_map[number], &copy);
}

/* Several of the target's stacks may have become one site: set, not added twice. */
static void sites_copy(struct fill *fill)
{
	size_t i;

	for (i = 0; i < fill->profile->site_count; i++) {
		fill->profile->site[i].missed_frees = 0;
		fill->profile->site[i].temporary = 0;
		fill->profile->site[i].variance = (struct profile_variance){0};
	}
	for (i = 0; i < fill->reader->sites; i++) {
		const struct reader_site *from = &fill->reader->site[i];
		struct profile_site *to;

		if (fill->site_map[i] == PROFILE_NONE)
			continue;
		to = &fill->profile->site[fill->site_map[i]];
		to->missed_frees += from->sums.missed_frees;
		to->temporary += from->sums.temporary;
		to->variance.alloc_bytes += from->variance.alloc_bytes;
		to->variance.alloc_count += from->variance.alloc_count;
		to->variance.inuse_bytes += from->variance.inuse_bytes;
		to->variance.inuse_count += from->variance.inuse_count;
	}
}

struct error *fill_snapshot(struct fill *fill, const struct profile_snapshot *head)
{
	struct error *err;
	size_t i;

	err = profile_snapshot_begin(fill->profile, head);
	if (err)
		return err;
	for (i = 0; i < fill->reader->sites; i++) {
		err = site_snapshot(fill, i);
		if (err)
			return err;
	}
	err = profile_snapshot_end(fill->profile);
	if (!err)
		sites_copy(fill);
	return err;
}

void fill_counters(struct fill *fill)
{
	const struct ha_stripe *counters = &fill->reader->counters;
	struct profile_coverage *coverage = &fill->profile->coverage;

	coverage->events = counters->events;
	coverage->truncated_stacks = counters->truncated;
	coverage->unknown_frees = counters->unknown_frees;
	coverage->missed_frees = counters->missed_frees;
	coverage->untracked = counters->untracked;
	coverage->untracked_bytes = counters->untracked_bytes;
	coverage->adopted = counters->adopted;
	coverage->adopted_bytes = counters->adopted_bytes;
	coverage->nested_duplicates = counters->nested_duplicates;
	coverage->no_site = counters->no_site;
	coverage->no_scratch = counters->no_scratch;
	coverage->oversized = counters->oversized;
	coverage->gave_up = __atomic_load_n(&fill->reader->shm->header->gave_up, __ATOMIC_RELAXED);
}

/* The symbolizer's number for a module of the profile, or UINT32_MAX. */
static uint32_t symbolizer_number(const struct fill *fill, uint32_t profile_module)
{
	size_t i;

	for (i = 0; i < fill->instances->count; i++) {
		if (fill->instances->instance[i].profile_module == profile_module)
			return fill->instances->instance[i].symbolizer_module;
	}
	return UINT32_MAX;
}

static struct error *location_name(struct fill *fill, uint32_t location, uint32_t number)
{
	const struct symbolizer_frame *found;
	struct profile_frame *frames;
	struct error *err;
	size_t count, i;

	err = symbolizer_resolve(fill->symbolizer, number, fill->profile->location[location].vaddr,
				 &found, &count);
	if (err)
		return err;
	frames = calloc(count, sizeof(*frames));
	if (!frames)
		return error_memory();
	for (i = 0; i < count; i++) {
		frames[i].function = found[i].function;
		frames[i].linkage = found[i].linkage_name;
		frames[i].file = found[i].file;
		frames[i].line = found[i].line;
		frames[i].inlined = found[i].inlined;
	}
	err = profile_resolve_location(fill->profile, location, frames, count);
	free(frames);
	return err;
}

static struct error *module_describe(struct fill *fill, uint32_t module, uint32_t number)
{
	struct symbolizer_info info;
	struct error *err = symbolizer_module_info(fill->symbolizer, number, &info);
	char source[512];

	if (err)
		return err;
	if (info.source != SYMBOLIZER_NONE) {
		snprintf(source, sizeof(source), "%s%s%s", symbolizer_source_name(info.source),
			 info.debug_file ? " " : "", info.debug_file ? info.debug_file : "");
		err = profile_string(fill->profile, source, &fill->profile->module[module].symbols);
		if (err)
			return err;
	}
	return profile_string(fill->profile,
			      info.why_no_names ? info.why_no_names : info.why_no_lines,
			      &fill->profile->module[module].no_symbols);
}

struct error *fill_names(struct fill *fill)
{
	CLEANUP(freep) bool *used = calloc(fill->profile->module_count + 1, sizeof(*used));
	struct error *err;
	uint32_t i;

	if (!used)
		return error_memory();
	for (i = 0; i < fill->profile->location_count; i++) {
		uint32_t module = fill->profile->location[i].module;
		uint32_t number = symbolizer_number(fill, module);

		if (module == PROFILE_NONE || number == UINT32_MAX)
			continue;
		used[module] = true;
		err = location_name(fill, i, number);
		if (err)
			return err;
	}
	for (i = 0; i < fill->profile->module_count; i++) {
		if (!used[i])
			continue;
		err = module_describe(fill, i, symbolizer_number(fill, i));
		if (err)
			return err;
	}
	return NULL;
}
