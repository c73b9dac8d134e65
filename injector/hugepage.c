// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/hugepage.h"

#include <string.h>
#include <sys/mman.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1 */
#endif

static uint64_t round_down(uint64_t address)
{
	return address & ~(HUGEPAGE_SIZE - 1);
}

static uint64_t round_up(uint64_t address)
{
	return round_down(address + HUGEPAGE_SIZE - 1);
}

void *hugepage_map(int fd, uint64_t size)
{
	uint8_t *room = mmap(NULL, size + HUGEPAGE_SIZE, PROT_NONE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	uint8_t *begin, *end = room + size + HUGEPAGE_SIZE;
	void *map;

	if (room == MAP_FAILED)
		return NULL;
	begin = (uint8_t *)round_up((uint64_t)room);
	map = mmap(begin, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd,
		   0);
	if (map == MAP_FAILED) {
		munmap(room, size + HUGEPAGE_SIZE);
		return NULL;
	}
	if (begin > room)
		munmap(room, (size_t)(begin - room));
	munmap(begin + size, (size_t)(end - begin - size));
	return map;
}

void hugepage_join(void *address, uint64_t size)
{
	uint64_t begin = round_up((uint64_t)address), end = round_down((uint64_t)address + size);

	/* One by one: the kernel gives up at the first one that it can't make. */
	for (; begin < end; begin += HUGEPAGE_SIZE)
		madvise((void *)begin, HUGEPAGE_SIZE, MADV_COLLAPSE);
}

uint64_t hugepage_hint(const struct maps *maps, uint64_t size)
{
	/*
	 * From the top, where the kernel begins also. What lies below the stack is
	 * left to the stack.
	 */
	for (size_t i = maps->count; i-- > 1;) {
		uint64_t low = maps->map[i - 1].end, high = round_down(maps->map[i].start);

		if (strcmp(maps->map[i].path, "[stack]") == 0 || maps->map[i].start >> 47)
			continue;
		if (high > low && high - low >= size + HUGEPAGE_SIZE)
			return round_down(high - size);
	}
	return 0;
}
