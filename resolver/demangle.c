// SPDX-License-Identifier: GPL-3.0-or-later
#include "resolver/demangle.h"

#include <libiberty/demangle.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/*
 * libiberty refuses names above half its recursion limit unless told not to
 * limit recursion; DEMANGLE_MAX_INPUT then bounds the stack instead.
 */
enum { LIMITED_INPUT = DEMANGLE_RECURSION_LIMIT / 2 - 1 };

struct output {
	char *text;
	size_t size, capacity;
	jmp_buf give_up;
};

/*
 * The callback interface cannot be told to stop, and a name of 100 bytes may
 * unfold to gigabytes; so a result that grows too long is left by longjmp. The
 * C++ demangler keeps its state on the stack and loses nothing by it.
 */
static void append(const char *text, size_t size, void *opaque)
{
	struct output *out = opaque;

	if (out->size + size >= DEMANGLE_MAX_OUTPUT)
		longjmp(out->give_up, 1);
	if (out->size + size >= out->capacity) {
		size_t capacity = (out->size + size) * 2 + 64;
		char *grown = realloc(out->text, capacity);

		if (!grown)
			longjmp(out->give_up, 1);
		out->text = grown;
		out->capacity = capacity;
	}
	memcpy(out->text + out->size, text, size);
	out->size += size;
	out->text[out->size] = '\0';
}

typedef int demangler(const char *, int, demangle_callbackref, void *);

static char *demangle_with(demangler *run, const char *name, int options)
{
	struct output out = {0};

	if (setjmp(out.give_up) == 0 && run(name, options, append, &out) && out.text)
		return out.text;
	free(out.text);
	return NULL;
}

static bool has_prefix(const char *name, const char *prefix)
{
	return strncmp(name, prefix, strlen(prefix)) == 0;
}

char *demangle(const char *name)
{
	size_t size = strnlen(name, DEMANGLE_MAX_INPUT + 1);
	int options = DMGL_PARAMS | DMGL_ANSI;
	char *ret = NULL;

	if (size > DEMANGLE_MAX_INPUT)
		return NULL;
	if (size > LIMITED_INPUT)
		options |= DMGL_NO_RECURSE_LIMIT;
	/* Rust's legacy names are well-formed C++ names: ask for Rust first. */
	if (has_prefix(name, "_R") || has_prefix(name, "_ZN"))
		ret = demangle_with(rust_demangle_callback, name, options);
	if (!ret && (has_prefix(name, "_Z") || has_prefix(name, "_GLOBAL_")))
		ret = demangle_with(cplus_demangle_v3_callback, name, options);
	return ret;
}
