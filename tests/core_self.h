/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A world that knows the test process itself: the tables of its modules, its
 * main stack, and where its threads' TCBs have their bounds.
 */
#ifndef TESTS_CORE_SELF_H
#define TESTS_CORE_SELF_H

#include "tests/core_world.h"

/* Compile and publish all modules that are loaded now. */
void world_add_self(struct world *world);

/* Set tcb_stack_offset. Starts a thread to find it. */
void world_find_tcb_offset(struct world *world);

#endif
