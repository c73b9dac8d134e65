// SPDX-License-Identifier: GPL-3.0-or-later
#include "resolver/report.h"
#include "resolver/report_ages.h"

#include <errno.h>
#include <inttypes.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>

#include "resolver/array.h"
#include "resolver/cleanup.h"
#include "resolver/profile.h"
#include "resolver/report_sites.h"
#include "resolver/report_verdict.h"
#include "tests/json.h"
#include "tests/sample_profile.h"
#include "tests/tests.h"
#include "tests/workdir.h"

static const struct report_options usual = {.top = 100, .ascii = true};

static char *report(const struct profile *profile, enum report_format format,
		    const struct report_options *options)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	assert_ok(report_write(out, profile, format, options));
	ck_assert_int_eq(fclose(out), 0);
	return text;
}

static void expect_contains(const char *text, const char *part)
{
	ck_assert_msg(strstr(text, part) != NULL, "no '%s' in:\n%s", part, text);
}

/* ---- text */

START_TEST(text_is_as_it_always_was)
{
	CLEANUP(profile_freep) struct profile *profile = sample_server();
	CLEANUP(freep) char *text = report(profile, REPORT_TEXT, &usual);
	CLEANUP(freep) char *path = tests_source_path("tests/golden/server.txt");
	CLEANUP(freep) char *golden = tests_read_file(path);

	ck_assert_msg(golden && !strcmp(text, golden), "%s should be:\n%s", path, text);
}
END_TEST

START_TEST(text_fits_80_columns)
{
	CLEANUP(profile_freep) struct profile *profile = sample_server();
	CLEANUP(freep) char *text = report(profile, REPORT_TEXT, &usual);
	char *save = NULL;

	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		ck_assert_msg(strlen(line) < 80, "too wide: %s", line);
}
END_TEST

START_TEST(text_of_samples_says_how_sure_it_is)
{
	CLEANUP(profile_freep) struct profile *profile = sample_sampled();
	CLEANUP(freep) char *text = report(profile, REPORT_TEXT, &usual);
	char *save = NULL;

	expect_contains(text, "sampled, one sample per 512 KiB on average");
	expect_contains(text, "every allocation to 1.00 MiB)");
	expect_contains(text, "some 1.7 % of the CPU time (asked: 2.0");
	expect_contains(text, "+29.1 MiB  estimated");
	/*
	 * 60,000 sessions of 440 bytes are 50 samples: 37.1 to 65.9 by Poisson's
	 * tables, or 18.7 to 33.2 MiB; what is unseen may be from when they were 1 MiB
	 * apart.
	 */
	expect_contains(text, "95 % sure: 18.7 to 34.3 MiB still live");
	expect_contains(text, "GROWING by 2.52 MiB/min (95 % sure: ");
	expect_contains(text, "grows by 2.52 MiB/min (95 % sure: 1.25 to 4.01 MiB/min)");
	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		ck_assert_msg(strlen(line) < 80, "too wide: %s", line);
}
END_TEST

/* It may cost a share of a tenth of a processor all the same. */
START_TEST(cost_above_the_budget_is_explained)
{
	CLEANUP(profile_freep) struct profile *profile = sample_sampled();
	CLEANUP(freep) char *text = NULL;

	profile->sampling.cost_permille = 59;
	text = report(profile, REPORT_TEXT, &usual);
	expect_contains(text, "some 5.9 % of the CPU time (asked: 2.0\n"
			      "          %, or 0.20 % of a processor)");
}
END_TEST

START_TEST(what_memory_did_not_suffice_for_is_said_first)
{
	CLEANUP(profile_freep) struct profile *profile = sample_sampled();
	CLEANUP(freep) char *text = NULL;
	CLEANUP(freep) char *json_text_form = NULL;
	CLEANUP(json_freep) struct json *json = NULL;
	char *account;

	profile->limits = (struct profile_limits){
		.memory_max_bytes = 64u << 20,
		.memory_peak_bytes = 60u << 20,
		.raised = true,
		.raised_ns = 42000000000ull,
		.began_exact = true,
	};
	profile->coverage.untracked = 7;
	profile->coverage.untracked_bytes = 7 << 20;
	profile->coverage.no_site = 12;
	text = report(profile, REPORT_TEXT, &usual);
	account = strstr(text, "Account of memory");
	ck_assert_ptr_nonnull(account);
	account[-1] = '\0';
	expect_contains(text, "ran short after 42 s (--max-memory 64.0 MiB)");
	expect_contains(text, "allocation until then, samples since");
	expect_contains(text, "7 blocks of 7.00 MiB found no room");
	expect_contains(text, "12 calls found no room for their stack");
	expect_contains(account + 1, "exact for 42 s, then sampled");
	json_text_form = report(profile, REPORT_JSON, &usual);
	json = json_parse(json_text_form);
	ck_assert_uint_eq(json_count(json, "memory_limit.max_bytes"), 64u << 20);
	ck_assert_uint_eq(json_count(json, "memory_limit.peak_bytes"), 60u << 20);
	ck_assert_double_eq(json_number(json, "memory_limit.exact_until_s"), 42);
}
END_TEST

START_TEST(text_shows_top_n_and_counts_the_rest)
{
	CLEANUP(profile_freep) struct profile *profile = sample_server();
	const struct report_options top = {.top = 1, .ascii = true};
	CLEANUP(freep) char *text = report(profile, REPORT_TEXT, &top);

	expect_contains(text, "> session_new");
	expect_contains(text, "3 more sites: 3.91 MiB still live in 4,012 blocks");
	ck_assert_ptr_null(strstr(text, "push_back"));
}
END_TEST

START_TEST(text_leaves_out_what_hardly_counts)
{
	CLEANUP(profile_freep) struct profile *profile = sample_server();
	const struct report_options options = {.ascii = true};
	CLEANUP(freep) char *text = report(profile, REPORT_TEXT, &options);

	/* Two sites hold 99.99 %; three are the least that is shown. */
	expect_contains(text, "3 of 4 sites, by bytes still live:");
	expect_contains(text, "1 more site: 0 B still live in 0 blocks, 220 MiB allocated");
}
END_TEST

