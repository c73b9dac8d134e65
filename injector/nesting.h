/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Which functions may be hooked without seeing one call twice. A function
 * whose code reaches a slot that would be hooked is not hooked itself: the
 * inner one wins (libstdc++'s operator new calls malloc through its PLT;
 * jemalloc's does not).
 *
 * The walk reads the target's code: the function's own, that of functions it
 * calls directly in the same object (bounded in depth and instructions), and
 * behind PLT stubs whose slot names a hooked function. PLT calls of anything
 * else are not followed: a wrapper calls the inner allocator by name, while
 * error paths (assert, abort, throw) reach malloc in ways that don't matter.
 */
#ifndef INJECTOR_NESTING_H
#define INJECTOR_NESTING_H

#include "injector/memory.h"
#include "injector/modules.h"

enum nesting {
	NESTING_HOOK,	   /* reaches no hooked slot */
	NESTING_INNER,	   /* reaches one: not hooked */
	NESTING_UNDECIDED, /* an indirect call could reach one: not hooked, listed */
};

struct nesting_walker;

/* @memory and @modules must outlive the walker. */
MUST_CHECK struct error *nesting_create(const struct memory_reader *memory,
					const struct modules *modules, struct nesting_walker **ret);
void nesting_free(struct nesting_walker *walker);

/*
 * Decide about function number @function (functions.h) whose code is at
 * @address. Decisions are kept in the walker, and by build id for the life of
 * the program.
 */
MUST_CHECK struct error *nesting_decide(struct nesting_walker *walker, size_t function,
					uint64_t address, enum nesting *ret);

/*
 * Follow PLT stubs from @address: the address of the word that the stub jumps
 * through goes to *slot_ret. False if there is no PLT stub.
 */
bool nesting_plt_slot(struct nesting_walker *walker, uint64_t address, uint64_t *slot_ret);

#endif
