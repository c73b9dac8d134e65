/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Objects of ours in the target: bringing them in by raw system calls on a
 * borrowed thread, running boot there, and taking them out again. Every object
 * is in the journal before it is made.
 *
 *	gate   one private page; scratch for the calls below until it gets its magic
 *	core   private r-x mapping of a memfd
 *	shm    shared rw mapping of the profile's memfd
 *	entry  mapped here for the map loader only; else dlopen brings it
 *	filter private pages behind the gate, for sessions that sample; stays
 *
 * To be called in a worker process; the borrowed thread is stopped on entry
 * and on return, unless the error is ERROR_GONE.
 */
#ifndef INJECTOR_INJECT_H
#define INJECTOR_INJECT_H

#include <stdint.h>

#include "injector/borrow.h"
#include "injector/journal.h"
#include "injector/loaderinfo.h"
#include "injector/shm.h"
#include "injector/target.h"
#include "payload/protocol.h"
#include "resolver/error.h"

struct inject {
	struct target *target;
	struct journal *journal;
	struct shm *shm;
	const struct loader_info *loader;
	struct ha_core core_header;
	int core_fd;	       /* memfd of core */
	int entry_fd;	       /* memfd of entry, ELF file or memory; -1 = not to be passed */
	uint64_t shm_hint;     /* where shm may be mapped; 0 = anywhere */
	uint64_t locked_bytes; /* of the target's memory before anything was mapped (VmLck) */
	bool boot_follows;     /* inject_place() may leave to boot what boot can do at less cost */
	bool boot_empties;     /* boot gives the filter's memory back, inject_remove() need not */

	/* Private: a descriptor was closed, or replaced, before we could use it. */
	bool fds_lost;
	/* Private: the socketpair's ends. */
	int socket;	   /* ours; -1 = none */
	int remote_socket; /* T's */
	int remote_peer;   /* our end of it, open in the target until boot runs; -1 = closed */
	uint64_t wipe_size, hide_size; /* of gate and shm: what boot has to madvise */
	int remote_entry;	       /* entry's memfd in the target; -1 = none */
};

void inject_init(struct inject *inject);
void inject_deinit(struct inject *inject);

/* @err happened since the program closed a descriptor of ours: say that first. */
MUST_CHECK struct error *inject_closed(const struct inject *inject, struct error *err);

/*
 * Map gate, filter, core and shm, those that are needed and not there yet, and
 * make the socketpair. Passes entry's memfd if there is one. On error what was made is
 * in the journal: inject_remove(). ERROR_UNSUPPORTED: the target locks all its
 * memory, and would lock gigabytes of ours.
 */
MUST_CHECK struct error *inject_place(struct inject *inject, struct borrow *borrow);

/* Map entry from its memfd without the loader: journal->entry. */
MUST_CHECK struct error *inject_map_entry(struct inject *inject, struct borrow *borrow);

/*
 * What is looked at while nothing can be unloaded, and listed in HA_REGION_CHANGES to
 * be changed. @link_map: the loader's record of entry; 0 in mode LOCK_ONLY.
 */
typedef struct error *inject_window(void *context, uint64_t link_map);

struct inject_boot_result {
	uint64_t dlopen_ns;	 /* time in dlopen */
	uint64_t locked_ns;	 /* time that the loader's lock was held by us */
	unsigned int lock_tries; /* attempts at the lock */
	bool let_go;		 /* T restored itself: the borrow was ended */
};

/*
 * Before T is stopped: take the page faults of what we shall read in shm, and
 * with @boots, when no thread runs boot, of what boot and we shall write there.
 */
void inject_touch(const struct inject *inject, bool boots);

/*
 * Run boot on T: lock, dlopen in mode HA_BOOT_DLOPEN, @window, changes, unlock.
 *
 * @lock_timeout_us  how long T may try the loader's lock; 0 = once
 * @result           filled on errors too; with let_go the borrow is gone
 *
 * ERROR_BUSY: the lock was not free, or T's side of the window timed out: nothing
 * was changed. ERROR_UNSUPPORTED: dlopen failed, with its text. ERROR_TIMEOUT,
 * ERROR_FAULT, ERROR_GONE, and the errors of @window and of changes_result(). After
 * an error the changes may have been made.
 */
MUST_CHECK struct error *inject_boot(struct inject *inject, struct borrow *borrow,
				     enum ha_boot_mode mode, uint32_t lock_timeout_us,
				     inject_window *window, void *context,
				     struct inject_boot_result *result);

/*
 * Without boot, with T stopped: have it make the changes of HA_REGION_CHANGES one by
 * one. Core must be there. ERROR_FAULT: a word was unmapped meanwhile. Errors of
 * changes_result().
 */
MUST_CHECK struct error *inject_change(struct inject *inject, struct borrow *borrow);

/* Close descriptors that are open in the target, and our end of the socket. */
MUST_CHECK struct error *inject_close(struct inject *inject, struct borrow *borrow);

/* The gate gets its magic and forgets all else: hooks may record from now on. */
MUST_CHECK struct error *inject_open_gate(struct inject *inject);

/* The filter is there and stays when the session ends. */
bool inject_keeps_filter(const struct inject *inject);

/* Unmap what others of us have left: journal->left. */
MUST_CHECK struct error *inject_clear(struct inject *inject, struct borrow *borrow);

/*
 * Unmap what is there of shm, core and gate; entry if no loader knows it and no
 * slot ever led to it, the filter if entry does not know it, else it is emptied;
 * close descriptors. Goes on after a failing step and returns the first error.
 */
MUST_CHECK struct error *inject_remove(struct inject *inject, struct borrow *borrow);

#endif