START_TEST(text_never_says_leak)
{
	CLEANUP(profile_freep) struct profile *profile = sample_server();
	CLEANUP(freep) char *text = report(profile, REPORT_TEXT, &usual);

	ck_assert_ptr_null(strcasestr(text, "leak"));
}
END_TEST

START_TEST(empty_profile_says_so_first)
{
	CLEANUP(profile_freep) struct profile *profile = sample_empty();
	CLEANUP(freep) char *text = report(profile, REPORT_TEXT, &usual);

	ck_assert_int_eq(strncmp(text, "NO ALLOCATION SEEN", 18), 0);
}
END_TEST

START_TEST(direct_allocator_is_named_first)
{
	CLEANUP(profile_freep) struct profile *profile = sample_empty();
	CLEANUP(freep) char *text = NULL;

	assert_ok(profile_string(profile, "jemalloc in /usr/bin/x",
				 &profile->coverage.direct_allocator));
	text = report(profile, REPORT_TEXT, &usual);
	ck_assert_int_eq(strncmp(text, "NOTHING SEEN: jemalloc in /usr/bin/x is linked in", 49), 0);
}
END_TEST

START_TEST(killed_target_is_accounted_for_as_last_seen)
{
	CLEANUP(profile_freep) struct profile *profile = sample_server();
	CLEANUP(freep) char *text = NULL;

	profile->end = PROFILE_END_KILLED;
	profile->end_status = 9;
	profile->memory_end = (struct profile_memory){0};
	text = report(profile, REPORT_TEXT, &usual);
	expect_contains(text, "until the target was killed by\n          SIGKILL (out of memory?)");
	expect_contains(text, "at start  last seen      change\n"
			      "resident (RSS)              2.80 GiB   2.84 GiB   +40.0 MiB\n");
}
END_TEST

/* What is ours is not the target's, though it died with it. */
START_TEST(account_of_a_dead_target_knows_our_part)
{
	CLEANUP(profile_freep) struct profile *profile = sample_server();
	CLEANUP(freep) char *text = NULL;

	profile->memory_last = profile->memory_end;
	profile->own_peak_bytes = 9u << 20;
	profile->end = PROFILE_END_KILLED;
	profile->memory_end = (struct profile_memory){0};
	text = report(profile, REPORT_TEXT, &usual);
	expect_contains(text, "  files, shared memory      70.0 MiB   70.0 MiB        +0 B\n"
			      "  heapattach's own               0 B   6.00 MiB   +6.00 MiB\n");
	expect_contains(text, "heapattach's own tables took up to 9.00 MiB");
}
END_TEST

START_TEST(account_takes_the_allocators_word)
{
	CLEANUP(profile_freep) struct profile *profile = sample_server();
	CLEANUP(freep) char *text = NULL;

	profile->memory_start.allocator_known = profile->memory_end.allocator_known = true;
	profile->memory_start.allocator_bytes = 2000ull << 20;
	profile->memory_end.allocator_bytes = (1990ull << 20) + 30497200;
	profile->memory_end.allocator_free = 64ull << 20;
	text = report(profile, REPORT_TEXT, &usual);
	expect_contains(text, "  from before the attach    1.95 GiB   1.94 GiB   -10.0 MiB\n");
	expect_contains(text, "  free, kept by allocator        0 B   64.0 MiB   +64.0 MiB\n");
}
END_TEST

START_TEST(account_says_what_is_not_resident)
{
	static const unsigned int inuse[] = {0, 100, 200, 300, 400, 500};
	static const unsigned int anon[] = {10, 20, 30, 40, 50, 60};
	CLEANUP(profile_freep) struct profile *profile = sample_curve(inuse, anon, 6, 10);
	CLEANUP(freep) char *text = NULL;

	profile->memory_start.rss_bytes = 10u << 20;
	profile->memory_end.rss_bytes = 60u << 20;
	text = report(profile, REPORT_TEXT, &usual);
	expect_contains(text, "  440 MiB of this is not resident: blocks not written to yet.");
}
END_TEST

START_TEST(names_cannot_reach_the_terminal)
{
	CLEANUP(profile_freep) struct profile *profile = sample_server();
	const struct profile_frame evil = {"f\x1b[2J\n;g", NULL, "e\x9bvil\r.c", 1, false};

	assert_ok(profile_string(profile, "st\x07ore", &profile->target.comm));
	assert_ok(profile_string(profile, "/bin/x\x1b]0;y\x07 a\nb", &profile->target.cmdline));
	assert_ok(profile_resolve_location(profile, 0, &evil, 1));
	for (int format = REPORT_TEXT; format <= REPORT_FOLDED; format++) {
		CLEANUP(freep) char *text = report(profile, format, &usual);

		for (const unsigned char *c = (const unsigned char *)text; *c; c++)
			ck_assert_msg((*c >= 0x20 && *c < 0x7f) || *c == '\n',
				      "byte %02x in format %d", *c, format);
	}
}
END_TEST

/* ---- sites */

static uint32_t frame_at(struct profile *profile, uint64_t vaddr, const char *function,
			 uint32_t line)
{
	const struct profile_frame frame = {function, NULL, line ? "x.c" : NULL, line, false};
	uint32_t id;

	assert_ok(profile_add_location(profile, PROFILE_NONE, vaddr, &id));
	assert_ok(profile_resolve_location(profile, id, &frame, 1));
	return id;
}

/* One snapshot, in which each site has allocated one block of 100 bytes. */
static void one_block_each(struct profile *profile)
{
	const struct profile_snapshot head = {.time_ns = 1};
	const struct profile_sums sums = {100, 1, 0, 0};

	assert_ok(profile_snapshot_begin(profile, &head));
	for (uint32_t i = 0; i < profile->site_count; i++)
		assert_ok(profile_snapshot_add(profile, i, &sums));
	assert_ok(profile_snapshot_end(profile));
}

