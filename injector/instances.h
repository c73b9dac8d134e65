/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Which module stood where, and when: an address in a stack means the module
 * that was mapped there under the generation of the module list that the stack
 * was taken under. An unloaded module's instance stays, so that its stacks keep
 * their names; the next module at that address is another instance.
 *
 * For one thread at a time.
 */
#ifndef INJECTOR_INSTANCES_H
#define INJECTOR_INSTANCES_H

#include <stddef.h>
#include <stdint.h>

#include "resolver/error.h"

#define INSTANCE_LOADED UINT32_MAX /* generation_last of what is still mapped */

/* One executable range of a module that is or was loaded. */
struct instance {
	uint64_t low, high;			    /* addresses in the target, [low, high) */
	uint64_t bias;				    /* address in the target = vaddr + bias */
	uint32_t generation_first, generation_last; /* inclusive */
	uint32_t profile_module;		    /* index in the profile */
	uint32_t symbolizer_module;		    /* number in the symbolizer */
};

struct instances {
	struct instance *instance;
	size_t count, capacity;
};

/* Leaves @instances empty; a zeroed struct is an empty one. */
void instances_deinit(struct instances *instances);

/* Add one that is loaded from @instance->generation_first on. ERROR_MEMORY. */
MUST_CHECK struct error *instances_add(struct instances *instances,
				       const struct instance *instance);

/* The loaded instance at exactly [low, high) with this bias, or NULL. */
struct instance *instances_find_loaded(struct instances *instances, uint64_t low, uint64_t high,
				       uint64_t bias);

/* The instance that contains @pc under @generation, or NULL. */
const struct instance *instances_find(const struct instances *instances, uint64_t pc,
				      uint32_t generation);

#endif
