// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/preflight.h"

#include "injector/functions.h"
#include "injector/leftover.h"
#include "resolver/cleanup.h"
#include "resolver/text.h"

#include <string.h>

#define OWNER_TID 0x3fffffffu /* FUTEX_TID_MASK: the thread that holds a robust mutex */

static struct error *check_loader(const struct modules *modules, const char *comm)
{
	if (!modules->is_static)
		return NULL;
	return error_hint(error_create(ERROR_UNSUPPORTED,
				       "%s is statically linked: its calls of malloc "
				       "go through no table that could be changed",
				       comm),
			  "link it dynamically (without -static) to profile it");
}

/* Sanitizers put an allocator of their own in place and check who calls it. */
static const char *sanitizer_of(const struct module *module)
{
	static const char *const symbols[][2] = {
		{"__asan_init", "AddressSanitizer"}, {"__hwasan_init", "HWAddressSanitizer"},
		{"__tsan_init", "ThreadSanitizer"},  {"__msan_init", "MemorySanitizer"},
		{"__lsan_init", "LeakSanitizer"},
	};

	for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
		if (module_symbol_or_0(module, symbols[i][0]))
			return symbols[i][1];
	}
	return NULL;
}

static struct error *check_sanitizers(const struct modules *modules, const char *comm)
{
	for (size_t i = 0; i < modules->count; i++) {
		const char *name = sanitizer_of(modules->module[i]);

		if (name)
			return error_hint(
				error_create(ERROR_UNSUPPORTED,
					     "%s was built with %s, which replaces malloc", comm,
					     name),
				"use a build without -fsanitize");
	}
	return NULL;
}

/* The mutex that a recording heapattach holds in the shared memory names it, until it dies. */
static struct error *check_session(const struct memory_reader *memory,
				   const struct modules *modules, const char *comm)
{
	const struct module *entry = modules_entry(modules);
	uint32_t state = HA_STATE_OFF, owner = 0, tid;
	uint64_t data, shm = 0, gate = 0, magic = 0;

	if (!entry)
		return NULL;
	data = entry->low + HA_ENTRY_DATA;
	if (!memory_try(memory, data + offsetof(struct ha_entry, state), &state, sizeof(state)) ||
	    state != HA_STATE_ON ||
	    !memory_try_u64(memory, data + offsetof(struct ha_entry, gate), &gate) ||
	    /* A child of the recorded process: fork has wiped the gate. */
	    !memory_try_u64(memory, gate, &magic) || magic != HA_GATE_MAGIC ||
	    !memory_try_u64(memory, data + offsetof(struct ha_entry, shm), &shm) ||
	    !memory_try(memory, shm + offsetof(struct ha_shm, owner), &owner, sizeof(owner)))
		return NULL;
	tid = owner & OWNER_TID;
	if (!tid || (owner & HA_OWNER_DIED))
		return NULL;
	return error_hint(error_create(ERROR_BUSY,
				       "%s is being profiled by heapattach process %u "
				       "already",
				       comm, tid),
			  "end that one first: kill -INT %u", tid);
}

struct error *preflight_image(const struct memory_reader *memory, const struct modules *modules,
			      struct preflight *preflight)
{
	CLEANUP(freep) char *comm = text_printable(preflight->comm ? preflight->comm : "?");
	struct error *err;

	if (!comm)
		return error_memory();
	preflight->libc = modules->libc;
	err = check_loader(modules, comm);
	if (!err)
		err = check_sanitizers(modules, comm);
	if (!err)
		err = check_session(memory, modules, comm);
	if (!err)
		err = leftover_check_version(memory, modules, preflight->pid, false);
	return err;
}

/* ---- the allocator */

/* By symbols that only this allocator has, then by the file's name. */
static const char *allocator_of(const struct module *module, enum libc_kind libc)
{
	static const char *const known[][3] = {
		{"mallctl", "jemalloc", "jemalloc"},
		{"je_mallctl", "jemalloc", "jemalloc"},
		{"tc_version", "tcmalloc", "tcmalloc"},
		{"MallocExtension_Internal_GetStats", "tcmalloc", "tcmalloc"},
		{"mi_version", "mimalloc", "mimalloc"},
		{"sn_malloc_usable_size", "snmalloc", "snmalloc"},
		{"__scudo_print_stats", "scudo", "scudo"},
		{"rpmalloc_initialize", "rpmalloc", "rpmalloc"},
	};

	if (module->is_libc)
		return libc == LIBC_MUSL ? "musl" : "glibc";
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		if (module_symbol_or_0(module, known[i][0]) || strstr(module->path, known[i][1]))
			return known[i][2];
	}
	return module->is_executable ? "the program's own" : "another library's";
}

/* Where malloc leads to from the executable, else from most slots. */
static uint64_t malloc_of(const struct modules *modules, const struct slots *slots)
{
	const struct module *program = modules_executable(modules);
	int function = functions_find("malloc");
	uint64_t best = 0;
	size_t most = 0;

	for (size_t i = 0; i < slots->count; i++) {
		size_t count = 0;

		if (slots->slot[i].function != function)
			continue;
		if (program && slots->slot[i].module == program->id)
			return slots->slot[i].call;
		for (size_t k = 0; k < slots->count; k++)
			count += slots->slot[k].function == function &&
				 slots->slot[k].call == slots->slot[i].call;
		if (count > most) {
			most = count;
			best = slots->slot[i].call;
		}
	}
	return best;
}

struct error *preflight_allocator(const struct modules *modules, const struct slots *slots,
				  struct preflight *preflight)
{
	const struct module *program = modules_executable(modules);
	const struct module *module = NULL;
	uint64_t address;

	if (program && program->defines_malloc) {
		module = program;
	} else {
		address = malloc_of(modules, slots);
		if (address)
			module = modules_find(modules, address);
	}
	free(preflight->allocator_path);
	preflight->allocator = module ? allocator_of(module, modules->libc) : "unknown";
	preflight->allocator_path = strdup(module ? module->path : "");
	return preflight->allocator_path ? NULL : error_memory();
}
