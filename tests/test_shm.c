/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/tests.h"

#include "injector/hugepage.h"
#include "injector/shm.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct shm *shm;

static void shm_make(void)
{
	const struct shm_options options = {
		.site_capacity = 2048,
		.live_size_max = 64 << 20,
		.session = 7,
	};

	assert_ok(shm_create(&options, &shm));
}

static void shm_unmake(void)
{
	shm_free(shm);
	shm = NULL;
}

START_TEST(header_describes_the_layout)
{
	const struct ha_shm *header = shm->header;
	uint64_t end = HA_PAGE;
	int i;

	ck_assert_uint_eq(header->magic, HA_MAGIC);
	ck_assert_uint_eq(header->session, 7);
	ck_assert_uint_eq(header->interval[header->rate], 1);
	ck_assert_uint_eq(header->sampling, 0);
	ck_assert_uint_eq(header->site_next, 1);
	ck_assert_uint_eq(header->segments, 1);
	for (i = 0; i < HA_REGIONS; i++) {
		ck_assert_uint_ge(header->region[i].offset, end);
		ck_assert_uint_eq(header->region[i].offset % HA_PAGE, 0);
		end = header->region[i].offset + header->region[i].size;
	}
	ck_assert_uint_le(end, header->size);
	ck_assert_uint_ge(header->region[HA_REGION_STRIPES].size, HA_STRIPES * header->stripe_size);
}
END_TEST

START_TEST(size_is_known_before)
{
	const struct shm_options options = {.site_capacity = 2048, .live_size_max = 64 << 20};

	ck_assert_uint_eq(shm_size(&options), shm->size);
}
END_TEST

START_TEST(cannot_be_resized_by_the_other_side)
{
	ck_assert_int_eq(ftruncate(shm->fd, 0), -1);
	ck_assert_int_eq(ftruncate(shm->fd, (off_t)shm->size * 2), -1);
}
END_TEST

START_TEST(table_is_copied_with_its_bias)
{
	struct ha_table table = {.base = 0x1000, .nrows = 1, .size = sizeof(table)};
	const struct ha_table *copy;
	uint64_t first, second;

	assert_ok(shm_add_table(shm, &table, sizeof(table), 0x7f0000000000, &first));
	assert_ok(shm_add_table(shm, &table, sizeof(table), 0x10000, &second));
	ck_assert_uint_ne(first, second);
	copy = (const struct ha_table *)((uint8_t *)shm->header + first);
	ck_assert_uint_eq(copy->base, 0x1000);
	ck_assert_uint_eq(copy->bias, 0x7f0000000000);
}
END_TEST

START_TEST(old_module_list_stays_when_a_new_one_comes)
{
	const struct ha_module one = {.low = 0x1000, .high = 0x2000, .id = 1};
	const struct ha_module two[] = {{.low = 0x1000, .high = 0x2000, .id = 1},
					{.low = 0x5000, .high = 0x6000, .id = 2}};
	const struct ha_module_index *before, *after;

	assert_ok(shm_publish_modules(shm, &one, 1, 1, 10));
	before = (void *)((uint8_t *)shm->header + shm->header->module_index);
	assert_ok(shm_publish_modules(shm, two, 2, 2, 11));
	after = (void *)((uint8_t *)shm->header + shm->header->module_index);
	ck_assert_ptr_ne(before, after);
	ck_assert_uint_eq(before->count, 1);
	ck_assert_uint_eq(after->count, 2);
	ck_assert_uint_eq(after->generation, 2);
	ck_assert_uint_eq(after->module[1].id, 2);
}
END_TEST

START_TEST(full_region_is_an_error_and_keeps_the_last_list)
{
	struct ha_stack *many = calloc(4096, sizeof(*many));
	struct error *err = NULL;
	uint64_t last = 0;
	int i;

	for (i = 0; i < 1000 && !err; i++) {
		last = shm->header->stack_index;
		err = shm_publish_stacks(shm, many, 4096);
	}
	assert_fails(err, ERROR_MEMORY);
	ck_assert_uint_eq(shm->header->stack_index, last);
	free(many);
}
END_TEST

/* Fill so many of every hundred cells of the newest segment. */
static void newest_segment_fill(unsigned int percent)
{
	const struct ha_segment *segment = &shm->segment[shm->segments - 1];
	struct ha_bucket *bucket = (void *)((uint8_t *)shm->header + segment->offset);
	uint64_t i;

	for (i = 0; i < segment->buckets * HA_CELLS; i++)
		bucket[i / HA_CELLS].key[i % HA_CELLS] = i * 37 % 100 < percent;
}

