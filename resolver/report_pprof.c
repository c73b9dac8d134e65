// SPDX-License-Identifier: GPL-3.0-or-later
/*
 * A gzipped profile.proto (github.com/google/pprof, proto/profile.proto), with
 * what its readers expect of a heap profile: four sample types in Go's order
 * with inuse_space last, period type space, duration 0 (it is cumulative, not a
 * delta), ids from 1 without gaps, addresses inside the call (return address -
 * 1), text in UTF-8.
 */
#include <inttypes.h>
#include <string.h>

#include "resolver/array.h"
#include "resolver/cleanup.h"
#include "resolver/gzip.h"
#include "resolver/hashindex.h"
#include "resolver/human.h"
#include "resolver/report_ranges.h"
#include "resolver/report_sites.h"
#include "resolver/strpool.h"
#include "resolver/text.h"
#include "resolver/wire.h"

/* Field numbers of profile.proto. */
enum {
	PROFILE_SAMPLE_TYPE = 1,
	PROFILE_SAMPLE = 2,
	PROFILE_MAPPING = 3,
	PROFILE_LOCATION = 4,
	PROFILE_FUNCTION = 5,
	PROFILE_STRING_TABLE = 6,
	PROFILE_DROP_FRAMES = 7,
	PROFILE_TIME_NANOS = 9,
	PROFILE_PERIOD_TYPE = 11,
	PROFILE_PERIOD = 12,
	PROFILE_COMMENT = 13,
	PROFILE_DEFAULT_SAMPLE_TYPE = 14,
	VALUE_TYPE_TYPE = 1,
	VALUE_TYPE_UNIT = 2,
	SAMPLE_LOCATION_ID = 1,
	SAMPLE_VALUE = 2,
	MAPPING_ID = 1,
	MAPPING_START = 2,
	MAPPING_LIMIT = 3,
	MAPPING_OFFSET = 4,
	MAPPING_FILENAME = 5,
	MAPPING_BUILD_ID = 6,
	MAPPING_HAS_FUNCTIONS = 7,
	MAPPING_HAS_FILENAMES = 8,
	MAPPING_HAS_LINES = 9,
	MAPPING_HAS_INLINES = 10,
	LOCATION_ID = 1,
	LOCATION_MAPPING = 2,
	LOCATION_ADDRESS = 3,
	LOCATION_LINE = 4,
	LINE_FUNCTION = 1,
	LINE_LINE = 2,
	FUNCTION_ID = 1,
	FUNCTION_NAME = 2,
	FUNCTION_SYSTEM_NAME = 3,
	FUNCTION_FILENAME = 4,
};

enum { WIRE_TYPE_VARINT = 0, WIRE_TYPE_BYTES = 2 };

/* Locations of our own, numbered behind the profile's: pprof drops samples without any. */
enum made_up { MADE_UP_NO_STACK, MADE_UP_OTHER, MADE_UPS };
static const char *const made_up_names[MADE_UPS] = {
	[MADE_UP_NO_STACK] = "[stack not kept]",
	[MADE_UP_OTHER] = "[other]",
};

struct function {
	uint32_t name, system_name, file; /* strings */
};

struct writer {
	const struct profile *profile;
	struct wire_writer out;
	struct strpool *strings;
	struct function *function;
	size_t function_count;
	struct hashindex functions;
	uint32_t *location_id; /* of each of the profile's locations; 0 = not used */
	uint32_t *location;    /* of each id - 1 */
	size_t location_count;
	uint32_t *mapping_id;					   /* of each module */
	bool *has_functions, *has_files, *has_lines, *has_inlines; /* of each module */
	struct error *err; /* the first one; nothing more is done */
};

static void put_number(struct wire_writer *out, unsigned int field, uint64_t value)
{
	if (!value)
		return; /* proto3: absent is 0 */
	wire_put_varint(out, field << 3 | WIRE_TYPE_VARINT);
	wire_put_varint(out, value);
}

