// SPDX-License-Identifier: GPL-3.0-or-later
/*
 * Snapshots of a profile: kept as changes from one to the next, thinned out
 * evenly in time so that a session of days stays bounded.
 */
#include <string.h>

#include "resolver/array.h"
#include "resolver/profile.h"

void profile_bound_changes(struct profile *profile, size_t count)
{
	if (count < PROFILE_CHANGES_KEPT)
		profile->changes_max = count;
}

struct error *profile_snapshot_begin(struct profile *profile, const struct profile_snapshot *head)
{
	size_t count = profile->snapshot_count;
	struct error *err;

	if (count && head->time_ns < profile->snapshot[count - 1].time_ns)
		return error_create(ERROR_FORMAT, "snapshot %zu is older than the one before",
				    count);
	err = array_grow(&profile->snapshot, count, 1);
	if (err)
		return err;
	profile->snapshot[count] = *head;
	profile->snapshot[count].totals = (struct profile_sums){0};
	profile->snapshot[count].change = NULL;
	profile->snapshot[count].change_count = 0;
	profile->pending_count = 0; /* pending_cover() makes it new, and zero */
	return NULL;
}

/* Room in pending[] for every site, new ones zero. */
static struct error *pending_cover(struct profile *profile)
{
	size_t count = profile->pending_count;
	struct error *err;

	if (count >= profile->site_count)
		return NULL;
	err = array_grow(&profile->pending, count, profile->site_count - count);
	if (err)
		return err;
	memset(&profile->pending[count], 0,
	       (profile->site_count - count) * sizeof(*profile->pending));
	profile->pending_count = profile->site_count;
	return NULL;
}

struct error *profile_snapshot_add(struct profile *profile, uint32_t site,
				   const struct profile_sums *sums)
{
	struct error *err = pending_cover(profile);

	if (err)
		return err;
	profile_sums_add(&profile->pending[site], sums);
	return NULL;
}

static bool sums_equal(const struct profile_sums *a, const struct profile_sums *b)
{
	return !memcmp(a, b, sizeof(*a));
}

static size_t changed_sites(const struct profile *profile)
{
	size_t changed = 0;

	for (size_t i = 0; i < profile->site_count; i++)
		if (!sums_equal(&profile->pending[i], &profile->site[i].sums))
			changed++;
	return changed;
}

/* Take over pending[] as the current sums; the new snapshot gets the differences. */
static struct error *snapshot_fill(struct profile *profile, struct profile_snapshot *snapshot)
{
	size_t count = changed_sites(profile), next = 0;

	if (count) {
		snapshot->change = malloc(count * sizeof(*snapshot->change));
		if (!snapshot->change)
			return error_memory();
	}
	snapshot->change_count = count;
	for (uint32_t i = 0; i < profile->site_count; i++) {
		struct profile_sums *sums = &profile->site[i].sums;

		profile_sums_add(&snapshot->totals, &profile->pending[i]);
		if (sums_equal(&profile->pending[i], sums))
			continue;
		*sums = profile->pending[i];
		snapshot->change[next++] = (struct profile_change){.site = i, .sums = *sums};
	}
	profile->change_total += count;
	return NULL;
}

/*
 * Merge snapshot @at into the one behind it: the later one's values stand.
 * Both lists are sorted by site.
 */
static struct error *snapshot_merge_into_next(struct profile *profile, size_t at)
{
	struct profile_snapshot *older = &profile->snapshot[at], *newer = older + 1;
	size_t room = older->change_count + newer->change_count, count = 0, o = 0, n = 0;
	struct profile_change *merged = NULL;

	if (room) {
		merged = malloc(room * sizeof(*merged));
		if (!merged)
			return error_memory();
	}
	while (o < older->change_count || n < newer->change_count) {
		if (n == newer->change_count ||
		    (o < older->change_count && older->change[o].site < newer->change[n].site)) {
			merged[count++] = older->change[o++];
			continue;
		}
		if (o < older->change_count && older->change[o].site == newer->change[n].site)
			o++;
		merged[count++] = newer->change[n++];
	}
	profile->change_total -= room - count;
	free(older->change);
	free(newer->change);
	older->change = NULL;
	newer->change = merged;
	newer->change_count = count;
	if (newer->interval < older->interval)
		newer->interval = older->interval;
	return NULL;
}

