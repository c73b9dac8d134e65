/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A reader for JSON, for tests that look at what the program wrote. Strict:
 * text that is not JSON fails the test that reads it.
 */
#ifndef TESTS_JSON_H
#define TESTS_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum json_kind { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

struct json {
	enum json_kind kind;
	double number; /* JSON_NUMBER; JSON_BOOL: 0 or 1 */
	char *string;  /* JSON_STRING */
	size_t count;  /* of items: JSON_ARRAY and JSON_OBJECT */
	size_t room;
	struct json *item;
	char **name; /* JSON_OBJECT: name[i] is that of item[i] */
};

/* Fails the test on malformed text. Free with json_free(). */
struct json *json_parse(const char *text);
void json_free(struct json *json);
void json_freep(struct json **json);

/* Walk down by names, "totals.inuse_bytes"; NULL if there is no such value. */
const struct json *json_find(const struct json *json, const char *path);

/* The same, and fail the test unless the value is there and of that kind. */
const struct json *json_get(const struct json *json, const char *path, enum json_kind kind);
uint64_t json_count(const struct json *json, const char *path); /* a whole number >= 0 */
double json_number(const struct json *json, const char *path);
/* "" for null. */
const char *json_text(const struct json *json, const char *path);

#endif
