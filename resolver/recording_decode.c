// SPDX-License-Identifier: GPL-3.0-or-later
#include <math.h>
#include <string.h>

#include "resolver/array.h"
#include "resolver/cleanup.h"
#include "resolver/profile.h"
#include "resolver/recording.h"
#include "resolver/recording_sections.h"
#include "resolver/strpool.h"
#include "resolver/wire.h"

struct decoder {
	struct profile *profile;
	struct wire_reader in;
};

typedef struct error *decode_function(struct decoder *);

static const char *get_string(struct decoder *decoder)
{
	struct strpool *strings = decoder->profile->strings;
	uint64_t id = wire_get_bounded(&decoder->in, strpool_count(strings),
				       "it names a string that is not there");

	return id ? strpool_text(strings, id - 1) : NULL;
}

static bool get_bool(struct decoder *decoder)
{
	return wire_get_bounded(&decoder->in, 1, "a yes or no is neither");
}

static uint32_t get_u32(struct decoder *decoder)
{
	return wire_get_bounded(&decoder->in, UINT32_MAX, "a number has more than 32 bits");
}

static struct error *decode_strings(struct decoder *decoder)
{
	struct wire_reader *in = &decoder->in;
	size_t count = wire_get_count(in, 1);

	for (size_t i = 0; i < count && !in->problem; i++) {
		size_t size;
		const uint8_t *bytes = wire_get_bytes(in, &size);
		const char *text;
		struct error *err;

		if (size && memchr(bytes, 0, size)) {
			wire_fail(in, "a string holds a zero byte");
			break;
		}
		err = strpool_add(decoder->profile->strings, (const char *)bytes, size, &text);
		if (err)
			return err;
		if (strpool_id(text) != i)
			wire_fail(in, "a string is there twice");
	}
	return NULL;
}

static void decode_memory(struct decoder *decoder, struct profile_memory *memory)
{
	struct wire_reader *in = &decoder->in;

	memory->rss_bytes = wire_get_varint(in);
	memory->anon_bytes = wire_get_varint(in);
	memory->file_bytes = wire_get_varint(in);
	memory->shmem_bytes = wire_get_varint(in);
	memory->own_bytes = wire_get_varint(in);
	memory->allocator_known = get_bool(decoder);
	memory->allocator_bytes = wire_get_varint(in);
	memory->allocator_free = wire_get_varint(in);
}

static struct error *decode_pauses(struct decoder *decoder)
{
	struct wire_reader *in = &decoder->in;
	size_t count = wire_get_count(in, 3);

	for (size_t i = 0; i < count && !in->problem; i++) {
		struct profile_pause pause;
		struct error *err;

		pause.kind = wire_get_bounded(in, PROFILE_PAUSES - 1, "a pause of no known kind");
		pause.stopped_us = get_u32(decoder);
		pause.dlopen_us = get_u32(decoder);
		err = profile_add_pause(decoder->profile, &pause);
		if (err)
			return err;
	}
	return NULL;
}

static struct error *decode_session(struct decoder *decoder)
{
	struct profile *profile = decoder->profile;
	struct wire_reader *in = &decoder->in;

	profile->target.pid = wire_get_signed(in);
	profile->target.uid = get_u32(decoder);
	profile->target.comm = get_string(decoder);
	profile->target.exe = get_string(decoder);
	profile->target.cmdline = get_string(decoder);
	profile->start_unix_ns = wire_get_signed(in);
	profile->duration_ns = wire_get_varint(in);
	profile->end = wire_get_bounded(in, PROFILE_ENDS - 1, "an end of no known kind");
	profile->end_status = (int32_t)wire_get_signed(in);
	profile->interval = wire_get_varint(in);
	profile->loader = get_string(decoder);
	profile->allocator = get_string(decoder);
	decode_memory(decoder, &profile->memory_start);
	decode_memory(decoder, &profile->memory_end);
	profile->selfcheck.ran = get_bool(decoder);
	profile->selfcheck.compared = wire_get_varint(in);
	profile->selfcheck.distinct = wire_get_varint(in);
	profile->selfcheck.different = wire_get_varint(in);
	return decode_pauses(decoder);
}

static struct error *decode_coverage(struct decoder *decoder)
{
	struct profile_coverage *coverage = &decoder->profile->coverage;
	struct wire_reader *in = &decoder->in;
	size_t count;

#define GET(counter) coverage->counter = wire_get_varint(in);
	RECORDING_COUNTERS(GET)
#undef GET
	coverage->core_left = get_bool(decoder);
	coverage->direct_allocator = get_string(decoder);
	count = wire_get_count(in, 2);
	for (size_t i = 0; i < count && !in->problem; i++) {
		const char *module = get_string(decoder), *reason = get_string(decoder);
		struct error *err = profile_add_skipped(decoder->profile, module, reason);

		if (err)
			return err;
	}
	return NULL;
}

