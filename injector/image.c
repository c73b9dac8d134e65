// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/image.h"

#include <elf.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "injector/payload_image.h"
#include "resolver/cleanup.h"

static struct error *memfd_filled(const char *name, const void *bytes, size_t size, int *fd_ret)
{
	CLEANUP(closep) int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	size_t done = 0;

	if (fd < 0)
		return error_os(errno, "cannot create a memory file for the payload");
	while (done < size) {
		ssize_t n = write(fd, (const uint8_t *)bytes + done, size - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return error_os(errno, "cannot fill a memory file with the payload");
		done += (size_t)n;
	}
	*fd_ret = take_fd(&fd);
	return NULL;
}

struct error *image_core_header(struct ha_core *ret)
{
	if (payload_core_size < sizeof(*ret))
		return error_create(ERROR_FORMAT, "the built-in payload is cut short");
	memcpy(ret, payload_core, sizeof(*ret));
	if (ret->magic != HA_MAGIC || ret->abi != HA_ABI)
		return error_create(ERROR_FORMAT, "the built-in payload is of another version");
	return NULL;
}

struct error *image_core(int *fd_ret)
{
	return memfd_filled("heapattach-core", payload_core, payload_core_size, fd_ret);
}

struct error *image_entry_file(int *fd_ret)
{
	return memfd_filled("heapattach-entry", payload_entry, payload_entry_size, fd_ret);
}

struct error *image_entry_memory(int *fd_ret)
{
	const Elf64_Ehdr *header = (const Elf64_Ehdr *)payload_entry;
	const Elf64_Phdr *phdr = (const Elf64_Phdr *)(payload_entry + header->e_phoff);
	uint8_t memory[HA_ENTRY_SIZE] = {0};
	size_t i;

	for (i = 0; i < header->e_phnum; i++) {
		if (phdr[i].p_type != PT_LOAD)
			continue;
		if (phdr[i].p_vaddr + phdr[i].p_memsz > sizeof(memory) ||
		    phdr[i].p_offset + phdr[i].p_filesz > payload_entry_size)
			return error_create(ERROR_FORMAT, "the built-in payload is malformed");
		memcpy(memory + phdr[i].p_vaddr, payload_entry + phdr[i].p_offset,
		       phdr[i].p_filesz);
	}
	return memfd_filled("heapattach-entry", memory, sizeof(memory), fd_ret);
}
