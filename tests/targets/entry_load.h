/* SPDX-License-Identifier: GPL-3.0-or-later */
/* For targets that load the entry object by themselves, in C and C++ alike. */
#ifndef TESTS_TARGETS_ENTRY_LOAD_H
#define TESTS_TARGETS_ENTRY_LOAD_H

#ifdef __cplusplus
#define _Static_assert static_assert
#endif
#include "payload/protocol.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* Load the object at @path. Returns its data; NULL, with a message, if it cannot be loaded. */
static inline struct ha_entry *entry_load(const char *path)
{
	void *handle = dlopen(path, RTLD_NOW);

	if (!handle) {
		fprintf(stderr, "%s\n", dlerror());
		return NULL;
	}
	/* glibc's and musl's handle alike is a struct link_map, which starts with l_addr. */
	return (struct ha_entry *)(*(uint64_t *)handle + HA_ENTRY_DATA);
}

typedef void *entry_alloc(size_t size);

/* Make pair @k a function of class @c with @original; returns its stub. */
static inline entry_alloc *entry_stub(struct ha_entry *entry, unsigned int k, enum ha_class c,
				      uint64_t original)
{
	uint64_t base = (uint64_t)entry - HA_ENTRY_DATA;

	entry->pairs[k].call = original;
	entry->pairs[k].body = base + entry->bodies[c];
	return (entry_alloc *)(base + HA_ENTRY_STUBS + k * HA_STUB_SIZE);
}

#endif
