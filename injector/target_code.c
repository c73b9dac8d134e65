// SPDX-License-Identifier: GPL-3.0-or-later
/*
 * Code of the target's own that makes system calls for us.
 */
#include "injector/target_private.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "injector/arch.h"
#include "resolver/cleanup.h"
#include "resolver/maps.h"

/* More than any vDSO has. */
#define VDSO_MAX (64u * 1024u)
/* Of one mapping of code; loaders have some 200 KiB, static programs more. */
#define TEXT_MAX (16u * 1024u * 1024u)

void target_set_gadget(struct target *target, uint64_t address)
{
	target->gadget = address;
}

struct error *target_gadget(struct target *target, uint64_t *address_ret)
{
	CLEANUP(freep) uint8_t *text = NULL;
	const uint8_t *found;
	struct error *err;
	uint64_t vdso;
	size_t size;

	if (target->gadget) {
		*address_ret = target->gadget;
		return NULL;
	}
	err = target_auxv(target, AT_SYSINFO_EHDR, &vdso);
	if (err)
		return error_prefix(err, "cannot find the vDSO");
	text = malloc(VDSO_MAX);
	if (!text)
		return error_memory();
	err = target_read_some(target, vdso, text, VDSO_MAX, &size);
	if (err)
		return err;
	found = memmem(text, size, arch_syscall_instruction, arch_syscall_instruction_size);
	if (!found)
		return error_create(ERROR_NOT_FOUND,
				    "process %d has no vDSO with a system call in it", target->pid);
	target->gadget = vdso + (uint64_t)(found - text);
	*address_ret = target->gadget;
	return NULL;
}

static struct error *search_text(struct target *target, const struct map *map)
{
	size_t size = map->end - map->start < TEXT_MAX ? map->end - map->start : TEXT_MAX;
	CLEANUP(freep) uint8_t *text = malloc(size);
	struct target_guard_code *code = &target->guard_code;
	struct error *err;
	size_t at;

	if (!text)
		return error_memory();
	err = target_read_some(target, map->start, text, size, &size);
	if (err)
		return err;
	at = arch_find_call_return(text, size);
	if (!code->call_return && at != ARCH_NOT_FOUND)
		code->call_return = map->start + at;
	at = arch_find_sigreturn(text, size);
	if (!code->sigreturn && at != ARCH_NOT_FOUND)
		code->sigreturn = map->start + at;
	return NULL;
}

/* In all code of the file that is mapped at the address in entry @type of the auxiliary vector. */
static struct error *search_file(struct target *target, const struct maps *maps, uint64_t type)
{
	const struct map *file = NULL;
	struct error *err;
	uint64_t address;

	err = target_auxv(target, type, &address);
	if (!err)
		file = maps_find(maps, address);
	for (size_t i = 0; !err && file && i < maps->count; i++) {
		const struct map *map = &maps->map[i];

		if (map->exec && map->inode && map->inode == file->inode &&
		    map->major == file->major && map->minor == file->minor)
			err = search_text(target, map);
	}
	if (error_is(err, ERROR_NOT_FOUND)) {
		error_free(err);
		err = NULL;
	}
	return err;
}

struct error *target_guard_code(struct target *target, struct target_guard_code *ret)
{
	struct target_guard_code *code = &target->guard_code;
	struct error *err = NULL;
	struct maps maps = {0};

	if (!target->guard_code_searched) {
		err = maps_read(target->pid, &maps);
		/* AT_BASE is the loader; there is none in a static program. */
		if (!err)
			err = search_file(target, &maps, AT_BASE);
		if (!err && (!code->call_return || !code->sigreturn))
			err = search_file(target, &maps, AT_ENTRY);
		maps_deinit(&maps);
		target->guard_code_searched = !err;
	}
	if (err)
		return err;
	if (!code->call_return || !code->sigreturn)
		return error_create(ERROR_NOT_FOUND,
				    "process %d has no code that returns from a signal handler",
				    target->pid);
	*ret = *code;
	return NULL;
}
