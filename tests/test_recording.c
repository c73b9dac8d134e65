// SPDX-License-Identifier: GPL-3.0-or-later
#include "resolver/recording.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "resolver/cleanup.h"
#include "resolver/profile.h"
#include "resolver/wire.h"
#include "tests/sample_profile.h"
#include "tests/tests.h"
#include "tests/workdir.h"

static struct workdir dir;
static char path[128];

static void setup(void)
{
	workdir_create(&dir);
	snprintf(path, sizeof(path), "%s/x.hap", dir.path);
}

static void teardown(void)
{
	workdir_remove(&dir);
}

static void write_bytes(const void *data, size_t size)
{
	workdir_write(&dir, "x.hap", data, size);
}

static struct error *write_profile(const struct profile *profile)
{
	CLEANUP(closep) int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	ck_assert_int_ge(fd, 0);
	return recording_write(profile, fd, path);
}

static struct profile *round_trip(const struct profile *profile)
{
	struct profile *read = NULL;

	assert_ok(write_profile(profile));
	assert_ok(recording_read(path, &read));
	return read;
}

/* ---- sameness: two profiles are the same if their bodies are */

static void check_same(const struct profile *a, const struct profile *b)
{
	CLEANUP(freep) uint8_t *a_body = NULL;
	CLEANUP(freep) uint8_t *b_body = NULL;
	size_t a_size, b_size;

	assert_ok(recording_encode(a, &a_body, &a_size));
	assert_ok(recording_encode(b, &b_body, &b_size));
	ck_assert_uint_eq(a_size, b_size);
	ck_assert_mem_eq(a_body, b_body, a_size);
}

START_TEST(server_comes_back_as_it_was)
{
	CLEANUP(profile_freep) struct profile *profile = sample_server();
	CLEANUP(profile_freep) struct profile *read = round_trip(profile);

	check_same(profile, read);
	ck_assert_int_eq(read->target.pid, 4242);
	ck_assert_str_eq(read->target.comm, "store");
	ck_assert_int_eq(read->end, PROFILE_END_INTERRUPTED);
	ck_assert_uint_eq(read->pause_count, 4);
	ck_assert_uint_eq(read->pause[1].dlopen_us, 410);
	ck_assert_uint_eq(read->memory_end.own_bytes, profile->memory_end.own_bytes);
	ck_assert_uint_eq(read->coverage.truncated_stacks, 12);
	ck_assert_str_eq(read->coverage.skipped[0].reason, "its relocations are malformed");
	ck_assert_uint_eq(read->selfcheck.compared, 12000);
	ck_assert_uint_eq(read->site[0].missed_frees, 3);
	ck_assert_uint_eq(read->snapshot_count, profile->snapshot_count);
}
END_TEST

START_TEST(sums_come_back_at_each_time)
{
	CLEANUP(profile_freep) struct profile *profile = sample_server();
	CLEANUP(profile_freep) struct profile *read = round_trip(profile);

	for (size_t i = 0; i < profile->snapshot_count; i++)
		ck_assert_mem_eq(&read->snapshot[i].totals, &profile->snapshot[i].totals,
				 sizeof(struct profile_sums));
	for (size_t i = 0; i < profile->site_count; i++)
		ck_assert_mem_eq(&read->site[i].sums, &profile->site[i].sums,
				 sizeof(struct profile_sums));
}
END_TEST

START_TEST(samples_come_back_with_their_variances)
{
	CLEANUP(profile_freep) struct profile *profile = sample_sampled();
	CLEANUP(profile_freep) struct profile *read = NULL;

	for (size_t i = 0; i < profile->snapshot_count; i++)
		profile->snapshot[i].interval = i ? UINT64_C(1) << (i % 64) : 0;
	read = round_trip(profile);
	check_same(profile, read);
	for (size_t i = 0; i < profile->snapshot_count; i++)
		ck_assert_uint_eq(read->snapshot[i].interval, profile->snapshot[i].interval);
	ck_assert_mem_eq(&read->sampling, &profile->sampling, sizeof(read->sampling));
	for (size_t i = 0; i < profile->site_count; i++)
		ck_assert_mem_eq(&read->site[i].variance, &profile->site[i].variance,
				 sizeof(struct profile_variance));
}
END_TEST

