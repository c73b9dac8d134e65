/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The functions that heapattach hooks: the C library's allocator, C++'s
 * operators new and delete, and jemalloc's own interface. A constant table; an
 * index into it is what struct ha_pair.function holds, so entries are only
 * ever added at the end (an entry object outlives the injector that wrote it).
 *
 * All functions may be called from any thread.
 */
#ifndef INJECTOR_FUNCTIONS_H
#define INJECTOR_FUNCTIONS_H

#include "payload/protocol.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum function_family {
	FUNCTION_C,	   /* the C library's names, whoever defines them */
	FUNCTION_OPERATOR, /* C++ operators new and delete */
	FUNCTION_JEMALLOC, /* mallocx and friends */
};

/*
 * Slots are written in this order and restored in the opposite one: when an
 * allocation is seen, its release must be seen too.
 */
enum function_rank {
	FUNCTION_RANK_FREE,
	FUNCTION_RANK_REALLOC,
	FUNCTION_RANK_ALIGNED, /* calloc, memalign and other rarer allocations */
	FUNCTION_RANK_ALLOC,   /* malloc, operator new */
	FUNCTION_RANKS
};

struct function {
	const char *name;
	enum ha_class class;
	enum function_family family;
	enum function_rank rank;
	bool throws;  /* an operator new that throws std::bad_alloc instead of returning NULL */
	int16_t twin; /* index of the nothrow form of a throwing operator new; -1 = none */
};

/* Number of functions; indices are 0..functions_count() - 1. */
size_t functions_count(void);

/* NULL if @index is out of range. */
const struct function *functions_get(size_t index);

/* Index of @name (as the linker spells it), or -1. */
int functions_find(const char *name);

/* True if the function gives out blocks (realloc does too). */
bool function_allocates(const struct function *function);

/* True if the function takes blocks back (realloc does too). */
bool function_releases(const struct function *function);

#endif
