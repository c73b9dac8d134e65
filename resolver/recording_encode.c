// SPDX-License-Identifier: GPL-3.0-or-later
#include <string.h>

#include "resolver/array.h"
#include "resolver/cleanup.h"
#include "resolver/profile.h"
#include "resolver/recording.h"
#include "resolver/recording_sections.h"
#include "resolver/strpool.h"
#include "resolver/wire.h"

/* 0 is no string. */
static void put_string(struct wire_writer *out, const char *text)
{
	wire_put_varint(out, text ? strpool_id(text) + 1ull : 0);
}

static void encode_strings(struct wire_writer *out, const struct profile *profile)
{
	size_t count = strpool_count(profile->strings);

	wire_put_varint(out, count);
	for (size_t i = 0; i < count; i++) {
		const char *text = strpool_text(profile->strings, i);

		wire_put_bytes(out, text, strpool_size(text));
	}
}

static void encode_memory(struct wire_writer *out, const struct profile_memory *memory)
{
	wire_put_varint(out, memory->rss_bytes);
	wire_put_varint(out, memory->anon_bytes);
	wire_put_varint(out, memory->file_bytes);
	wire_put_varint(out, memory->shmem_bytes);
	wire_put_varint(out, memory->own_bytes);
	wire_put_varint(out, memory->allocator_known);
	wire_put_varint(out, memory->allocator_bytes);
	wire_put_varint(out, memory->allocator_free);
}

static void encode_session(struct wire_writer *out, const struct profile *profile)
{
	const struct profile_target *target = &profile->target;

	wire_put_signed(out, target->pid);
	wire_put_varint(out, target->uid);
	put_string(out, target->comm);
	put_string(out, target->exe);
	put_string(out, target->cmdline);
	wire_put_signed(out, profile->start_unix_ns);
	wire_put_varint(out, profile->duration_ns);
	wire_put_varint(out, profile->end);
	wire_put_signed(out, profile->end_status);
	wire_put_varint(out, profile->interval);
	put_string(out, profile->loader);
	put_string(out, profile->allocator);
	encode_memory(out, &profile->memory_start);
	encode_memory(out, &profile->memory_end);
	wire_put_varint(out, profile->selfcheck.ran);
	wire_put_varint(out, profile->selfcheck.compared);
	wire_put_varint(out, profile->selfcheck.distinct);
	wire_put_varint(out, profile->selfcheck.different);
	wire_put_varint(out, profile->pause_count);
	for (size_t i = 0; i < profile->pause_count; i++) {
		wire_put_varint(out, profile->pause[i].kind);
		wire_put_varint(out, profile->pause[i].stopped_us);
		wire_put_varint(out, profile->pause[i].dlopen_us);
	}
}

static void encode_coverage(struct wire_writer *out, const struct profile *profile)
{
	const struct profile_coverage *coverage = &profile->coverage;

#define PUT(counter) wire_put_varint(out, coverage->counter);
	RECORDING_COUNTERS(PUT)
#undef PUT
	wire_put_varint(out, coverage->core_left);
	put_string(out, coverage->direct_allocator);
	wire_put_varint(out, coverage->skipped_count);
	for (size_t i = 0; i < coverage->skipped_count; i++) {
		put_string(out, coverage->skipped[i].module);
		put_string(out, coverage->skipped[i].reason);
	}
}

static void encode_modules(struct wire_writer *out, const struct profile *profile)
{
	wire_put_varint(out, profile->module_count);
	for (size_t i = 0; i < profile->module_count; i++) {
		const struct profile_module *module = &profile->module[i];

		put_string(out, module->path);
		put_string(out, module->build_id);
		put_string(out, module->symbols);
		put_string(out, module->no_symbols);
		wire_put_varint(out, module->low);
		wire_put_varint(out, module->high);
		wire_put_varint(out, module->file_offset);
		wire_put_varint(out, module->bias);
		wire_put_varint(out, module->executable);
	}
}