START_TEST(stacks_that_read_alike_are_one_site)
{
	CLEANUP(profile_freep) struct profile *profile = sample_empty();
	CLEANUP(report_sites_deinit) struct report_sites sites = {0};
	const uint32_t at[] = {
		frame_at(profile, 16, "f", 7), frame_at(profile, 20, "f", 7),
		frame_at(profile, 24, "f", 8), frame_at(profile, 28, "g", 0),
		frame_at(profile, 32, "g", 0),
	};
	uint32_t id;

	for (size_t i = 0; i < ARRAY_SIZE(at); i++)
		assert_ok(profile_add_site(profile, &at[i], 1, 0, &id));
	one_block_each(profile);
	assert_ok(report_sites_init(profile, REPORT_SORT_INUSE, &sites));
	/* f:7 twice; f:8; g without lines at two addresses. */
	ck_assert_uint_eq(sites.count, 4);
	ck_assert_uint_eq(sites.site[0].sums.alloc_bytes, 200);
	ck_assert_uint_eq(sites.place[0], 0);
	ck_assert_uint_eq(sites.place[1], 0);
	ck_assert_uint_eq(sites.totals.alloc_bytes, 500);
}
END_TEST

START_TEST(site_is_called_after_the_first_frame_of_its_own)
{
	CLEANUP(profile_freep) struct profile *profile = sample_empty();
	const uint32_t stack[] = {
		frame_at(profile, 16, "operator new(unsigned long)", 0),
		frame_at(profile, 20, "std::allocator<int>::allocate(unsigned long)", 3),
		frame_at(profile, 24, "void std::vector<int>::resize(unsigned long)", 9),
		frame_at(profile, 28, "store::fill(int)", 4),
	};
	CLEANUP(freep) struct report_frame *frames = NULL;
	size_t count, own;
	uint32_t site;

	assert_ok(profile_add_site(profile, stack, 4, 0, &site));
	assert_ok(report_frames(profile, site, &frames, &count, &own));
	ck_assert_uint_eq(count, 4);
	ck_assert_uint_eq(own, 3);
	free(take(frames));
	assert_ok(profile_add_site(profile, stack, 3, 0, &site));
	assert_ok(report_frames(profile, site, &frames, &count, &own));
	ck_assert_uint_eq(own, 2);
	free(take(frames));
	assert_ok(profile_add_site(profile, stack, 2, 0, &site));
	assert_ok(report_frames(profile, site, &frames, &count, &own));
	ck_assert_uint_eq(own, 0);
}
END_TEST

START_TEST(knows_allocators_from_callers)
{
	CLEANUP(freep) char *names = report_allocator_regexp();
	CLEANUP(freep) char *pattern = NULL;
	regex_t regexp;
	static const char *const allocators[] = {
		"malloc",
		"operator new[](unsigned long, std::align_val_t)",
		"zmalloc.part.0",
		"je_malloc_default",
		"alloc::raw_vec::finish_grow",
		"std::_Vector_base<std::function<void ()> >::_M_allocate(unsigned long)"};
	static const char *const hidden[] = {"malloc", "zmalloc.part.0", "operator new[]",
					     "tcmalloc::allocate"};
	static const char *const callers[] = {"mallocate", "main", "my_alloc",
					      "std::vector<int>::push_back(int const&)",
					      "store::malloc(int)"};

	for (size_t i = 0; i < ARRAY_SIZE(allocators); i++)
		ck_assert_msg(report_is_allocator(allocators[i]), "%s", allocators[i]);
	for (size_t i = 0; i < ARRAY_SIZE(callers); i++)
		ck_assert_msg(!report_is_allocator(callers[i]), "%s", callers[i]);
	ck_assert(!report_is_allocator(NULL));
	/* As pprof does: the whole name. */
	ck_assert_int_ge(asprintf(&pattern, "^(%s)$", names), 0);
	ck_assert_int_eq(regcomp(&regexp, pattern, REG_EXTENDED | REG_NOSUB), 0);
	for (size_t i = 0; i < ARRAY_SIZE(hidden); i++)
		ck_assert_msg(!regexec(&regexp, hidden[i], 0, NULL, 0), "%s", hidden[i]);
	for (size_t i = 0; i < ARRAY_SIZE(callers); i++)
		ck_assert_msg(regexec(&regexp, callers[i], 0, NULL, 0), "%s", callers[i]);
	regfree(&regexp);
}
END_TEST

/* ---- the same totals everywhere */

static struct profile_sums json_sums(const struct json *json, const char *prefix)
{
	static const char *const names[] = {"alloc_bytes", "alloc_count", "freed_bytes",
					    "freed_count"};
	uint64_t value[ARRAY_SIZE(names)];
	char path[64];

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		snprintf(path, sizeof(path), "%s%s", prefix, names[i]);
		value[i] = json_count(json, path);
	}
	return (struct profile_sums){value[0], value[1], value[2], value[3]};
}

static void check_json_totals(const struct profile *profile, const struct profile_sums *totals)
{
	CLEANUP(freep) char *text = report(profile, REPORT_JSON, &usual);
	CLEANUP(json_freep) struct json *json = json_parse(text);
	struct profile_sums printed = json_sums(json, "totals."), added = {0};
	const struct json *sites = json_get(json, "sites", JSON_ARRAY);

	for (size_t i = 0; i < sites->count; i++) {
		struct profile_sums sums = json_sums(&sites->item[i], "");

		added.alloc_bytes += sums.alloc_bytes;
		added.alloc_count += sums.alloc_count;
		added.freed_bytes += sums.freed_bytes;
		added.freed_count += sums.freed_count;
	}
	ck_assert_mem_eq(&printed, totals, sizeof(printed));
	ck_assert_mem_eq(&added, totals, sizeof(added));
	ck_assert_uint_eq(json_count(json, "totals.inuse_bytes"), profile_inuse_bytes(totals));
}