START_TEST(live_table_grows_when_half_full)
{
	newest_segment_fill(30);
	assert_ok(shm_tick(shm, 10));
	ck_assert_uint_eq(shm->header->segments, 1);
	newest_segment_fill(60);
	assert_ok(shm_tick(shm, 20));
	ck_assert_uint_eq(shm->header->segments, 2);
	ck_assert_uint_ge(shm->header->segment[1].offset,
			  shm->header->segment[0].offset +
				  shm->header->segment[0].buckets * sizeof(struct ha_bucket));
	newest_segment_fill(60);
	assert_ok(shm_tick(shm, 30));
	ck_assert_uint_eq(shm->header->segments, 3);
	ck_assert_uint_eq(shm->header->segment[2].buckets, 2 * shm->header->segment[1].buckets);
}
END_TEST

START_TEST(newest_segment_is_told_in_one_word)
{
	struct ha_shm *header = shm->header;

	ck_assert_uint_eq(header->newest & HA_NEWEST_OLDER, 0);
	for (uint64_t i = 0; i < 3; i++) {
		const struct ha_segment *segment = &header->segment[i];
		uint64_t last = UINT64_MAX >> HA_NEWEST_SHIFT(header->newest);

		ck_assert_uint_eq(header->segments, i + 1);
		ck_assert_uint_eq(HA_NEWEST_OFFSET(header->newest), segment->offset);
		ck_assert_uint_eq((last + 1) * HA_PAGE,
				  segment->buckets * sizeof(struct ha_bucket));
		ck_assert_int_eq((header->newest & HA_NEWEST_OLDER) != 0, i > 0);
		newest_segment_fill(60);
		assert_ok(shm_tick(shm, 10));
	}
}
END_TEST

/* Its memory is taken at a third, and counted at once. */
START_TEST(next_segment_is_made_ready_in_steps)
{
	const uint64_t step = 16 << 20;
	const struct shm_next *next = &shm->next;
	uint64_t held, offset;

	for (int i = 0; i < 2; i++) {
		newest_segment_fill(60);
		assert_ok(shm_tick(shm, 10));
	}
	held = shm_held_bytes(shm);
	newest_segment_fill(20);
	assert_ok(shm_tick(shm, 10));
	ck_assert_uint_eq(next->size, 0);
	ck_assert_uint_eq(shm_held_bytes(shm), held);
	newest_segment_fill(40);
	assert_ok(shm_tick(shm, 10));
	ck_assert_uint_eq(next->size, 2 * step);
	ck_assert_uint_eq(next->touched, step);
	ck_assert_uint_eq(shm_held_bytes(shm), held + 2 * step);
	for (uint64_t i = 0; i < next->size / HUGEPAGE_SIZE; i++)
		assert_ok(shm_tick(shm, 10));
	ck_assert_uint_eq(next->touched, 2 * step);
	ck_assert_uint_eq(next->joined, 2 * step);
	ck_assert_uint_eq(shm_held_bytes(shm), held + 2 * step);
	ck_assert_uint_eq(shm->header->segments, 3);
	offset = next->segment.offset;
	newest_segment_fill(60);
	assert_ok(shm_tick(shm, 10));
	ck_assert_uint_eq(shm->header->segments, 4);
	ck_assert_uint_eq(shm->header->segment[3].offset, offset);
	ck_assert_uint_eq(next->size, 0);
	ck_assert_uint_eq(shm_held_bytes(shm), held + 2 * step);
}
END_TEST

/* Whoever needs it does not wait for huge pages. */
START_TEST(next_segment_is_there_when_needed)
{
	for (int i = 0; i < 2; i++) {
		newest_segment_fill(60);
		assert_ok(shm_tick(shm, 10));
	}
	newest_segment_fill(40);
	assert_ok(shm_tick(shm, 10));
	ck_assert_uint_lt(shm->next.touched, shm->next.size);
	newest_segment_fill(60);
	assert_ok(shm_tick(shm, 10));
	ck_assert_uint_eq(shm->header->segments, 4);
	ck_assert_uint_eq(shm->next.size, 0);
}
END_TEST

START_TEST(live_table_stays_within_its_bound)
{
	int i;

	for (i = 0; i < 30; i++) {
		newest_segment_fill(90);
		assert_ok(shm_tick(shm, 10));
	}
	ck_assert_uint_le(shm->segment[shm->segments - 1].offset +
				  shm->segment[shm->segments - 1].buckets *
					  sizeof(struct ha_bucket),
			  shm->region[HA_REGION_LIVE].offset + shm->region[HA_REGION_LIVE].size);
}
END_TEST

static uint64_t segments_size(void)
{
	uint64_t size = 0;

	for (uint64_t i = 0; i < shm->segments; i++)
		size += shm->segment[i].buckets * sizeof(struct ha_bucket);
	return size;
}