static struct error *decode_modules(struct decoder *decoder)
{
	struct wire_reader *in = &decoder->in;
	size_t count = wire_get_count(in, 9);

	for (size_t i = 0; i < count && !in->problem; i++) {
		struct profile_module module;
		struct error *err;
		uint32_t id;

		module.path = get_string(decoder);
		module.build_id = get_string(decoder);
		module.symbols = get_string(decoder);
		module.no_symbols = get_string(decoder);
		module.low = wire_get_varint(in);
		module.high = wire_get_varint(in);
		module.file_offset = wire_get_varint(in);
		module.bias = wire_get_varint(in);
		module.executable = get_bool(decoder);
		err = profile_add_module(decoder->profile, &module, &id);
		if (err)
			return err;
		if (id != i)
			wire_fail(in, "a module is there twice");
	}
	return NULL;
}

static struct error *decode_frames(struct decoder *decoder, uint32_t location)
{
	struct profile *profile = decoder->profile;
	struct wire_reader *in = &decoder->in;
	size_t count = wire_get_count(in, 4);
	CLEANUP(freep) struct profile_frame *frames = calloc(count + 1, sizeof(*frames));

	if (!frames)
		return error_memory();
	for (size_t i = 0; i < count; i++) {
		uint64_t line;

		frames[i].function = get_string(decoder);
		frames[i].linkage = get_string(decoder);
		frames[i].file = get_string(decoder);
		line = wire_get_bounded(in, UINT32_MAX * 2ull + 1, "a line has more than 32 bits");
		frames[i].line = line >> 1;
		frames[i].inlined = line & 1;
	}
	return in->problem ? NULL : profile_resolve_location(profile, location, frames, count);
}

static struct error *decode_locations(struct decoder *decoder)
{
	struct profile *profile = decoder->profile;
	struct wire_reader *in = &decoder->in;
	size_t count = wire_get_count(in, 3);

	for (size_t i = 0; i < count && !in->problem; i++) {
		uint64_t module = wire_get_bounded(in, profile->module_count,
						   "a location names a module that is not there");
		uint64_t vaddr = wire_get_varint(in);
		uint32_t id;
		struct error *err = profile_add_location(
			profile, module ? module - 1 : PROFILE_NONE, vaddr, &id);

		if (!err && id != i)
			wire_fail(in, "a location is there twice");
		if (!err)
			err = decode_frames(decoder, id);
		if (err)
			return err;
	}
	return NULL;
}

static struct error *decode_site(struct decoder *decoder, uint32_t expected)
{
	struct profile *profile = decoder->profile;
	struct wire_reader *in = &decoder->in;
	uint32_t location[PROFILE_DEPTH_MAX], id;
	uint32_t flags = wire_get_bounded(in, PROFILE_SITE_FLAGS, "a stack has unknown flags");
	uint64_t missed = wire_get_varint(in);
	size_t count = wire_get_bounded(in, PROFILE_DEPTH_MAX, "a stack is too deep");
	struct error *err;

	for (size_t i = 0; i < count && !in->problem; i++) {
		location[i] = get_u32(decoder);
		if (location[i] >= profile->location_count)
			wire_fail(in, "a stack names a location that is not there");
	}
	if (in->problem)
		return NULL;
	err = profile_add_site(profile, location, count, flags, &id);
	if (err)
		return err;
	if (id != expected)
		wire_fail(in, "a stack is there twice");
	profile->site[id].missed_frees = missed;
	return NULL;
}

static struct error *decode_sites(struct decoder *decoder)
{
	size_t count = wire_get_count(&decoder->in, 3);

	for (size_t i = 0; i < count && !decoder->in.problem; i++) {
		struct error *err = decode_site(decoder, i);

		if (err)
			return err;
	}
	return NULL;
}

static void get_sums(struct decoder *decoder, struct profile_sums *sums)
{
	sums->alloc_bytes += wire_get_signed(&decoder->in);
	sums->alloc_count += wire_get_signed(&decoder->in);
	sums->freed_bytes += wire_get_signed(&decoder->in);
	sums->freed_count += wire_get_signed(&decoder->in);
}

