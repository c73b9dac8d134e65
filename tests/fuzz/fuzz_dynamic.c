// SPDX-License-Identifier: GPL-3.0-or-later
/*
 * The parser of dynamic sections on arbitrary memory: the input is an object
 * mapped at 0x10000, with its dynamic section at its start. Whatever it
 * accepts is then used in full.
 */
#include "injector/dynamic.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
	const uint8_t *data;
	size_t size;
};
#define BASE 0x10000ull

static struct error *input_read(void *ctx, uint64_t addr, void *buf, size_t size)
{
	const struct input *input = ctx;

	if (addr < BASE || addr - BASE > input->size || size > input->size - (addr - BASE))
		return error_create(ERROR_NOT_FOUND, "not mapped");
	memcpy(buf, input->data + (addr - BASE), size);
	return NULL;
}

static bool visit(void *ctx, const struct dynamic_relocation *relocation)
{
	const struct dynamic *dynamic = ctx;

	/* The last character of each name is read. */
	return dynamic_symbol_name(dynamic, relocation->symbol)[0] != 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input input = {.data = data, .size = size};
	struct memory_reader memory = {.read = input_read, .ctx = &input};
	uint64_t high = (BASE + size + 4095) & ~4095ull;
	struct dynamic dynamic;
	struct error *err;

	err = dynamic_parse(&memory, BASE, size < 1024 ? size : 1024, BASE, BASE, high, &dynamic);
	if (err) {
		error_free(err);
		return 0;
	}
	for (size_t i = 0; i < dynamic.symbol_count; i++)
		(void)strlen(dynamic_symbol_name(&dynamic, i));
	dynamic_find(&dynamic, "malloc");
	dynamic_find(&dynamic, "");
	error_free(dynamic_relocations(&memory, &dynamic, visit, &dynamic));
	dynamic_deinit(&dynamic);
	return 0;
}
