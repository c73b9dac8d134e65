// SPDX-License-Identifier: GPL-3.0-or-later
/*
 * Changes where boot cannot run, for want of a lock or because of a seccomp filter:
 * T makes a call for each page, and one for each word.
 */
#include <sys/mman.h>
#include <sys/syscall.h>

#include "injector/changes.h"
#include "injector/inject.h"
#include "injector/inject_private.h"

static struct error *page_protect(struct borrow *borrow, struct ha_change_page *page,
				  uint32_t protection)
{
	const uint64_t args[6] = {page->address, HA_PAGE, protection};
	int64_t ret;
	struct error *err = inject_call(borrow, "mprotect", SYS_mprotect, args, &ret);

	if (!err || !error_errno(err))
		return err;
	page->error = -error_errno(err);
	error_free(err);
	return NULL;
}

/* With @open, as in pages_open() of boot; else as in pages_close(). */
static struct error *pages_protect(struct ha_changes *changes, struct borrow *borrow, bool open)
{
	struct error *err = NULL;

	for (uint32_t i = 0; i < HA_CHANGE_PAGES_MAX && i < changes->page_count && !err; i++) {
		struct ha_change_page *page = &changes->page[i];

		if (!(page->protection & PROT_WRITE) && !page->error)
			err = page_protect(borrow, page,
					   page->protection | (open ? PROT_WRITE : 0));
	}
	return err;
}

struct error *inject_change(struct inject *inject, struct borrow *borrow)
{
	struct ha_changes *changes = shm_region(inject->shm, HA_REGION_CHANGES);
	uint64_t pc = inject->journal->core.address + inject->core_header.change;
	struct error *err = inject_guard(inject, borrow), *closed;

	if (!err)
		err = pages_protect(changes, borrow, true);
	/* Bounded, since the target may have scribbled over the list. */
	for (uint32_t i = 0; i < HA_CHANGES_MAX && i < changes->count && !err; i++) {
		const struct ha_change change = changes->change[i];

		if (!changes->page[change.page % HA_CHANGE_PAGES_MAX].error)
			err = borrow_change(borrow, pc, change.address, change.expected,
					    change.value);
	}
	closed = pages_protect(changes, borrow, false);
	if (err)
		error_free(closed);
	if (err || closed)
		return err ? err : closed;
	changes->made = 1;
	return changes_result(changes);
}