START_TEST(live_table_takes_the_room_that_there_is)
{
	const uint64_t room = 21 << 20, first = segments_size();

	shm_set_room(shm, &(struct shm_room){.segments = room, .sites = UINT64_MAX});
	for (int i = 0; i < 30; i++) {
		newest_segment_fill(90);
		assert_ok(shm_tick(shm, 10));
	}
	ck_assert_uint_le(segments_size(), first + room);
	ck_assert_uint_ge(segments_size(), first + room * 3 / 4);
	ck_assert_uint_le(shm->segments, 6);
	ck_assert(!shm_can_grow(shm));
	shm_set_room(shm, &(struct shm_room){UINT64_MAX, UINT64_MAX, 0});
	ck_assert(shm_can_grow(shm));
}
END_TEST

START_TEST(fill_is_that_of_all_segments)
{
	newest_segment_fill(60);
	ck_assert_uint_ge(shm_live(shm).permille, 570);
	ck_assert_uint_le(shm_live(shm).permille, 630);
	assert_ok(shm_tick(shm, 10));
	ck_assert_uint_eq(shm->segments, 2);
	ck_assert_uint_ge(shm_live(shm).permille, 270);
	ck_assert_uint_le(shm_live(shm).permille, 330);
}
END_TEST

/* As blocks that stand for themselves, and as samples that stand for 1 / p. */
START_TEST(bytes_in_use_are_estimated_from_cells)
{
	const struct ha_segment *segment = &shm->segment[0];
	struct ha_bucket *bucket = (void *)((uint8_t *)shm->header + segment->offset);
	double blocks = (double)(segment->buckets * HA_CELLS) * 0.6;

	newest_segment_fill(60);
	for (uint64_t i = 0; i < segment->buckets * HA_CELLS; i++)
		bucket[i / HA_CELLS].value[i % HA_CELLS] = HA_VALUE(99, 0);
	ck_assert_double_eq_tol(shm_live(shm).bytes, blocks * 99, blocks * 5);
	assert_ok(shm_set_interval(shm, 10000));
	for (uint64_t i = 0; i < segment->buckets; i++)
		for (size_t k = 0; k < HA_CELLS; k++)
			bucket[i].note[k] = HA_NOTE(1, 0, 0);
	ck_assert_double_eq_tol(shm_live(shm).bytes, blocks * 99 * 100.5, blocks * 500);
	/* A mark that we never gave out. */
	for (uint64_t i = 0; i < segment->buckets; i++)
		for (size_t k = 0; k < HA_CELLS; k++)
			bucket[i].note[k] = HA_NOTE(0xff, 0, 0);
	ck_assert_double_eq_tol(shm_live(shm).bytes, blocks * 99, blocks * 5);
}
END_TEST

/* So that a thread's sums cost memory only if there is such a thread. */
START_TEST(sums_are_touched_where_a_thread_records)
{
	struct ha_stripe *stripe = shm_region(shm, HA_REGION_STRIPES);
	uint64_t before;

	stripe->events = 1;
	__atomic_store_n(&shm->header->site_next, 1500, __ATOMIC_RELAXED);
	before = shm_held_bytes(shm);
	assert_ok(shm_tick(shm, 10));
	ck_assert_uint_ge(shm->sites_touched[0], 1500);
	ck_assert_uint_lt(shm->sites_touched[1], 1500);
	ck_assert_uint_le(shm_held_bytes(shm),
			  before + 2048 * (sizeof(struct ha_sums) + sizeof(struct ha_histograms)) +
				  65536);
	ck_assert_uint_gt(shm_held_bytes(shm), before);
}
END_TEST

START_TEST(variances_are_touched_when_samples_begin)
{
	struct ha_stripe *stripe = shm_region(shm, HA_REGION_STRIPES);
	uint64_t before;

	stripe->events = 1;
	assert_ok(shm_tick(shm, 5));
	before = shm_held_bytes(shm);
	assert_ok(shm_set_interval(shm, 1));
	assert_ok(shm_tick(shm, 10));
	ck_assert_uint_eq(shm_held_bytes(shm), before);
	assert_ok(shm_set_interval(shm, 4096));
	assert_ok(shm_tick(shm, 20));
	ck_assert_uint_ge(shm_held_bytes(shm),
			  before + shm->sites_touched[0] * sizeof(struct ha_variances));
}
END_TEST

START_TEST(sites_end_where_there_is_no_room)
{
	__atomic_store_n(&shm->header->site_next, 100, __ATOMIC_RELAXED);
	assert_ok(shm_tick(shm, 10));
	ck_assert_uint_eq(shm->header->site_limit, shm->site_capacity);
	shm_set_room(shm, &(struct shm_room){.segments = 0, .sites = 1000, .sites_made = 100});
	assert_ok(shm_tick(shm, 20));
	ck_assert_uint_ge(shm->header->site_limit, 100);
	ck_assert_uint_le(shm->header->site_limit, 101);
	/* What came since the room was measured is part of what may come. */
	__atomic_store_n(&shm->header->site_next, 2000, __ATOMIC_RELAXED);
	assert_ok(shm_tick(shm, 25));
	ck_assert_uint_le(shm->header->site_limit, 101);
	shm_set_room(shm, &(struct shm_room){UINT64_MAX, UINT64_MAX, 0});
	assert_ok(shm_tick(shm, 30));
	ck_assert_uint_eq(shm->header->site_limit, shm->site_capacity);
}
END_TEST