/* A nested message, which is emptied. */
static void put_message(struct wire_writer *out, unsigned int field, struct wire_writer *message)
{
	wire_put_varint(out, field << 3 | WIRE_TYPE_BYTES);
	wire_put_bytes(out, message->data, message->size);
	out->failed |= message->failed;
	message->size = 0;
}

/* Number of @text in the string table; NULL is "". */
static uint32_t string_id(struct writer *writer, const char *text)
{
	CLEANUP(freep) char *clean = text_printable(text ? text : "");
	const char *kept;

	if (writer->err)
		return 0;
	writer->err =
		clean ? strpool_add(writer->strings, clean, strlen(clean), &kept) : error_memory();
	return writer->err ? 0 : strpool_id(kept);
}

static void put_string(struct writer *writer, unsigned int field, const char *text)
{
	put_number(&writer->out, field, string_id(writer, text));
}

static void put_value_type(struct writer *writer, unsigned int field, const char *type,
			   const char *unit)
{
	CLEANUP(wire_writer_deinit) struct wire_writer message = {0};

	put_number(&message, VALUE_TYPE_TYPE, string_id(writer, type));
	put_number(&message, VALUE_TYPE_UNIT, string_id(writer, unit));
	put_message(&writer->out, field, &message);
}

/* Id (from 1) of a function, made if needed. */
static uint32_t function_id(struct writer *writer, const char *name, const char *system_name,
			    const char *file)
{
	struct function function = {
		.name = string_id(writer, name),
		.system_name = string_id(writer, system_name ? system_name : name),
		.file = string_id(writer, file),
	};
	uint64_t hash = hash_bytes(0, &function, sizeof(function));
	size_t slot = hashindex_first(&writer->functions, hash);
	uint32_t id;

	while (hashindex_next(&writer->functions, &slot, hash, &id))
		if (!memcmp(&writer->function[id], &function, sizeof(function)))
			return id + 1;
	if (!writer->err)
		writer->err = array_grow(&writer->function, writer->function_count, 1);
	if (!writer->err)
		writer->err = hashindex_add(&writer->functions, hash, writer->function_count);
	if (writer->err)
		return 0;
	writer->function[writer->function_count++] = function;
	return writer->function_count;
}

/* Id (from 1) of one of the profile's locations; notes what its module has. */
static uint32_t location_id(struct writer *writer, uint32_t location)
{
	const struct profile_location *at;

	if (writer->location_id[location])
		return writer->location_id[location];
	writer->location[writer->location_count++] = location;
	writer->location_id[location] = writer->location_count;
	if (location >= writer->profile->location_count)
		return writer->location_count;
	at = &writer->profile->location[location];
	for (uint32_t i = 0; at->module != PROFILE_NONE && i < at->frame_count; i++) {
		const struct profile_frame *frame = &writer->profile->frame[at->frame_first + i];

		writer->has_functions[at->module] |= frame->function != NULL;
		writer->has_files[at->module] |= frame->file != NULL;
		writer->has_lines[at->module] |= frame->line != 0;
		writer->has_inlines[at->module] |= frame->inlined;
	}
	return writer->location_count;
}

static uint32_t made_up_id(struct writer *writer, enum made_up made_up)
{
	return location_id(writer, writer->profile->location_count + made_up);
}

/* profile.proto's values are signed. */
static uint64_t clip(uint64_t value)
{
	return value < INT64_MAX ? value : INT64_MAX;
}

static void put_sample(struct writer *writer, const struct wire_writer *locations,
		       const struct profile_sums *sums)
{
	CLEANUP(wire_writer_deinit) struct wire_writer sample = {0};
	CLEANUP(wire_writer_deinit) struct wire_writer values = {0};

	wire_put_varint(&values, clip(sums->alloc_count));
	wire_put_varint(&values, clip(sums->alloc_bytes));
	wire_put_varint(&values, clip(profile_inuse_count(sums)));
	wire_put_varint(&values, clip(profile_inuse_bytes(sums)));
	wire_put_varint(&sample, SAMPLE_LOCATION_ID << 3 | WIRE_TYPE_BYTES);
	wire_put_bytes(&sample, locations->data, locations->size);
	put_message(&sample, SAMPLE_VALUE, &values);
	sample.failed |= locations->failed;
	put_message(&writer->out, PROFILE_SAMPLE, &sample);
}