START_TEST(ages_and_peak_come_back)
{
	CLEANUP(profile_freep) struct profile *profile = sample_server();
	CLEANUP(profile_freep) struct profile *read = round_trip(profile);

	ck_assert_uint_eq(read->bin_count, profile->bin_count);
	for (size_t i = 0; i < read->bin_count; i++) {
		ck_assert_uint_eq(read->bin[i].site, profile->bin[i].site);
		ck_assert_uint_eq(read->bin[i].kind, profile->bin[i].kind);
		ck_assert_uint_eq(read->bin[i].bin, profile->bin[i].bin);
		ck_assert_uint_eq(read->bin[i].count, profile->bin[i].count);
		ck_assert_uint_eq(read->bin[i].bytes, profile->bin[i].bytes);
	}
	ck_assert_uint_eq(read->look_ns, 10000000000ull);
	ck_assert_mem_eq(&read->peak, &profile->peak, sizeof(read->peak));
	ck_assert_uint_gt(read->peak.bytes, 0);
	for (size_t i = 0; i < read->site_count; i++) {
		ck_assert_uint_eq(read->site[i].temporary, profile->site[i].temporary);
		ck_assert_uint_eq(read->site[i].peak_bytes, profile->site[i].peak_bytes);
		ck_assert_uint_eq(read->site[i].peak_count, profile->site[i].peak_count);
	}
}
END_TEST

START_TEST(memory_while_recording_comes_back)
{
	CLEANUP(profile_freep) struct profile *profile = sample_server();
	CLEANUP(profile_freep) struct profile *read = NULL;

	profile->memory_last = (struct profile_memory){5, 4, 3, 2, 1, true, 7, 8};
	profile->own_peak_bytes = 6;
	read = round_trip(profile);
	ck_assert_uint_eq(read->memory_last.rss_bytes, 5);
	ck_assert_uint_eq(read->memory_last.shmem_bytes, 2);
	ck_assert_uint_eq(read->memory_last.own_bytes, 1);
	ck_assert_uint_eq(read->own_peak_bytes, 6);
}
END_TEST

START_TEST(limits_come_back_with_samples_and_without)
{
	CLEANUP(profile_freep) struct profile *profile = _i ? sample_sampled() : sample_server();
	CLEANUP(profile_freep) struct profile *read = NULL;

	profile->limits = (struct profile_limits){
		.memory_max_bytes = 1u << 30,
		.memory_peak_bytes = 123456789,
		.raised = true,
		.raised_ns = 42,
		.began_exact = _i,
	};
	read = round_trip(profile);
	check_same(profile, read);
	ck_assert_uint_eq(read->limits.memory_max_bytes, 1u << 30);
	ck_assert_uint_eq(read->limits.memory_peak_bytes, 123456789);
	ck_assert(read->limits.raised);
	ck_assert_uint_eq(read->limits.raised_ns, 42);
	ck_assert_int_eq(read->limits.began_exact, _i);
}
END_TEST

/* As written before there were samples, which is how exact ones are still written. */
START_TEST(exact_recording_has_no_section_for_samples)
{
	CLEANUP(profile_freep) struct profile *exact = sample_server();
	CLEANUP(profile_freep) struct profile *sampled = sample_sampled();
	CLEANUP(freep) uint8_t *exact_body = NULL;
	CLEANUP(freep) uint8_t *sampled_body = NULL;
	size_t exact_size, sampled_size;

	assert_ok(recording_encode(exact, &exact_body, &exact_size));
	assert_ok(recording_encode(sampled, &sampled_body, &sampled_size));
	ck_assert_uint_gt(sampled_size, exact_size + exact->site_count * 4 * 8);
}
END_TEST

START_TEST(empty_profile_comes_back)
{
	CLEANUP(profile_freep) struct profile *profile = sample_empty();
	CLEANUP(profile_freep) struct profile *read = round_trip(profile);

	check_same(profile, read);
}
END_TEST

START_TEST(extreme_numbers_and_bytes_come_back)
{
	CLEANUP(profile_freep) struct profile *profile = sample_empty();
	CLEANUP(profile_freep) struct profile *read = NULL;
	struct profile_snapshot head = {.time_ns = UINT64_MAX, .rss_bytes = UINT64_MAX};
	const struct profile_sums most = {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX};
	uint32_t location, site;

	assert_ok(profile_string(profile, "\xff\x80\x1b[31m\n;", &profile->target.comm));
	profile->start_unix_ns = INT64_MIN;
	profile->target.pid = INT64_MAX;
	profile->end_status = INT32_MIN;
	assert_ok(profile_add_location(profile, PROFILE_NONE, UINT64_MAX, &location));
	assert_ok(profile_add_site(profile, &location, 1, PROFILE_SITE_FLAGS, &site));
	assert_ok(profile_snapshot_begin(profile, &head));
	assert_ok(profile_snapshot_add(profile, site, &most));
	assert_ok(profile_snapshot_end(profile));
	read = round_trip(profile);
	check_same(profile, read);
	ck_assert_str_eq(read->target.comm, "\xff\x80\x1b[31m\n;");
	ck_assert_uint_eq(read->site[0].sums.freed_count, UINT64_MAX);
}
END_TEST

