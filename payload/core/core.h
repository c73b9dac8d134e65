/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The recording code that entry's stubs call: what the offsets in struct
 * ha_core lead to. See payload/protocol.h for who calls them when.
 *
 * All may be called from any thread at any time, from signal handlers too, and
 * from a handler that interrupted one of them. They make no system call, take
 * no lock, never wait, allocate nothing, do not touch errno, and need less
 * than 1 KiB of stack. What they could not do is counted in the stripe.
 *
 * @line_index is the caller's line: below HA_LINES one that no other thread
 * uses, else a shared one.
 */
#ifndef PAYLOAD_CORE_CORE_H
#define PAYLOAD_CORE_CORE_H

#include "payload/protocol.h"

#include <stdint.h>

/* The call that @frame describes has returned the new block @ptr of @size bytes. */
void core_alloc(struct ha_shm *shm, const struct ha_frame *frame, uint64_t ptr, uint64_t size,
		uint64_t line_index);

/* @ptr is about to be freed. */
void core_free(struct ha_shm *shm, uint64_t ptr, uint64_t line_index);

/* @old (0: none) is about to be reallocated. Returns a token for core_realloc_end(). */
uint64_t core_realloc_begin(struct ha_shm *shm, uint64_t old, uint64_t line_index);

/*
 * The reallocation has returned @ptr, a block of @size bytes. 0 means that it
 * failed and the old block lives on, or, with @size 0, that it was freed.
 */
void core_realloc_end(struct ha_shm *shm, const struct ha_frame *frame, uint64_t token,
		      uint64_t ptr, uint64_t size, uint64_t line_index);

/* The block @ptr has @size bytes now, at the same place. */
void core_xallocx(struct ha_shm *shm, const struct ha_frame *frame, uint64_t ptr, uint64_t size,
		  uint64_t line_index);

#endif