START_TEST(clock_counts_in_ticks)
{
	assert_ok(shm_tick(shm, 12345));
	ck_assert_uint_eq(shm->header->tick, 12345 / HA_TICK_MS);
}
END_TEST

START_TEST(scribbled_header_does_not_lead_us_astray)
{
	memset(shm->header, 0xa5, sizeof(*shm->header));
	error_free(shm_tick(shm, 10));
	ck_assert_ptr_eq(shm_region(shm, HA_REGION_LIVE),
			 (uint8_t *)shm->header + shm->region[HA_REGION_LIVE].offset);
}
END_TEST

/* But for what boot needs: it runs once more, to take the mapping out. */
START_TEST(released_tables_are_empty)
{
	const struct ha_region *boot = &shm->region[HA_REGION_BOOT];
	const uint8_t *bytes = (const uint8_t *)shm->header;
	uint64_t last = shm->size - 1, held;

	newest_segment_fill(60);
	memset((uint8_t *)shm->header + boot->offset, 7, boot->size);
	((uint8_t *)shm->header)[last] = 9;
	held = shm_held_bytes(shm);
	shm_release(shm);
	ck_assert_uint_lt(shm_held_bytes(shm), held / 4);
	ck_assert_uint_eq(shm->header->magic, HA_MAGIC);
	ck_assert_uint_eq(bytes[boot->offset], 7);
	ck_assert_uint_eq(bytes[boot->offset + boot->size - 1], 7);
	for (int i = HA_REGION_MODULES; i < HA_REGIONS; i++)
		ck_assert_uint_eq(bytes[shm->region[i].offset], 0);
	ck_assert_uint_eq(bytes[last], 0);
}
END_TEST

static void *hold_and_end(void *unused)
{
	error_free(shm_hold(shm));
	return unused;
}

START_TEST(death_of_the_owner_is_marked)
{
	const uint32_t *word = (const uint32_t *)shm->header->owner;
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, hold_and_end, NULL), 0);
	pthread_join(thread, NULL);
	ck_assert(__atomic_load_n(word, __ATOMIC_ACQUIRE) & HA_OWNER_DIED);
}
END_TEST

START_TEST(living_owner_is_not_marked)
{
	const uint32_t *word = (const uint32_t *)shm->header->owner;

	assert_ok(shm_hold(shm));
	ck_assert(!(__atomic_load_n(word, __ATOMIC_ACQUIRE) & HA_OWNER_DIED));
	ck_assert_uint_eq(*word, (uint32_t)gettid());
}
END_TEST

Suite *shm_suite(void)
{
	Suite *suite = suite_create("shm");
	TCase *tcase = tcase_create("shm");

	tcase_add_checked_fixture(tcase, shm_make, shm_unmake);
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, header_describes_the_layout);
	tcase_add_test(tcase, released_tables_are_empty);
	tcase_add_test(tcase, size_is_known_before);
	tcase_add_test(tcase, cannot_be_resized_by_the_other_side);
	tcase_add_test(tcase, table_is_copied_with_its_bias);
	tcase_add_test(tcase, old_module_list_stays_when_a_new_one_comes);
	tcase_add_test(tcase, full_region_is_an_error_and_keeps_the_last_list);
	tcase_add_test(tcase, live_table_grows_when_half_full);
	tcase_add_test(tcase, newest_segment_is_told_in_one_word);
	tcase_add_test(tcase, next_segment_is_made_ready_in_steps);
	tcase_add_test(tcase, next_segment_is_there_when_needed);
	tcase_add_test(tcase, live_table_stays_within_its_bound);
	tcase_add_test(tcase, live_table_takes_the_room_that_there_is);
	tcase_add_test(tcase, fill_is_that_of_all_segments);
	tcase_add_test(tcase, bytes_in_use_are_estimated_from_cells);
	tcase_add_test(tcase, sums_are_touched_where_a_thread_records);
	tcase_add_test(tcase, variances_are_touched_when_samples_begin);
	tcase_add_test(tcase, sites_end_where_there_is_no_room);
	tcase_add_test(tcase, clock_counts_in_ticks);
	tcase_add_test(tcase, scribbled_header_does_not_lead_us_astray);
	tcase_add_test(tcase, death_of_the_owner_is_marked);
	tcase_add_test(tcase, living_owner_is_not_marked);
	suite_add_tcase(suite, tcase);
	return suite;
}
