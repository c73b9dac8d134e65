/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What the shm*.c files share. For nobody else.
 */
#ifndef INJECTOR_SHM_PRIVATE_H
#define INJECTOR_SHM_PRIVATE_H

#include "injector/shm.h"

/*
 * Give pages to a range now. The kernel charges a memfd's page to whoever
 * touches it first; a target at its memory limit must not be that one. ERROR_OS.
 */
MUST_CHECK struct error *shm_pages_touch(struct shm *shm, uint64_t offset, uint64_t size);

/* The live table's first segment, which nobody waits for yet. ERROR_OS. */
MUST_CHECK struct error *shm_live_begin(struct shm *shm);

/* A segment ahead of need; to be called each few milliseconds. ERROR_OS. */
MUST_CHECK struct error *shm_live_tick(struct shm *shm);

#endif