static void put_site(struct writer *writer, const struct report_site *site)
{
	CLEANUP(wire_writer_deinit) struct wire_writer locations = {0};
	const struct profile_site *at = &writer->profile->site[site->site];
	const uint32_t *location = writer->profile->site_location + at->location_first;

	for (uint32_t i = 0; i < at->location_count; i++)
		wire_put_varint(&locations, location_id(writer, location[i]));
	if (!at->location_count)
		wire_put_varint(&locations, made_up_id(writer, MADE_UP_NO_STACK));
	put_sample(writer, &locations, &site->sums);
}

static void put_line(struct wire_writer *location, uint32_t function, uint32_t line)
{
	CLEANUP(wire_writer_deinit) struct wire_writer message = {0};

	put_number(&message, LINE_FUNCTION, function);
	put_number(&message, LINE_LINE, line);
	put_message(location, LOCATION_LINE, &message);
}

/*
 * Readers look names up themselves only where a mapping has none at all. So an
 * unnamed address in a mapping with names gets one made of module and offset.
 */
static void put_made_up_line(struct writer *writer, struct wire_writer *location,
			     const struct profile_location *at)
{
	char name[300];

	if (at->module == PROFILE_NONE)
		snprintf(name, sizeof(name), "0x%" PRIx64, at->vaddr);
	else if (writer->has_functions[at->module])
		snprintf(name, sizeof(name), "%.255s+0x%" PRIx64,
			 report_basename(writer->profile->module[at->module].path), at->vaddr);
	else
		return;
	put_line(location, function_id(writer, name, NULL, NULL), 0);
}

static void put_known_location(struct writer *writer, struct wire_writer *location,
			       const struct profile_location *at)
{
	bool known = at->module != PROFILE_NONE;
	size_t lines = 0;

	put_number(location, LOCATION_MAPPING, known ? writer->mapping_id[at->module] : 0);
	put_number(location, LOCATION_ADDRESS,
		   at->vaddr + (known ? writer->profile->module[at->module].bias : 0));
	for (uint32_t i = 0; i < at->frame_count; i++) {
		const struct profile_frame *frame = &writer->profile->frame[at->frame_first + i];

		if (!frame->function)
			continue;
		put_line(location,
			 function_id(writer, frame->function, frame->linkage, frame->file),
			 frame->line);
		lines++;
	}
	if (!lines)
		put_made_up_line(writer, location, at);
}

static void put_location(struct writer *writer, uint32_t id)
{
	CLEANUP(wire_writer_deinit) struct wire_writer location = {0};
	const struct profile *profile = writer->profile;
	uint32_t index = writer->location[id - 1];

	put_number(&location, LOCATION_ID, id);
	if (index < profile->location_count)
		put_known_location(writer, &location, &profile->location[index]);
	else
		put_line(&location,
			 function_id(writer, made_up_names[index - profile->location_count], NULL,
				     NULL),
			 0);
	put_message(&writer->out, PROFILE_LOCATION, &location);
}

static void put_mapping(struct writer *writer, uint32_t module)
{
	CLEANUP(wire_writer_deinit) struct wire_writer mapping = {0};
	const struct profile_module *at = &writer->profile->module[module];

	put_number(&mapping, MAPPING_ID, writer->mapping_id[module]);
	put_number(&mapping, MAPPING_START, at->low);
	put_number(&mapping, MAPPING_LIMIT, at->high);
	put_number(&mapping, MAPPING_OFFSET, at->file_offset);
	put_number(&mapping, MAPPING_FILENAME, string_id(writer, at->path));
	put_number(&mapping, MAPPING_BUILD_ID, string_id(writer, at->build_id));
	put_number(&mapping, MAPPING_HAS_FUNCTIONS, writer->has_functions[module]);
	put_number(&mapping, MAPPING_HAS_FILENAMES, writer->has_files[module]);
	put_number(&mapping, MAPPING_HAS_LINES, writer->has_lines[module]);
	put_number(&mapping, MAPPING_HAS_INLINES, writer->has_inlines[module]);
	put_message(&writer->out, PROFILE_MAPPING, &mapping);
}

