// SPDX-License-Identifier: GPL-3.0-or-later
/*
 * Functions that only hand an allocation on. A site called "malloc" or "operator
 * new" tells nobody anything, so a site is called after the first frame that is
 * none of these.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "resolver/array.h"
#include "resolver/funcname.h"
#include "resolver/report_sites.h"

/* Whole names, without parameters. */
static const char *const names[] = {
	/* the C library, and what allocators export */
	"malloc", "calloc", "realloc", "reallocarray", "memalign", "aligned_alloc",
	"posix_memalign", "valloc", "pvalloc", "mallocx", "rallocx", "xallocx", "operator new",
	"operator new[]", "__libc_malloc", "__libc_calloc", "__libc_realloc", "__libc_memalign",
	"tc_malloc", "tc_calloc", "tc_realloc", "tc_new", "tc_newarray", "tc_memalign",
	/* Rust */
	"__rust_alloc", "__rust_alloc_zeroed", "__rust_realloc", "__rdl_alloc",
	"__rdl_alloc_zeroed", "__rdl_realloc", "__rg_alloc", "__rg_realloc",
	/* wrappers that many programs carry under these names */
	"xmalloc", "xcalloc", "xrealloc", "xmemdup", "xstrdup", "xzalloc", "zmalloc", "zcalloc",
	"zrealloc", "ztrymalloc", "ztrycalloc", "ztryrealloc", "ztrymalloc_usable",
	"ztryrealloc_usable", "ztrycalloc_usable", "zmalloc_usable", "zcalloc_usable",
	"zrealloc_usable", "ztrymalloc_usable_internal", "ztrycalloc_usable_internal",
	"ztryrealloc_usable_internal", "zcalloc_num", "zstrdup", "g_malloc", "g_malloc0",
	"g_malloc_n", "g_malloc0_n", "g_realloc", "g_realloc_n", "g_try_malloc", "g_try_realloc",
	"g_slice_alloc", "g_slice_alloc0", "ngx_alloc", "ngx_calloc", "ngx_memalign", "my_malloc",
	"my_realloc", "PyMem_Malloc", "PyMem_Calloc", "PyMem_Realloc", "PyMem_RawMalloc",
	"PyMem_RawCalloc", "PyMem_RawRealloc", "_PyMem_RawMalloc", "_PyMem_RawCalloc",
	"_PyMem_RawRealloc", "PyObject_Malloc", "PyObject_Calloc", "PyObject_Realloc",
	"_PyObject_Malloc", "_PyObject_Calloc", "_PyObject_Realloc", "CRYPTO_malloc",
	"CRYPTO_zalloc", "CRYPTO_realloc", "CRYPTO_strdup", "CRYPTO_memdup"};

/* Beginnings of names. */
static const char *const prefixes[] = {
	/* C */
	"je_malloc", "je_calloc", "je_realloc", "je_mallocx", "je_rallocx", "je_aligned_alloc",
	"je_posix_memalign", "je_memalign", "je_valloc", "mi_malloc", "mi_calloc", "mi_realloc",
	"mi_zalloc", "mi_new", "tcmalloc::",
	/* C++ and Rust */
	"std::allocator<", "std::allocator_traits<", "std::__new_allocator<", "std::__allocator_",
	"__gnu_cxx::new_allocator<", "__gnu_cxx::__alloc_traits<", "__gnu_cxx::malloc_allocator<",
	"__gnu_cxx::__pool_alloc<", "std::__allocate_guarded", "std::__1::allocator<",
	"std::__1::allocator_traits<", "std::__1::__libcpp_allocate",
	"std::__1::__libcpp_operator_new", "alloc::alloc::", "<alloc::alloc::Global as",
	"alloc::raw_vec::", "_Znwm", "_Znam"};

/* Ends of names: member functions of any container. */
static const char *const members[] = {"::_M_allocate", "::_M_create_storage"};

/* @function is a call of a member called @member; template arguments may hold brackets. */
static bool is_member(const char *function, const char *member)
{
	const char *found = strstr(function, member);

	return found && found[strlen(member)] == '(';
}

bool report_is_allocator(const char *function)
{
	size_t size;

	if (!function)
		return false;
	function += funcname_begin(function);
	size = strcspn(function, "(."); /* parameters, ".part.0" */
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (strlen(names[i]) == size && !memcmp(names[i], function, size))
			return true;
	for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++)
		if (!strncmp(function, prefixes[i], strlen(prefixes[i])))
			return true;
	for (size_t i = 0; i < ARRAY_SIZE(members); i++)
		if (is_member(function, members[i]))
			return true;
	return false;
}

static void put_literal(FILE *out, const char *text)
{
	for (; *text; text++)
		fprintf(out, strchr("[](){}.*+?^$|\\", *text) ? "\\%c" : "%c", *text);
}

char *report_allocator_regexp(void)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return NULL;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		put_literal(out, names[i]);
		fputs("(\\..*)?|", out); /* ".part.0" */
	}
	for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++) {
		put_literal(out, prefixes[i]);
		fputs(".*|", out);
	}
	for (size_t i = 0; i < ARRAY_SIZE(members); i++) {
		fputs(i ? "|.*" : ".*", out);
		put_literal(out, members[i]);
	}
	if (fclose(out)) {
		free(text);
		return NULL;
	}
	return text;
}
