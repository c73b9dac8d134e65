/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A running process seen through the injector's eyes: opened, its map and its
 * modules read. For tests of what is found in a target, without borrowing any
 * thread of it.
 */
#ifndef TESTS_SUBJECT_H
#define TESTS_SUBJECT_H

#include "injector/modules.h"
#include "injector/slots.h"
#include "injector/target.h"
#include "tests/e2e.h"

struct subject {
	struct folder folder;
	struct child child; /* pid 0: a process that somebody else started */
	struct target *target;
	struct memory_reader memory;
	struct memory_writer writer;
	struct maps maps;
	struct modules modules;
	struct slots slots; /* zeroed until subject_plan() */
};

/* Start BUILD/targets/COMMAND and look at it once it is ready. */
void subject_start(struct subject *ret, const char *command);
/* Look at a process that is there already. */
void subject_open(struct subject *ret, pid_t pid);
/* Read map and modules again. */
void subject_update(struct subject *subject);
/* Plan the slots anew; the old plan is dropped. */
void subject_plan(struct subject *subject);
/* End the process if we started it. */
void subject_end(struct subject *subject);

/* The module whose path ends with @name, or that calls itself so; fails the test if there is none.
 */
const struct module *subject_module(const struct subject *subject, const char *name);

/* The planned slot of @function in @module, or NULL. */
struct slot *subject_slot(const struct subject *subject, const struct module *module,
			  const char *function);
/* Skipped slots of @function in @module, with @reason. */
size_t subject_skipped(const struct subject *subject, const struct module *module,
		       const char *function, enum slot_skip_reason reason);

#endif
