// SPDX-License-Identifier: GPL-3.0-or-later
#include "resolver/report_sites.h"

#include <string.h>

#include "resolver/array.h"
#include "resolver/cleanup.h"
#include "resolver/funcname.h"

/* ---- frames ---- */

struct report_walk report_walk_begin(const struct profile *profile, uint32_t site)
{
	const struct profile_site *at = &profile->site[site];

	return (struct report_walk){
		.profile = profile,
		.next_location = at->location_first,
		.end_location = at->location_first + at->location_count,
	};
}

bool report_walk_next(struct report_walk *walk, struct report_frame *ret)
{
	const struct profile *profile = walk->profile;
	const struct profile_location *location;
	const struct profile_frame *frame;

	if (walk->next_location == walk->end_location)
		return false;
	location = &profile->location[profile->site_location[walk->next_location]];
	*ret = (struct report_frame){.module = location->module, .vaddr = location->vaddr};
	if (location->frame_count) {
		frame = &profile->frame[location->frame_first + walk->next_frame++];
		ret->function = frame->function;
		ret->linkage = frame->linkage;
		ret->file = frame->file;
		ret->line = frame->line;
		ret->inlined = frame->inlined;
	}
	if (walk->next_frame >= location->frame_count) {
		walk->next_location++;
		walk->next_frame = 0;
	}
	return true;
}

/*
 * What a site is called after: the innermost frame of the program's own code,
 * not an allocator and not a container of the standard library; if there is none,
 * the innermost that is no allocator.
 */
static size_t own_frame(const struct report_frame *frames, size_t count)
{
	size_t own = 0, outer;

	while (own < count && report_is_allocator(frames[own].function))
		own++;
	for (outer = own; outer < count; outer++)
		if (!frames[outer].function || !funcname_is_standard(frames[outer].function))
			break;
	return outer < count ? outer : own < count ? own : 0;
}

struct error *report_frames(const struct profile *profile, uint32_t site,
			    struct report_frame **frames_ret, size_t *count_ret, size_t *own_ret)
{
	struct report_walk walk = report_walk_begin(profile, site);
	CLEANUP(freep) struct report_frame *frames = NULL;
	struct report_frame frame;
	size_t count = 0;

	while (report_walk_next(&walk, &frame)) {
		struct error *err = array_grow(&frames, count, 1);

		if (err)
			return err;
		frames[count++] = frame;
	}
	*own_ret = own_frame(frames, count);
	*count_ret = count;
	*frames_ret = take(frames);
	return NULL;
}

const char *report_basename(const char *path)
{
	const char *slash = path ? strrchr(path, '/') : NULL;

	return slash && slash[1] ? slash + 1 : path ? path : "";
}

/* ---- grouping ---- */

/* The line of @location is known, so that its address adds nothing for a reader. */
static bool has_line(const struct profile *profile, const struct profile_location *location)
{
	return location->frame_count &&
	       profile->frame[location->frame_first + location->frame_count - 1].line;
}

static uint64_t location_reads(const struct profile *profile, uint32_t id)
{
	const struct profile_location *location = &profile->location[id];
	uint64_t hash = hash_u64(0, location->module);

	if (!has_line(profile, location))
		hash = hash_u64(hash, location->vaddr);
	for (uint32_t i = 0; i < location->frame_count; i++) {
		const struct profile_frame *frame = &profile->frame[location->frame_first + i];

		hash = hash_u64(hash, (uintptr_t)frame->function);
		hash = hash_u64(hash, (uintptr_t)frame->file);
		hash = hash_u64(hash, frame->line);
	}
	return hash;
}

static bool locations_alike(const struct profile *profile, uint32_t a_id, uint32_t b_id)
{
	const struct profile_location *a = &profile->location[a_id];
	const struct profile_location *b = &profile->location[b_id];

	if (a->module != b->module || a->frame_count != b->frame_count)
		return false;
	if (!has_line(profile, a) && a->vaddr != b->vaddr)
		return false;
	for (uint32_t i = 0; i < a->frame_count; i++) {
		const struct profile_frame *p = &profile->frame[a->frame_first + i];
		const struct profile_frame *q = &profile->frame[b->frame_first + i];

		if (p->function != q->function || p->file != q->file || p->line != q->line ||
		    p->inlined != q->inlined)
			return false;
	}
	return true;
}

/* Puts into alike[] for each location the first location that reads like it. */
static struct error *group_locations(const struct profile *profile, uint32_t *alike)
{
	CLEANUP(hashindex_deinit) struct hashindex index = {0};

	for (uint32_t i = 0; i < profile->location_count; i++) {
		uint64_t hash = location_reads(profile, i);
		size_t slot = hashindex_first(&index, hash);
		struct error *err = NULL;
		uint32_t other;

		alike[i] = i;
		while (hashindex_next(&index, &slot, hash, &other)) {
			if (locations_alike(profile, i, other)) {
				alike[i] = other;
				break;
			}
		}
		if (alike[i] == i)
			err = hashindex_add(&index, hash, i);
		if (err)
			return err;
	}
	return NULL;
}

