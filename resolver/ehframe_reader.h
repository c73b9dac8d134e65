/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Reading the encodings of .eh_frame, .eh_frame_hdr and DWARF: every access is
 * checked against the end. Errors stick: after the first one all reads give 0,
 * so that a parser checks `bad` once behind a group of reads.
 *
 * Internal to resolver/ehframe*.c and linetable.c.
 */
#ifndef RESOLVER_EHFRAME_READER_H
#define RESOLVER_EHFRAME_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct reader {
	const uint8_t *at, *end;
	bool bad;
};

/* Pointer encodings, DW_EH_PE_* of the LSB core specification. */
enum {
	PE_ABSPTR = 0x00,
	PE_ULEB128 = 0x01,
	PE_UDATA2 = 0x02,
	PE_UDATA4 = 0x03,
	PE_UDATA8 = 0x04,
	PE_SLEB128 = 0x09,
	PE_SDATA2 = 0x0a,
	PE_SDATA4 = 0x0b,
	PE_SDATA8 = 0x0c,
	PE_FORMAT = 0x0f, /* mask of the above */
	PE_PCREL = 0x10,
	PE_TEXTREL = 0x20,
	PE_DATAREL = 0x30,
	PE_FUNCREL = 0x40,
	PE_ALIGNED = 0x50,
	PE_BASE = 0x70, /* mask of the above */
	PE_INDIRECT = 0x80,
	PE_OMIT = 0xff,
};

static inline size_t reader_left(const struct reader *reader)
{
	return (size_t)(reader->end - reader->at);
}

static inline const uint8_t *reader_bytes(struct reader *reader, uint64_t size)
{
	const uint8_t *bytes = reader->at;

	if (reader->bad || size > reader_left(reader)) {
		reader->bad = true;
		return NULL;
	}
	reader->at += size;
	return bytes;
}

#define READER_FIXED(name, type)                                           \
	static inline type name(struct reader *reader)                     \
	{                                                                  \
		const uint8_t *bytes = reader_bytes(reader, sizeof(type)); \
		type value = 0;                                            \
                                                                           \
		if (bytes)                                                 \
			memcpy(&value, bytes, sizeof(value));              \
		return value;                                              \
	}
READER_FIXED(reader_u8, uint8_t)
READER_FIXED(reader_u16, uint16_t)
READER_FIXED(reader_u32, uint32_t)
READER_FIXED(reader_u64, uint64_t)
#undef READER_FIXED

/*
 * Both LEB128 forms share this: *shift_ret is the number of bits that the
 * encoding had. More than 64 bits of value are an error, padding is not.
 */
static inline uint64_t reader_leb(struct reader *reader, unsigned int *shift_ret, uint8_t *last_ret)
{
	uint64_t value = 0;
	unsigned int shift = 0;
	uint8_t byte;

	do {
		byte = reader_u8(reader);
		if (shift < 64)
			value |= (uint64_t)(byte & 0x7f) << shift;
		shift += 7;
		if (shift > 140)
			reader->bad = true;
	} while (!reader->bad && (byte & 0x80));
	*shift_ret = shift;
	*last_ret = byte;
	return value;
}

static inline uint64_t reader_uleb(struct reader *reader)
{
	unsigned int shift;
	uint8_t last;

	if (reader->at < reader->end && *reader->at < 0x80 && !reader->bad)
		return *reader->at++;
	return reader_leb(reader, &shift, &last);
}

static inline int64_t reader_sleb(struct reader *reader)
{
	unsigned int shift;
	uint8_t last;
	uint64_t value = reader_leb(reader, &shift, &last);

	if (shift < 64 && (last & 0x40))
		value |= UINT64_MAX << shift;
	return (int64_t)value;
}

/* The zero-terminated string at the reader; NULL if its end is missing. */
static inline const char *reader_string(struct reader *reader)
{
	const char *string = (const char *)reader->at;
	const uint8_t *nul = reader->bad ? NULL : memchr(reader->at, 0, reader_left(reader));

	if (!nul) {
		reader->bad = true;
		return NULL;
	}
	reader->at = nul + 1;
	return string;
}

/* A value in one of the formats, sign-extended where the format is signed. */
static inline uint64_t reader_format(struct reader *reader, uint8_t format)
{
	switch (format & PE_FORMAT) {
	case PE_ABSPTR:
	case PE_UDATA8:
	case PE_SDATA8:
		return reader_u64(reader);
	case PE_ULEB128:
		return reader_uleb(reader);
	case PE_SLEB128:
		return (uint64_t)reader_sleb(reader);
	case PE_UDATA2:
		return reader_u16(reader);
	case PE_SDATA2:
		return (uint64_t)(int64_t)(int16_t)reader_u16(reader);
	case PE_UDATA4:
		return reader_u32(reader);
	case PE_SDATA4:
		return (uint64_t)(int64_t)(int32_t)reader_u32(reader);
	default:
		reader->bad = true;
		return 0;
	}
}

/*
 * A pointer. @vaddr is the address of the byte at the reader, @datarel the
 * base of data-relative pointers (0: unknown, an error if it is needed). A raw
 * 0 is a null pointer whatever its base.
 */
static inline uint64_t reader_pointer(struct reader *reader, uint8_t encoding, uint64_t vaddr,
				      uint64_t datarel)
{
	uint64_t value;

	if ((encoding & PE_BASE) == PE_ALIGNED) {
		reader_bytes(reader, -vaddr & 7);
		return reader_u64(reader);
	}
	value = reader_format(reader, encoding);
	if (value == 0 || reader->bad)
		return 0;
	switch (encoding & PE_BASE) {
	case 0:
		return value;
	case PE_PCREL:
		return value + vaddr;
	case PE_DATAREL:
		if (datarel)
			return value + datarel;
		/* fall through */
	default:
		reader->bad = true;
		return 0;
	}
}

#endif
