/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What has to be known of the target's loader and C library before a thread
 * of it may run dlopen for us: the loader's lock, its load counter, the
 * functions to call, where the pending dlerror is kept, and where a thread's
 * control block has the bounds of its stack. All found by shape and symbol in
 * memory; a field that was not found is 0 and the caller does without.
 */
#ifndef INJECTOR_LOADERINFO_H
#define INJECTOR_LOADERINFO_H

#include "injector/modules.h"

struct loader_info {
	uint64_t lock;	    /* dl_load_lock, a recursive pthread_mutex_t; 0 = not found */
	uint64_t load_adds; /* the loader's counter of objects ever loaded; 0 = not found */
	uint64_t fn_trylock, fn_unlock; /* pthread_mutex_trylock, pthread_mutex_unlock */
	uint64_t fn_dlopen, fn_dlerror;
	uint64_t fn_errno_location;
	int64_t dlerror_offset;	   /* pending-dlerror word from the thread pointer; 0 = not found */
	uint64_t main_fs;	   /* thread pointer of the main thread; 0 = not found */
	uint64_t tcb_stack_offset; /* of (block, size) from the thread pointer; 0 = not found */
	bool auditors;		   /* LD_AUDIT or DT_AUDIT is at work */
};

/*
 * Look everything up. @main_fs: the main thread's thread pointer if the caller
 * knows it, else 0 (it is then found through the loader's list of threads,
 * glibc 2.34 and later). @pid is used for LD_AUDIT in /proc/PID/environ, 0 =
 * don't look. Sets modules->load_adds_address and ->load_adds.
 * Nothing found is no error.
 */
MUST_CHECK struct error *loaderinfo_read(const struct memory_reader *memory,
					 const struct maps *maps, pid_t pid, uint64_t main_fs,
					 struct modules *modules, struct loader_info *ret);

/*
 * True if dlopen may be run for us: lock, functions and load counter known, no
 * auditors. If not, *why_ret (may be NULL) says what is missing, as a static
 * text for after "the dlopen loader cannot be used: ".
 */
bool loaderinfo_can_dlopen(const struct loader_info *info, const char **why_ret);

/*
 * Where the two copies of a freshly loaded object's name are: the text of
 * l_name and that of l_libname->name. Both must read @name. Meant for the
 * window, while the loader's lock is held. ERROR_NOT_FOUND. The two may be one
 * and the same string.
 */
MUST_CHECK struct error *loaderinfo_names(const struct memory_reader *memory, uint64_t link_map,
					  const char *name, uint64_t addresses_ret[2]);

#endif
