// SPDX-License-Identifier: GPL-3.0-or-later
#include "resolver/json.h"

#include <inttypes.h>
#include <string.h>

#include "resolver/text.h"

/* Deeper elements share a line: one frame, one snapshot, one module. */
#define DEPTH_OF_LINES 3

static void new_line(struct json *json)
{
	if (json->depth <= DEPTH_OF_LINES)
		fprintf(json->out, "\n%*s", (int)json->depth, "");
}

/* U+0000 to U+001F, DEL, and U+0080 to U+009F, which terminals may obey. */
static bool needs_escape(const unsigned char *at, size_t length)
{
	return (length == 1 && (*at < 0x20 || *at == 0x7f)) ||
	       (length == 2 && at[0] == 0xc2 && at[1] < 0xa0);
}

/* Bytes at the start of @text that stand for themselves. */
static size_t plain_length(const char *text)
{
	size_t length = 0;

	while (text[length] >= 0x20 && text[length] < 0x7f && text[length] != '"' &&
	       text[length] != '\\')
		length++;
	return length;
}

static void put_text(FILE *out, const char *text)
{
	size_t size = strlen(text);

	fputc('"', out);
	while (size) {
		size_t length = plain_length(text);

		if (length) {
			fwrite(text, 1, length, out);
			text += length;
			size -= length;
			continue;
		}
		length = text_utf8_length(text, size);
		if (!length) {
			fputs("\\ufffd", out);
			length = 1;
		} else if (needs_escape((const unsigned char *)text, length)) {
			fprintf(out, "\\u%04x", (unsigned char)text[length - 1]);
		} else {
			if (*text == '"' || *text == '\\')
				fputc('\\', out);
			fwrite(text, 1, length, out);
		}
		text += length;
		size -= length;
	}
	fputc('"', out);
}

/* All that comes before a value. */
static void begin(struct json *json, const char *key)
{
	if (json->filled)
		fputs(json->depth <= DEPTH_OF_LINES ? "," : ", ", json->out);
	if (json->depth)
		new_line(json);
	json->filled = true;
	if (!key)
		return;
	put_text(json->out, key);
	fputs(": ", json->out);
}

static void open_with(struct json *json, const char *key, char bracket)
{
	begin(json, key);
	fputc(bracket, json->out);
	json->depth++;
	json->filled = false;
}

static void close_with(struct json *json, char bracket)
{
	bool filled = json->filled;

	json->depth--;
	if (filled && json->depth < DEPTH_OF_LINES)
		new_line(json);
	fputc(bracket, json->out);
	json->filled = true;
	if (!json->depth)
		fputc('\n', json->out);
}

void json_open_object(struct json *json, const char *key)
{
	open_with(json, key, '{');
}

void json_close_object(struct json *json)
{
	close_with(json, '}');
}

void json_open_array(struct json *json, const char *key)
{
	open_with(json, key, '[');
}

void json_close_array(struct json *json)
{
	close_with(json, ']');
}

void json_string(struct json *json, const char *key, const char *value)
{
	begin(json, key);
	if (value)
		put_text(json->out, value);
	else
		fputs("null", json->out);
}

void json_unsigned(struct json *json, const char *key, uint64_t value)
{
	begin(json, key);
	fprintf(json->out, "%" PRIu64, value);
}

void json_signed(struct json *json, const char *key, int64_t value)
{
	begin(json, key);
	fprintf(json->out, "%" PRId64, value);
}

void json_bool(struct json *json, const char *key, bool value)
{
	begin(json, key);
	fputs(value ? "true" : "false", json->out);
}

void json_null(struct json *json, const char *key)
{
	json_string(json, key, NULL);
}

void json_seconds(struct json *json, const char *key, uint64_t ns)
{
	begin(json, key);
	fprintf(json->out, "%" PRIu64 ".%06" PRIu64, ns / 1000000000, ns % 1000000000 / 1000);
}
