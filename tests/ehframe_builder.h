/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Assembles .eh_frame sections for tests, entry by entry. Pointers are
 * absolute 8-byte ones unless the augmentation says otherwise.
 */
#ifndef TESTS_EHFRAME_BUILDER_H
#define TESTS_EHFRAME_BUILDER_H

#include "resolver/ehframe.h"

/* Where the section and the code of all built modules lie. */
#define BUILDER_VADDR	  0x400000u
#define BUILDER_TEXT	  0x1000u
#define BUILDER_TEXT_HIGH 0x200000u

struct builder {
	uint8_t data[8192];
	size_t size;
	size_t entry; /* offset of the open entry's length */
	bool wide;    /* its length has 8 bytes */
};

void builder_u8(struct builder *builder, uint8_t value);
void builder_u16(struct builder *builder, uint16_t value);
void builder_u32(struct builder *builder, uint32_t value);
void builder_u64(struct builder *builder, uint64_t value);
void builder_uleb(struct builder *builder, uint64_t value);
void builder_sleb(struct builder *builder, int64_t value);
/* Bytes up to -1. */
void builder_code(struct builder *builder, const int *bytes);
#define BUILDER_CODE(builder, ...) builder_code(builder, (const int[]){__VA_ARGS__, -1})

/* An entry: begin, contents, end. */
void builder_begin(struct builder *builder, uint32_t id);
void builder_begin_wide(struct builder *builder, uint32_t id);
void builder_end(struct builder *builder);
void builder_terminator(struct builder *builder);

/*
 * A CIE as compilers make it: CFA = rsp + 8, return address at CFA - 8; code
 * and data alignment 1 and -8. Left open for further instructions. Returns its
 * offset.
 */
size_t builder_cie(struct builder *builder, const char *augmentation, const uint8_t *data,
		   size_t data_size);
/* The plain one (no augmentation), closed. */
size_t builder_plain_cie(struct builder *builder);

/* Begin the FDE of [start, start + size) for a CIE without augmentation; left open. */
void builder_fde(struct builder *builder, size_t cie, uint64_t start, uint64_t size);

/* What ehframe_compile() wants. */
struct ehframe_input builder_input(const struct builder *builder);

#endif
