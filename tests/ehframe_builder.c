// SPDX-License-Identifier: GPL-3.0-or-later
#include "tests/ehframe_builder.h"

#include <string.h>

#include "tests/tests.h"

static void add(struct builder *builder, const void *bytes, size_t size)
{
	ck_assert_uint_le(builder->size + size, sizeof(builder->data));
	if (size)
		memcpy(builder->data + builder->size, bytes, size);
	builder->size += size;
}

void builder_u8(struct builder *builder, uint8_t value)
{
	add(builder, &value, sizeof(value));
}

void builder_u16(struct builder *builder, uint16_t value)
{
	add(builder, &value, sizeof(value));
}

void builder_u32(struct builder *builder, uint32_t value)
{
	add(builder, &value, sizeof(value));
}

void builder_u64(struct builder *builder, uint64_t value)
{
	add(builder, &value, sizeof(value));
}

void builder_uleb(struct builder *builder, uint64_t value)
{
	for (; value >= 0x80; value >>= 7)
		builder_u8(builder, (uint8_t)(value | 0x80));
	builder_u8(builder, (uint8_t)value);
}

void builder_sleb(struct builder *builder, int64_t value)
{
	for (; value < -64 || value > 63; value >>= 7)
		builder_u8(builder, (uint8_t)(value | 0x80));
	builder_u8(builder, (uint8_t)value & 0x7f);
}

void builder_code(struct builder *builder, const int *bytes)
{
	for (; *bytes != -1; bytes++)
		builder_u8(builder, (uint8_t)*bytes);
}

void builder_begin(struct builder *builder, uint32_t id)
{
	builder->entry = builder->size;
	builder->wide = false;
	builder_u32(builder, 0);
	builder_u32(builder, id);
}

void builder_begin_wide(struct builder *builder, uint32_t id)
{
	builder->entry = builder->size;
	builder->wide = true;
	builder_u32(builder, UINT32_MAX);
	builder_u64(builder, 0);
	builder_u32(builder, id);
}

void builder_end(struct builder *builder)
{
	size_t header = builder->wide ? 12 : 4;
	uint64_t length;

	while (builder->size % 8 != 4)
		builder_u8(builder, 0);
	length = builder->size - builder->entry - header;
	memcpy(builder->data + builder->entry + (builder->wide ? 4 : 0), &length,
	       builder->wide ? 8 : 4);
}

void builder_terminator(struct builder *builder)
{
	builder_u32(builder, 0);
}

size_t builder_cie(struct builder *builder, const char *augmentation, const uint8_t *data,
		   size_t data_size)
{
	builder_begin(builder, 0);
	builder_u8(builder, 1);
	add(builder, augmentation, strlen(augmentation) + 1);
	builder_uleb(builder, 1);
	builder_sleb(builder, -8);
	builder_u8(builder, 16);
	if (augmentation[0] == 'z')
		builder_uleb(builder, data_size);
	add(builder, data, data_size);
	BUILDER_CODE(builder, 0x0c, 7, 8, 0x90, 1);
	return builder->entry;
}

size_t builder_plain_cie(struct builder *builder)
{
	size_t cie = builder_cie(builder, "", NULL, 0);

	builder_end(builder);
	return cie;
}

void builder_fde(struct builder *builder, size_t cie, uint64_t start, uint64_t size)
{
	builder_begin(builder, (uint32_t)(builder->size + 4 - cie));
	builder_u64(builder, start);
	builder_u64(builder, size);
}

struct ehframe_input builder_input(const struct builder *builder)
{
	return (struct ehframe_input){
		.data = builder->data,
		.size = builder->size,
		.vaddr = BUILDER_VADDR,
		.text_low = BUILDER_TEXT,
		.text_high = BUILDER_TEXT_HIGH,
	};
}