static uint64_t site_reads(const struct profile *profile, uint32_t id, const uint32_t *alike)
{
	const struct profile_site *site = &profile->site[id];
	uint64_t hash = hash_u64(0, site->flags);

	for (uint32_t i = 0; i < site->location_count; i++)
		hash = hash_u64(hash, alike[profile->site_location[site->location_first + i]]);
	return hash;
}

static bool sites_alike(const struct profile *profile, uint32_t a_id, uint32_t b_id,
			const uint32_t *alike)
{
	const struct profile_site *a = &profile->site[a_id], *b = &profile->site[b_id];
	const uint32_t *location = profile->site_location;

	if (a->flags != b->flags || a->location_count != b->location_count)
		return false;
	for (uint32_t i = 0; i < a->location_count; i++)
		if (alike[location[a->location_first + i]] !=
		    alike[location[b->location_first + i]])
			return false;
	return true;
}

static void site_join(struct report_sites *sites, const struct report_site *site, uint32_t id)
{
	sites->next[id] = PROFILE_NONE;
	if (site->site == id)
		return;
	sites->next[id] = sites->next[site->site];
	sites->next[site->site] = id;
}

/* Fills site[] in the order of first appearance, and place[] and next[]. */
static struct error *group_sites(const struct profile *profile, const uint32_t *alike,
				 struct report_sites *sites)
{
	CLEANUP(hashindex_deinit) struct hashindex index = {0};

	for (uint32_t i = 0; i < profile->site_count; i++) {
		uint64_t hash = site_reads(profile, i, alike);
		size_t slot = hashindex_first(&index, hash);
		uint32_t place = UINT32_MAX, other;

		while (hashindex_next(&index, &slot, hash, &other)) {
			if (sites_alike(profile, i, sites->site[other].site, alike)) {
				place = other;
				break;
			}
		}
		if (place == UINT32_MAX) {
			struct error *err = hashindex_add(&index, hash, sites->count);

			if (err)
				return err;
			place = sites->count++;
			sites->site[place].site = i;
			sites->site[place].flags = profile->site[i].flags;
		}
		sites->place[i] = place;
		site_join(sites, &sites->site[place], i);
		sites->site[place].missed_frees += profile->site[i].missed_frees;
		sites->site[place].temporary += profile->site[i].temporary;
		sites->site[place].peak_bytes += profile->site[i].peak_bytes;
		sites->site[place].peak_count += profile->site[i].peak_count;
		profile_sums_add(&sites->site[place].sums, &profile->site[i].sums);
		profile_variance_add(&sites->site[place].variance, &profile->site[i].variance);
		profile_variance_add(&sites->variance, &profile->site[i].variance);
	}
	return NULL;
}

/* ---- sorting ---- */

uint64_t report_sort_value(enum report_sort sort, const struct profile_sums *sums)
{
	switch (sort) {
	case REPORT_SORT_ALLOC:
		return sums->alloc_bytes;
	case REPORT_SORT_COUNT:
		return sums->alloc_count;
	default:
		return profile_inuse_bytes(sums);
	}
}

static int compare_sites(const void *a, const void *b, void *context)
{
	const struct report_site *p = a, *q = b;
	enum report_sort sort = *(const enum report_sort *)context;
	uint64_t p_value = report_sort_value(sort, &p->sums);
	uint64_t q_value = report_sort_value(sort, &q->sums);

	if (p_value != q_value)
		return p_value < q_value ? 1 : -1;
	if (p->sums.alloc_bytes != q->sums.alloc_bytes)
		return p->sums.alloc_bytes < q->sums.alloc_bytes ? 1 : -1;
	return p->site > q->site ? 1 : -1;
}

static struct error *sort_sites(const struct profile *profile, enum report_sort sort,
				struct report_sites *sites)
{
	/* Places move; each site's old place is found through its first member. */
	CLEANUP(freep) uint32_t *moved = calloc(sites->count + 1, sizeof(*moved));

	if (!moved)
		return error_memory();
	qsort_r(sites->site, sites->count, sizeof(*sites->site), compare_sites, &sort);
	for (uint32_t i = 0; i < sites->count; i++)
		moved[sites->place[sites->site[i].site]] = i;
	for (size_t i = 0; i < profile->site_count; i++)
		sites->place[i] = moved[sites->place[i]];
	return NULL;
}