static void check_folded_totals(const struct profile *profile, const struct profile_sums *totals,
				uint32_t top)
{
	for (int sort = REPORT_SORT_INUSE; sort <= REPORT_SORT_COUNT; sort++) {
		const struct report_options options = {.sort = sort, .top = top};
		CLEANUP(freep) char *text = report(profile, REPORT_FOLDED, &options);
		uint64_t sum = 0;
		char *save = NULL;

		for (char *line = strtok_r(text, "\n", &save); line;
		     line = strtok_r(NULL, "\n", &save))
			sum += strtoull(strrchr(line, ' ') + 1, NULL, 10);
		ck_assert_uint_eq(sum, report_sort_value(sort, totals));
	}
}

/* What `go tool pprof` prints of the profile; malloc'ed. */
static char *pprof_output(const struct profile *profile, const struct report_options *options,
			  const char *arguments)
{
	struct workdir dir;
	char path[128], *text;
	FILE *out;

	workdir_create(&dir);
	snprintf(path, sizeof(path), "%s/heap.pb.gz", dir.path);
	out = fopen(path, "w");
	ck_assert_ptr_nonnull(out);
	assert_ok(report_pprof(out, profile, options));
	ck_assert_int_eq(fclose(out), 0);
	text = workdir_output(&dir, "HOME=. PPROF_TMPDIR=. go tool pprof %s heap.pb.gz 2>&1",
			      arguments);
	workdir_remove(&dir);
	return text;
}

static void check_pprof_totals(const struct profile *profile, const struct profile_sums *totals,
			       uint32_t top)
{
	const struct report_options options = {.top = top};
	CLEANUP(freep) char *text = pprof_output(profile, &options, "-raw");
	uint64_t sum[4] = {0}, value[4];
	char *line = strstr(text, "\nalloc_objects/count alloc_space/bytes inuse_objects/count "
				  "inuse_space/bytes[dflt]\n");

	ck_assert_msg(line != NULL, "%s", text);
	for (line = strchr(line + 1, '\n') + 1; *line == ' '; line = strchr(line, '\n') + 1) {
		ck_assert_int_eq(sscanf(line, "%" SCNu64 "%" SCNu64 "%" SCNu64 "%" SCNu64 ":",
					&value[0], &value[1], &value[2], &value[3]),
				 4);
		for (size_t i = 0; i < 4; i++)
			sum[i] += value[i];
	}
	ck_assert_uint_eq(sum[0], totals->alloc_count);
	ck_assert_uint_eq(sum[1], totals->alloc_bytes);
	ck_assert_uint_eq(sum[2], profile_inuse_count(totals));
	ck_assert_uint_eq(sum[3], profile_inuse_bytes(totals));
}

START_TEST(all_formats_have_the_same_totals)
{
	CLEANUP(profile_freep) struct profile *profile = sample_server();
	struct profile_sums totals = profile_totals(profile);
	CLEANUP(freep) char *text = report(profile, REPORT_TEXT, &usual);

	ck_assert_uint_eq(profile_inuse_bytes(&totals), 30497200);
	expect_contains(text, "29.1 MiB still live in 64,012 blocks; 3,670,012 allocations");
	check_json_totals(profile, &totals);
	check_folded_totals(profile, &totals, 0);
	check_folded_totals(profile, &totals, 2);
	check_pprof_totals(profile, &totals, 0);
	check_pprof_totals(profile, &totals, 2);
}
END_TEST

/* ---- JSON */

START_TEST(json_has_the_promised_fields)
{
	CLEANUP(profile_freep) struct profile *profile = sample_server();
	CLEANUP(freep) char *text = report(profile, REPORT_JSON, &usual);
	CLEANUP(json_freep) struct json *json = json_parse(text);
	const struct json *site = &json_get(json, "sites", JSON_ARRAY)->item[0];
	const struct json *frames = json_get(site, "frames", JSON_ARRAY);
	const struct json *skipped = json_get(json, "coverage.skipped", JSON_ARRAY);

	ck_assert_uint_eq(json_count(json, "target.pid"), 4242);
	ck_assert_str_eq(json_text(json, "target.comm"), "store");
	ck_assert_str_eq(json_text(json, "target.exe"), "/usr/bin/store");
	ck_assert_double_eq(json_number(json, "duration_s"), 600);
	ck_assert_str_eq(json_text(json, "mode"), "exact");
	ck_assert_uint_eq(json_get(json, "pauses_us", JSON_ARRAY)->count, 4);
	ck_assert_double_eq(json_get(json, "pauses_us", JSON_ARRAY)->item[1].number, 620);
	ck_assert_uint_eq(json_count(json, "rss_start_bytes"), 2870ull << 20);
	ck_assert_uint_eq(json_count(json, "rss_end_bytes"), 2910ull << 20);
	ck_assert_uint_eq(frames->count, 5);
	ck_assert_str_eq(json_text(&frames->item[0], "function"), "session_new");
	ck_assert_str_eq(json_text(&frames->item[0], "file"), "src/session.c");
	ck_assert_uint_eq(json_count(&frames->item[0], "line"), 118);
	ck_assert_str_eq(json_text(&frames->item[0], "module"), "/usr/bin/store");
	ck_assert_uint_eq(json_count(&frames->item[0], "offset"), 0x2010);
	ck_assert_double_eq(json_get(&frames->item[1], "inlined", JSON_BOOL)->number, 1);
	json_get(&frames->item[4], "line", JSON_NULL);
	ck_assert_str_eq(json_text(&skipped->item[0], "reason"), "its relocations are malformed");
	ck_assert_uint_eq(json_count(json, "coverage.truncated_stacks"), 12);
	ck_assert_uint_eq(json_count(json, "coverage.adopted_bytes"), 4096);
	ck_assert_uint_eq(json_get(json, "snapshots", JSON_ARRAY)->count, 61);
	ck_assert_str_eq(json_text(json, "verdict.kind"), "growing");
}
END_TEST

