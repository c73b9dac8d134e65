// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/live.h"

#include <stdio.h>

/* "1.62 GiB": three digits and a binary unit. */
static void bytes_format(uint64_t bytes, char *buf, size_t size)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
	double value = (double)bytes;
	size_t unit = 0;

	while (value >= 1000 && unit + 1 < sizeof(units) / sizeof(units[0])) {
		value /= 1024;
		unit++;
	}
	snprintf(buf, size, "%.*f %s",
		 !unit || value >= 100 ? 0
		 : value >= 10	       ? 1
				       : 2,
		 value, units[unit]);
}

void live_header(char *buf, size_t size)
{
	snprintf(buf, size, "%8s %11s %11s %11s %8s %11s", "time", "in use", "blocks", "alloc/s",
		 "sites", "RSS");
}

void live_format(const struct live_line *line, char *buf, size_t size)
{
	unsigned int seconds = (unsigned int)(line->elapsed_ns / 1000000000ull);
	char inuse[32], rss[32] = "-";

	bytes_format(line->inuse_bytes, inuse, sizeof(inuse));
	if (line->rss_bytes)
		bytes_format(line->rss_bytes, rss, sizeof(rss));
	snprintf(buf, size, "%02u:%02u:%02u %11s %11llu %11llu %8llu %11s", seconds / 3600,
		 seconds / 60 % 60, seconds % 60, inuse, (unsigned long long)line->inuse_count,
		 (unsigned long long)line->allocated_per_s, (unsigned long long)line->sites, rss);
}
