// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/changes.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>

void changes_deinit(struct changes *changes)
{
	hashindex_deinit(&changes->pages);
}

void changes_clear(struct ha_changes *list)
{
	list->count = 0;
	list->page_count = 0;
	list->made = 0;
}

/* The target may have scribbled over what we wrote. */
static uint32_t page_count(const struct ha_changes *list)
{
	uint32_t count = __atomic_load_n(&list->page_count, __ATOMIC_RELAXED);

	return count < HA_CHANGE_PAGES_MAX ? count : HA_CHANGE_PAGES_MAX;
}

static struct error *too_many(void)
{
	return error_create(ERROR_UNSUPPORTED,
			    "the target has more words to be hooked than %u, or in more "
			    "pages than %u",
			    HA_CHANGES_MAX, HA_CHANGE_PAGES_MAX);
}

/* Slots are in an order that comes back to each page once for each function. */
static struct error *page_find(struct changes *changes, uint64_t address, uint32_t protection,
			       uint32_t *ret)
{
	struct ha_changes *list = changes->list;
	uint64_t hash = hash_u64(0, address);
	uint32_t count = page_count(list);
	struct error *err;
	size_t slot;

	for (slot = hashindex_first(&changes->pages, hash);
	     hashindex_next(&changes->pages, &slot, hash, ret);)
		if (*ret < count && list->page[*ret].address == address)
			return NULL;
	if (count == HA_CHANGE_PAGES_MAX)
		return too_many();
	err = hashindex_add(&changes->pages, hash, count);
	if (err)
		return err;
	list->page[count] = (struct ha_change_page){.address = address, .protection = protection};
	list->page_count = count + 1;
	*ret = count;
	return NULL;
}

struct error *changes_add(struct changes *changes, uint64_t address, uint64_t expected,
			  uint64_t value, uint32_t protection)
{
	struct ha_changes *list = changes->list;
	uint32_t count = __atomic_load_n(&list->count, __ATOMIC_RELAXED), page;
	struct error *err;

	if (count >= HA_CHANGES_MAX)
		return too_many();
	err = page_find(changes, address & ~(uint64_t)(HA_PAGE - 1), protection, &page);
	if (err)
		return err;
	list->count = count + 1;
	list->change[count] = (struct ha_change){
		.address = address,
		.expected = expected,
		.value = value,
		.page = page,
	};
	return NULL;
}

struct error *changes_result(const struct ha_changes *list)
{
	if (!__atomic_load_n(&list->made, __ATOMIC_ACQUIRE))
		return error_create(ERROR_BUSY, "the target's thread did not come to make changes");
	for (uint32_t i = 0; i < page_count(list); i++) {
		int32_t error = __atomic_load_n(&list->page[i].error, __ATOMIC_RELAXED);

		if (error < 0)
			return error_os(error < -4095 ? EINVAL : -error,
					"cannot change the protection of the page at 0x%" PRIx64,
					list->page[i].address);
	}
	return NULL;
}