static bool is_estimate(const char *name)
{
	static const char *const names[] = {
		"inuse_bytes", "inuse_count",	     "alloc_bytes",	 "alloc_count",
		"freed_bytes", "freed_count",	     "peak_inuse_bytes", "peak_inuse_count",
		"count",       "growth_bytes_per_s", "bytes_per_hour",	 "bytes",
	};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (!strcmp(name, names[i]))
			return true;
	return false;
}

/* Each estimate at any depth has its ends beside it. How many there are. */
static size_t expect_ends(const struct json *json)
{
	size_t count = 0;

	for (size_t i = 0; i < json->count; i++) {
		const char *name = json->kind == JSON_OBJECT ? json->name[i] : "";
		char low[64], high[64];

		count += expect_ends(&json->item[i]);
		if (!is_estimate(name))
			continue;
		snprintf(low, sizeof(low), "%s_low", name);
		snprintf(high, sizeof(high), "%s_high", name);
		ck_assert_msg(json_number(json, low) <= json->item[i].number &&
				      json->item[i].number <= json_number(json, high),
			      "%s is not within its ends", name);
		count++;
	}
	return count;
}

START_TEST(json_of_samples_has_intervals)
{
	static const char *const figures[] = {"inuse_bytes", "inuse_count", "alloc_bytes",
					      "alloc_count", "freed_bytes", "freed_count"};
	CLEANUP(profile_freep) struct profile *profile = sample_sampled();
	CLEANUP(freep) char *text = report(profile, REPORT_JSON, &usual);
	CLEANUP(json_freep) struct json *json = json_parse(text);
	const struct json *totals = json_get(json, "totals", JSON_OBJECT);

	ck_assert_str_eq(json_text(json, "mode"), "sampled");
	ck_assert_double_eq(json_number(json, "interval_bytes"), 512 << 10);
	ck_assert_double_eq(
		json_number(json_get(json, "sampling", JSON_OBJECT), "interval_high_bytes"),
		1 << 20);
	for (size_t i = 0; i < ARRAY_SIZE(figures); i++) {
		char low[32], high[32];

		snprintf(low, sizeof(low), "%s_low", figures[i]);
		snprintf(high, sizeof(high), "%s_high", figures[i]);
		ck_assert_double_lt(json_number(totals, low), json_number(totals, figures[i]));
		ck_assert_double_gt(json_number(totals, high), json_number(totals, figures[i]));
	}
	/* Six of each of 61 snapshots, nine of each site, and bins. */
	ck_assert_uint_ge(expect_ends(json), 61 * 6 + 4 * 9 + 9);
}
END_TEST

START_TEST(json_is_json_for_python_too)
{
	CLEANUP(profile_freep) struct profile *profile = sample_server();
	const struct profile_frame evil = {"f\"\\\x1b\x80\xff\xed\xa0\x80", NULL, "\n\t", 1, false};
	CLEANUP(freep) char *text = NULL;
	struct workdir dir;

	assert_ok(profile_resolve_location(profile, 0, &evil, 1));
	text = report(profile, REPORT_JSON, &usual);
	workdir_create(&dir);
	workdir_write_text(&dir, "x.json", text);
	workdir_run(&dir, "python3 -m json.tool x.json >/dev/null");
	workdir_remove(&dir);
}
END_TEST

/* ---- folded */

START_TEST(folded_is_root_first_and_marks_inlined)
{
	CLEANUP(profile_freep) struct profile *profile = sample_server();
	CLEANUP(freep) char *text = report(profile, REPORT_FOLDED, &usual);

	expect_contains(text, "__libc_start_main;main;event_loop;accept_client_[i];session_new "
			      "26400000\n");
	expect_contains(text, "[stack not kept] 1200\n");
}
END_TEST

START_TEST(folded_names_hold_no_semicolon)
{
	CLEANUP(profile_freep) struct profile *profile = sample_server();
	const struct profile_frame frame = {"f(;)", NULL, NULL, 0, false};
	CLEANUP(freep) char *text = NULL;

	assert_ok(profile_resolve_location(profile, 2, &frame, 1));
	text = report(profile, REPORT_FOLDED, &usual);
	expect_contains(text, ";f(:);");
}
END_TEST

/* ---- pprof */

START_TEST(pprof_shows_callers_without_allocators)
{
	CLEANUP(profile_freep) struct profile *profile = sample_server();
	CLEANUP(freep) char *top = pprof_output(profile, &usual, "-top");
	CLEANUP(freep) char *traces = pprof_output(profile, &usual, "-traces");

	expect_contains(top, "Type: inuse_space");
	expect_contains(top, "Build ID: 0123456789abcdef");
	expect_contains(top, "25.18MB 86.57% 86.57%    25.18MB 86.57%  session_new");
	ck_assert_ptr_null(strstr(top, "operator new"));
	expect_contains(traces, "accept_client (inline)");
}
END_TEST

START_TEST(pprof_has_mappings_as_readers_expect)
{
	CLEANUP(profile_freep) struct profile *profile = sample_server();
	CLEANUP(freep) char *raw = pprof_output(profile, &usual, "-raw");

	expect_contains(raw, "PeriodType: space bytes\nPeriod: 1\n");
	expect_contains(raw, "1: 0x555500001000/0x555500200000/0x1000 /usr/bin/store "
			     "0123456789abcdef [FN][FL][LN][IN]");
	expect_contains(raw, "1: 0x555500002010 M=1 session_new src/session.c:118");
	expect_contains(raw, "store+0x6010");
}
END_TEST

