/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The record of every change made to the target, kept so that one function can
 * undo it (undo.h). Each entry is written before its change is made: a worker
 * that dies leaves a journal that says what may have happened. The slots
 * themselves are not listed here: the plan of slots is made before and kept by
 * the program, and a slot is ours exactly if it holds its hook.
 *
 * The journal lives in memory that the program shares with its short-lived
 * worker processes; one of them writes at a time. Addresses are the target's.
 */
#ifndef INJECTOR_JOURNAL_H
#define INJECTOR_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "payload/protocol.h"
#include "resolver/error.h"

/* How an object came into the target, or did not. */
enum journal_state {
	JOURNAL_NONE,	/* not there */
	JOURNAL_MAKING, /* the request was about to be made: may or may not be there */
	JOURNAL_THERE,
	JOURNAL_REMOVING, /* the same for its end: the program may have the addresses by now */
};

struct journal_mapping {
	uint32_t state; /* enum journal_state */
	uint64_t address;
	uint64_t size;
};

#define JOURNAL_PASSED 3  /* core, shm, entry */
#define JOURNAL_FDS    5  /* those, and a socketpair */
#define JOURNAL_MADE   32 /* files of all descriptors so far, the last ones */
#define JOURNAL_LEFT   16 /* mappings that others of us have left; a target has three for each */

struct journal {
	struct journal_mapping gate, core, shm;
	struct journal_mapping entry; /* stays; unmapped only if no slot ever led to it */
	/* Of a session that samples; stays with entry, unmapped only if entry never named it. */
	struct journal_mapping filter;
	uint32_t filter_named;	  /* 1: entry may have its address */
	uint32_t entry_by_loader; /* 1: dlopen made it, so that only the loader could unload it */
	/*
	 * The thread that was stopped and not handed back, since its worker died or
	 * it restores itself: it may be in our code for a moment. 0 = none.
	 */
	int32_t used_tid;
	uint32_t state_on;	 /* 1: entry's state may be ON */
	int32_t fd[JOURNAL_FDS]; /* descriptors that may be open in the target; -1 none */
	struct ha_file fd_file[JOURNAL_FDS]; /* what was opened there */
	/* What a process may hold that another thread has forked meanwhile. */
	struct ha_file made[JOURNAL_MADE];
	uint32_t made_count; /* also those that have fallen out */
	/*
	 * A call is being made that opens descriptors: the target's kernel writes
	 * their numbers to so many ints at this address, which held -1 before.
	 */
	uint64_t pending_fds;
	uint32_t pending_count;
	struct ha_file
		pending_file[JOURNAL_PASSED]; /* what they are open on; inode 0 = not known */
	/* Of a heapattach that died, or of the parent's: to be unmapped, see leftover.h. */
	struct journal_mapping left[JOURNAL_LEFT];
	uint32_t slots_written; /* 1: slots of the plan may hold hooks into entry */
};

/* In shared memory, empty. ERROR_OS. */
MUST_CHECK struct error *journal_create(struct journal **ret);
/* NULL is fine. */
void journal_free(struct journal *journal);

/* Does one of our mappings that may be unmapped lie at @address? */
bool journal_covers(const struct journal *journal, uint64_t address);

/* Note a descriptor that a call just made in the target, and on what; false: no room. */
bool journal_add_fd(struct journal *journal, int fd, const struct ha_file *file);
/* Was a descriptor of ours ever open on @file, as far as is known? */
bool journal_has_made(const struct journal *journal, const struct ha_file *file);
/* What was opened as @fd; NULL: it was not noted. Valid until it is forgotten. */
const struct ha_file *journal_file(const struct journal *journal, int fd);
/* @fd was closed. */
void journal_forget_fd(struct journal *journal, int fd);
/* All descriptors are known to be closed. */
void journal_clear_fds(struct journal *journal);

#endif
