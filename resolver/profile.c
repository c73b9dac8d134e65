// SPDX-License-Identifier: GPL-3.0-or-later
#include "resolver/profile.h"

#include <string.h>

#include "resolver/array.h"
#include "resolver/strpool.h"

struct error *profile_create(struct profile **ret)
{
	struct profile *profile = calloc(1, sizeof(*profile));
	struct error *err;

	if (!profile)
		return error_memory();
	err = strpool_create(&profile->strings);
	if (err) {
		free(profile);
		return err;
	}
	profile->interval = 1;
	profile->changes_max = PROFILE_CHANGES_KEPT;
	*ret = profile;
	return NULL;
}

void profile_free(struct profile *profile)
{
	if (!profile)
		return;
	for (size_t i = 0; i < profile->snapshot_count; i++)
		free(profile->snapshot[i].change);
	free(profile->snapshot);
	free(profile->coverage.skipped);
	free(profile->pause);
	free(profile->module);
	free(profile->location);
	free(profile->frame);
	free(profile->site);
	free(profile->site_location);
	free(profile->pending);
	free(profile->bin);
	hashindex_deinit(&profile->location_index);
	hashindex_deinit(&profile->site_index);
	strpool_free(profile->strings);
	free(profile);
}

void profile_freep(struct profile **profile)
{
	profile_free(*profile);
}

struct error *profile_string(struct profile *profile, const char *text, const char **ret)
{
	if (!text) {
		*ret = NULL;
		return NULL;
	}
	return strpool_add(profile->strings, text, strlen(text), ret);
}

struct error *profile_add_pause(struct profile *profile, const struct profile_pause *pause)
{
	struct error *err = array_grow(&profile->pause, profile->pause_count, 1);

	if (err)
		return err;
	profile->pause[profile->pause_count++] = *pause;
	return NULL;
}

struct error *profile_add_skipped(struct profile *profile, const char *module, const char *reason)
{
	struct profile_coverage *coverage = &profile->coverage;
	struct error *err = array_grow(&coverage->skipped, coverage->skipped_count, 1);
	struct profile_skipped *skipped;

	if (err)
		return err;
	skipped = &coverage->skipped[coverage->skipped_count];
	err = profile_string(profile, module, &skipped->module);
	if (err)
		return err;
	err = profile_string(profile, reason, &skipped->reason);
	if (err)
		return err;
	coverage->skipped_count++;
	return NULL;
}

/* Intern the four strings of @module in place. */
static struct error *module_strings(struct profile *profile, struct profile_module *module)
{
	const char **text[] = {&module->path, &module->build_id, &module->symbols,
			       &module->no_symbols};

	for (size_t i = 0; i < ARRAY_SIZE(text); i++) {
		struct error *err = profile_string(profile, *text[i], text[i]);

		if (err)
			return err;
	}
	return NULL;
}

struct error *profile_add_module(struct profile *profile, const struct profile_module *module,
				 uint32_t *ret)
{
	struct profile_module added = *module;
	struct error *err = module_strings(profile, &added);

	if (err)
		return err;
	for (size_t i = 0; i < profile->module_count; i++) {
		const struct profile_module *known = &profile->module[i];

		if (known->path == added.path && known->build_id == added.build_id) {
			*ret = i;
			return NULL;
		}
	}
	if (profile->module_count >= PROFILE_MODULES_MAX)
		return error_create(ERROR_UNSUPPORTED, "more than %u modules in one profile",
				    PROFILE_MODULES_MAX);
	err = array_grow(&profile->module, profile->module_count, 1);
	if (err)
		return err;
	profile->module[profile->module_count] = added;
	*ret = profile->module_count++;
	return NULL;
}

static uint64_t location_hash(uint32_t module, uint64_t vaddr)
{
	return hash_u64(hash_u64(0, module), vaddr);
}

