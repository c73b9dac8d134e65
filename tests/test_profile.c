// SPDX-License-Identifier: GPL-3.0-or-later
#include "resolver/profile.h"

#include <string.h>

#include "resolver/array.h"
#include "tests/sample_profile.h"
#include "tests/tests.h"

#define NS_PER_S 1000000000ull

static struct profile *profile;

static void setup(void)
{
	profile = sample_empty();
}

static void teardown(void)
{
	profile_free(profile);
}

static uint32_t location(uint32_t module, uint64_t vaddr)
{
	uint32_t id = PROFILE_NONE;

	assert_ok(profile_add_location(profile, module, vaddr, &id));
	return id;
}

static uint32_t site(const uint32_t *locations, size_t count, uint32_t flags)
{
	uint32_t id = PROFILE_NONE;

	assert_ok(profile_add_site(profile, locations, count, flags, &id));
	return id;
}

/* A snapshot in which site @id has @alloc allocated and @freed freed bytes, 1 a block. */
static void snapshot(uint64_t time_ns, uint32_t id, uint64_t alloc, uint64_t freed)
{
	const struct profile_snapshot head = {.time_ns = time_ns, .rss_bytes = 1000 + time_ns};
	const struct profile_sums sums = {alloc, alloc, freed, freed};

	assert_ok(profile_snapshot_begin(profile, &head));
	assert_ok(profile_snapshot_add(profile, id, &sums));
	assert_ok(profile_snapshot_end(profile));
}

START_TEST(equal_strings_are_one_pointer)
{
	char text[] = "session_new";
	const char *a = NULL, *b = NULL, *none = "x";

	assert_ok(profile_string(profile, "session_new", &a));
	assert_ok(profile_string(profile, text, &b));
	assert_ok(profile_string(profile, NULL, &none));
	ck_assert_ptr_eq(a, b);
	ck_assert_ptr_ne(a, text);
	ck_assert_str_eq(a, "session_new");
	ck_assert_ptr_null(none);
}
END_TEST

START_TEST(module_loaded_twice_is_one)
{
	struct profile_module module = {.path = "/lib/p.so", .build_id = "aa", .bias = 0x1000};
	uint32_t first, again, other;

	assert_ok(profile_add_module(profile, &module, &first));
	module.bias = 0x9000;
	assert_ok(profile_add_module(profile, &module, &again));
	module.build_id = "bb";
	assert_ok(profile_add_module(profile, &module, &other));
	ck_assert_uint_eq(first, again);
	ck_assert_uint_ne(first, other);
	ck_assert_uint_eq(profile->module[first].bias, 0x1000);
}
END_TEST

START_TEST(equal_stacks_are_one_site)
{
	const uint32_t stack[] = {location(PROFILE_NONE, 16), location(PROFILE_NONE, 32)};
	const uint32_t same[] = {location(PROFILE_NONE, 16), location(PROFILE_NONE, 32)};
	const uint32_t turned[] = {stack[1], stack[0]};

	ck_assert_uint_eq(site(stack, 2, 0), site(same, 2, 0));
	ck_assert_uint_ne(site(stack, 2, 0), site(turned, 2, 0));
	ck_assert_uint_ne(site(stack, 2, 0), site(stack, 1, 0));
	ck_assert_uint_ne(site(stack, 2, 0), site(stack, 2, PROFILE_SITE_TRUNCATED));
	ck_assert_uint_eq(profile->site_count, 4);
	ck_assert_uint_eq(profile->location_count, 2);
}
END_TEST

START_TEST(stack_deeper_than_the_bound_is_refused)
{
	static uint32_t stack[PROFILE_DEPTH_MAX + 1];
	uint32_t id;

	stack[0] = location(PROFILE_NONE, 16);
	assert_ok(profile_add_site(profile, stack, PROFILE_DEPTH_MAX, 0, &id));
	assert_fails(profile_add_site(profile, stack, PROFILE_DEPTH_MAX + 1, 0, &id),
		     ERROR_UNSUPPORTED);
}
END_TEST

