/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The injector's side of the shared memory (struct ha_shm in
 * payload/protocol.h): making the memfd, laying out its regions, touching its
 * pages ahead of the target so that they are charged to us, and publishing
 * unwind tables, module lists and stack regions to the payload.
 *
 * The memfd is sparse: its size is address space, not memory. All functions
 * are for one thread at a time; shm_hold() is for the program's main thread.
 */
#ifndef INJECTOR_SHM_H
#define INJECTOR_SHM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "payload/protocol.h"
#include "resolver/error.h"

/* Bytes of memory that may be taken beyond what is; UINT64_MAX: as much as there is. */
struct shm_room {
	uint64_t segments; /* for the live table */
	/* For sites beyond sites_made, with what the program itself keeps of each. */
	uint64_t sites;
	uint64_t sites_made; /* by then */
};

/* What reader and profile keep of a site: 560 bytes were measured, for stacks of 20 frames. */
#define SHM_SITE_PRIVATE_BYTES 640ull

/* A segment of the live table that is being made ready; no size: there is none. */
struct shm_next {
	struct ha_segment segment;
	uint64_t size;	  /* in bytes */
	uint64_t touched; /* so many of its bytes have their pages */
	uint64_t joined;  /* and so many are of huge ones, or cannot be */
};

struct shm {
	int fd;		       /* the memfd, sealed against resizing */
	struct ha_shm *header; /* start of our mapping */
	uint64_t size;	       /* bytes of address space */
	/*
	 * The layout as we made it. The copies in the header are for the payload
	 * and may be scribbled over by a hostile target: never read back.
	 */
	struct ha_region region[HA_REGIONS];
	uint64_t site_capacity;
	uint64_t stripe_size;
	uint64_t segments;
	struct ha_segment segment[HA_SEGMENTS];
	struct shm_next next;
	bool sampling;
	uint32_t rates; /* intervals known to the payload: the first of interval[] */
	uint32_t rate;	/* the one in force */
	uint64_t interval[HA_RATES];
	uint64_t modules_used; /* bytes used of the append-only regions */
	uint64_t tables_used;
	uint64_t stacks_used;
	uint64_t sites_wanted; /* sites whose pages are touched ahead in stripes that are in use */
	uint64_t sites_touched[HA_STRIPES];	 /* the same as it is */
	uint64_t histograms_touched[HA_STRIPES]; /* only of stripes in use */
	uint64_t arena_touched;			 /* bytes of the site arena touched ahead */
	bool variances;				 /* samples are taken: variances are touched, too */
	struct shm_room room;
};

struct shm_options {
	uint64_t site_capacity; /* most sites, at most HA_SITES_MAX; 0 = 131,072 */
	uint64_t live_size_max; /* most bytes of live table, address space; 0 = 4 GiB */
	bool sampling;		/* false: every allocation is recorded, for good */
	uint64_t interval; /* with sampling: mean bytes between samples at first; 0 or 1 = all */
	uint32_t session;  /* number of this attach to the target, from 1 */
	uint64_t capture_every; /* see struct ha_shm; 0 = none: the captures get no memory */
};

/*
 * Make the memfd with all regions empty and valid, and the first segment of
 * the live table in place. ERROR_OS, ERROR_MEMORY.
 */
MUST_CHECK struct error *shm_create(const struct shm_options *options, struct shm **ret);

/* NULL is fine. The target's mapping is not affected. */
void shm_free(struct shm *shm);

/* Address space that a mapping will take with these options, in bytes. */
uint64_t shm_size(const struct shm_options *options);

/* A region's start in our mapping. */
void *shm_region(const struct shm *shm, enum ha_region_id region);

/*
 * Lock the robust owner mutex: from now on the kernel marks it when the
 * calling thread dies, and the payload stops recording. The lock is never
 * released: it goes with the thread.
 */
MUST_CHECK struct error *shm_hold(struct shm *shm);

/*
 * From now on, samples are so many bytes apart on average; at most
 * HA_INTERVAL_MAX, 0 or 1 records all. A thread follows at its next sample.
 * Only where sampling was asked for. ERROR_MEMORY after too many different ones.
 */
MUST_CHECK struct error *shm_set_interval(struct shm *shm, uint64_t interval);

/*
 * Append an unwind table of @size bytes (table->size of them are used) with
 * its bias; @offset_ret is what struct ha_module.table wants.
 * ERROR_MEMORY when the region is full.
 */
MUST_CHECK struct error *shm_add_table(struct shm *shm, const struct ha_table *table, size_t size,
				       uint64_t bias, uint64_t *offset_ret);

/*
 * Publish a new version of the module list; @modules sorted by low.
 * ERROR_MEMORY when the region is full.
 */
MUST_CHECK struct error *shm_publish_modules(struct shm *shm, const struct ha_module *modules,
					     uint32_t count, uint32_t generation, uint64_t loads);

/* The same for stack regions, sorted by low. */
MUST_CHECK struct error *shm_publish_stacks(struct shm *shm, const struct ha_stack *stacks,
					    uint64_t count);

/* What stripe @stripe has of @site, NULL if that stripe was never recorded in. */
const struct ha_sums *shm_sums(const struct shm *shm, uint64_t stripe, uint64_t site);

/* Sites that the payload has made so far, at most site_capacity. */
uint64_t shm_sites_made(const struct shm *shm);

/* Memory that the memfd holds, whoever has touched it, or that it is about to take. */
uint64_t shm_held_bytes(const struct shm *shm);

/* Whether the live table can get one more segment. */
bool shm_can_grow(const struct shm *shm);

/*
 * How many blocks a cell of the live table stands for: 1 / p of a sample. A mark
 * that was never given out counts as none.
 */
double shm_block_weight(const struct shm *shm, uint64_t size, uint8_t mark);

/* The live table, from a look at a few hundred of its buckets. */
struct shm_live {
	uint64_t cells;
	uint32_t permille; /* of them that are taken */
	double bytes;	   /* what the blocks in them stand for */
};
struct shm_live shm_live(const struct shm *shm);

/*
 * From now on the tables grow by so much at most. Where sites have no room, no
 * more of them are made: calls with other stacks go to HA_SITE_UNKNOWN.
 */
void shm_set_room(struct shm *shm, const struct shm_room *room);

/*
 * At the end, when nobody uses the tables any more: give their memory back, in
 * all processes that map it. It reads as zeros then; boot's region stays.
 */
void shm_release(struct shm *shm);

/*
 * To be called each few milliseconds: advance the clock to @elapsed_ms since
 * the start, and keep the tables ahead of need. ERROR_OS when pages cannot be
 * had; recording goes on with what there is.
 */
MUST_CHECK struct error *shm_tick(struct shm *shm, uint64_t elapsed_ms);

#endif
