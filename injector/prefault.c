// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/prefault.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "resolver/cleanup.h"
#include "resolver/maps.h"

/* include/uapi/asm-generic/mman-common.h, Linux 5.14 */
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif

#define BYTES_MAX   (32ull << 20)
#define PAGE_BYTES  4096u
#define SPAN_MAX    (1ull << 30) /* larger ones are address space, not memory: not looked through */
#define RUN_PAGES   512u
#define PAGE_USED   (3ull << 62)   /* admin-guide/mm/pagemap.rst: present, or swapped out */
#define STACK_BYTES (128ull << 10) /* of the main stack, from its present end on */
#define REPORT_MAX  (64ull << 10)

/*
 * Then each page is touched: under a hypervisor that shadows our page tables,
 * the first access by the processor is the one that costs. (Some of these bytes
 * lie between variables, where AddressSanitizer allows nobody to look.)
 */
__attribute__((no_sanitize_address)) static void populate(uint64_t start, uint64_t end, int how)
{
	if (madvise((void *)(uintptr_t)start, end - start, how))
		return;
	for (uint64_t at = start; at < end; at += PAGE_BYTES) {
		volatile uint8_t *byte = (volatile uint8_t *)(uintptr_t)at;
		uint8_t value = *byte;

		if (how == MADV_POPULATE_WRITE)
			*byte = value;
	}
}

/* The stack is as large as it has ever been: what lies above us is in use. */
static void populate_stack(const struct map *map)
{
	uint64_t here = (uint64_t)__builtin_frame_address(0) & ~UINT64_C(4095);
	uint64_t low = here - STACK_BYTES;

	populate(low > map->start ? low : map->start, map->end, MADV_POPULATE_WRITE);
}

static uint64_t inode_at(const struct maps *maps, const void *address)
{
	const struct map *map = maps_find(maps, (uint64_t)(uintptr_t)address);

	return map ? map->inode : 0;
}

/* What a worker and the program tell each other; the target's shared memory is sparse. */
static void populate_report(const struct map *map)
{
	if (map->end - map->start <= REPORT_MAX)
		populate(map->start, map->end, MADV_POPULATE_READ);
}

/* How many bytes from @start on are all used, or all unused, by the other process? */
static uint64_t run_bytes(int pagemap, uint64_t start, uint64_t end, bool *used_ret)
{
	uint64_t page[RUN_PAGES], count = (end - start) / PAGE_BYTES, run = 1;
	ssize_t got;

	if (count > RUN_PAGES)
		count = RUN_PAGES;
	got = pread(pagemap, page, count * sizeof(*page),
		    (off_t)(start / PAGE_BYTES * sizeof(*page)));
	if (got < (ssize_t)sizeof(*page)) {
		*used_ret = true;
		return end - start;
	}
	count = (uint64_t)got / sizeof(*page);
	*used_ret = page[0] & PAGE_USED;
	while (run < count && !(page[run] & PAGE_USED) == !*used_ret)
		run++;
	return run * PAGE_BYTES;
}

static void populate_used(int pagemap, const struct map *map, uint64_t *left)
{
	uint64_t at = map->start, size;
	bool used;

	for (; at < map->end; at += size) {
		size = run_bytes(pagemap, at, map->end, &used);
		if (!used)
			continue;
		if (size > *left)
			return;
		populate(at, at + size, map->write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
		*left -= size;
	}
}

/*
 * Of files only our own and the C library's: no other code runs while a thread
 * is stopped. Ours as a whole, since what runs in a worker runs only there; it
 * may not even be in the page cache.
 */
static void populate_file(int pagemap, const struct maps *maps, const struct map *map,
			  uint64_t *left)
{
	if (map->inode == inode_at(maps, (const void *)&prefault_all))
		populate(map->start, map->end, MADV_POPULATE_READ);
	else if (map->inode == inode_at(maps, (const void *)&madvise))
		populate_used(pagemap, map, left);
}

void prefault_all(pid_t like)
{
	CLEANUP(maps_deinit) struct maps maps = {0};
	struct error *err = maps_read(getpid(), &maps);
	CLEANUP(closep) int fd = -1;
	uint64_t left = BYTES_MAX;
	char path[64];

	error_free(err);
	snprintf(path, sizeof(path), "/proc/%d/pagemap", like);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	for (size_t i = 0; i < maps.count; i++) {
		const struct map *map = &maps.map[i];

		if (!map->read || !strncmp(map->path, "[v", 2) || map->end - map->start > SPAN_MAX)
			continue;
		if (map->shared)
			populate_report(map);
		else if (!strcmp(map->path, "[stack]"))
			populate_stack(map);
		else if (map->inode && !map->write)
			populate_file(fd, &maps, map, &left);
		else
			populate_used(fd, map, &left);
	}
}