struct error *report_sites_init(const struct profile *profile, enum report_sort sort,
				struct report_sites *ret)
{
	CLEANUP(freep) uint32_t *alike = calloc(profile->location_count + 1, sizeof(*alike));
	CLEANUP(report_sites_deinit)
	struct report_sites sites = {
		.site = calloc(profile->site_count + 1, sizeof(*sites.site)),
		.place = calloc(profile->site_count + 1, sizeof(*sites.place)),
		.next = calloc(profile->site_count + 1, sizeof(*sites.next)),
		.totals = profile_totals(profile),
	};
	struct error *err;

	if (!alike || !sites.site || !sites.place || !sites.next)
		return error_memory();
	err = group_locations(profile, alike);
	if (err)
		return err;
	err = group_sites(profile, alike, &sites);
	if (err)
		return err;
	err = sort_sites(profile, sort, &sites);
	if (err)
		return err;
	*ret = sites;
	sites = (struct report_sites){0};
	return NULL;
}

void report_sites_deinit(struct report_sites *sites)
{
	free(sites->site);
	free(sites->place);
	free(sites->next);
	*sites = (struct report_sites){0};
}

size_t report_sites_shown(const struct report_sites *sites, const struct report_options *options,
			  size_t usual)
{
	size_t wanted = options->top ? options->top : usual;

	return wanted < sites->count ? wanted : sites->count;
}

struct profile_sums report_sites_rest(const struct report_sites *sites, size_t first)
{
	struct profile_sums rest = {0};

	for (size_t i = first; i < sites->count; i++)
		profile_sums_add(&rest, &sites->site[i].sums);
	return rest;
}

struct profile_variance report_variance_rest(const struct report_sites *sites, size_t first)
{
	struct profile_variance rest = {0};

	for (size_t i = first; i < sites->count; i++)
		profile_variance_add(&rest, &sites->site[i].variance);
	return rest;
}

/* ---- over time ---- */

/* When point @point of @points is: the last one at @end_ns, which they need not divide. */
static uint64_t point_time(uint64_t end_ns, size_t points, size_t point)
{
	return point + 1 < points ? end_ns / points * (point + 1) : end_ns;
}

struct error *report_series(const struct profile *profile, const struct report_sites *sites,
			    size_t points, uint64_t **ret)
{
	CLEANUP(freep) uint64_t *value = calloc(sites->count * points + 1, sizeof(*value));
	CLEANUP(freep) uint64_t *now = calloc(sites->count + 1, sizeof(*now));
	CLEANUP(freep) uint64_t *before = calloc(profile->site_count + 1, sizeof(*before));
	size_t snapshots = profile->snapshot_count, point = 0;
	uint64_t end_ns = snapshots ? profile->snapshot[snapshots - 1].time_ns : 0;

	if (!value || !now || !before)
		return error_memory();
	for (size_t i = 0; i < snapshots; i++) {
		const struct profile_snapshot *snapshot = &profile->snapshot[i];
		uint64_t until_ns = i + 1 < snapshots ? snapshot[1].time_ns : UINT64_MAX;

		for (size_t k = 0; k < snapshot->change_count; k++) {
			const struct profile_change *change = &snapshot->change[k];
			uint64_t inuse = profile_inuse_bytes(&change->sums);

			now[sites->place[change->site]] += inuse - before[change->site];
			before[change->site] = inuse;
		}
		for (; point < points && point_time(end_ns, points, point) < until_ns; point++)
			for (size_t k = 0; k < sites->count; k++)
				value[k * points + point] = now[k];
	}
	*ret = take(value);
	return NULL;
}

/* The sums of each of the profile's sites become those of the site it belongs to. */
static void sums_join(const struct profile *profile, const struct report_sites *sites,
		      const struct profile_sums *own, struct profile_sums *joined)
{
	for (size_t i = 0; i < profile->site_count; i++)
		profile_sums_add(&joined[sites->place[i]], &own[i]);
}

struct error *report_middle_init(const struct profile *profile, const struct report_sites *sites,
				 struct report_middle *ret)
{
	CLEANUP(freep) struct profile_sums *own = calloc(profile->site_count + 1, sizeof(*own));
	CLEANUP(freep) struct profile_sums *joined = calloc(sites->count + 1, sizeof(*joined));
	size_t count = profile->snapshot_count;
	uint64_t end_ns = count ? profile->snapshot[count - 1].time_ns : 0, time_ns = 0;

	if (!own || !joined)
		return error_memory();
	for (size_t i = 0; i < count && profile->snapshot[i].time_ns <= end_ns / 2; i++) {
		const struct profile_snapshot *snapshot = &profile->snapshot[i];

		for (size_t k = 0; k < snapshot->change_count; k++)
			own[snapshot->change[k].site] = snapshot->change[k].sums;
		time_ns = snapshot->time_ns;
	}
	sums_join(profile, sites, own, joined);
	*ret = (struct report_middle){time_ns, take(joined)};
	return NULL;
}

void report_middle_deinit(struct report_middle *middle)
{
	free(middle->sums);
	*middle = (struct report_middle){0};
}
