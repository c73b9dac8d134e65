/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A shared memory as the injector makes it, in the test's own process, for the
 * tests of payload/core. Modules, tables and stacks are published by hand.
 */
#ifndef TESTS_CORE_WORLD_H
#define TESTS_CORE_WORLD_H

#include "payload/protocol.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct world_options {
	uint64_t sites;	       /* site capacity; 0: 65536 */
	uint64_t arena_size;   /* bytes; 0: 64 MiB */
	uint64_t buckets;      /* of the first segment, a power of two; 0: 65536 */
	uint64_t live_buckets; /* of all segments that will be added; 0: as @buckets */
	uint64_t interval;     /* of samples; 0: exact */
	bool huge;	       /* ask for huge pages, for tests that touch all of it */
};

struct world {
	struct ha_shm *shm;
	size_t size;
	uint64_t modules_used, tables_used, stacks_used, live_used; /* bytes */
	uint32_t next_module_id;
	struct ha_module module[1024];
	uint32_t modules;
	uint32_t generation;
	struct ha_line lines[HA_LINES]; /* with sampling, as in entry */
	uint8_t filter[HA_FILTER_SIZE];
};

/* A row of a table made by hand; rows are sorted, the first is at 0. */
struct world_row {
	uint32_t at; /* bytes from the start of the module */
	uint16_t rule;
	const struct ha_rule_ext *ext; /* for HA_ESCAPE_EXT; its row number is filled in */
};

#define RULE(base, offset, saved) ((uint16_t)((base) | ((offset) / 8) << 5 | (saved)))
#define RULE_RSP		  0u
#define RULE_RBP		  HA_RULE_RBP

/* options may be NULL. Aborts without memory. */
void world_init(struct world *world, const struct world_options *options);
void world_deinit(struct world *world);

/* One more segment of the live table. */
void world_add_segment(struct world *world, uint64_t buckets);

/* Copy a table into the shared memory; returns its offset. */
uint64_t world_add_table(struct world *world, const struct ha_table *table, size_t size,
			 uint64_t bias);

/* Add a module to the list, kept sorted; not yet published. */
void world_add_module(struct world *world, uint64_t low, uint64_t high, uint64_t table,
		      uint32_t flags);

/* Add a module [low, low + size) with a table of these rows. */
void world_add_rows(struct world *world, uint64_t low, uint64_t size, const struct world_row *rows,
		    size_t count);

/* Publish the modules under world->generation. */
void world_publish_modules(struct world *world);

/* Publish this list of stacks. */
void world_publish_stacks(struct world *world, const struct ha_stack *stacks, size_t count);

/* All stripes added up: one site's sums, all sites' sums, the counters. */
struct ha_sums world_site_sums(const struct world *world, uint32_t site);
struct ha_sums world_sums(const struct world *world);
struct ha_stripe world_counters(const struct world *world);

/* Put @interval in force as rate @rate. */
void world_set_interval(struct world *world, uint32_t rate, uint64_t interval);

/* All stripes added up: the variances of one site's bytes. */
double world_alloc_variance(const struct world *world, uint32_t site);
double world_inuse_variance(const struct world *world, uint32_t site);
/* The same of their count. */
double world_inuse_count_variance(const struct world *world, uint32_t site);

/* Cells in use in all segments, and the bytes of their blocks. */
uint64_t world_live_cells(const struct world *world, uint64_t *bytes);

/* A random generator for tests that want to be repeatable. */
uint64_t world_random(uint64_t *state);

#endif