START_TEST(resolved_frames_are_copies)
{
	char name[] = "f", file[] = "f.c";
	const struct profile_frame frames[] = {{name, NULL, file, 3, true},
					       {"g", NULL, file, 9, false}};
	uint32_t id = location(PROFILE_NONE, 16);
	const struct profile_location *at = &profile->location[id];

	assert_ok(profile_resolve_location(profile, id, frames, 2));
	memset(name, 'x', 1);
	memset(file, 'x', 1);
	ck_assert_uint_eq(at->frame_count, 2);
	ck_assert_str_eq(profile->frame[at->frame_first].function, "f");
	ck_assert_str_eq(profile->frame[at->frame_first].file, "f.c");
	ck_assert(profile->frame[at->frame_first].inlined);
	ck_assert_uint_eq(profile->frame[at->frame_first + 1].line, 9);
}
END_TEST

START_TEST(sums_of_one_site_add_up_within_a_snapshot)
{
	const struct profile_snapshot head = {.time_ns = 1};
	const struct profile_sums sums = {100, 2, 30, 1};
	const uint32_t at = location(PROFILE_NONE, 16);
	uint32_t id = site(&at, 1, 0);

	assert_ok(profile_snapshot_begin(profile, &head));
	assert_ok(profile_snapshot_add(profile, id, &sums));
	assert_ok(profile_snapshot_add(profile, id, &sums));
	assert_ok(profile_snapshot_end(profile));
	ck_assert_uint_eq(profile->site[id].sums.alloc_bytes, 200);
	ck_assert_uint_eq(profile->site[id].sums.freed_count, 2);
	ck_assert_uint_eq(profile_inuse_bytes(&profile->snapshot[0].totals), 140);
}
END_TEST

START_TEST(snapshot_keeps_only_what_changed)
{
	const uint32_t at[] = {location(PROFILE_NONE, 16), location(PROFILE_NONE, 32)};
	uint32_t a = site(&at[0], 1, 0), b = site(&at[1], 1, 0);
	const struct profile_sums still = {5, 5, 0, 0};

	for (uint64_t i = 0; i < 3; i++) {
		const struct profile_snapshot head = {.time_ns = i};
		const struct profile_sums moving = {i + 1, i + 1, i, i};

		assert_ok(profile_snapshot_begin(profile, &head));
		assert_ok(profile_snapshot_add(profile, a, &still));
		assert_ok(profile_snapshot_add(profile, b, &moving));
		assert_ok(profile_snapshot_end(profile));
	}
	ck_assert_uint_eq(profile->snapshot[0].change_count, 2);
	ck_assert_uint_eq(profile->snapshot[2].change_count, 1);
	ck_assert_uint_eq(profile->snapshot[2].change[0].site, b);
	ck_assert_uint_eq(profile->snapshot[2].totals.alloc_bytes, 8);
}
END_TEST

START_TEST(older_snapshot_than_the_last_is_refused)
{
	const uint32_t at = location(PROFILE_NONE, 16);
	struct profile_snapshot head = {.time_ns = 4};

	snapshot(5, site(&at, 1, 0), 1, 0);
	assert_fails(profile_snapshot_begin(profile, &head), ERROR_FORMAT);
	head.time_ns = 5;
	assert_ok(profile_snapshot_begin(profile, &head));
}
END_TEST

/* Adds up the changes and compares with what each snapshot says and the site has. */
static void check_changes(void)
{
	struct profile_sums now[2] = {0};

	for (size_t i = 0; i < profile->snapshot_count; i++) {
		const struct profile_snapshot *at = &profile->snapshot[i];

		for (size_t k = 0; k < at->change_count; k++)
			now[at->change[k].site] = at->change[k].sums;
		ck_assert_uint_eq(now[0].alloc_bytes + now[1].alloc_bytes, at->totals.alloc_bytes);
		ck_assert_uint_eq(now[0].freed_count + now[1].freed_count, at->totals.freed_count);
	}
	for (size_t i = 0; i < profile->site_count; i++)
		ck_assert_mem_eq(&now[i], &profile->site[i].sums, sizeof(now[i]));
}