/* pprof takes the first mapping for the program itself. */
static void number_mappings(struct writer *writer)
{
	uint32_t next = 1;

	for (int executable = 1; executable >= 0; executable--)
		for (size_t i = 0; i < writer->profile->module_count; i++)
			if (writer->profile->module[i].executable == executable)
				writer->mapping_id[i] = next++;
}

static void put_mappings(struct writer *writer)
{
	for (int executable = 1; executable >= 0; executable--)
		for (size_t i = 0; i < writer->profile->module_count; i++)
			if (writer->profile->module[i].executable == executable)
				put_mapping(writer, i);
}

static void put_functions(struct writer *writer)
{
	CLEANUP(wire_writer_deinit) struct wire_writer message = {0};

	for (size_t i = 0; i < writer->function_count; i++) {
		put_number(&message, FUNCTION_ID, i + 1);
		put_number(&message, FUNCTION_NAME, writer->function[i].name);
		put_number(&message, FUNCTION_SYSTEM_NAME, writer->function[i].system_name);
		put_number(&message, FUNCTION_FILENAME, writer->function[i].file);
		put_message(&writer->out, PROFILE_FUNCTION, &message);
	}
}

static void put_other(struct writer *writer, const struct profile_sums *rest)
{
	CLEANUP(wire_writer_deinit) struct wire_writer locations = {0};

	wire_put_varint(&locations, made_up_id(writer, MADE_UP_OTHER));
	put_sample(writer, &locations, rest);
}

static void put_sampling_comment(struct writer *writer, const struct report_sites *sites)
{
	const struct profile *profile = writer->profile;
	struct report_intervals intervals =
		report_intervals(profile, &sites->totals, &sites->variance);
	char comment[256];

	if (!profile_is_sampled(profile))
		return;
	snprintf(comment, sizeof(comment),
		 "estimates from samples %" PRIu64 " to %" PRIu64
		 " bytes apart on average; inuse_space in all, 95 %% confidence: %" PRIu64
		 " to %" PRIu64,
		 profile->sampling.interval_low, profile->sampling.interval_high,
		 intervals.inuse_bytes.low, intervals.inuse_bytes.high);
	put_string(writer, PROFILE_COMMENT, comment);
}

static void put_comments(struct writer *writer)
{
	const struct profile *profile = writer->profile;
	const struct profile_coverage *coverage = &profile->coverage;
	char comment[256];

	snprintf(comment, sizeof(comment), "heapattach %s: pid %lld, %.64s, recorded for %s",
		 HA_VERSION, (long long)profile->target.pid,
		 profile->target.comm ? profile->target.comm : "?",
		 human_duration(profile->duration_ns).text);
	put_string(writer, PROFILE_COMMENT, comment);
	snprintf(comment, sizeof(comment),
		 "blocks from before the attach are not in it; truncated stacks %" PRIu64
		 ", missed frees %" PRIu64 ", untracked blocks %" PRIu64,
		 coverage->truncated_stacks, coverage->missed_frees, coverage->untracked);
	put_string(writer, PROFILE_COMMENT, comment);
}