struct error *profile_add_location(struct profile *profile, uint32_t module, uint64_t vaddr,
				   uint32_t *ret)
{
	uint64_t hash = location_hash(module, vaddr);
	size_t slot = hashindex_first(&profile->location_index, hash);
	struct error *err;
	uint32_t id;

	while (hashindex_next(&profile->location_index, &slot, hash, &id)) {
		if (profile->location[id].module == module &&
		    profile->location[id].vaddr == vaddr) {
			*ret = id;
			return NULL;
		}
	}
	if (profile->location_count >= PROFILE_LOCATIONS_MAX)
		return error_create(ERROR_UNSUPPORTED, "more than %u locations in one profile",
				    PROFILE_LOCATIONS_MAX);
	err = array_grow(&profile->location, profile->location_count, 1);
	if (err)
		return err;
	id = profile->location_count;
	err = hashindex_add(&profile->location_index, hash, id);
	if (err)
		return err;
	profile->location[id] = (struct profile_location){.module = module, .vaddr = vaddr};
	profile->location_count++;
	*ret = id;
	return NULL;
}

static struct error *frame_strings(struct profile *profile, struct profile_frame *frame)
{
	const char **text[] = {&frame->function, &frame->linkage, &frame->file};

	for (size_t i = 0; i < ARRAY_SIZE(text); i++) {
		struct error *err = profile_string(profile, *text[i], text[i]);

		if (err)
			return err;
	}
	return NULL;
}

struct error *profile_resolve_location(struct profile *profile, uint32_t location,
				       const struct profile_frame *frames, size_t count)
{
	size_t first = profile->frame_count;
	struct error *err;

	if (count > PROFILE_FRAMES_MAX - first)
		return error_create(ERROR_UNSUPPORTED, "more than %u frames in one profile",
				    PROFILE_FRAMES_MAX);
	err = array_grow(&profile->frame, first, count);
	if (err)
		return err;
	for (size_t i = 0; i < count; i++) {
		profile->frame[first + i] = frames[i];
		err = frame_strings(profile, &profile->frame[first + i]);
		if (err)
			return err;
	}
	profile->frame_count += count;
	profile->location[location].frame_first = first;
	profile->location[location].frame_count = count;
	return NULL;
}

static uint64_t site_hash(const uint32_t *locations, size_t count, uint32_t flags)
{
	return hash_bytes(hash_u64(0, flags), locations, count * sizeof(*locations));
}

static struct error *site_append(struct profile *profile, const uint32_t *locations, size_t count,
				 uint32_t flags, uint64_t hash)
{
	uint32_t id = profile->site_count;
	size_t first = profile->site_location_count;
	struct error *err;

	if (id >= PROFILE_SITES_MAX || count > UINT32_MAX - first)
		return error_create(ERROR_UNSUPPORTED, "more than %u stacks in one profile",
				    PROFILE_SITES_MAX);
	err = array_grow(&profile->site, id, 1);
	if (err)
		return err;
	err = array_grow(&profile->site_location, first, count);
	if (err)
		return err;
	err = hashindex_add(&profile->site_index, hash, id);
	if (err)
		return err;
	if (count)
		memcpy(&profile->site_location[first], locations, count * sizeof(*locations));
	profile->site_location_count += count;
	profile->site[id] = (struct profile_site){
		.location_first = first,
		.location_count = count,
		.flags = flags,
	};
	profile->site_count++;
	return NULL;
}

struct error *profile_add_site(struct profile *profile, const uint32_t *locations, size_t count,
			       uint32_t flags, uint32_t *ret)
{
	uint64_t hash = site_hash(locations, count, flags);
	size_t slot = hashindex_first(&profile->site_index, hash);
	struct error *err;
	uint32_t id;

	if (count > PROFILE_DEPTH_MAX)
		return error_create(ERROR_UNSUPPORTED, "a stack of %zu frames is deeper than %u",
				    count, PROFILE_DEPTH_MAX);
	while (hashindex_next(&profile->site_index, &slot, hash, &id)) {
		const struct profile_site *site = &profile->site[id];

		if (site->flags == flags && site->location_count == count &&
		    (!count || !memcmp(&profile->site_location[site->location_first], locations,
				       count * sizeof(*locations)))) {
			*ret = id;
			return NULL;
		}
	}
	err = site_append(profile, locations, count, flags, hash);
	if (err)
		return err;
	*ret = profile->site_count - 1;
	return NULL;
}

struct profile_sums profile_totals(const struct profile *profile)
{
	struct profile_sums totals = {0};

	for (size_t i = 0; i < profile->site_count; i++)
		profile_sums_add(&totals, &profile->site[i].sums);
	return totals;
}
