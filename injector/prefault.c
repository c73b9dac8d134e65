// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/prefault.h"

#include <stdint.h>
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
#define STACK_BYTES (128ull << 10) /* of the main stack, from its present end on */

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

void prefault_all(void)
{
	CLEANUP(maps_deinit) struct maps maps = {0};
	struct error *err = maps_read(getpid(), &maps);
	uint64_t left = BYTES_MAX;

	error_free(err);
	for (size_t i = 0; i < maps.count; i++) {
		const struct map *map = &maps.map[i];
		uint64_t size = map->end - map->start;

		if (map->shared || !map->read || !strncmp(map->path, "[v", 2))
			continue;
		if (!strcmp(map->path, "[stack]")) {
			populate_stack(map);
		} else if (size <= left) {
			populate(map->start, map->end,
				 map->write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
			left -= size;
		}
	}
}
