/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * States of the test process itself, with the stack that glibc finds in them,
 * and captures of them as the payload makes them. For the main thread.
 */
#ifndef TESTS_SNAPSHOT_H
#define TESTS_SNAPSHOT_H

#include "payload/protocol.h"

#include <stddef.h>
#include <stdint.h>

#define SNAPSHOT_FRAMES 64

struct snapshot {
	uint64_t address; /* where words[] stood */
	size_t size;	  /* bytes of words[]: struct ha_frame, then the stack */
	uint32_t frames;
	uint64_t pc[SNAPSHOT_FRAMES]; /* as struct ha_site has them */
	uint64_t words[HA_CAPTURE_STACK_SIZE / 8];
};

/* Load what snapshots need; before modules are read. */
void snapshot_init(void);

/* Free with free(). */
struct snapshot *snapshot_create(void);

/* Capture the snapshot as an event of a site with its stack; words[] stand where they are now. */
void snapshot_capture(const struct snapshot *snapshot, struct ha_shm *shm, uint16_t flags);

#endif
