/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The line that is shown each second while recording. Pure.
 */
#ifndef INJECTOR_LIVE_H
#define INJECTOR_LIVE_H

#include <stddef.h>
#include <stdint.h>

struct live_line {
	uint64_t elapsed_ns;
	uint64_t inuse_bytes;
	uint64_t inuse_count;
	uint64_t allocated_per_s; /* allocations */
	uint64_t sites;
	uint64_t rss_bytes; /* 0 = not known */
};

/* Both write a whole line without its end into @buf and end it with NUL. */
void live_header(char *buf, size_t size);
void live_format(const struct live_line *line, char *buf, size_t size);

#endif
