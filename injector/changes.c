// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/changes.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>

void changes_clear(struct ha_changes *changes)
{
	changes->count = 0;
	changes->page_count = 0;
	changes->made = 0;
}

/* The target may have scribbled over what we wrote. */
static uint32_t page_count(const struct ha_changes *changes)
{
	uint32_t count = __atomic_load_n(&changes->page_count, __ATOMIC_RELAXED);

	return count < HA_CHANGE_PAGES_MAX ? count : HA_CHANGE_PAGES_MAX;
}

/* From the last one back: words of one page come together mostly. NULL: there are too many. */
static struct ha_change_page *page_find(struct ha_changes *changes, uint64_t address,
					uint32_t protection)
{
	uint32_t count = page_count(changes);
	struct ha_change_page *page = &changes->page[count];

	while (page-- > changes->page) {
		if (page->address == address)
			return page;
	}
	if (count == HA_CHANGE_PAGES_MAX)
		return NULL;
	page = &changes->page[count];
	changes->page_count = count + 1;
	*page = (struct ha_change_page){.address = address, .protection = protection};
	return page;
}

struct error *changes_add(struct ha_changes *changes, uint64_t address, uint64_t expected,
			  uint64_t value, uint32_t protection)
{
	const struct ha_change_page *page =
		page_find(changes, address & ~(uint64_t)(HA_PAGE - 1), protection);
	uint32_t count = __atomic_load_n(&changes->count, __ATOMIC_RELAXED);

	if (!page || count >= HA_CHANGES_MAX)
		return error_create(ERROR_UNSUPPORTED,
				    "the target has more words to be hooked than %u, or in more "
				    "pages than %u",
				    HA_CHANGES_MAX, HA_CHANGE_PAGES_MAX);
	changes->count = count + 1;
	changes->change[count] = (struct ha_change){
		.address = address,
		.expected = expected,
		.value = value,
		.page = (uint32_t)(page - changes->page),
	};
	return NULL;
}

struct error *changes_result(const struct ha_changes *changes)
{
	if (!__atomic_load_n(&changes->made, __ATOMIC_ACQUIRE))
		return error_create(ERROR_BUSY, "the target's thread did not come to make changes");
	for (uint32_t i = 0; i < page_count(changes); i++) {
		int32_t error = __atomic_load_n(&changes->page[i].error, __ATOMIC_RELAXED);

		if (error < 0)
			return error_os(error < -4095 ? EINVAL : -error,
					"cannot change the protection of the page at 0x%" PRIx64,
					changes->page[i].address);
	}
	return NULL;
}