START_TEST(fifty_thousand_sites_come_back)
{
	CLEANUP(profile_freep) struct profile *profile = sample_large(50000, 20);
	CLEANUP(profile_freep) struct profile *read = round_trip(profile);

	check_same(profile, read);
	ck_assert_uint_eq(read->site_count, 50000);
}
END_TEST

/* ---- damage */

/* The file's bytes, malloc'ed. */
static uint8_t *written(size_t *size_ret)
{
	CLEANUP(profile_freep) struct profile *profile = sample_server();
	CLEANUP(closep) int fd = -1;
	off_t size;
	uint8_t *data;

	assert_ok(write_profile(profile));
	fd = open(path, O_RDONLY);
	size = lseek(fd, 0, SEEK_END);
	ck_assert_int_gt(size, 0);
	data = malloc((size_t)size);
	ck_assert_int_eq(pread(fd, data, (size_t)size, 0), size);
	*size_ret = (size_t)size;
	return data;
}

static void expect_refused(const char *what, size_t at)
{
	struct profile *read = NULL;
	struct error *err = recording_read(path, &read);

	ck_assert_msg(err != NULL, "%s %zu was not noticed", what, at);
	ck_assert_ptr_null(read);
	ck_assert(error_is(err, ERROR_FORMAT) || error_is(err, ERROR_UNSUPPORTED));
	ck_assert_msg(strstr(error_message(err), path) != NULL, "no file in: %s",
		      error_message(err));
	error_free(err);
}

START_TEST(each_flipped_bit_is_noticed)
{
	size_t size;
	CLEANUP(freep) uint8_t *data = written(&size);

	for (size_t i = 0; i < size; i++) {
		data[i] ^= 1u << (i % 8);
		write_bytes(data, size);
		expect_refused("a change at byte", i);
		data[i] ^= 1u << (i % 8);
	}
}
END_TEST

START_TEST(each_truncation_is_noticed)
{
	size_t size;
	CLEANUP(freep) uint8_t *data = written(&size);

	for (size_t i = 0; i < size; i++) {
		write_bytes(data, i);
		expect_refused("a cut at byte", i);
	}
}
END_TEST

START_TEST(trailing_bytes_are_noticed)
{
	size_t size;
	CLEANUP(freep) uint8_t *data = written(&size);

	data = realloc(data, size + 1);
	data[size] = 0;
	write_bytes(data, size + 1);
	expect_refused("a byte behind", size);
}
END_TEST

START_TEST(newer_version_is_named)
{
	size_t size;
	CLEANUP(freep) uint8_t *data = written(&size);
	struct profile *read = NULL;
	struct error *err;

	data[8] = RECORDING_VERSION + 1;
	write_bytes(data, size);
	err = recording_read(path, &read);
	ck_assert(error_is(err, ERROR_UNSUPPORTED));
	ck_assert_ptr_nonnull(strstr(error_message(err), "newer heapattach"));
	error_free(err);
}
END_TEST

START_TEST(other_files_are_refused)
{
	struct profile *read = NULL;

	write_bytes("#!/bin/sh\necho a script\n", 24);
	expect_refused("a script", 0);
	assert_fails(recording_read(dir.path, &read), ERROR_FORMAT);
	assert_fails(recording_read("/dev/zero", &read), ERROR_FORMAT);
	assert_fails(recording_read("/nonexistent/x.hap", &read), ERROR_OS);
}
END_TEST

/* ---- bodies: damage that no checksum catches, as a hostile writer makes it */

START_TEST(each_changed_byte_of_a_body_gives_a_profile_or_an_error)
{
	CLEANUP(profile_freep) struct profile *profile = sample_server();
	CLEANUP(freep) uint8_t *body = NULL;
	size_t size, refused = 0;

	assert_ok(recording_encode(profile, &body, &size));
	for (size_t i = 0; i < size; i++) {
		static const uint8_t changes[] = {0x01, 0xff};

		for (size_t k = 0; k < sizeof(changes); k++) {
			CLEANUP(profile_freep) struct profile *read = NULL;
			struct error *err;

			body[i] ^= changes[k];
			err = recording_decode(body, size, &read);
			body[i] ^= changes[k];
			ck_assert(!err || error_is(err, ERROR_FORMAT) ||
				  error_is(err, ERROR_UNSUPPORTED));
			refused += err != NULL;
			error_free(err);
		}
	}
	ck_assert_uint_gt(refused, size / 2);
}
END_TEST

