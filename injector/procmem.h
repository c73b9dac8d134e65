/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What the kernel says of the target's memory, from /proc/PID/status.
 *
 * All functions may be called from any thread.
 */
#ifndef INJECTOR_PROCMEM_H
#define INJECTOR_PROCMEM_H

#include <stdint.h>

#include "injector/target.h"
#include "resolver/error.h"

/* Bytes; 0 = not said (a process that has ended has none). */
struct procmem {
	uint64_t rss_bytes;
	uint64_t anon_bytes;
	uint64_t file_bytes;
	uint64_t shmem_bytes; /* our tables among them, as far as the target has touched them */
	uint64_t locked_bytes;
};

/* Fields that are missing or malformed are 0. ERROR_GONE: the process ended. */
MUST_CHECK struct error *procmem_read(const struct target *target, struct procmem *ret);

/* The same from text; pure. */
void procmem_parse(const char *text, struct procmem *ret);

#endif