static struct error *decode_changes(struct decoder *decoder, const struct profile_snapshot *head)
{
	struct profile *profile = decoder->profile;
	struct wire_reader *in = &decoder->in;
	size_t count = wire_get_count(in, 5);
	CLEANUP(freep) struct profile_change *change = calloc(count + 1, sizeof(*change));
	uint64_t next_site = 0;

	if (!change)
		return error_memory();
	if (profile->change_total + count > PROFILE_CHANGES_MAX + 3 * PROFILE_SITES_MAX)
		wire_fail(in, "there are too many changes between snapshots");
	for (size_t i = 0; i < count && !in->problem; i++) {
		uint64_t site = next_site + get_u32(decoder);

		if (site >= profile->site_count) {
			wire_fail(in, "a snapshot names a stack that is not there");
			break;
		}
		change[i].site = site;
		change[i].sums = profile->site[site].sums;
		get_sums(decoder, &change[i].sums);
		next_site = site + 1;
	}
	if (in->problem)
		return NULL;
	return profile_snapshot_append(profile, head, take(change), count);
}

static struct error *decode_snapshots(struct decoder *decoder)
{
	struct wire_reader *in = &decoder->in;
	size_t count = wire_get_bounded(in, PROFILE_SNAPSHOTS_MAX, "there are too many snapshots");
	uint64_t time_ns = 0;

	for (size_t i = 0; i < count && !in->problem; i++) {
		struct profile_snapshot head = {0};
		uint64_t step_ns = wire_get_varint(in);
		struct error *err;

		if (__builtin_add_overflow(time_ns, step_ns, &time_ns))
			wire_fail(in, "a snapshot's time is out of range");
		head.time_ns = time_ns;
		head.rss_bytes = wire_get_varint(in);
		head.anon_bytes = wire_get_varint(in);
		head.unknown_frees = wire_get_varint(in);
		err = decode_changes(decoder, &head);
		if (err)
			return err;
	}
	return NULL;
}

static double get_variance(struct decoder *decoder)
{
	uint64_t bits = wire_get_varint(&decoder->in);
	double value;

	memcpy(&value, &bits, sizeof(value));
	if (isfinite(value) && value >= 0)
		return value;
	wire_fail(&decoder->in, "a variance is no positive number");
	return 0;
}

static struct error *decode_sampling(struct decoder *decoder)
{
	struct profile *profile = decoder->profile;
	struct profile_sampling *sampling = &profile->sampling;
	struct wire_reader *in = &decoder->in;
	size_t count;

	sampling->interval_low = wire_get_varint(in);
	sampling->interval_high = wire_get_varint(in);
	sampling->changes = wire_get_varint(in);
	sampling->budget_permille = get_u32(decoder);
	sampling->cost_permille = get_u32(decoder);
	count = wire_get_bounded(in, profile->site_count, "it has more variances than stacks");
	for (size_t i = 0; i < count && !in->problem; i++) {
		struct profile_variance *variance = &profile->site[i].variance;

		variance->alloc_bytes = get_variance(decoder);
		variance->alloc_count = get_variance(decoder);
		variance->inuse_bytes = get_variance(decoder);
		variance->inuse_count = get_variance(decoder);
	}
	return NULL;
}

static struct error *decode_limits(struct decoder *decoder)
{
	struct profile_limits *limits = &decoder->profile->limits;
	struct wire_reader *in = &decoder->in;

	limits->memory_max_bytes = wire_get_varint(in);
	limits->memory_peak_bytes = wire_get_varint(in);
	limits->raised = get_bool(decoder);
	limits->raised_ns = wire_get_varint(in);
	limits->began_exact = get_bool(decoder);
	return NULL;
}

static void decode_peak(struct decoder *decoder)
{
	struct profile *profile = decoder->profile;
	struct wire_reader *in = &decoder->in;
	size_t count;

	profile->look_ns = wire_get_varint(in);
	profile->peak.time_ns = wire_get_varint(in);
	profile->peak.bytes = wire_get_varint(in);
	profile->peak.count = wire_get_varint(in);
	count = wire_get_bounded(in, profile->site_count,
				 "the peak has more stacks than there are");
	for (size_t i = 0; i < count && !in->problem; i++) {
		profile->site[i].temporary = wire_get_varint(in);
		profile->site[i].peak_bytes = wire_get_varint(in);
		profile->site[i].peak_count = wire_get_varint(in);
	}
}

static struct error *decode_ages(struct decoder *decoder)
{
	struct profile *profile = decoder->profile;
	struct wire_reader *in = &decoder->in;
	uint64_t site = 0, place, last = 0;
	size_t count;