static void encode_frame(struct wire_writer *out, const struct profile_frame *frame)
{
	put_string(out, frame->function);
	put_string(out, frame->linkage);
	put_string(out, frame->file);
	wire_put_varint(out, ((uint64_t)frame->line << 1) | frame->inlined);
}

static void encode_locations(struct wire_writer *out, const struct profile *profile)
{
	wire_put_varint(out, profile->location_count);
	for (size_t i = 0; i < profile->location_count; i++) {
		const struct profile_location *location = &profile->location[i];

		wire_put_varint(out, location->module == PROFILE_NONE ? 0 : location->module + 1);
		wire_put_varint(out, location->vaddr);
		wire_put_varint(out, location->frame_count);
		for (uint32_t k = 0; k < location->frame_count; k++)
			encode_frame(out, &profile->frame[location->frame_first + k]);
	}
}

static void encode_sites(struct wire_writer *out, const struct profile *profile)
{
	wire_put_varint(out, profile->site_count);
	for (size_t i = 0; i < profile->site_count; i++) {
		const struct profile_site *site = &profile->site[i];

		wire_put_varint(out, site->flags);
		wire_put_varint(out, site->missed_frees);
		wire_put_varint(out, site->location_count);
		for (uint32_t k = 0; k < site->location_count; k++)
			wire_put_varint(out, profile->site_location[site->location_first + k]);
	}
}

static void put_sums(struct wire_writer *out, const struct profile_sums *sums,
		     const struct profile_sums *before)
{
	wire_put_signed(out, sums->alloc_bytes - before->alloc_bytes);
	wire_put_signed(out, sums->alloc_count - before->alloc_count);
	wire_put_signed(out, sums->freed_bytes - before->freed_bytes);
	wire_put_signed(out, sums->freed_count - before->freed_count);
}

/* @sums: of each site so far, all zero at first. */
static void encode_snapshots(struct wire_writer *out, const struct profile *profile,
			     struct profile_sums *sums)
{
	uint64_t time_ns = 0;

	wire_put_varint(out, profile->snapshot_count);
	for (size_t i = 0; i < profile->snapshot_count; i++) {
		const struct profile_snapshot *snapshot = &profile->snapshot[i];
		uint32_t next_site = 0;

		wire_put_varint(out, snapshot->time_ns - time_ns);
		time_ns = snapshot->time_ns;
		wire_put_varint(out, snapshot->rss_bytes);
		wire_put_varint(out, snapshot->anon_bytes);
		wire_put_varint(out, snapshot->unknown_frees);
		wire_put_varint(out, snapshot->change_count);
		for (size_t k = 0; k < snapshot->change_count; k++) {
			const struct profile_change *change = &snapshot->change[k];

			wire_put_varint(out, change->site - next_site);
			next_site = change->site + 1;
			put_sums(out, &change->sums, &sums[change->site]);
			sums[change->site] = change->sums;
		}
	}
}

static void put_double(struct wire_writer *out, double value)
{
	uint64_t bits;

	memcpy(&bits, &value, sizeof(bits));
	wire_put_varint(out, bits);
}

static void encode_sampling(struct wire_writer *out, const struct profile *profile)
{
	const struct profile_sampling *sampling = &profile->sampling;

	wire_put_varint(out, sampling->interval_low);
	wire_put_varint(out, sampling->interval_high);
	wire_put_varint(out, sampling->changes);
	wire_put_varint(out, sampling->budget_permille);
	wire_put_varint(out, sampling->cost_permille);
	wire_put_varint(out, profile->site_count);
	for (size_t i = 0; i < profile->site_count; i++) {
		const struct profile_variance *variance = &profile->site[i].variance;

		put_double(out, variance->alloc_bytes);
		put_double(out, variance->alloc_count);
		put_double(out, variance->inuse_bytes);
		put_double(out, variance->inuse_count);
	}
}

static void encode_limits(struct wire_writer *out, const struct profile *profile)
{
	const struct profile_limits *limits = &profile->limits;

	wire_put_varint(out, limits->memory_max_bytes);
	wire_put_varint(out, limits->memory_peak_bytes);
	wire_put_varint(out, limits->raised);
	wire_put_varint(out, limits->raised_ns);
	wire_put_varint(out, limits->began_exact);
}

