/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A day's recording, without the day: a snapshot for each second of a server
 * that makes a million allocations a second on 2,000 stacks. What it takes is
 * bounded, in memory and as a file, and the story it tells is still the same.
 */
#include "resolver/cleanup.h"
#include "resolver/profile.h"
#include "resolver/recording.h"
#include "resolver/report_sites.h"
#include "resolver/report_verdict.h"
#include "tests/core_world.h"
#include "tests/procstate.h"
#include "tests/tests.h"
#include "tests/workdir.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define NS_PER_S     1000000000ull
#define DAY_S	     86400u
#define SITES	     2000u
#define DEPTH	     20u
#define ALLOCS_PER_S 1000000u
#define LEAK_BYTES   100u /* a second, of site 7 */
#define MIB	     (1024ull * 1024)

/* Environment variable: a folder where the recording is left, for measurements. */
#define KEEP "HEAPATTACH_TESTS_KEEP"

static struct workdir dir;
static uint64_t memory_most; /* KiB of this process, no files */

static void setup(void)
{
	workdir_create(&dir);
	memory_most = 0;
}

static void teardown(void)
{
	workdir_remove(&dir);
}

static void memory_look(void)
{
	uint64_t now = procstate_status(getpid(), "RssAnon", 10);

	if (now > memory_most)
		memory_most = now;
}

static struct profile *server_make(void)
{
	const struct profile_module module = {.path = "/usr/bin/server", .build_id = "cc"};
	struct profile *profile = NULL;
	uint32_t module_id, location[DEPTH], id;

	assert_ok(profile_create(&profile));
	assert_ok(profile_add_module(profile, &module, &module_id));
	for (uint32_t i = 0; i < SITES; i++) {
		for (uint32_t k = 0; k < DEPTH; k++) {
			uint64_t vaddr = 0x1000 + (k ? (i >> k % 8) * 64 + k : i * 64);
			char name[32];
			struct profile_frame frame = {name, name, "server.c", 0, false};

			snprintf(name, sizeof(name), "function_%llx", (unsigned long long)vaddr);
			frame.line = (uint32_t)vaddr;
			assert_ok(profile_add_location(profile, module_id, vaddr, &location[k]));
			assert_ok(profile_resolve_location(profile, location[k], &frame, 1));
		}
		assert_ok(profile_add_site(profile, location, DEPTH, 0, &id));
	}
	return profile;
}

/* One second more: all blocks of a site are freed soon, but for those of site 7. */
static void second_pass(struct profile_sums *sums, uint64_t *random)
{
	for (uint32_t i = 0; i < SITES; i++) {
		uint64_t r = world_random(random), count = r % (2 * ALLOCS_PER_S / SITES);
		uint64_t size = 16 + i % 61 * 8, live = r >> 32 & 0xff;

		sums[i].alloc_count += count;
		sums[i].alloc_bytes += count * size;
		sums[i].freed_count = sums[i].alloc_count - (live < count ? live : count);
		sums[i].freed_bytes = sums[i].freed_count * size;
	}
	sums[7].alloc_count += 1;
	sums[7].alloc_bytes += LEAK_BYTES * 16;
}

static void day_pass(struct profile *profile, uint32_t seconds)
{
	struct profile_sums *sums = calloc(SITES, sizeof(*sums));
	uint64_t random = 11, leaked = 0;

	for (uint64_t s = 0; s <= seconds; s++) {
		const struct profile_snapshot head = {
			.time_ns = s * NS_PER_S,
			.rss_bytes = (300 + s / 60) * MIB,
			.anon_bytes = (200 + s / 60) * MIB,
		};

		assert_ok(profile_snapshot_begin(profile, &head));
		for (uint32_t i = 0; i < SITES && s; i++) {
			struct profile_sums now = sums[i];

			now.alloc_bytes += i == 7 ? leaked : 0;
			assert_ok(profile_snapshot_add(profile, i, &now));
		}
		assert_ok(profile_snapshot_end(profile));
		second_pass(sums, &random);
		leaked += 10 * MIB / 600;
		if (s % 1000 == 0)
			memory_look();
	}
	profile->duration_ns = seconds * NS_PER_S;
	free(sums);
}

static uint64_t write_it(const struct profile *profile, const char *path)
{
	CLEANUP(closep) int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	struct stat st;

	ck_assert_int_ge(fd, 0);
	assert_ok(recording_write(profile, fd, path));
	ck_assert_int_eq(fstat(fd, &st), 0);
	return (uint64_t)st.st_size;
}

START_TEST(day_of_a_busy_server_is_bounded)
{
	CLEANUP(profile_freep) struct profile *profile = server_make();
	CLEANUP(profile_freep) struct profile *read = NULL;
	CLEANUP(report_sites_deinit) struct report_sites sites = {0};
	CLEANUP(freep) uint64_t *series = NULL;
	const char *folder = getenv(KEEP) ? getenv(KEEP) : dir.path;
	struct report_verdict verdict;
	char path[256];

	snprintf(path, sizeof(path), "%s/day.hap", folder);
	day_pass(profile, DAY_S);
	ck_assert_uint_le(write_it(profile, path), 50 * MIB);
	memory_look();
	ck_assert_uint_le(memory_most, 200 * 1024);
	ck_assert_uint_gt(profile->snapshot_count, 100);
	profile_free(take(profile));

	assert_ok(recording_read(path, &read));
	assert_ok(report_sites_init(read, REPORT_SORT_INUSE, &sites));
	assert_ok(report_series(read, &sites, VERDICT_POINTS, &series));
	verdict = report_verdict(read, &sites, series);
	ck_assert_int_eq(verdict.kind, VERDICT_GROWING);
	ck_assert_double_eq_tol(verdict.rate.bytes, 10 * MIB / 600.0, 3000);
	ck_assert_uint_eq(verdict.grower, 0);
	ck_assert_uint_eq(sites.site[0].site, 7);
}
END_TEST

Suite *day_suite(void)
{
	Suite *suite = suite_create("day");
	TCase *tcase = tcase_create("day");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 300);
	tcase_add_test(tcase, day_of_a_busy_server_is_bounded);
	suite_add_tcase(suite, tcase);
	return suite;
}
