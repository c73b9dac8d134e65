/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/tests.h"

#include "injector/reader.h"

#include <string.h>

static struct shm *shm;
static struct reader *reader;

static void reader_make(void)
{
	const struct shm_options options = {.site_capacity = 1024, .live_size_max = 16 << 20};

	assert_ok(shm_create(&options, &shm));
	assert_ok(reader_create(shm, &reader));
}

static void reader_unmake(void)
{
	reader_free(reader);
	shm_free(shm);
}

static struct ha_stripe *stripe(unsigned int i)
{
	return (void *)((uint8_t *)shm_region(shm, HA_REGION_STRIPES) + i * shm->stripe_size);
}

static struct ha_sums *sums(unsigned int i, uint32_t site)
{
	return (struct ha_sums *)(stripe(i) + 1) + site;
}

/* Publish a site of two frames, as core does, at so many bytes into the arena. */
static void site_publish(uint32_t number, uint64_t at, uint16_t frames)
{
	const struct ha_region *arena = &shm->region[HA_REGION_SITE_ARENA];
	uint64_t *index = shm_region(shm, HA_REGION_SITE_INDEX);
	struct ha_site *site = (void *)((uint8_t *)shm->header + arena->offset + at);

	if (at % 8 == 0 && at + sizeof(*site) + 16 <= arena->size) {
		site->frames = frames;
		site->generation = 3;
		site->flags = HA_SITE_GUESSED;
		site->pc[0] = 0x401001;
		site->pc[1] = 0x402002;
	}
	index[number] = arena->offset + at;
	if (number >= shm->header->site_next)
		shm->header->site_next = number + 1;
}

START_TEST(empty_profile_is_empty)
{
	assert_ok(reader_scan(reader));
	ck_assert_uint_eq(reader->total.alloc_count, 0);
	ck_assert_uint_eq(reader->counters.events, 0);
}
END_TEST

START_TEST(adds_up_over_stripes)
{
	site_publish(1, 0, 2);
	stripe(0)->events = 3;
	stripe(130)->events = 1;
	stripe(130)->unknown_frees = 5;
	*sums(0, 1) = (struct ha_sums){
		.alloc_bytes = 300, .alloc_count = 3, .freed_bytes = 100, .freed_count = 1};
	*sums(130, 1) = (struct ha_sums){.alloc_bytes = 50, .alloc_count = 1};
	assert_ok(reader_scan(reader));
	ck_assert_uint_eq(reader->site[1].sums.alloc_bytes, 350);
	ck_assert_uint_eq(reader_inuse_bytes(&reader->total), 250);
	ck_assert_uint_eq(reader_inuse_count(&reader->total), 3);
	ck_assert_uint_eq(reader->counters.events, 4);
	ck_assert_uint_eq(reader->counters.unknown_frees, 5);
}
END_TEST

START_TEST(second_scan_does_not_count_twice)
{
	site_publish(1, 0, 2);
	stripe(0)->events = 1;
	sums(0, 1)->alloc_count = 1;
	assert_ok(reader_scan(reader));
	assert_ok(reader_scan(reader));
	ck_assert_uint_eq(reader->total.alloc_count, 1);
}
END_TEST

START_TEST(stack_is_read_once_it_is_published)
{
	shm->header->site_next = 2;
	assert_ok(reader_scan(reader));
	ck_assert_uint_eq(reader->site[1].frames, 0);
	site_publish(1, 64, 2);
	assert_ok(reader_scan(reader));
	ck_assert_uint_eq(reader->site[1].frames, 2);
	ck_assert_uint_eq(reader->site[1].pc[1], 0x402002);
	ck_assert_uint_eq(reader->site[1].generation, 3);
	ck_assert_uint_eq(reader->site[1].flags, HA_SITE_GUESSED);
}
END_TEST

START_TEST(in_use_is_never_negative)
{
	const struct ha_sums odd = {
		.alloc_bytes = 1, .freed_bytes = 2, .alloc_count = 1, .freed_count = 2};

	ck_assert_uint_eq(reader_inuse_bytes(&odd), 0);
	ck_assert_uint_eq(reader_inuse_count(&odd), 0);
}
END_TEST

START_TEST(site_outside_of_the_arena_is_malformed)
{
	site_publish(1, shm->region[HA_REGION_SITE_ARENA].size - 8, 2);
	site_publish(2, shm->region[HA_REGION_SITE_ARENA].size * 4, 2);
	site_publish(3, 12, 2);
	assert_ok(reader_scan(reader));
	ck_assert_uint_eq(reader->malformed, 3);
	ck_assert_uint_eq(reader->site[1].frames, 0);
}
END_TEST

START_TEST(site_with_too_many_frames_is_malformed)
{
	site_publish(1, 0, HA_FRAMES_MAX + 1);
	site_publish(2, 4096, 0);
	assert_ok(reader_scan(reader));
	ck_assert_uint_eq(reader->malformed, 2);
}
END_TEST

START_TEST(site_numbers_beyond_the_capacity_are_ignored)
{
	shm->header->site_next = 0xffffffff;
	assert_ok(reader_scan(reader));
	ck_assert_uint_le(reader->sites, shm->site_capacity);
}
END_TEST

START_TEST(scribbles_everywhere_do_not_crash)
{
	uint8_t *bytes = (uint8_t *)shm->header;
	uint64_t at, seed = 88172645463325252ull;

	for (at = 0; at < shm->region[HA_REGION_STRIPES].offset + shm->stripe_size; at += 8) {
		seed ^= seed << 13;
		seed ^= seed >> 7;
		seed ^= seed << 17;
		memcpy(bytes + at, &seed, 8);
	}
	assert_ok(reader_scan(reader));
	assert_ok(reader_scan(reader));
}
END_TEST

Suite *reader_suite(void)
{
	Suite *suite = suite_create("reader");
	TCase *tcase = tcase_create("reader");

	tcase_add_checked_fixture(tcase, reader_make, reader_unmake);
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, empty_profile_is_empty);
	tcase_add_test(tcase, adds_up_over_stripes);
	tcase_add_test(tcase, second_scan_does_not_count_twice);
	tcase_add_test(tcase, stack_is_read_once_it_is_published);
	tcase_add_test(tcase, in_use_is_never_negative);
	tcase_add_test(tcase, site_outside_of_the_arena_is_malformed);
	tcase_add_test(tcase, site_with_too_many_frames_is_malformed);
	tcase_add_test(tcase, site_numbers_beyond_the_capacity_are_ignored);
	tcase_add_test(tcase, scribbles_everywhere_do_not_crash);
	suite_add_tcase(suite, tcase);
	return suite;
}