START_TEST(pprof_takes_the_sort_as_default_type)
{
	CLEANUP(profile_freep) struct profile *profile = sample_server();
	const struct report_options options = {.sort = REPORT_SORT_ALLOC};
	CLEANUP(freep) char *top = pprof_output(profile, &options, "-top");

	expect_contains(top, "Type: alloc_space");
}
END_TEST

/* ---- verdicts */

static struct report_verdict verdict_of(const struct profile *profile)
{
	CLEANUP(report_sites_deinit) struct report_sites sites = {0};
	CLEANUP(freep) uint64_t *series = NULL;

	assert_ok(report_sites_init(profile, REPORT_SORT_INUSE, &sites));
	assert_ok(report_series(profile, &sites, VERDICT_POINTS, &series));
	return report_verdict(profile, &sites, series);
}

struct curve {
	const char *name;
	enum verdict_kind kind;
	enum verdict_confidence confidence;
	unsigned int seconds;
	unsigned int inuse_mib[9], anon_mib[9];
};

static const struct curve curves[] = {
	{"a leak",
	 VERDICT_GROWING,
	 VERDICT_HIGH,
	 60,
	 {0, 10, 20, 30, 40, 50, 60, 70, 80},
	 {100, 110, 120, 130, 140, 150, 160, 170, 180}},
	{"a short leak",
	 VERDICT_GROWING,
	 VERDICT_LOW,
	 1,
	 {0, 10, 20, 30, 40, 50, 60, 70, 80},
	 {100, 110, 120, 130, 140, 150, 160, 170, 180}},
	{"a leak under a saw-tooth",
	 VERDICT_GROWING,
	 VERDICT_HIGH,
	 60,
	 {0, 50, 10, 60, 20, 70, 30, 80, 40},
	 {100, 150, 150, 160, 160, 170, 180, 190, 190}},
	{"a leak into free heap",
	 VERDICT_GROWING,
	 VERDICT_MEDIUM,
	 60,
	 {0, 10, 20, 30, 40, 50, 60, 70, 80},
	 {200, 200, 200, 200, 200, 200, 200, 200, 200}},
	{"a cache that fills",
	 VERDICT_LEVELLING,
	 VERDICT_HIGH,
	 60,
	 {0, 40, 60, 70, 75, 77, 78, 78, 78},
	 {100, 140, 160, 170, 175, 177, 178, 178, 178}},
	{"an idle server",
	 VERDICT_STABLE,
	 VERDICT_HIGH,
	 60,
	 {0, 5, 5, 5, 5, 5, 5, 5, 5},
	 {100, 105, 105, 105, 105, 105, 105, 105, 105}},
	{"a saw-tooth",
	 VERDICT_STABLE,
	 VERDICT_HIGH,
	 60,
	 {0, 50, 1, 50, 1, 50, 1, 50, 1},
	 {150, 150, 150, 150, 150, 150, 150, 150, 150}},
	{"a spike that the allocator keeps",
	 VERDICT_KEPT,
	 VERDICT_MEDIUM,
	 10,
	 {0, 90, 200, 90, 5, 5, 5, 5, 5},
	 {100, 190, 300, 300, 300, 300, 300, 300, 300}},
	{"mmap",
	 VERDICT_ELSEWHERE,
	 VERDICT_MEDIUM,
	 10,
	 {0, 1, 1, 1, 1, 1, 1, 1, 1},
	 {100, 120, 140, 160, 180, 200, 220, 240, 260}},
};

START_TEST(verdict_fits_the_curve)
{
	const struct curve *curve = &curves[_i];
	CLEANUP(profile_freep)
	struct profile *profile =
		sample_curve(curve->inuse_mib, curve->anon_mib, 9, curve->seconds);
	struct report_verdict verdict = verdict_of(profile);

	ck_assert_msg(verdict.kind == curve->kind, "%s: %s", curve->name,
		      verdict_kind_name(verdict.kind));
	ck_assert_msg(verdict.confidence == curve->confidence, "%s: %s (%s)", curve->name,
		      verdict_confidence_name(verdict.confidence), verdict.why);
}
END_TEST

START_TEST(replaced_blocks_are_no_growth)
{
	static const unsigned int inuse[] = {0, 10, 20, 30, 40, 50, 60, 70, 80};
	static const unsigned int anon[] = {200, 200, 200, 200, 200, 200, 200, 200, 200};
	CLEANUP(profile_freep) struct profile *profile = sample_curve(inuse, anon, 9, 60);

	for (size_t i = 0; i < profile->snapshot_count; i++)
		profile->snapshot[i].unknown_frees = 10 * i;
	ck_assert_int_eq(verdict_of(profile).kind, VERDICT_REPLACING);
}
END_TEST

/* Small ones for large ones: what rose is what it rose by. */
START_TEST(replaced_blocks_do_not_explain_memory_that_rises)
{
	static const unsigned int inuse[] = {0, 10, 20, 30, 40, 50, 60, 70, 80};
	static const unsigned int anon[] = {200, 210, 220, 230, 240, 250, 260, 270, 280};
	CLEANUP(profile_freep) struct profile *profile = sample_curve(inuse, anon, 9, 60);

	for (size_t i = 0; i < profile->snapshot_count; i++)
		profile->snapshot[i].unknown_frees = 10 * i;
	ck_assert_int_eq(verdict_of(profile).kind, VERDICT_GROWING);
}
END_TEST

/* The same where nothing rises any more. */
START_TEST(memory_that_never_rose_does_not_level_off)
{
	static const unsigned int inuse[] = {0, 60, 80, 90, 96, 98, 99, 100, 100};
	static const unsigned int flat[] = {200, 200, 200, 200, 200, 200, 200, 200, 200};
	CLEANUP(profile_freep) struct profile *profile = sample_curve(inuse, flat, 9, 60);

	/* Not written to yet, for all that is known. */
	ck_assert_int_eq(verdict_of(profile).kind, VERDICT_LEVELLING);
	for (size_t i = 0; i < profile->snapshot_count; i++)
		profile->snapshot[i].unknown_frees = inuse[i];
	ck_assert_int_eq(verdict_of(profile).kind, VERDICT_REPLACING);
	for (size_t i = 0; i < profile->snapshot_count; i++)
		profile->snapshot[i].unknown_frees = 0;
	profile->sampling.interval_low = profile->sampling.interval_high = 4096;
	ck_assert_int_eq(verdict_of(profile).kind, VERDICT_REPLACING);
	ck_assert_int_eq(verdict_of(profile).confidence, VERDICT_LOW);
}
END_TEST

