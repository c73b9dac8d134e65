// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/functions.h"

#include <string.h>

/*
 * Names with NUL-terminated Itanium mangling: St11align_val_t is
 * std::align_val_t, RKSt9nothrow_t is const std::nothrow_t &. An aligned
 * operator new takes (size, align): size first, so it is of class ALLOC.
 *
 * Append only: the index is stored in entry objects.
 */
#define C_FUNCTION(name_, class_, rank_)                                               \
	{                                                                              \
		name_, HA_CLASS_##class_, FUNCTION_C, FUNCTION_RANK_##rank_, false, -1 \
	}
#define JEMALLOC(name_, class_, rank_)                                                        \
	{                                                                                     \
		name_, HA_CLASS_##class_, FUNCTION_JEMALLOC, FUNCTION_RANK_##rank_, false, -1 \
	}
#define NEW(name_, twin_)                                                                  \
	{                                                                                  \
		name_, HA_CLASS_ALLOC, FUNCTION_OPERATOR, FUNCTION_RANK_ALLOC, true, twin_ \
	}
#define NEW_NOTHROW(name_)                                                               \
	{                                                                                \
		name_, HA_CLASS_ALLOC, FUNCTION_OPERATOR, FUNCTION_RANK_ALLOC, false, -1 \
	}
#define DELETE(name_)                                                                  \
	{                                                                              \
		name_, HA_CLASS_FREE, FUNCTION_OPERATOR, FUNCTION_RANK_FREE, false, -1 \
	}

enum {
	FIRST_NEW = 13, /* where the operators new begin: their twins count from here */
};

static const struct function functions[] = {
	C_FUNCTION("malloc", ALLOC, ALLOC),
	C_FUNCTION("free", FREE, FREE),
	C_FUNCTION("calloc", CALLOC, ALIGNED),
	C_FUNCTION("realloc", REALLOC, REALLOC),
	C_FUNCTION("reallocarray", REALLOCARRAY, REALLOC),
	C_FUNCTION("memalign", ALIGNED, ALIGNED),
	C_FUNCTION("posix_memalign", POSIX_MEMALIGN, ALIGNED),
	C_FUNCTION("aligned_alloc", ALIGNED, ALIGNED),
	C_FUNCTION("valloc", ALLOC, ALIGNED),
	C_FUNCTION("pvalloc", ALLOC, ALIGNED),
	C_FUNCTION("cfree", FREE, FREE),
	C_FUNCTION("free_sized", FREE, FREE),
	C_FUNCTION("free_aligned_sized", FREE, FREE),

	NEW("_Znwm", FIRST_NEW + 4),
	NEW("_Znam", FIRST_NEW + 5),
	NEW("_ZnwmSt11align_val_t", FIRST_NEW + 6),
	NEW("_ZnamSt11align_val_t", FIRST_NEW + 7),
	NEW_NOTHROW("_ZnwmRKSt9nothrow_t"),
	NEW_NOTHROW("_ZnamRKSt9nothrow_t"),
	NEW_NOTHROW("_ZnwmSt11align_val_tRKSt9nothrow_t"),
	NEW_NOTHROW("_ZnamSt11align_val_tRKSt9nothrow_t"),

	DELETE("_ZdlPv"),
	DELETE("_ZdaPv"),
	DELETE("_ZdlPvm"),
	DELETE("_ZdaPvm"),
	DELETE("_ZdlPvSt11align_val_t"),
	DELETE("_ZdaPvSt11align_val_t"),
	DELETE("_ZdlPvmSt11align_val_t"),
	DELETE("_ZdaPvmSt11align_val_t"),
	DELETE("_ZdlPvRKSt9nothrow_t"),
	DELETE("_ZdaPvRKSt9nothrow_t"),
	DELETE("_ZdlPvSt11align_val_tRKSt9nothrow_t"),
	DELETE("_ZdaPvSt11align_val_tRKSt9nothrow_t"),

	JEMALLOC("mallocx", ALLOC, ALLOC),
	JEMALLOC("rallocx", REALLOC, REALLOC),
	JEMALLOC("xallocx", XALLOCX, REALLOC),
	JEMALLOC("dallocx", FREE, FREE),
	JEMALLOC("sdallocx", FREE, FREE),
	JEMALLOC("je_mallocx", ALLOC, ALLOC),
	JEMALLOC("je_rallocx", REALLOC, REALLOC),
	JEMALLOC("je_xallocx", XALLOCX, REALLOC),
	JEMALLOC("je_dallocx", FREE, FREE),
	JEMALLOC("je_sdallocx", FREE, FREE),
	JEMALLOC("je_malloc", ALLOC, ALLOC),
	JEMALLOC("je_free", FREE, FREE),
	JEMALLOC("je_calloc", CALLOC, ALIGNED),
	JEMALLOC("je_realloc", REALLOC, REALLOC),
	JEMALLOC("je_memalign", ALIGNED, ALIGNED),
	JEMALLOC("je_posix_memalign", POSIX_MEMALIGN, ALIGNED),
	JEMALLOC("je_aligned_alloc", ALIGNED, ALIGNED),
	JEMALLOC("je_valloc", ALLOC, ALIGNED),
};

#define COUNT (sizeof(functions) / sizeof(functions[0]))

size_t functions_count(void)
{
	return COUNT;
}

const struct function *functions_get(size_t index)
{
	return index < COUNT ? &functions[index] : NULL;
}

/* Every name starts with one of these; sorts out nearly all symbols at once. */
static bool first_letter_fits(const char *name)
{
	switch (name[0]) {
	case '_':
		return name[1] == 'Z' && (name[2] == 'n' || name[2] == 'd');
	case 'm':
	case 'f':
	case 'c':
	case 'r':
	case 'p':
	case 'a':
	case 'v':
	case 'x':
	case 'd':
	case 's':
	case 'j':
		return true;
	default:
		return false;
	}
}

int functions_find(const char *name)
{
	if (!first_letter_fits(name))
		return -1;
	for (size_t i = 0; i < COUNT; i++) {
		if (name[1] == functions[i].name[1] && strcmp(name, functions[i].name) == 0)
			return (int)i;
	}
	return -1;
}

bool function_allocates(const struct function *function)
{
	return function->class != HA_CLASS_FREE;
}

bool function_releases(const struct function *function)
{
	return function->class == HA_CLASS_FREE || function->class == HA_CLASS_REALLOC ||
	       function->class == HA_CLASS_REALLOCARRAY;
}
