/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The loader's list of objects, as it stands in the target's memory: struct
 * r_debug, one list of struct link_map for each namespace.
 */
#ifndef INJECTOR_LINKLIST_H
#define INJECTOR_LINKLIST_H

#include "injector/memory.h"
#include "resolver/hashindex.h"

struct link_entry {
	uint64_t map;	     /* address of its struct link_map */
	uint64_t bias;	     /* l_addr */
	uint64_t dynamic;    /* l_ld */
	uint32_t name_space; /* 0 = base */
	char *name;	     /* l_name; owned; NULL after linklist_read_frozen() */
};

struct link_list {
	struct link_entry *entry; /* base namespace first, each in the loader's order; owned */
	size_t count;
	uint32_t name_spaces;
	struct hashindex index; /* of entry, by bias and dynamic */
};

/*
 * Read the list at @r_debug twice, until both are equal and the loader says
 * that it is not changing it. ERROR_BUSY if that does not happen within about
 * 20 ms, or if there is no list yet. An object that appears in several
 * namespaces (the loader itself) is listed once.
 */
MUST_CHECK struct error *linklist_read(const struct memory_reader *memory, uint64_t r_debug,
				       struct link_list *ret);
/*
 * Read the list once, without names: for when nobody can change what is asked
 * of it, because the loader's lock is held. The @count link maps at @maps, most of
 * which should be in the list, are read together, without a call for each.
 */
MUST_CHECK struct error *linklist_read_frozen(const struct memory_reader *memory, uint64_t r_debug,
					      const uint64_t *maps, size_t count,
					      struct link_list *ret);
/* The entry with these, or NULL. */
const struct link_entry *linklist_find(const struct link_list *list, uint64_t map, uint64_t bias,
				       uint64_t dynamic);
void linklist_deinit(struct link_list *list);

#endif
