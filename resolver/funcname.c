// SPDX-License-Identifier: GPL-3.0-or-later
#include "resolver/funcname.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "resolver/array.h"

/* Shorter contents say more than dots. */
#define ARGUMENTS_KEPT	12
#define PARAMETERS_KEPT 20

static bool is_word(char c)
{
	return isalnum((unsigned char)c) || c == '_';
}

/*
 * Length of an operator's name at @at ("operator<<", "operator()", also
 * "operator new"), whose brackets are none; 0 if there is no such name. @start:
 * of the whole text.
 */
static size_t operator_length(const char *start, const char *at)
{
	static const char word[] = "operator";
	size_t length = strlen(word);

	if (strncmp(at, word, length) || (at > start && is_word(at[-1])) || is_word(at[length]))
		return 0;
	if (!strncmp(at + length, "()", 2) || !strncmp(at + length, "[]", 2))
		return length + 2;
	if (!strncmp(at + length, " new", 4))
		return length + 4;
	if (!strncmp(at + length, " delete", 7))
		return length + 7;
	length += strspn(at + length, "<>=-+*/%^&|~!,");
	/* "operator< <int>": demanglers keep the two apart. */
	return length + !strncmp(at + length, " <", 2);
}

/*
 * Length of the bracketed text at @at, which begins with '<' or '(' and nests
 * both; 0 if it is not closed.
 */
static size_t bracketed_length(const char *start, const char *at)
{
	size_t depth = 0, skip;

	for (const char *c = at; *c; c++) {
		skip = operator_length(start, c);
		if (skip) {
			c += skip - 1;
			continue;
		}
		if (*c == '<' || *c == '(')
			depth++;
		else if (*c == ')' || (*c == '>' && c[-1] != '-')) /* not "->" in a decltype */
			depth--;
		if (!depth)
			return (size_t)(c - at) + 1;
	}
	return 0;
}

size_t funcname_begin(const char *function)
{
	static const char anonymous[] = "(anonymous namespace)";
	size_t begin = 0, at = 0;

	while (function[at]) {
		size_t skip = operator_length(function, function + at);

		if (!skip && function[at] == '<') {
			skip = bracketed_length(function, function + at);
			if (!skip)
				return 0;
		}
		if (!skip && !strncmp(function + at, anonymous, strlen(anonymous)))
			skip = strlen(anonymous);
		if (!skip && function[at] == '(')
			return begin;
		if (function[at] == ' ')
			begin = at + 1;
		at += skip ? skip : 1;
	}
	/* No parameters: not a C++ function, or one without; spaces are part of it. */
	return 0;
}

/* Copy the bracketed text of @size bytes at @at to @to, as dots if it is longer than @kept. */
static char *copy_bracketed(char *to, const char *at, size_t size, size_t kept)
{
	if (size - 2 <= kept) {
		memcpy(to, at, size);
		return to + size;
	}
	*to++ = at[0];
	to = stpcpy(to, "...");
	*to++ = at[size - 1];
	return to;
}

char *funcname_shorten(const char *function)
{
	static const char anonymous[] = "(anonymous namespace)";
	const char *at = function + funcname_begin(function);
	char *ret = malloc(strlen(at) + 1), *to = ret;

	if (!ret)
		return NULL;
	while (*at) {
		size_t whole = operator_length(function, at), size = 0;

		if (!whole && !strncmp(at, anonymous, strlen(anonymous)))
			whole = strlen(anonymous);
		if (!whole && (*at == '<' || *at == '(')) {
			size = bracketed_length(function, at);
			whole = size ? 0 : strlen(at); /* not closed: not for us */
		}
		if (size) {
			to = copy_bracketed(to, at, size,
					    *at == '<' ? ARGUMENTS_KEPT : PARAMETERS_KEPT);
			at += size;
			continue;
		}
		whole = whole ? whole : 1;
		memcpy(to, at, whole);
		to += whole;
		at += whole;
	}
	*to = '\0';
	return ret;
}

bool funcname_is_standard(const char *function)
{
	static const char *const spaces[] = {
		"std::",  "__gnu_cxx::", "core::",   "alloc::",	    "hashbrown::",
		"<std::", "<core::",	 "<alloc::", "<hashbrown::"};
	const char *name = function + funcname_begin(function);

	for (size_t i = 0; i < ARRAY_SIZE(spaces); i++)
		if (!strncmp(name, spaces[i], strlen(spaces[i])))
			return true;
	return false;
}
