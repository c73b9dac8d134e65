/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What targets share that fork: memory in which all processes tell what they
 * do, and whether a process's slot of malloc is hooked.
 */
#ifndef TARGETS_FORKED_H
#define TARGETS_FORKED_H

#include "tests/targets/target.h"

#include <dlfcn.h>
#include <sys/mman.h>

static void *forked_real_malloc;

/* @size bytes that children share. First of all, since it looks where malloc is. */
static inline void *forked_share(size_t size)
{
	void *shared = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	forked_real_malloc = dlsym(dlopen("libc.so.6", RTLD_NOLOAD | RTLD_NOW), "malloc");
	if (shared == MAP_FAILED || !forked_real_malloc)
		target_fail("set-up");
	return shared;
}

/* Read anew each time, from our slot: with -fno-plt that is where &malloc is. */
NOINLINE static bool forked_is_hooked(void)
{
	void *word = (void *)malloc;

	KEEP(word);
	return word != forked_real_malloc;
}

#endif
