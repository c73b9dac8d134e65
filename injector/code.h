/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The target's code as a stack walk needs it: compiled unwind tables of all
 * modules, the sorted code map and the facts of the safe-point rules for us,
 * and the same tables published to the payload.
 *
 * Everything is compiled from the target's memory, so that deleted and
 * replaced files are no different. For one thread at a time.
 */
#ifndef INJECTOR_CODE_H
#define INJECTOR_CODE_H

#include <stddef.h>
#include <stdint.h>

#include "injector/memory.h"
#include "injector/modules.h"
#include "injector/safepoint.h"
#include "injector/shm.h"
#include "resolver/ehframe.h"
#include "resolver/error.h"

/* A module's compiled table, kept while the module is mapped. */
struct code_module {
	uint32_t id;		    /* struct module.id */
	struct ehframe_table table; /* table.table NULL: no call frame information */
	uint64_t shm_offset;	    /* where the payload finds it; 0 = not published */
};

struct code {
	struct code_module *module; /* same order as the modules of the last update */
	size_t count;
	struct code_range *range; /* what context.code points to */
	struct safepoint_module *facts;
	struct safepoint_context context;
	const struct modules *modules; /* of the last update */
	struct memory_reader memory;
};

/* A zeroed struct is fine. */
void code_deinit(struct code *code);

/*
 * Bring @code up to @modules: compile tables of new modules, forget those that
 * are gone, rebuild map and facts. @modules must outlive the next update. A
 * module without usable call frame information is no error. ERROR_MEMORY.
 */
MUST_CHECK struct error *code_update(struct code *code, const struct memory_reader *memory,
				     const struct modules *modules);

/*
 * Publish the current list to the payload under @generation. @loads: what the
 * loader's counter says while the list is good (modules->load_adds, unless we
 * are about to load something ourselves). ERROR_MEMORY when the shared memory
 * has no room.
 */
MUST_CHECK struct error *code_publish(struct code *code, struct shm *shm,
				      const struct modules *modules, uint32_t generation,
				      uint64_t loads);

#endif
