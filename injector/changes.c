// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/changes.h"

#include <inttypes.h>
#include <stddef.h>

void changes_clear(struct ha_changes *changes)
{
	changes->count = 0;
	changes->page_count = 0;
	changes->made = 0;
}

/* From the last one back: words of one page come together mostly. NULL: there are too many. */
static struct ha_change_page *page_find(struct ha_changes *changes, uint64_t address,
					uint32_t protection)
{
	struct ha_change_page *page = &changes->page[changes->page_count];

	while (page-- > changes->page) {
		if (page->address == address)
			return page;
	}
	if (changes->page_count == HA_CHANGE_PAGES_MAX)
		return NULL;
	page = &changes->page[changes->page_count++];
	*page = (struct ha_change_page){.address = address, .protection = protection};
	return page;
}

struct error *changes_add(struct ha_changes *changes, uint64_t address, uint64_t expected,
			  uint64_t value, uint32_t protection)
{
	const struct ha_change_page *page =
		page_find(changes, address & ~(uint64_t)(HA_PAGE - 1), protection);

	if (!page || changes->count == HA_CHANGES_MAX)
		return error_create(ERROR_UNSUPPORTED,
				    "the target has more words to be hooked than %u, or in more "
				    "pages than %u",
				    HA_CHANGES_MAX, HA_CHANGE_PAGES_MAX);
	changes->change[changes->count++] = (struct ha_change){
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
	for (uint32_t i = 0; i < changes->page_count; i++) {
		if (changes->page[i].error)
			return error_os(-changes->page[i].error,
					"cannot change the protection of the page at 0x%" PRIx64,
					changes->page[i].address);
	}
	return NULL;
}