START_TEST(long_session_is_thinned_out_evenly)
{
	const uint32_t at = location(PROFILE_NONE, 16);
	uint32_t id = site(&at, 1, 0);
	const unsigned int seconds = 5000;
	uint64_t widest = 0, narrowest = UINT64_MAX;

	for (uint64_t s = 0; s <= seconds; s++)
		snapshot(s * NS_PER_S, id, s * 10, s * 4);
	ck_assert_uint_le(profile->snapshot_count, PROFILE_SNAPSHOTS_MAX);
	ck_assert_uint_gt(profile->snapshot_count, PROFILE_SNAPSHOTS_MAX / 4);
	ck_assert_uint_eq(profile->snapshot[0].time_ns, 0);
	ck_assert_uint_eq(profile->snapshot[profile->snapshot_count - 1].time_ns,
			  seconds * NS_PER_S);
	for (size_t i = 1; i + 1 < profile->snapshot_count; i++) {
		uint64_t gap = profile->snapshot[i].time_ns - profile->snapshot[i - 1].time_ns;

		widest = gap > widest ? gap : widest;
		narrowest = gap < narrowest ? gap : narrowest;
	}
	ck_assert_uint_le(widest, 2 * narrowest);
	check_changes();
}
END_TEST

/* The snapshot that tells of the time around @time_ns. */
static const struct profile_snapshot *snapshot_over(uint64_t time_ns)
{
	const struct profile_snapshot *snapshot = profile->snapshot;

	while (snapshot->time_ns < time_ns)
		snapshot++;
	return snapshot;
}

START_TEST(thinning_keeps_changes_of_dropped_snapshots)
{
	const uint32_t at[] = {location(PROFILE_NONE, 16), location(PROFILE_NONE, 32)};
	uint32_t id[] = {site(&at[0], 1, 0), site(&at[1], 1, 0)};
	const uint64_t risen = 1000;

	/* Each site changes only now and then, so that most changes sit in dropped ones. */
	for (uint64_t s = 0; s < 3 * PROFILE_SNAPSHOTS_MAX; s++) {
		const struct profile_snapshot head = {
			.time_ns = s * NS_PER_S,
			.interval = s == risen ? 1 << 20 : 4096,
		};
		const struct profile_sums a = {s / 7, s / 7, 0, 0},
					  b = {s / 11, s / 11, s / 13, s / 13};

		assert_ok(profile_snapshot_begin(profile, &head));
		assert_ok(profile_snapshot_add(profile, id[0], &a));
		assert_ok(profile_snapshot_add(profile, id[1], &b));
		assert_ok(profile_snapshot_end(profile));
	}
	ck_assert_uint_le(profile->snapshot_count, PROFILE_SNAPSHOTS_MAX);
	check_changes();
	/* The largest interval of all that became one. */
	ck_assert_uint_eq(snapshot_over(risen * NS_PER_S)->interval, 1 << 20);
	ck_assert_uint_eq(snapshot_over((risen - 100) * NS_PER_S)->interval, 4096);
	ck_assert_uint_eq(snapshot_over((risen + 100) * NS_PER_S)->interval, 4096);
}
END_TEST

/* Also if its snapshot is one of those that were dropped. */
START_TEST(peak_is_kept_with_what_it_consisted_of)
{
	const uint32_t at[] = {location(PROFILE_NONE, 16), location(PROFILE_NONE, 32)};
	uint32_t id[] = {site(&at[0], 1, 0), site(&at[1], 1, 0)};

	for (uint64_t s = 0; s < 5000; s++) {
		const struct profile_snapshot head = {.time_ns = s * NS_PER_S};
		const struct profile_sums a = {1000 + s, 10, s == 1234 ? 0 : 500, 5},
					  b = {300, 3, 0, 0};

		assert_ok(profile_snapshot_begin(profile, &head));
		assert_ok(profile_snapshot_add(profile, id[0], &a));
		assert_ok(profile_snapshot_add(profile, id[1], &b));
		assert_ok(profile_snapshot_end(profile));
		if (s == 1234)
			ck_assert_uint_eq(profile->peak.bytes, 1000 + 1234 + 300);
	}
	/* 500 bytes later it was more again. */
	ck_assert_uint_eq(profile->peak.time_ns, 4999 * NS_PER_S);
	ck_assert_uint_eq(profile->peak.bytes, 1000 + 4999 - 500 + 300);
	ck_assert_uint_eq(profile->peak.count, 8);
	ck_assert_uint_eq(profile->site[id[0]].peak_bytes, 1000 + 4999 - 500);
	ck_assert_uint_eq(profile->site[id[1]].peak_bytes, 300);
	ck_assert_uint_eq(profile->site[id[1]].peak_count, 3);
	ck_assert_uint_eq(profile->look_ns, NS_PER_S);
}
END_TEST

