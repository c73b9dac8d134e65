/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A JSON writer: keeps count of commas and nesting, escapes strings, and is
 * independent of the locale. Errors of writing stay in the stream, for
 * ferror().
 *
 * @key is NULL inside arrays. Nesting is the caller's duty.
 */
#ifndef RESOLVER_JSON_H
#define RESOLVER_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* { .out = stream } is a writer at the start of a document. */
struct json {
	FILE *out;
	unsigned int depth;
	bool filled; /* the innermost object or array has an element already */
};

void json_open_object(struct json *json, const char *key);
void json_close_object(struct json *json);
void json_open_array(struct json *json, const char *key);
void json_close_array(struct json *json);

/*
 * @value: NULL gives null. Control characters are escaped; bytes that are not
 * UTF-8 become U+FFFD.
 */
void json_string(struct json *json, const char *key, const char *value);
void json_unsigned(struct json *json, const char *key, uint64_t value);
void json_signed(struct json *json, const char *key, int64_t value);
void json_bool(struct json *json, const char *key, bool value);
void json_null(struct json *json, const char *key);
/* @ns as seconds, to the microsecond. */
void json_seconds(struct json *json, const char *key, uint64_t ns);

#endif
