/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/json.h"

#include "tests/tests.h"

#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX 64

struct reader {
	const char *start;
	const char *at;
	int depth;
};

static void value_read(struct reader *reader, struct json *ret);

__attribute__((noreturn)) static void malformed(const struct reader *reader, const char *what)
{
	ck_abort_msg("JSON: %s at offset %zu: %.40s", what, (size_t)(reader->at - reader->start),
		     reader->at);
	abort();
}

static void space_skip(struct reader *reader)
{
	reader->at += strspn(reader->at, " \t\r\n");
}

static bool accept(struct reader *reader, const char *token)
{
	size_t length = strlen(token);

	space_skip(reader);
	if (strncmp(reader->at, token, length) != 0)
		return false;
	reader->at += length;
	return true;
}

static char *put_utf8(char *to, unsigned int code)
{
	if (code < 0x80) {
		*to++ = (char)code;
	} else if (code < 0x800) {
		*to++ = (char)(0xc0 | code >> 6);
		*to++ = (char)(0x80 | (code & 0x3f));
	} else {
		*to++ = (char)(0xe0 | code >> 12);
		*to++ = (char)(0x80 | (code >> 6 & 0x3f));
		*to++ = (char)(0x80 | (code & 0x3f));
	}
	return to;
}

static char *escape_read(struct reader *reader, char *to)
{
	static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
	const char *name = strchr(names, *reader->at);
	char digits[5], *end;
	unsigned int code;

	if (*reader->at && name) {
		reader->at++;
		*to++ = values[name - names];
		return to;
	}
	if (*reader->at != 'u')
		malformed(reader, "bad escape");
	strncpy(digits, reader->at + 1, 4);
	digits[4] = '\0';
	code = (unsigned int)strtoul(digits, &end, 16);
	if (end != digits + 4)
		malformed(reader, "bad \\u escape");
	reader->at += 5;
	return put_utf8(to, code);
}

/* Bytes up to the closing quote: no less than the string has without its escapes. */
static size_t string_length(const struct reader *reader)
{
	const char *end = reader->at;

	while (*end && *end != '"')
		end += end[0] == '\\' && end[1] ? 2 : 1;
	if (!*end)
		malformed(reader, "no end of a string");
	return (size_t)(end - reader->at);
}

static char *string_read(struct reader *reader)
{
	char *string, *to;

	if (!accept(reader, "\""))
		malformed(reader, "no string");
	string = to = malloc(string_length(reader) + 1);
	while (*reader->at != '"') {
		if ((unsigned char)*reader->at < 0x20)
			malformed(reader, "a control character in a string");
		if (*reader->at == '\\') {
			reader->at++;
			to = escape_read(reader, to);
		} else {
			*to++ = *reader->at++;
		}
	}
	reader->at++;
	*to = '\0';
	return string;
}

static struct json *item_add(struct json *json, char *name)
{
	if (json->count == json->room) {
		json->room = json->room ? json->room * 2 : 8;
		json->item = realloc(json->item, json->room * sizeof(json->item[0]));
		json->name = realloc(json->name, json->room * sizeof(json->name[0]));
	}
	json->name[json->count] = name;
	memset(&json->item[json->count], 0, sizeof(json->item[0]));
	return &json->item[json->count++];
}

static void items_read(struct reader *reader, struct json *json, const char *close)
{
	if (++reader->depth > DEPTH_MAX)
		malformed(reader, "nested too deep");
	if (!accept(reader, close)) {
		do {
			char *name = NULL;

			if (json->kind == JSON_OBJECT) {
				name = string_read(reader);
				if (!accept(reader, ":"))
					malformed(reader, "no colon");
			}
			value_read(reader, item_add(json, name));
		} while (accept(reader, ","));
		if (!accept(reader, close))
			malformed(reader, "no end of a list");
	}
	reader->depth--;
}

static void value_read(struct reader *reader, struct json *ret)
{
	char *end;

	space_skip(reader);
	if (*reader->at == '"') {
		ret->kind = JSON_STRING;
		ret->string = string_read(reader);
	} else if (accept(reader, "{")) {
		ret->kind = JSON_OBJECT;
		items_read(reader, ret, "}");
	} else if (accept(reader, "[")) {
		ret->kind = JSON_ARRAY;
		items_read(reader, ret, "]");
	} else if (accept(reader, "null")) {
		ret->kind = JSON_NULL;
	} else if (accept(reader, "true") || accept(reader, "false")) {
		ret->kind = JSON_BOOL;
		ret->number = reader->at[-2] == 'u';
	} else {
		if (!strchr("-0123456789", *reader->at) || !*reader->at)
			malformed(reader, "no value");
		ret->kind = JSON_NUMBER;
		ret->number = strtod(reader->at, &end);
		reader->at = end;
	}
}

struct json *json_parse(const char *text)
{
	struct json *json = calloc(1, sizeof(*json));
	struct reader reader = {text, text, 0};

	value_read(&reader, json);
	space_skip(&reader);
	if (*reader.at)
		malformed(&reader, "something after the value");
	return json;
}

static void json_deinit(struct json *json)
{
	for (size_t i = 0; i < json->count; i++) {
		free(json->name[i]);
		json_deinit(&json->item[i]);
	}
	free(json->name);
	free(json->item);
	free(json->string);
}

void json_free(struct json *json)
{
	if (json)
		json_deinit(json);
	free(json);
}

void json_freep(struct json **json)
{
	json_free(*json);
}

const struct json *json_find(const struct json *json, const char *path)
{
	while (json && *path) {
		size_t length = strcspn(path, "."), i;

		for (i = 0; i < json->count; i++) {
			if (json->name[i] && strlen(json->name[i]) == length &&
			    strncmp(json->name[i], path, length) == 0)
				break;
		}
		json = i < json->count ? &json->item[i] : NULL;
		path += length + (path[length] == '.');
	}
	return json;
}

const struct json *json_get(const struct json *json, const char *path, enum json_kind kind)
{
	const struct json *value = json_find(json, path);

	ck_assert_msg(value != NULL, "JSON: no \"%s\"", path);
	ck_assert_msg(value->kind == kind, "JSON: \"%s\" is of kind %d, not %d", path, value->kind,
		      kind);
	return value;
}

double json_number(const struct json *json, const char *path)
{
	return json_get(json, path, JSON_NUMBER)->number;
}

uint64_t json_count(const struct json *json, const char *path)
{
	double number = json_number(json, path);

	ck_assert_msg(number >= 0 && number == (double)(uint64_t)number,
		      "JSON: \"%s\" is %f, not a count", path, number);
	return (uint64_t)number;
}

const char *json_text(const struct json *json, const char *path)
{
	const struct json *value = json_find(json, path);

	if (value && value->kind == JSON_NULL)
		return "";
	return json_get(json, path, JSON_STRING)->string;
}