/*
 * Keep the first, the last, and those in between that are spacing_ns apart;
 * merge each other one into its successor. From snapshot @from on.
 */
static struct error *snapshots_thin(struct profile *profile, size_t from)
{
	struct profile_snapshot *snapshot = profile->snapshot;
	size_t count = profile->snapshot_count, kept = from;

	for (size_t i = from; i < count; i++) {
		bool last = i + 1 == count;

		if (!last &&
		    snapshot[i].time_ns - snapshot[kept - 1].time_ns < profile->spacing_ns) {
			struct error *err = snapshot_merge_into_next(profile, i);

			if (err)
				return err;
			continue;
		}
		/* The gap from kept to i holds only merged ones, without changes. */
		if (kept != i) {
			snapshot[kept] = snapshot[i];
			snapshot[i].change = NULL;
		}
		kept++;
	}
	profile->snapshot_count = kept;
	return NULL;
}

/* What is in use now is the most so far: note of what it consists. */
static void peak_note(struct profile *profile, const struct profile_snapshot *snapshot)
{
	struct profile_peak *peak = &profile->peak;
	uint64_t bytes = profile_inuse_bytes(&snapshot->totals);

	if (bytes <= peak->bytes)
		return;
	peak->time_ns = snapshot->time_ns;
	peak->bytes = bytes;
	peak->count = profile_inuse_count(&snapshot->totals);
	for (size_t i = 0; i < profile->site_count; i++) {
		struct profile_site *site = &profile->site[i];

		site->peak_bytes = profile_inuse_bytes(&site->sums);
		site->peak_count = profile_inuse_count(&site->sums);
	}
}

static void look_note(struct profile *profile)
{
	const struct profile_snapshot *snapshot = &profile->snapshot[profile->snapshot_count];
	uint64_t passed_ns = profile->snapshot_count ? snapshot->time_ns - snapshot[-1].time_ns : 0;

	if (passed_ns > profile->look_ns)
		profile->look_ns = passed_ns;
}

static bool too_many(const struct profile *profile)
{
	return profile->snapshot_count > PROFILE_SNAPSHOTS_MAX ||
	       (profile->change_total > profile->changes_max && profile->snapshot_count > 3);
}

static struct error *snapshots_bound(struct profile *profile)
{
	size_t count = profile->snapshot_count;
	struct error *err;

	/* The one before was only kept because it was the last. */
	if (count >= 3) {
		err = snapshots_thin(profile, count - 2);
		if (err)
			return err;
	}
	while (too_many(profile)) {
		uint64_t span = profile->snapshot[profile->snapshot_count - 1].time_ns -
				profile->snapshot[0].time_ns;
		uint64_t even = span / PROFILE_SNAPSHOTS_MAX + 1;

		profile->spacing_ns =
			profile->spacing_ns > even ? profile->spacing_ns * 2 : even * 2;
		err = snapshots_thin(profile, 1);
		if (err)
			return err;
	}
	return NULL;
}

struct error *profile_snapshot_end(struct profile *profile)
{
	struct error *err = pending_cover(profile);

	if (err)
		return err;
	err = snapshot_fill(profile, &profile->snapshot[profile->snapshot_count]);
	if (err)
		return err;
	look_note(profile);
	peak_note(profile, &profile->snapshot[profile->snapshot_count]);
	profile->snapshot_count++;
	return snapshots_bound(profile);
}

struct error *profile_snapshot_append(struct profile *profile, const struct profile_snapshot *head,
				      struct profile_change *changes, size_t count)
{
	struct error *err = profile_snapshot_begin(profile, head);
	struct profile_snapshot *snapshot;

	for (size_t i = 0; i < count && !err; i++)
		if (changes[i].site >= profile->site_count ||
		    (i && changes[i].site <= changes[i - 1].site))
			err = error_create(ERROR_FORMAT,
					   "change %zu names site %u of %zu, or "
					   "breaks the order",
					   i, changes[i].site, profile->site_count);
	if (err) {
		free(changes);
		return err;
	}
	for (size_t i = 0; i < count; i++)
		profile->site[changes[i].site].sums = changes[i].sums;
	snapshot = &profile->snapshot[profile->snapshot_count++];
	snapshot->change = changes;
	snapshot->change_count = count;
	snapshot->totals = profile_totals(profile);
	profile->change_total += count;
	return NULL;
}
