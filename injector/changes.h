/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Words of the target that are to change while its threads read them (struct
 * ha_changes in payload/protocol.h): the list, in shared memory. Made by boot, or
 * by inject_change().
 */
#ifndef INJECTOR_CHANGES_H
#define INJECTOR_CHANGES_H

#include <stdint.h>

#include "payload/protocol.h"
#include "resolver/error.h"
#include "resolver/hashindex.h"

/* A list that is being made. */
struct changes {
	struct ha_changes *list; /* not owned */
	struct hashindex pages;	 /* of list->page, by address */
};

/* Frees what was needed to make it; the list stays. */
void changes_deinit(struct changes *changes);

void changes_clear(struct ha_changes *list);

/*
 * Have the word at @address, a multiple of 8, become @value if it is @expected.
 *
 * @protection  PROT_* of its page; only for a page that may not be written to
 *
 * ERROR_UNSUPPORTED: there are HA_CHANGES_MAX changes already, or HA_CHANGE_PAGES_MAX
 * pages of them.
 */
MUST_CHECK struct error *changes_add(struct changes *changes, uint64_t address, uint64_t expected,
				     uint64_t value, uint32_t protection);

/*
 * After they were made: what could not be changed, or was left open. Words that
 * held something else than was expected are no error. ERROR_BUSY: they were not
 * made. Errors of the kernel.
 */
MUST_CHECK struct error *changes_result(const struct ha_changes *list);

#endif
