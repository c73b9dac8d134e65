// SPDX-License-Identifier: GPL-3.0-or-later
#include "resolver/text.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* \xNN */
enum { ESCAPED_BYTES = 4 };

static bool is_continuation(unsigned char byte)
{
	return (byte & 0xc0) == 0x80;
}

/* The lead byte of a sequence of @length bytes keeps this many bits of the code point. */
static uint32_t lead_bits(unsigned char lead, size_t length)
{
	return length == 1 ? lead : lead & (0xffu >> (length + 1));
}

static uint32_t decode(const unsigned char *bytes, size_t length)
{
	uint32_t code = lead_bits(bytes[0], length);

	for (size_t i = 1; i < length; i++)
		code = code << 6 | (bytes[i] & 0x3f);
	return code;
}

size_t text_utf8_length(const char *text, size_t size)
{
	/* The smallest code point that needs a sequence of this length. */
	static const uint32_t lowest[] = {0, 0, 0x80, 0x800, 0x10000};
	const unsigned char *bytes = (const unsigned char *)text;
	size_t length;
	uint32_t code;

	if (!size)
		return 0;
	if (bytes[0] < 0x80)
		return 1;
	if (bytes[0] < 0xc2 || bytes[0] > 0xf4)
		return 0;
	length = bytes[0] < 0xe0 ? 2 : bytes[0] < 0xf0 ? 3 : 4;
	if (length > size)
		return 0;
	for (size_t i = 1; i < length; i++) {
		if (!is_continuation(bytes[i]))
			return 0;
	}
	code = decode(bytes, length);
	if (code < lowest[length] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
		return 0;
	return length;
}

/* Characters that move the cursor, end a line or reorder what stands around them. */
static bool is_unfit(uint32_t code)
{
	return code < 0x20 || (code >= 0x7f && code < 0xa0) ||	     /* C0, DEL, C1 */
	       code == 0x061c || code == 0x200e || code == 0x200f || /* directional marks */
	       (code >= 0x2028 && code <= 0x202e) || /* separators, embeddings, overrides */
	       (code >= 0x2066 && code <= 0x2069) || /* isolates */
	       code == 0xfeff;
}

/* Bytes at the start of @text that can be kept as one character; 0: escape one byte. */
static size_t printable_length(const char *text, size_t size)
{
	size_t length = text_utf8_length(text, size);

	if (length && is_unfit(decode((const unsigned char *)text, length)))
		return 0;
	return length;
}

bool text_is_printable(const char *text)
{
	size_t size = strlen(text);

	for (size_t at = 0, length; at < size; at += length) {
		length = printable_length(text + at, size - at);
		if (!length)
			return false;
	}
	return true;
}

char *text_printable(const char *text)
{
	size_t size = strlen(text), used = 0;
	char *out = malloc(size * ESCAPED_BYTES + 1);

	if (!out)
		return NULL;
	for (size_t at = 0; at < size;) {
		size_t length = printable_length(text + at, size - at);

		if (length) {
			memcpy(out + used, text + at, length);
			used += length;
			at += length;
		} else {
			used += (size_t)sprintf(out + used, "\\x%02x", (unsigned char)text[at]);
			at++;
		}
	}
	out[used] = '\0';
	return out;
}

void text_print(FILE *out, const char *text)
{
	size_t size = strlen(text);

	for (size_t at = 0; at < size;) {
		size_t length = printable_length(text + at, size - at);

		if (length)
			fwrite(text + at, 1, length, out);
		else
			fprintf(out, "\\x%02x", (unsigned char)text[at]);
		at += length ? length : 1;
	}
}