/* Two deviations are hardly more than chance where the range reaches below 0. */
START_TEST(growth_that_may_be_chance_is_not_sure)
{
	static const unsigned int mib[] = {0, 10, 20, 30, 40, 50, 60, 70, 80};
	CLEANUP(profile_freep) struct profile *profile = sample_curve(mib, mib, 9, 60);
	CLEANUP(freep) char *text = NULL;

	profile->sampling.interval_low = profile->sampling.interval_high = 16 << 20;
	profile->interval = 16 << 20;
	ck_assert_int_eq(verdict_of(profile).kind, VERDICT_GROWING);
	ck_assert(verdict_of(profile).rate.low <= 0);
	ck_assert_int_eq(verdict_of(profile).confidence, VERDICT_LOW);
	text = report(profile, REPORT_TEXT, &usual);
	ck_assert_ptr_null(strstr(text, "grows by"));
}
END_TEST

/* Samples do not show frees of older blocks. */
START_TEST(replacement_is_not_sure_from_samples)
{
	static const unsigned int inuse[] = {0, 10, 20, 30, 40, 50, 60, 70, 80};
	static const unsigned int anon[] = {200, 200, 200, 200, 200, 200, 200, 200, 200};
	CLEANUP(profile_freep) struct profile *profile = sample_curve(inuse, anon, 9, 60);
	struct report_verdict verdict;

	profile->sampling.interval_low = profile->sampling.interval_high = 4096;
	verdict = verdict_of(profile);
	ck_assert_int_eq(verdict.kind, VERDICT_REPLACING);
	ck_assert_int_eq(verdict.confidence, VERDICT_LOW);
}
END_TEST

/* It has freed all of it, and is no more. */
START_TEST(clean_exit_is_not_kept_memory)
{
	static const unsigned int inuse[] = {0, 40, 40, 40, 40, 40, 40, 0};
	static const unsigned int anon[] = {10, 50, 50, 50, 50, 50, 50, 0};
	CLEANUP(profile_freep) struct profile *profile = sample_curve(inuse, anon, 8, 10);

	profile->memory_end = (struct profile_memory){0};
	ck_assert_int_ne(verdict_of(profile).kind, VERDICT_KEPT);
}
END_TEST

/* Looks do not come at the middle of the time. */
START_TEST(growth_is_by_the_looks_that_it_is_from)
{
	static const unsigned int mib[] = {0, 10, 20, 30, 40, 50};
	CLEANUP(profile_freep) struct profile *profile = sample_curve(mib, mib, 6, 1);
	CLEANUP(report_sites_deinit) struct report_sites sites = {0};
	CLEANUP(report_middle_deinit) struct report_middle middle = {0};
	const double truth = 10 << 20;

	ck_assert_double_eq_tol(verdict_of(profile).rate.bytes, truth, truth / 100);
	assert_ok(report_sites_init(profile, REPORT_SORT_INUSE, &sites));
	assert_ok(report_middle_init(profile, &sites, &middle));
	ck_assert_double_eq_tol(report_growth(profile, &sites, &middle, 0).bytes, truth,
				truth / 100);
}
END_TEST

START_TEST(long_recording_with_few_looks_has_a_verdict)
{
	static const unsigned int mib[] = {0, 10, 20, 30};
	CLEANUP(profile_freep) struct profile *profile = sample_curve(mib, mib, 4, 60);

	ck_assert_int_eq(verdict_of(profile).kind, VERDICT_GROWING);
}
END_TEST

START_TEST(no_sample_is_not_no_allocation)
{
	static const unsigned int none[] = {0, 0, 0, 0, 0, 0};
	CLEANUP(profile_freep) struct profile *profile = sample_curve(none, none, 6, 10);
	CLEANUP(freep) char *text = NULL;

	profile->sampling.interval_low = profile->sampling.interval_high = 1 << 20;
	text = report(profile, REPORT_TEXT, &usual);
	expect_contains(text, "NO SAMPLE TAKEN in 50 s: allocations of 3.69 MiB at most");
	ck_assert_int_eq(verdict_of(profile).confidence, VERDICT_LOW);
}
END_TEST

START_TEST(short_recording_gives_no_verdict)
{
	static const unsigned int mib[] = {0, 10, 20};
	CLEANUP(profile_freep) struct profile *profile = sample_curve(mib, mib, 3, 1);

	ck_assert_int_eq(verdict_of(profile).kind, VERDICT_TOO_EARLY);
}
END_TEST

START_TEST(trend_fits_the_series)
{
	static const struct {
		enum site_trend trend;
		uint64_t value[VERDICT_POINTS];
	} series[] = {
		{TREND_GROWS, {1000, 2000, 3000, 4000, 5000, 6000, 7000, 8000}},
		{TREND_STEADY, {500, 5000, 5000, 5000, 5000, 5000, 5000, 5000}},
		{TREND_LEVELS, {1000, 2000, 3000, 4000, 4600, 4800, 4900, 4900}},
		{TREND_YOUNG, {0, 0, 0, 0, 0, 0, 100, 5000}},
		{TREND_GONE, {1000, 5000, 1000, 5000, 1000, 5000, 1000, 0}},
		{TREND_CHANGES, {1000, 5000, 1000, 5000, 1000, 5000, 1000, 4000}},
		{TREND_FALLS, {1000, 9000, 8000, 7000, 6000, 5000, 4000, 3000}},
	};

	for (size_t i = 0; i < ARRAY_SIZE(series); i++)
		ck_assert_msg(site_trend(series[i].value) == series[i].trend, "%s: %s",
			      site_trend_name(series[i].trend),
			      site_trend_name(site_trend(series[i].value)));
}
END_TEST

