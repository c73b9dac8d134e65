// SPDX-License-Identifier: GPL-3.0-or-later
#include "resolver/wire.h"

#include <string.h>

#include "resolver/array.h"
#include "resolver/cleanup.h"
#include "tests/tests.h"

static struct wire_reader reader_of(const struct wire_writer *writer)
{
	return (struct wire_reader){.data = writer->data, .size = writer->size};
}

START_TEST(numbers_come_back)
{
	static const uint64_t values[] = {0, 1, 127, 128, 300, 1ull << 63, UINT64_MAX};
	static const int64_t signs[] = {0, -1, 1, -64, 64, INT64_MIN, INT64_MAX};
	CLEANUP(wire_writer_deinit) struct wire_writer writer = {0};
	struct wire_reader reader;

	for (size_t i = 0; i < ARRAY_SIZE(values); i++)
		wire_put_varint(&writer, values[i]);
	for (size_t i = 0; i < ARRAY_SIZE(signs); i++)
		wire_put_signed(&writer, signs[i]);
	reader = reader_of(&writer);
	for (size_t i = 0; i < ARRAY_SIZE(values); i++)
		ck_assert_uint_eq(wire_get_varint(&reader), values[i]);
	for (size_t i = 0; i < ARRAY_SIZE(signs); i++)
		ck_assert_int_eq(wire_get_signed(&reader), signs[i]);
	ck_assert_ptr_null(reader.problem);
	ck_assert_uint_eq(reader.at, reader.size);
}
END_TEST

START_TEST(small_numbers_of_either_sign_take_one_byte)
{
	CLEANUP(wire_writer_deinit) struct wire_writer writer = {0};

	wire_put_varint(&writer, 127);
	wire_put_signed(&writer, 63);
	wire_put_signed(&writer, -64);
	ck_assert_uint_eq(writer.size, 3);
}
END_TEST

START_TEST(bytes_come_back_in_place)
{
	CLEANUP(wire_writer_deinit) struct wire_writer writer = {0};
	struct wire_reader reader;
	const uint8_t *bytes;
	size_t size;

	wire_put_bytes(&writer, "abc", 3);
	wire_put_bytes(&writer, NULL, 0);
	reader = reader_of(&writer);
	bytes = wire_get_bytes(&reader, &size);
	ck_assert_uint_eq(size, 3);
	ck_assert_mem_eq(bytes, "abc", 3);
	wire_get_bytes(&reader, &size);
	ck_assert_uint_eq(size, 0);
	ck_assert_ptr_null(reader.problem);
}
END_TEST

START_TEST(first_problem_stays_with_its_place)
{
	static const uint8_t data[] = {5, 0x80};
	struct wire_reader reader = {.data = data, .size = sizeof(data)};

	ck_assert_uint_eq(wire_get_varint(&reader), 5);
	ck_assert_uint_eq(wire_get_varint(&reader), 0);
	ck_assert_str_eq(reader.problem, "it ends in the middle of a number");
	ck_assert_uint_eq(reader.problem_at, 2);
	wire_fail(&reader, "something else");
	ck_assert_str_eq(reader.problem, "it ends in the middle of a number");
	ck_assert_uint_eq(wire_get_varint(&reader), 0);
}
END_TEST

START_TEST(number_of_65_bits_is_refused)
{
	static const uint8_t data[] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02};
	struct wire_reader reader = {.data = data, .size = sizeof(data)};

	ck_assert_uint_eq(wire_get_varint(&reader), 0);
	ck_assert_ptr_nonnull(reader.problem);
}
END_TEST

START_TEST(more_than_fits_is_refused)
{
	CLEANUP(wire_writer_deinit) struct wire_writer writer = {0};
	struct wire_reader reader;
	size_t size;

	wire_put_varint(&writer, 4);
	wire_put_raw(&writer, "abc", 3);
	reader = reader_of(&writer);
	ck_assert_uint_eq(wire_get_count(&reader, 1), 0);
	ck_assert_ptr_nonnull(reader.problem);
	reader = reader_of(&writer);
	wire_get_bytes(&reader, &size);
	ck_assert_uint_eq(size, 0);
	reader = reader_of(&writer);
	ck_assert_uint_eq(wire_get_bounded(&reader, 3, "too large"), 0);
	ck_assert_str_eq(reader.problem, "too large");
}
END_TEST

Suite *wire_suite(void)
{
	Suite *suite = suite_create("wire");
	TCase *tcase = tcase_create("wire");

	tcase_add_test(tcase, numbers_come_back);
	tcase_add_test(tcase, small_numbers_of_either_sign_take_one_byte);
	tcase_add_test(tcase, bytes_come_back_in_place);
	tcase_add_test(tcase, first_problem_stays_with_its_place);
	tcase_add_test(tcase, number_of_65_bits_is_refused);
	tcase_add_test(tcase, more_than_fits_is_refused);
	suite_add_tcase(suite, tcase);
	return suite;
}
