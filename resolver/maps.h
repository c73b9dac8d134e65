/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The memory map of a process: /proc/PID/maps as an array.
 *
 * All functions may be called from any thread; a struct maps belongs to its
 * holder.
 */
#ifndef RESOLVER_MAPS_H
#define RESOLVER_MAPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "resolver/error.h"

/* One mapping: [start, end). */
struct map {
	uint64_t start, end;
	uint64_t offset; /* bytes into the file */
	uint64_t inode;	 /* 0 if no file is mapped */
	uint32_t major, minor;
	bool read, write, exec, shared;
	bool deleted; /* the kernel added " (deleted)", which @path then lacks */
	/*
	 * As the target's mount namespace names it, with the kernel's "\012" for a
	 * newline turned back; "[stack]" and the like; "" if none. Untrusted
	 * text: any byte but NUL.
	 */
	char *path;
};

/* Sorted by start; no two overlap. */
struct maps {
	struct map *map;
	size_t count;
};

/*
 * Parse @size bytes of text. ERROR_FORMAT names the line; a last line without
 * a newline is accepted. The result is released with maps_deinit().
 */
MUST_CHECK struct error *maps_parse(const char *text, size_t size, struct maps *ret);

/*
 * Read the map of a process. When its main thread has exited and others live
 * on, /proc/PID/maps is empty: the map of another thread is read then.
 *
 * ERROR_GONE: there is no such process, or it has no memory (it exited).
 * ERROR_DENIED: not allowed.
 */
MUST_CHECK struct error *maps_read(pid_t pid, struct maps *ret);

/* The mapping that contains @address, or NULL. Valid until maps_deinit(). */
const struct map *maps_find(const struct maps *maps, uint64_t address);

/* Leaves @maps empty; an empty one is fine. */
void maps_deinit(struct maps *maps);

#endif