static void put_types(struct writer *writer, enum report_sort sort)
{
	static const char *const shown[] = {
		[REPORT_SORT_INUSE] = "inuse_space",
		[REPORT_SORT_ALLOC] = "alloc_space",
		[REPORT_SORT_COUNT] = "alloc_objects",
	};

	/* pprof hides these, and what they call. */
	CLEANUP(freep) char *drop_frames = report_allocator_regexp();

	put_value_type(writer, PROFILE_SAMPLE_TYPE, "alloc_objects", "count");
	put_value_type(writer, PROFILE_SAMPLE_TYPE, "alloc_space", "bytes");
	put_value_type(writer, PROFILE_SAMPLE_TYPE, "inuse_objects", "count");
	put_value_type(writer, PROFILE_SAMPLE_TYPE, "inuse_space", "bytes");
	put_value_type(writer, PROFILE_PERIOD_TYPE, "space", "bytes");
	put_number(&writer->out, PROFILE_PERIOD, writer->profile->interval);
	put_string(writer, PROFILE_DEFAULT_SAMPLE_TYPE, shown[sort]);
	put_string(writer, PROFILE_DROP_FRAMES, drop_frames);
	put_number(&writer->out, PROFILE_TIME_NANOS,
		   (uint64_t)writer->profile->start_unix_ns + writer->profile->duration_ns);
}

static void put_strings(struct writer *writer)
{
	for (size_t i = 0; i < strpool_count(writer->strings); i++) {
		const char *text = strpool_text(writer->strings, i);

		wire_put_varint(&writer->out, PROFILE_STRING_TABLE << 3 | WIRE_TYPE_BYTES);
		wire_put_bytes(&writer->out, text, strpool_size(text));
	}
}

static struct error *encode(struct writer *writer, const struct report_sites *sites,
			    const struct report_options *options)
{
	size_t shown = report_sites_shown(sites, options, sites->count);
	struct profile_sums rest = report_sites_rest(sites, shown);

	string_id(writer, ""); /* string 0 */
	put_types(writer, options->sort);
	number_mappings(writer);
	for (size_t i = 0; i < shown && !writer->err; i++)
		put_site(writer, &sites->site[i]);
	if (rest.alloc_count)
		put_other(writer, &rest);
	for (uint32_t id = 1; id <= writer->location_count && !writer->err; id++)
		put_location(writer, id);
	put_mappings(writer);
	put_functions(writer);
	put_comments(writer);
	put_sampling_comment(writer, sites);
	put_strings(writer);
	if (writer->out.failed && !writer->err)
		writer->err = error_memory();
	return writer->err;
}

static void writer_deinit(struct writer *writer)
{
	wire_writer_deinit(&writer->out);
	strpool_free(writer->strings);
	hashindex_deinit(&writer->functions);
	free(writer->function);
	free(writer->location_id);
	free(writer->location);
	free(writer->mapping_id);
	free(writer->has_functions);
	free(writer->has_files);
	free(writer->has_lines);
	free(writer->has_inlines);
}

static struct error *writer_init(struct writer *writer)
{
	size_t modules = writer->profile->module_count + 1;
	size_t locations = writer->profile->location_count + MADE_UPS;

	writer->location_id = calloc(locations, sizeof(*writer->location_id));
	writer->location = calloc(locations, sizeof(*writer->location));
	writer->mapping_id = calloc(modules, sizeof(*writer->mapping_id));
	writer->has_functions = calloc(modules, sizeof(bool));
	writer->has_files = calloc(modules, sizeof(bool));
	writer->has_lines = calloc(modules, sizeof(bool));
	writer->has_inlines = calloc(modules, sizeof(bool));
	if (!writer->location_id || !writer->location || !writer->mapping_id ||
	    !writer->has_functions || !writer->has_files || !writer->has_lines ||
	    !writer->has_inlines)
		return error_memory();
	return strpool_create(&writer->strings);
}

struct error *report_pprof(FILE *out, const struct profile *profile,
			   const struct report_options *options)
{
	CLEANUP(report_sites_deinit) struct report_sites sites = {0};
	CLEANUP(writer_deinit) struct writer writer = {.profile = profile};
	CLEANUP(freep) uint8_t *packed = NULL;
	size_t size;
	struct error *err = report_sites_init(profile, options->sort, &sites);

	if (err)
		return err;
	err = writer_init(&writer);
	if (err)
		return err;
	err = encode(&writer, &sites, options);
	if (err)
		return err;
	err = gzip_compress(writer.out.data, writer.out.size, &packed, &size);
	if (err)
		return err;
	fwrite(packed, 1, size, out);
	return report_flush(out);
}
