// SPDX-License-Identifier: GPL-3.0-or-later
#include "resolver/pathname.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where the last component in @path[0..used) begins. */
static size_t last_component(const char *path, size_t used)
{
	while (used && path[used - 1] != '/')
		used--;
	return used;
}

static bool is_parent(const char *component, size_t length)
{
	return length == 2 && memcmp(component, "..", 2) == 0;
}

/* Append one component to what is clean already; returns the new length. */
static size_t add_component(char *path, size_t used, const char *component, size_t length)
{
	size_t last = last_component(path, used);

	if (length == 0 || (length == 1 && component[0] == '.'))
		return used;
	if (is_parent(component, length)) {
		if (used == 1 && path[0] == '/')
			return used;
		if (used && !is_parent(path + last, used - last))
			return last > 1 ? last - 1 : last;
	}
	if (used && path[used - 1] != '/')
		path[used++] = '/';
	/* The text is cleaned in place and only ever moves towards the front. */
	memmove(path + used, component, length);
	return used + length;
}

char *pathname_clean(const char *directory, const char *file)
{
	bool join = directory && file[0] != '/';
	size_t used = 0;
	char *path;

	if (asprintf(&path, "%s%s%s", join ? directory : "", join ? "/" : "", file) < 0)
		return NULL;
	if (path[0] == '/')
		used = 1;
	for (const char *at = path; *at;) {
		size_t length = strcspn(at, "/");
		const char *next = at + length + (at[length] == '/');

		used = add_component(path, used, at, length);
		at = next;
	}
	path[used] = '\0';
	return path;
}