START_TEST(bins_are_sorted_and_doubles_added)
{
	const uint32_t at[] = {location(PROFILE_NONE, 16), location(PROFILE_NONE, 32)};
	uint32_t id[] = {site(&at[0], 1, 0), site(&at[1], 1, 0)};
	const struct profile_bin bins[] = {
		{id[1], PROFILE_AGES, 3, 5, 50}, {id[0], PROFILE_SIZES, 23, 7, 0},
		{id[1], PROFILE_AGES, 3, 2, 20}, {id[1], PROFILE_AGES, 0, 1, 10},
		{id[0], PROFILE_SIZES, 4, 0, 0},
	};
	struct profile_bins found;

	for (size_t i = 0; i < ARRAY_SIZE(bins); i++)
		assert_ok(profile_add_bin(profile, &bins[i]));
	profile_bins_end(profile);
	ck_assert_uint_eq(profile->bin_count, 3);
	found = profile_bins_of(profile, id[1], PROFILE_AGES);
	ck_assert_uint_eq(found.count[0], 1);
	ck_assert_uint_eq(found.count[3], 7);
	ck_assert_uint_eq(found.bytes[3], 70);
	ck_assert_uint_eq(profile_bins_of(profile, id[0], PROFILE_SIZES).count[23], 7);
	ck_assert_uint_eq(profile_bins_of(profile, id[0], PROFILE_LIFETIMES).count[3], 0);
	assert_fails(profile_add_bin(profile, &(struct profile_bin){7, 0, 0, 1, 0}), ERROR_FORMAT);
	assert_fails(profile_add_bin(profile, &(struct profile_bin){0, 3, 0, 1, 0}), ERROR_FORMAT);
	assert_fails(profile_add_bin(profile, &(struct profile_bin){0, 0, 24, 1, 0}), ERROR_FORMAT);
}
END_TEST

START_TEST(many_changing_sites_stay_bounded)
{
	const uint32_t sites = 20000;
	size_t snapshots = PROFILE_CHANGES_MAX / sites + 100;

	for (uint32_t i = 0; i < sites; i++) {
		const uint32_t at = location(PROFILE_NONE, i);

		site(&at, 1, 0);
	}
	for (uint64_t s = 1; s <= snapshots; s++) {
		const struct profile_snapshot head = {.time_ns = s * NS_PER_S};
		const struct profile_sums sums = {s, s, 0, 0};

		assert_ok(profile_snapshot_begin(profile, &head));
		for (uint32_t i = 0; i < sites; i++)
			assert_ok(profile_snapshot_add(profile, i, &sums));
		assert_ok(profile_snapshot_end(profile));
	}
	ck_assert_uint_le(profile->change_total, PROFILE_CHANGES_MAX);
	ck_assert_uint_gt(profile->snapshot_count, 20);
	ck_assert_uint_eq(profile_totals(profile).alloc_count, snapshots * sites);
}
END_TEST

START_TEST(inuse_is_never_negative)
{
	const struct profile_sums sums = {10, 1, 20, 2};

	ck_assert_uint_eq(profile_inuse_bytes(&sums), 0);
	ck_assert_uint_eq(profile_inuse_count(&sums), 0);
}
END_TEST

Suite *profile_suite(void)
{
	Suite *suite = suite_create("profile");
	TCase *tcase = tcase_create("profile");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, equal_strings_are_one_pointer);
	tcase_add_test(tcase, module_loaded_twice_is_one);
	tcase_add_test(tcase, equal_stacks_are_one_site);
	tcase_add_test(tcase, stack_deeper_than_the_bound_is_refused);
	tcase_add_test(tcase, resolved_frames_are_copies);
	tcase_add_test(tcase, sums_of_one_site_add_up_within_a_snapshot);
	tcase_add_test(tcase, snapshot_keeps_only_what_changed);
	tcase_add_test(tcase, older_snapshot_than_the_last_is_refused);
	tcase_add_test(tcase, long_session_is_thinned_out_evenly);
	tcase_add_test(tcase, thinning_keeps_changes_of_dropped_snapshots);
	tcase_add_test(tcase, peak_is_kept_with_what_it_consisted_of);
	tcase_add_test(tcase, bins_are_sorted_and_doubles_added);
	tcase_add_test(tcase, many_changing_sites_stay_bounded);
	tcase_add_test(tcase, inuse_is_never_negative);
	suite_add_tcase(suite, tcase);
	return suite;
}