/* But for a cut where what only some recordings have begins: the checksum notices that. */
START_TEST(each_cut_body_is_an_error)
{
	CLEANUP(profile_freep) struct profile *profile = sample_server();
	CLEANUP(freep) uint8_t *body = NULL;
	size_t size, fine = 0;

	assert_ok(recording_encode(profile, &body, &size));
	for (size_t i = 0; i < size; i++) {
		CLEANUP(profile_freep) struct profile *read = NULL;
		struct error *err = recording_decode(body, i, &read);

		fine += !err;
		if (err)
			assert_fails(err, ERROR_FORMAT);
	}
	ck_assert_uint_eq(fine, 2);
}
END_TEST

START_TEST(unknown_section_is_skipped)
{
	CLEANUP(profile_freep) struct profile *profile = sample_server();
	CLEANUP(profile_freep) struct profile *read = NULL;
	CLEANUP(wire_writer_deinit) struct wire_writer longer = {0};
	CLEANUP(freep) uint8_t *body = NULL;
	size_t size;

	assert_ok(recording_encode(profile, &body, &size));
	wire_put_varint(&longer, 1000);
	wire_put_bytes(&longer, "something new", 13);
	wire_put_raw(&longer, body, size);
	assert_ok(recording_decode(longer.data, longer.size, &read));
	check_same(profile, read);
}
END_TEST

START_TEST(huge_counts_take_no_memory)
{
	CLEANUP(wire_writer_deinit) struct wire_writer body = {0};
	CLEANUP(wire_writer_deinit) struct wire_writer strings = {0};
	struct profile *read = NULL;

	wire_put_varint(&strings, UINT64_MAX);
	wire_put_varint(&body, 1);
	wire_put_bytes(&body, strings.data, strings.size);
	assert_fails(recording_decode(body.data, body.size, &read), ERROR_FORMAT);
}
END_TEST

/* ---- disks */

START_TEST(full_disk_is_an_error)
{
	CLEANUP(profile_freep) struct profile *profile = sample_server();
	CLEANUP(closep) int fd = open("/dev/full", O_WRONLY);
	struct error *err = recording_write(profile, fd, "/dev/full");

	ck_assert(error_is(err, ERROR_OS));
	ck_assert_int_eq(error_errno(err), ENOSPC);
	ck_assert_str_eq(error_message(err), "cannot write /dev/full: No space left on device");
	error_free(err);
}
END_TEST

START_TEST(file_size_limit_is_an_error)
{
	CLEANUP(profile_freep) struct profile *profile = sample_server();
	const struct rlimit limit = {.rlim_cur = 512, .rlim_max = RLIM_INFINITY};
	struct error *err;

	signal(SIGXFSZ, SIG_IGN);
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
	err = write_profile(profile);
	ck_assert(error_is(err, ERROR_OS));
	ck_assert_int_eq(error_errno(err), EFBIG);
	error_free(err);
}
END_TEST

Suite *recording_suite(void)
{
	Suite *suite = suite_create("recording");
	TCase *tcase = tcase_create("recording");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 120);
	tcase_add_test(tcase, server_comes_back_as_it_was);
	tcase_add_test(tcase, sums_come_back_at_each_time);
	tcase_add_test(tcase, samples_come_back_with_their_variances);
	tcase_add_test(tcase, ages_and_peak_come_back);
	tcase_add_test(tcase, memory_while_recording_comes_back);
	tcase_add_loop_test(tcase, limits_come_back_with_samples_and_without, 0, 2);
	tcase_add_test(tcase, exact_recording_has_no_section_for_samples);
	tcase_add_test(tcase, empty_profile_comes_back);
	tcase_add_test(tcase, extreme_numbers_and_bytes_come_back);
	tcase_add_test(tcase, fifty_thousand_sites_come_back);
	tcase_add_test(tcase, each_flipped_bit_is_noticed);
	tcase_add_test(tcase, each_truncation_is_noticed);
	tcase_add_test(tcase, trailing_bytes_are_noticed);
	tcase_add_test(tcase, newer_version_is_named);
	tcase_add_test(tcase, other_files_are_refused);
	tcase_add_test(tcase, each_changed_byte_of_a_body_gives_a_profile_or_an_error);
	tcase_add_test(tcase, each_cut_body_is_an_error);
	tcase_add_test(tcase, unknown_section_is_skipped);
	tcase_add_test(tcase, huge_counts_take_no_memory);
	tcase_add_test(tcase, full_disk_is_an_error);
	tcase_add_test(tcase, file_size_limit_is_an_error);
	suite_add_tcase(suite, tcase);
	return suite;
}
