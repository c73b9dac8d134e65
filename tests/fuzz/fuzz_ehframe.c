// SPDX-License-Identifier: GPL-3.0-or-later
/*
 * Any bytes as .eh_frame, as .eh_frame_hdr, and as a table: no crash, tables
 * that are made are well-formed, and lookups stay inside.
 */
#include <stdlib.h>
#include <string.h>

#include "resolver/ehframe.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void look_everywhere(const struct ha_table *table, size_t size, uint64_t from)
{
	struct ehframe_rule rule;

	/* The address may wrap around. */
	for (uint64_t offset = 0; offset < 0x1000; offset += 7)
		ehframe_lookup(table, size, from + offset, &rule);
	ehframe_lookup(table, size, 0, &rule);
	ehframe_lookup(table, size, UINT64_MAX, &rule);
}

static void compile(const uint8_t *data, size_t size, bool full)
{
	struct ehframe_input in = {
		.data = data,
		.size = size,
		.vaddr = 0x10000,
		.text_low = 0x1000,
		.text_high = 0x101000,
		.got_vaddr = 0x20000,
		.full = full,
	};
	struct ehframe_table table = {0};
	struct error *err = ehframe_compile(&in, &table);

	if (err) {
		error_free(err);
		return;
	}
	err = ehframe_verify(table.table, table.size);
	if (err)
		abort();
	look_everywhere(table.table, table.size, table.table->base);
	ehframe_table_deinit(&table);
}

static void use_as_table(const uint8_t *data, size_t size)
{
	struct ha_table *table = malloc(size);
	struct error *err;

	if (!table)
		return;
	memcpy(table, data, size);
	look_everywhere(table, size, size >= sizeof(*table) ? table->base : 0);
	err = ehframe_verify(table, size);
	error_free(err);
	free(table);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ehframe_location location;
	struct error *err;

	if (size == 0)
		return 0;
	switch (data[0] % 4) {
	case 0:
	case 1:
		compile(data + 1, size - 1, data[0] % 4);
		break;
	case 2:
		err = ehframe_find(data + 1, size - 1, 0x8000, &location);
		error_free(err);
		break;
	case 3:
		use_as_table(data + 1, size - 1);
		break;
	}
	return 0;
}
