/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What heapattach left in a process when it was killed, and what a child has
 * of it that its parent forked while being recorded: core, shm and the gate.
 * All of it is inert. A later attach, or `heapattach stop`, takes it out.
 */
#ifndef INJECTOR_LEFTOVER_H
#define INJECTOR_LEFTOVER_H

#include <stdbool.h>
#include <stddef.h>

#include "injector/journal.h"
#include "injector/memory.h"
#include "injector/modules.h"
#include "resolver/maps.h"

/*
 * List our mappings in the target in @ret, which has room for JOURNAL_LEFT.
 * Named memory counts if it starts with our magic; the gate is where entry
 * says, if entry's state is ON or the page has the gate's magic. Entry itself
 * is never listed: slots may lead to it. Returns how many.
 */
size_t leftover_find(const struct memory_reader *memory, const struct maps *maps,
		     const struct modules *modules, struct journal_mapping *ret);

/*
 * The thread that ran boot last, for the one whose shm is among @left: it may
 * still be in it. 0 if there was none.
 */
pid_t leftover_thread(const struct memory_reader *memory, const struct maps *maps,
		      const struct journal_mapping *left);

/*
 * How many descriptors of process @pid are open on what @journal has made. They are
 * noted in @to, so far as there is room; NULL: nowhere.
 */
size_t leftover_fds(pid_t pid, const struct journal *journal, struct journal *to);

/*
 * The process is the child of one that was recorded when it forked: its gate
 * was wiped, so that no thread can be in core.
 */
bool leftover_is_forked(const struct memory_reader *memory, const struct modules *modules);

/*
 * ERROR_BUSY if hooks of another version of heapattach are in force in process
 * @pid, or what it has left: its tables are not known here. @mappings: there are
 * some of somebody's.
 */
MUST_CHECK struct error *leftover_check_version(const struct memory_reader *memory,
						const struct modules *modules, pid_t pid,
						bool mappings);

#endif
