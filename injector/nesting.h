/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Which functions may be hooked without seeing one call twice. A function
 * whose code reaches a slot that would be hooked is not hooked itself: the
 * inner one wins (libstdc++'s operator new calls malloc through its PLT).
 *
 * An allocator may call itself through slots of its own, on some paths only
 * (jemalloc's operator new has a fast path, and calls malloc through its PLT
 * when that fails). Neither hooking one nor both would count right. Such an
 * object is *self-contained*: its entry points are hooked, and those of its
 * own slots that lead to itself are left alone.
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
 * Tell that the word at @slot leads to @call, which is function number
 * @function (functions.h). All slots are added before the first decision.
 */
MUST_CHECK struct error *nesting_add_slot(struct nesting_walker *walker, uint64_t slot,
					  size_t function, uint64_t call);

/*
 * Find the self-contained allocators: objects other than the C library that
 * define malloc and of whose entry points one reaches an own slot on some
 * paths only. To be called once, after all slots are known.
 */
MUST_CHECK struct error *nesting_find_self_contained(struct nesting_walker *walker);

/* True if the word at @slot, leading to @call, is a self-contained allocator's own. */
bool nesting_is_internal(const struct nesting_walker *walker, uint64_t slot, uint64_t call);

/*
 * Decide about function number @function whose code is at @address. Decisions
 * are kept in the walker, and by build id for the life of the program.
 */
MUST_CHECK struct error *nesting_decide(struct nesting_walker *walker, size_t function,
					uint64_t address, enum nesting *ret);

/*
 * If there is a PLT stub at @address, the address of the word that it jumps
 * through goes to *slot_ret.
 */
bool nesting_plt_slot(struct nesting_walker *walker, uint64_t address, uint64_t *slot_ret);

#endif