	decode_peak(decoder);
	count = wire_get_count(in, 3);
	for (size_t i = 0; i < count && !in->problem; i++) {
		struct profile_bin bin = {0};
		struct error *err;

		site += get_u32(decoder);
		if (site >= profile->site_count) {
			wire_fail(in, "a bin names a stack that is not there");
			break;
		}
		place = wire_get_bounded(in, PROFILE_BIN_KINDS * PROFILE_BINS - 1, "no such bin");
		bin.site = site;
		bin.kind = place / PROFILE_BINS;
		bin.bin = place % PROFILE_BINS;
		bin.count = wire_get_varint(in);
		bin.bytes = bin.kind == PROFILE_AGES ? wire_get_varint(in) : 0;
		place += site * PROFILE_BIN_KINDS * PROFILE_BINS;
		if (!bin.count || (i && place <= last))
			wire_fail(in, "a bin is empty, doubled or out of order");
		last = place;
		err = profile_add_bin(profile, &bin);
		if (err)
			return err;
	}
	return NULL;
}

static struct error *decode_intervals(struct decoder *decoder)
{
	struct profile *profile = decoder->profile;
	struct wire_reader *in = &decoder->in;
	size_t count = wire_get_bounded(in, profile->snapshot_count,
					"it has more intervals than snapshots");

	for (size_t i = 0; i < count && !in->problem; i++)
		profile->snapshot[i].interval = wire_get_varint(in);
	return NULL;
}

static struct error *decode_memory_last(struct decoder *decoder)
{
	decode_memory(decoder, &decoder->profile->memory_last);
	decoder->profile->own_peak_bytes = wire_get_varint(&decoder->in);
	return NULL;
}

static decode_function *const decode[RECORDING_SECTIONS] = {
	[RECORDING_STRINGS] = decode_strings,	  [RECORDING_SESSION] = decode_session,
	[RECORDING_COVERAGE] = decode_coverage,	  [RECORDING_MODULES] = decode_modules,
	[RECORDING_LOCATIONS] = decode_locations, [RECORDING_SITES] = decode_sites,
	[RECORDING_SNAPSHOTS] = decode_snapshots, [RECORDING_SAMPLING] = decode_sampling,
	[RECORDING_LIMITS] = decode_limits,	  [RECORDING_AGES] = decode_ages,
	[RECORDING_INTERVALS] = decode_intervals, [RECORDING_MEMORY] = decode_memory_last,
};

static struct error *problem_error(const struct wire_reader *in, size_t offset)
{
	return error_create(ERROR_FORMAT, "damaged at byte %zu of the uncompressed body: %s",
			    offset + in->problem_at, in->problem);
}

/* One section's content, which begins at @offset of the body. */
static struct error *decode_section(struct profile *profile, decode_function *function,
				    const uint8_t *data, size_t size, size_t offset)
{
	struct decoder decoder = {.profile = profile, .in = {.data = data, .size = size}};
	struct error *err = function(&decoder);

	if (err)
		return error_prefix(err, "at byte %zu of the uncompressed body",
				    offset + decoder.in.at);
	if (decoder.in.at != size)
		wire_fail(&decoder.in, "a section is longer than its content");
	return decoder.in.problem ? problem_error(&decoder.in, offset) : NULL;
}

static struct error *decode_body(struct profile *profile, const uint8_t *data, size_t size)
{
	struct wire_reader in = {.data = data, .size = size};
	uint64_t last = 0;

	while (in.at < size && !in.problem) {
		uint64_t section = wire_get_varint(&in);
		size_t length;
		const uint8_t *bytes = wire_get_bytes(&in, &length);
		struct error *err;

		if (in.problem)
			break;
		if (section >= RECORDING_SECTIONS)
			continue;
		if (section <= last || (section != last + 1 && last < RECORDING_LAST_REQUIRED)) {
			wire_fail(&in, "a section is missing, doubled or out of order");
			break;
		}
		last = section;
		err = decode_section(profile, decode[section], bytes, length, bytes - data);
		if (err)
			return err;
	}
	if (last < RECORDING_LAST_REQUIRED)
		wire_fail(&in, "it ends too early");
	return in.problem ? problem_error(&in, 0) : NULL;
}

struct error *recording_decode(const uint8_t *data, size_t size, struct profile **ret)
{
	CLEANUP(profile_freep) struct profile *profile = NULL;
	struct error *err = profile_create(&profile);

	if (err)
		return err;
	err = decode_body(profile, data, size);
	if (err)
		return err;
	*ret = take(profile);
	return NULL;
}