static void encode_ages(struct wire_writer *out, const struct profile *profile)
{
	uint32_t site = 0;

	wire_put_varint(out, profile->look_ns);
	wire_put_varint(out, profile->peak.time_ns);
	wire_put_varint(out, profile->peak.bytes);
	wire_put_varint(out, profile->peak.count);
	wire_put_varint(out, profile->site_count);
	for (size_t i = 0; i < profile->site_count; i++) {
		wire_put_varint(out, profile->site[i].temporary);
		wire_put_varint(out, profile->site[i].peak_bytes);
		wire_put_varint(out, profile->site[i].peak_count);
	}
	wire_put_varint(out, profile->bin_count);
	for (size_t i = 0; i < profile->bin_count; i++) {
		const struct profile_bin *bin = &profile->bin[i];

		wire_put_varint(out, bin->site - site);
		site = bin->site;
		wire_put_varint(out, bin->kind * PROFILE_BINS + bin->bin);
		wire_put_varint(out, bin->count);
		if (bin->kind == PROFILE_AGES)
			wire_put_varint(out, bin->bytes);
	}
}

static void encode_intervals(struct wire_writer *out, const struct profile *profile)
{
	wire_put_varint(out, profile->snapshot_count);
	for (size_t i = 0; i < profile->snapshot_count; i++)
		wire_put_varint(out, profile->snapshot[i].interval);
}

static void encode_memory_last(struct wire_writer *out, const struct profile *profile)
{
	encode_memory(out, &profile->memory_last);
	wire_put_varint(out, profile->own_peak_bytes);
}

static bool has_ages(const struct profile *profile)
{
	return profile->bin_count || profile->peak.bytes;
}

/* Append a section to @out; empties @body. */
static void put_section(struct wire_writer *out, enum recording_section section,
			struct wire_writer *body)
{
	wire_put_varint(out, section);
	wire_put_bytes(out, body->data, body->size);
	out->failed |= body->failed;
	body->size = 0;
}

struct error *recording_encode(const struct profile *profile, uint8_t **data_ret, size_t *size_ret)
{
	static void (*const encode[RECORDING_SECTIONS])(struct wire_writer *,
							const struct profile *) = {
		[RECORDING_STRINGS] = encode_strings,	  [RECORDING_SESSION] = encode_session,
		[RECORDING_COVERAGE] = encode_coverage,	  [RECORDING_MODULES] = encode_modules,
		[RECORDING_LOCATIONS] = encode_locations, [RECORDING_SITES] = encode_sites,
	};
	CLEANUP(freep)
	struct profile_sums *sums = calloc(profile->site_count + 1, sizeof(*sums));
	CLEANUP(wire_writer_deinit) struct wire_writer out = {0}, body = {0};

	if (!sums)
		return error_memory();
	for (int i = RECORDING_STRINGS; i < RECORDING_SNAPSHOTS; i++) {
		encode[i](&body, profile);
		put_section(&out, i, &body);
	}
	encode_snapshots(&body, profile, sums);
	put_section(&out, RECORDING_SNAPSHOTS, &body);
	if (profile->sampling.interval_high) {
		encode_sampling(&body, profile);
		put_section(&out, RECORDING_SAMPLING, &body);
	}
	if (profile->limits.memory_max_bytes) {
		encode_limits(&body, profile);
		put_section(&out, RECORDING_LIMITS, &body);
	}
	if (has_ages(profile)) {
		encode_ages(&body, profile);
		put_section(&out, RECORDING_AGES, &body);
	}
	if (profile->sampling.interval_high) {
		encode_intervals(&body, profile);
		put_section(&out, RECORDING_INTERVALS, &body);
	}
	if (profile->memory_last.rss_bytes) {
		encode_memory_last(&body, profile);
		put_section(&out, RECORDING_MEMORY, &body);
	}
	if (out.failed)
		return error_memory();
	*size_ret = out.size;
	*data_ret = take(out.data);
	return NULL;
}
