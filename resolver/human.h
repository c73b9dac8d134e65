/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Numbers for people: with a unit, and no more digits than help.
 *
 * Each returns a small text by value: `printf("%s", human_bytes(n).text)`.
 */
#ifndef RESOLVER_HUMAN_H
#define RESOLVER_HUMAN_H

#include <stdint.h>

struct human {
	char text[32];
};

struct human human_bytes(uint64_t bytes);	/* "512 B", "31.0 MiB": three digits */
struct human human_signed_bytes(int64_t bytes); /* "+31.0 MiB", "-512 B", "+0 B" */
struct human human_count(uint64_t count);	/* "61,204", "84.2 M" */
/* "1 block", "61,204 blocks": @noun is the singular, at most 12 letters. */
struct human human_counted(uint64_t count, const char *noun);
/* "33.9 to 36.3 MiB", "70,100 to 73,800"; one figure if both read alike. */
struct human human_bytes_range(uint64_t low, uint64_t high);
struct human human_count_range(uint64_t low, uint64_t high);
struct human human_duration(uint64_t ns);	  /* "0.25 s", "42 s", "10 min 2 s", "2 h 10 min" */
struct human human_us(uint64_t us);		  /* "620 us", "1.25 ms" */
struct human human_rate(double bytes_per_second); /* "3.1 MiB/min", "1.2 GiB/h" */
/* "2.8 to 3.4 MiB/min", "-1.2 KiB to +3.4 KiB/h". */
struct human human_rate_range(double low, double high);
/* @part of @whole: "82.0 %"; "0.0 %" if @whole is 0. */
struct human human_share(uint64_t part, uint64_t whole);
/* UTC: "2026-11-29 12:34:01"; "?" if it is out of range. */
struct human human_time(int64_t unix_ns);

#endif