/* Whatever the end is divisible by: what came last is still live. */
START_TEST(series_ends_at_the_end)
{
	const struct profile_sums sums = {.alloc_bytes = 24, .alloc_count = 1};
	CLEANUP(profile_freep)
	struct profile *profile = sample_curve((const unsigned int[]){1, 1, 1},
					       (const unsigned int[]){1, 1, 1}, 3, 1);
	const struct profile_snapshot head = {.time_ns = 3000000000 + (uint64_t)_i};
	CLEANUP(report_sites_deinit) struct report_sites sites = {0};
	CLEANUP(freep) uint64_t *series = NULL;

	assert_ok(profile_snapshot_begin(profile, &head));
	assert_ok(profile_snapshot_add(profile, 0, &sums));
	assert_ok(profile_snapshot_end(profile));
	assert_ok(report_sites_init(profile, REPORT_SORT_INUSE, &sites));
	assert_ok(report_series(profile, &sites, VERDICT_POINTS, &series));
	ck_assert_uint_eq(series[VERDICT_POINTS - 1], 24);
}
END_TEST

/* ---- bad days */

START_TEST(full_disk_is_an_error_in_each_format)
{
	CLEANUP(profile_freep) struct profile *profile = sample_server();

	for (int format = REPORT_TEXT; format <= REPORT_PPROF; format++) {
		CLEANUP(fclosep) FILE *full = fopen("/dev/full", "w");
		struct error *err = report_write(full, profile, format, &usual);

		ck_assert_msg(error_is(err, ERROR_OS), "format %d: no error", format);
		ck_assert_str_eq(error_message(err),
				 "cannot write the report: No space left on device");
		error_free(err);
	}
}
END_TEST

START_TEST(fifty_thousand_sites_in_each_format)
{
	CLEANUP(profile_freep) struct profile *profile = sample_large(50000, 20);

	for (int format = REPORT_TEXT; format <= REPORT_PPROF; format++) {
		CLEANUP(freep) char *text = report(profile, format, &usual);

		ck_assert_ptr_nonnull(text);
	}
}
END_TEST

Suite *report_suite(void)
{
	Suite *suite = suite_create("report");
	TCase *text = tcase_create("text"), *formats = tcase_create("formats");
	TCase *verdicts = tcase_create("verdicts");

	tcase_add_test(text, text_is_as_it_always_was);
	tcase_add_test(text, text_fits_80_columns);
	tcase_add_test(text, text_of_samples_says_how_sure_it_is);
	tcase_add_test(text, cost_above_the_budget_is_explained);
	tcase_add_test(text, what_memory_did_not_suffice_for_is_said_first);
	tcase_add_test(text, text_shows_top_n_and_counts_the_rest);
	tcase_add_test(text, text_leaves_out_what_hardly_counts);
	tcase_add_test(text, text_never_says_leak);
	tcase_add_test(text, empty_profile_says_so_first);
	tcase_add_test(text, direct_allocator_is_named_first);
	tcase_add_test(text, killed_target_is_accounted_for_as_last_seen);
	tcase_add_test(text, account_takes_the_allocators_word);
	tcase_add_test(text, account_of_a_dead_target_knows_our_part);
	tcase_add_test(text, account_says_what_is_not_resident);
	tcase_add_test(text, names_cannot_reach_the_terminal);
	tcase_add_test(text, stacks_that_read_alike_are_one_site);
	tcase_add_test(text, site_is_called_after_the_first_frame_of_its_own);
	tcase_add_test(text, knows_allocators_from_callers);
	suite_add_tcase(suite, text);

	tcase_set_timeout(formats, 120);
	tcase_add_test(formats, all_formats_have_the_same_totals);
	tcase_add_test(formats, json_has_the_promised_fields);
	tcase_add_test(formats, json_of_samples_has_intervals);
	tcase_add_test(formats, json_is_json_for_python_too);
	tcase_add_test(formats, folded_is_root_first_and_marks_inlined);
	tcase_add_test(formats, folded_names_hold_no_semicolon);
	tcase_add_test(formats, pprof_shows_callers_without_allocators);
	tcase_add_test(formats, pprof_has_mappings_as_readers_expect);
	tcase_add_test(formats, pprof_takes_the_sort_as_default_type);
	tcase_add_test(formats, full_disk_is_an_error_in_each_format);
	tcase_add_test(formats, fifty_thousand_sites_in_each_format);
	suite_add_tcase(suite, formats);

	tcase_add_loop_test(verdicts, verdict_fits_the_curve, 0, ARRAY_SIZE(curves));
	tcase_add_test(verdicts, replaced_blocks_are_no_growth);
	tcase_add_test(verdicts, replaced_blocks_do_not_explain_memory_that_rises);
	tcase_add_test(verdicts, memory_that_never_rose_does_not_level_off);
	tcase_add_test(verdicts, growth_that_may_be_chance_is_not_sure);
	tcase_add_test(verdicts, replacement_is_not_sure_from_samples);
	tcase_add_test(verdicts, clean_exit_is_not_kept_memory);
	tcase_add_test(verdicts, growth_is_by_the_looks_that_it_is_from);
	tcase_add_test(verdicts, long_recording_with_few_looks_has_a_verdict);
	tcase_add_test(verdicts, no_sample_is_not_no_allocation);
	tcase_add_test(verdicts, short_recording_gives_no_verdict);
	tcase_add_test(verdicts, trend_fits_the_series);
	tcase_add_loop_test(verdicts, series_ends_at_the_end, 0, VERDICT_POINTS);
	suite_add_tcase(suite, verdicts);
	return suite;
}
