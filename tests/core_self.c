/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/core_self.h"

#include "payload/arch/x86_64/thread_pointer.h"
#include "resolver/ehframe.h"

#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* The text range, and what the loaded segments hold from an address on. */
struct image {
	uint64_t text_low, text_high;
	const ElfW(Phdr) * hdr; /* PT_GNU_EH_FRAME */
};

static struct image image_of(const struct dl_phdr_info *info)
{
	struct image image = {.text_low = UINT64_MAX};

	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *phdr = &info->dlpi_phdr[i];

		if (phdr->p_type == PT_GNU_EH_FRAME)
			image.hdr = phdr;
		if (phdr->p_type != PT_LOAD || !(phdr->p_flags & PF_X))
			continue;
		if (phdr->p_vaddr < image.text_low)
			image.text_low = phdr->p_vaddr;
		if (phdr->p_vaddr + phdr->p_memsz > image.text_high)
			image.text_high = phdr->p_vaddr + phdr->p_memsz;
	}
	return image;
}

static uint64_t segment_end(const struct dl_phdr_info *info, uint64_t vaddr)
{
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *phdr = &info->dlpi_phdr[i];

		if (phdr->p_type == PT_LOAD && vaddr >= phdr->p_vaddr &&
		    vaddr < phdr->p_vaddr + phdr->p_memsz)
			return phdr->p_vaddr + phdr->p_memsz;
	}
	return vaddr;
}

static void or_abort(struct error *err)
{
	if (!err)
		return;
	fprintf(stderr, "%s\n", error_message(err));
	abort();
}

static int add_module(struct dl_phdr_info *info, size_t size, void *data)
{
	struct image image = image_of(info);
	struct world *world = data;
	struct ehframe_location location;
	struct ehframe_table table;
	struct ehframe_input in;
	uint64_t offset;

	if (!image.hdr || image.text_low >= image.text_high)
		return 0;
	or_abort(ehframe_find((const uint8_t *)info->dlpi_addr + image.hdr->p_vaddr,
			      image.hdr->p_memsz, image.hdr->p_vaddr, &location));
	in = (struct ehframe_input){
		.data = (const uint8_t *)info->dlpi_addr + location.vaddr,
		.size = segment_end(info, location.vaddr) - location.vaddr,
		.vaddr = location.vaddr,
		.text_low = image.text_low,
		.text_high = image.text_high,
		.last_fde = location.last_fde,
		.full = strstr(info->dlpi_name, "/ld-linux") != NULL,
	};
	or_abort(ehframe_compile(&in, &table));
	offset = world_add_table(world, table.table, table.size, info->dlpi_addr);
	world_add_module(world, info->dlpi_addr + image.text_low, info->dlpi_addr + image.text_high,
			 offset, 0);
	ehframe_table_deinit(&table);
	return 0;
}

static void find_main_stack(struct world *world)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	uint64_t low, high;
	struct rlimit limit;
	char line[512];

	if (!maps || getrlimit(RLIMIT_STACK, &limit))
		abort();
	while (fgets(line, sizeof(line), maps)) {
		if (!strstr(line, "[stack]") || sscanf(line, "%lx-%lx", &low, &high) != 2)
			continue;
		world->shm->main_stack_high = high;
		world->shm->main_stack_low = limit.rlim_cur < high ? high - limit.rlim_cur : low;
	}
	fclose(maps);
	world->shm->main_fs = thread_pointer();
}

void world_add_self(struct world *world)
{
	world->modules = 0;
	dl_iterate_phdr(add_module, world);
	world_publish_modules(world);
	find_main_stack(world);
}

/* The first two words of struct pthread that are a page-aligned range around sp. */
static void *find_offset(void *ret)
{
	uint64_t fs = thread_pointer(), sp = (uint64_t)__builtin_frame_address(0);

	for (uint64_t offset = 0; offset < 0x900; offset += 8) {
		uint64_t block = *(const uint64_t *)(fs + offset);
		uint64_t size = *(const uint64_t *)(fs + offset + 8);

		if (!block || size > (1ull << 30) || block % HA_PAGE || size % HA_PAGE ||
		    sp < block || sp - block >= size)
			continue;
		*(uint64_t *)ret = offset;
		return NULL;
	}
	return NULL;
}

void world_find_tcb_offset(struct world *world)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, find_offset, &world->shm->tcb_stack_offset))
		abort();
	pthread_join(thread, NULL);
}
