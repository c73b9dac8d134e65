// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/shm_private.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "injector/hugepage.h"
#include "resolver/cleanup.h"

#define KIB 1024ull
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)

/*
 * Sites whose sums are touched ahead in every stripe, for threads that have not
 * recorded yet; by how many more each stripe in use is ahead; bytes of arena.
 */
#define SITES_AHEAD	      512ull
#define ARENA_AHEAD	      (1 * MIB)

#define SITE_BODY_BYTES	      256ull /* a stack of 30 frames */

#define SITE_CAPACITY_DEFAULT 131072ull
#define LIVE_SIZE_DEFAULT     (4 * GIB)

/* What a thread's own sums take; stripes are page-aligned so that no page is shared. */
static uint64_t stripe_size(uint64_t site_capacity)
{
	uint64_t size = sizeof(struct ha_stripe) + site_capacity * sizeof(struct ha_sums);

	return (size + HA_PAGE - 1) & ~(uint64_t)(HA_PAGE - 1);
}

static uint64_t site_capacity(const struct shm_options *options)
{
	uint64_t capacity = options->site_capacity ? options->site_capacity : SITE_CAPACITY_DEFAULT;

	return capacity < HA_SITES_MAX ? capacity : HA_SITES_MAX;
}

static uint64_t region_size(enum ha_region_id region, const struct shm_options *options)
{
	uint64_t capacity = site_capacity(options);

	switch (region) {
	case HA_REGION_BOOT:
		return HA_BOOT_SIZE;
	case HA_REGION_CHANGES:
		return sizeof(struct ha_changes);
	case HA_REGION_MODULES:
		return 256 * MIB; /* some 10,000 versions of a list of 800 modules */
	case HA_REGION_TABLES:
		return 256 * MIB;
	case HA_REGION_STACKS:
		return 8 * MIB;
	case HA_REGION_PC_CACHE:
		return HA_PC_CACHE_SIZE;
	case HA_REGION_TRIE:
		return HA_TRIE_SIZE;
	case HA_REGION_CANDIDATES:
		return HA_CANDIDATES_SIZE;
	case HA_REGION_SCRATCH:
		return HA_SCRATCH_SIZE;
	case HA_REGION_SITE_HASH:
		return HA_SITE_HASH_SIZE(capacity);
	case HA_REGION_SITE_INDEX:
		return capacity * sizeof(uint64_t);
	case HA_REGION_SITE_ARENA:
		return capacity * (sizeof(struct ha_site) + 64 * sizeof(uint64_t));
	case HA_REGION_STRIPES:
		return HA_STRIPES * stripe_size(capacity);
	case HA_REGION_LIVE:
		return options->live_size_max ? options->live_size_max : LIVE_SIZE_DEFAULT;
	case HA_REGION_CAPTURES:
		return sizeof(struct ha_captures);
	case HA_REGION_VARIANCES:
		return HA_STRIPES * capacity * sizeof(struct ha_variances);
	case HA_REGION_HISTOGRAMS:
		return HA_STRIPES * capacity * sizeof(struct ha_histograms);
	case HA_REGIONS:
		break;
	}
	return 0;
}

/* Regions are 2 MiB-aligned so that huge pages can back them. */
static uint64_t regions_layout(const struct shm_options *options, struct ha_region *regions)
{
	uint64_t offset = 2 * MIB;
	int i;

	for (i = 0; i < HA_REGIONS; i++) {
		regions[i].offset = offset;
		regions[i].size = region_size(i, options);
		offset += (regions[i].size + 2 * MIB - 1) & ~(2 * MIB - 1);
	}
	return offset;
}

uint64_t shm_size(const struct shm_options *options)
{
	struct ha_region regions[HA_REGIONS];

	return regions_layout(options, regions);
}

void *shm_region(const struct shm *shm, enum ha_region_id region)
{
	return (uint8_t *)shm->header + shm->region[region].offset;
}

struct error *shm_pages_touch(struct shm *shm, uint64_t offset, uint64_t size)
{
	if (!size)
		return NULL;
	while (fallocate(shm->fd, 0, (off_t)offset, (off_t)size)) {
		if (errno != EINTR)
			return error_os(errno, "cannot get %llu KiB of shared memory",
					(unsigned long long)(size / KIB));
	}
	return NULL;
}

/* Touch what stripe @i has for the sites from @first up to @end. */
static struct error *stripe_touch(struct shm *shm, uint64_t i, uint64_t first, uint64_t end)
{
	uint64_t sums = shm->region[HA_REGION_STRIPES].offset + i * shm->stripe_size +
			sizeof(struct ha_stripe);
	uint64_t variances = shm->region[HA_REGION_VARIANCES].offset +
			     i * shm->site_capacity * sizeof(struct ha_variances);
	struct error *err = shm_pages_touch(shm, sums + first * sizeof(struct ha_sums),
					    (end - first) * sizeof(struct ha_sums));

	if (err || !shm->variances)
		return err;
	return shm_pages_touch(shm, variances + first * sizeof(struct ha_variances),
			       (end - first) * sizeof(struct ha_variances));
}

static struct error *histograms_touch(struct shm *shm, uint64_t i, uint64_t end)
{
	uint64_t histograms = shm->region[HA_REGION_HISTOGRAMS].offset +
			      i * shm->site_capacity * sizeof(struct ha_histograms);
	uint64_t first = shm->histograms_touched[i];
	struct error *err;

	if (first >= end)
		return NULL;
	err = shm_pages_touch(shm, histograms + first * sizeof(struct ha_histograms),
			      (end - first) * sizeof(struct ha_histograms));
	if (!err)
		shm->histograms_touched[i] = end;
	return err;
}

static bool stripe_is_used(const struct shm *shm, uint64_t i)
{
	const struct ha_stripe *stripe =
		(const void *)((const uint8_t *)shm_region(shm, HA_REGION_STRIPES) +
			       i * shm->stripe_size);

	return __atomic_load_n(&stripe->events, __ATOMIC_RELAXED) != 0;
}

/* What one more site takes: its sums in each stripe in use, its stack, and our copy of both. */
static uint64_t site_bytes(const struct shm *shm)
{
	uint64_t sums = sizeof(struct ha_sums) + sizeof(struct ha_histograms) +
			(shm->variances ? sizeof(struct ha_variances) : 0);
	uint64_t used = 0;

	for (uint64_t i = 0; i < HA_STRIPES; i++)
		used += stripe_is_used(shm, i);
	return used * sums + SITE_BODY_BYTES + SHM_SITE_PRIVATE_BYTES;
}

/* Touch the sums of sites below sites_wanted in the stripes that are in use. */
static struct error *stripes_touch(struct shm *shm)
{
	for (uint64_t i = 0; i < HA_STRIPES; i++) {
		bool used = stripe_is_used(shm, i);
		uint64_t want = shm->sites_wanted;
		struct error *err = used ? histograms_touch(shm, i, want) : NULL;

		if (!used && want > SITES_AHEAD)
			want = SITES_AHEAD;
		if (!err && want > shm->sites_touched[i]) {
			err = stripe_touch(shm, i, shm->sites_touched[i], want);
			if (!err)
				shm->sites_touched[i] = want;
		}
		if (err)
			return err;
	}
	return NULL;
}

static struct error *arena_touch(struct shm *shm, uint64_t bytes)
{
	const struct ha_region *bodies = &shm->region[HA_REGION_SITE_ARENA];
	struct error *err;

	if (bytes > bodies->size)
		bytes = bodies->size;
	if (bytes <= shm->arena_touched)
		return NULL;
	err = shm_pages_touch(shm, bodies->offset + shm->arena_touched, bytes - shm->arena_touched);
	if (!err)
		shm->arena_touched = bytes;
	return err;
}

const struct ha_sums *shm_sums(const struct shm *shm, uint64_t stripe, uint64_t site)
{
	const uint8_t *stripes = shm_region(shm, HA_REGION_STRIPES);

	if (!stripe_is_used(shm, stripe))
		return NULL;
	return (const struct ha_sums *)(stripes + stripe * shm->stripe_size +
					sizeof(struct ha_stripe)) +
	       site;
}

uint64_t shm_sites_made(const struct shm *shm)
{
	uint64_t sites = __atomic_load_n(&shm->header->site_next, __ATOMIC_RELAXED);

	return sites < shm->site_capacity ? sites : shm->site_capacity;
}

/* As many may come before the next look as there is room for. Returns the bound of their numbers.
 */
static uint64_t sites_limit(struct shm *shm)
{
	uint64_t more = shm->room.sites / site_bytes(shm);
	uint64_t limit = shm->site_capacity;

	if (more < limit - shm->room.sites_made)
		limit = shm->room.sites_made + more;
	__atomic_store_n(&shm->header->site_limit, (uint32_t)limit, __ATOMIC_RELAXED);
	return limit;
}

/* Be half as many ahead as there are, and no more than may come. */
static struct error *sites_touch(struct shm *shm)
{
	uint64_t sites = shm_sites_made(shm);
	uint64_t arena = __atomic_load_n(&shm->header->arena_next, __ATOMIC_RELAXED);
	uint64_t limit = sites_limit(shm), wanted = sites + sites / 2 + SITES_AHEAD;
	uint64_t more = limit > sites ? (limit - sites) * SITE_BODY_BYTES : 0;
	struct error *err;

	if (arena > shm->region[HA_REGION_SITE_ARENA].size)
		arena = shm->region[HA_REGION_SITE_ARENA].size;
	if (wanted > limit)
		wanted = limit;
	if (sites + SITES_AHEAD / 2 > shm->sites_wanted && wanted > shm->sites_wanted)
		shm->sites_wanted = wanted;
	err = stripes_touch(shm);
	if (more > arena / 2 + ARENA_AHEAD)
		more = arena / 2 + ARENA_AHEAD;
	if (!err && arena + ARENA_AHEAD / 2 > shm->arena_touched)
		err = arena_touch(shm, arena + more);
	return err;
}

/* Regions that the payload touches all over from the first event on. */
static struct error *tables_touch(struct shm *shm)
{
	static const enum ha_region_id whole[] = {
		HA_REGION_BOOT,	   HA_REGION_PC_CACHE,	HA_REGION_TRIE,	      HA_REGION_CANDIDATES,
		HA_REGION_SCRATCH, HA_REGION_SITE_HASH, HA_REGION_SITE_INDEX,
	};
	struct error *err;
	size_t i;

	for (i = 0; i < sizeof(whole) / sizeof(whole[0]); i++) {
		const struct ha_region *region = &shm->region[whole[i]];

		err = shm_pages_touch(shm, region->offset, region->size);
		if (err)
			return err;
	}
	return NULL;
}

static void header_fill(struct shm *shm, const struct shm_options *options)
{
	struct ha_shm *header = shm->header;

	regions_layout(options, shm->region);
	shm->site_capacity = site_capacity(options);
	shm->stripe_size = stripe_size(shm->site_capacity);
	header->magic = HA_MAGIC;
	header->abi = HA_ABI;
	header->session = options->session;
	header->capture_every = options->capture_every;
	header->size = shm->size;
	memcpy(header->region, shm->region, sizeof(header->region));
	header->site_capacity = shm->site_capacity;
	header->stripe_size = shm->stripe_size;
	header->interval[HA_RATE_EXACT] = 1;
	header->sampling = options->sampling;
	shm->sampling = options->sampling;
	shm->variances = options->sampling;
	shm->rates = HA_RATE_EXACT + 1;
	shm->room = (struct shm_room){.segments = UINT64_MAX, .sites = UINT64_MAX};
	header->site_next = HA_SITE_UNKNOWN + 1;
	header->site_limit = (uint32_t)shm->site_capacity;
}

/* An empty module list and an empty stack list, so that both offsets are valid. */
static struct error *indexes_init(struct shm *shm)
{
	struct error *err = shm_publish_modules(shm, NULL, 0, 1, 0);

	return err ? err : shm_publish_stacks(shm, NULL, 0);
}

/* In the midst of an exact session, when memory is short: only where a thread records. */
static void variances_begin(struct shm *shm)
{
	for (uint64_t i = 0; i < HA_STRIPES && !shm->variances; i++)
		if (stripe_is_used(shm, i))
			shm->sites_touched[i] = 0;
	shm->variances = true;
}

struct error *shm_set_interval(struct shm *shm, uint64_t interval)
{
	struct ha_shm *header = shm->header;
	uint32_t rate = HA_RATE_EXACT;

	if (interval > HA_INTERVAL_MAX)
		interval = HA_INTERVAL_MAX;
	if (interval > 1)
		variances_begin(shm);
	if (interval > 1)
		for (rate = 1; rate < shm->rates && shm->interval[rate] != interval; rate++)
			;
	if (rate == HA_RATES)
		return error_create(ERROR_MEMORY, "more than %u intervals in one session",
				    HA_RATES - 1);
	if (rate == shm->rates) {
		shm->interval[rate] = interval;
		__atomic_store_n(&header->interval[rate], interval, __ATOMIC_RELAXED);
		shm->rates++;
	}
	shm->rate = rate;
	/* Pairs with the payload's acquire load of rate. */
	__atomic_store_n(&header->rate, rate, __ATOMIC_RELEASE);
	return NULL;
}

/* The first interval, and random numbers that no other session has. */
static struct error *sampling_init(struct shm *shm, const struct shm_options *options)
{
	if (!options->sampling)
		return NULL;
	if (getrandom(&shm->header->seed, sizeof(shm->header->seed), 0) !=
	    sizeof(shm->header->seed))
		return error_os(errno, "cannot get a random number");
	return shm_set_interval(shm, options->interval);
}

static void shm_freep(struct shm **shm)
{
	shm_free(*shm);
}

struct error *shm_create(const struct shm_options *options, struct shm **ret)
{
	CLEANUP(shm_freep) struct shm *shm = calloc(1, sizeof(*shm));
	struct error *err;
	void *base;

	if (!shm)
		return error_memory();
	shm->fd = memfd_create("heapattach", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (shm->fd < 0)
		return error_os(errno, "cannot create shared memory");
	shm->size = shm_size(options);
	if (ftruncate(shm->fd, (off_t)shm->size) ||
	    fcntl(shm->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW))
		return error_os(errno, "cannot size shared memory");
	base = hugepage_map(shm->fd, shm->size);
	if (!base)
		return error_os(errno, "cannot map %llu MiB of shared memory",
				(unsigned long long)(shm->size / MIB));
	shm->header = base;
	err = shm_pages_touch(shm, 0, HA_PAGE);
	if (err)
		return err;
	header_fill(shm, options);
	err = indexes_init(shm);
	if (!err)
		err = sampling_init(shm, options);
	if (!err)
		err = tables_touch(shm);
	if (!err && options->capture_every)
		err = shm_pages_touch(shm, shm->region[HA_REGION_CAPTURES].offset,
				      shm->region[HA_REGION_CAPTURES].size);
	shm->sites_wanted = SITES_AHEAD < shm->site_capacity ? SITES_AHEAD : shm->site_capacity;
	if (!err)
		err = stripes_touch(shm);
	if (!err)
		err = arena_touch(shm, ARENA_AHEAD);
	if (!err)
		err = shm_live_begin(shm);
	if (err)
		return err;
	*ret = take(shm);
	return NULL;
}

void shm_free(struct shm *shm)
{
	if (!shm)
		return;
	if (shm->header)
		munmap(shm->header, shm->size);
	if (shm->fd >= 0)
		close(shm->fd);
	free(shm);
}

struct error *shm_hold(struct shm *shm)
{
	pthread_mutex_t *mutex = (pthread_mutex_t *)shm->header->owner;
	pthread_mutexattr_t attributes;
	int rc;

	_Static_assert(sizeof(pthread_mutex_t) <= sizeof(shm->header->owner), "owner is too small");
	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
	rc = pthread_mutex_init(mutex, &attributes);
	pthread_mutexattr_destroy(&attributes);
	if (!rc)
		rc = pthread_mutex_lock(mutex);
	return rc ? error_os(rc, "cannot take the owner mutex of the shared memory") : NULL;
}

/* Append @size bytes to a region; *used is how much of it is taken. */
static struct error *region_append(struct shm *shm, enum ha_region_id id, const char *what,
				   uint64_t size, uint64_t *used, void **ret)
{
	const struct ha_region *region = &shm->region[id];
	uint64_t begin = (*used + 63) & ~63ull;

	if (size > region->size || begin > region->size - size)
		return error_create(ERROR_MEMORY, "no room for more %s in the shared memory", what);
	*ret = (uint8_t *)shm->header + region->offset + begin;
	*used = begin + size;
	return NULL;
}

struct error *shm_add_table(struct shm *shm, const struct ha_table *table, size_t size,
			    uint64_t bias, uint64_t *offset_ret)
{
	struct error *err;
	void *copy = NULL;

	err = region_append(shm, HA_REGION_TABLES, "unwind tables", size, &shm->tables_used, &copy);
	if (err)
		return err;
	memcpy(copy, table, size);
	((struct ha_table *)copy)->bias = bias;
	*offset_ret = (uint64_t)((uint8_t *)copy - (uint8_t *)shm->header);
	return NULL;
}

struct error *shm_publish_modules(struct shm *shm, const struct ha_module *modules, uint32_t count,
				  uint32_t generation, uint64_t loads)
{
	struct ha_module_index *index;
	struct error *err;
	void *copy = NULL;

	err = region_append(shm, HA_REGION_MODULES, "module lists",
			    sizeof(*index) + count * sizeof(*modules), &shm->modules_used, &copy);
	if (err)
		return err;
	index = copy;
	index->count = count;
	index->generation = generation;
	index->loads = loads;
	if (count)
		memcpy(index->module, modules, count * sizeof(*modules));
	/* Pairs with the payload's acquire load at the start of each capture. */
	__atomic_store_n(&shm->header->module_index,
			 (uint64_t)((uint8_t *)copy - (uint8_t *)shm->header), __ATOMIC_RELEASE);
	return NULL;
}

struct error *shm_publish_stacks(struct shm *shm, const struct ha_stack *stacks, uint64_t count)
{
	struct ha_stack_index *index;
	struct error *err;
	void *copy = NULL;

	err = region_append(shm, HA_REGION_STACKS, "stack regions",
			    sizeof(*index) + count * sizeof(*stacks), &shm->stacks_used, &copy);
	if (err)
		return err;
	index = copy;
	index->count = count;
	if (count)
		memcpy(index->stack, stacks, count * sizeof(*stacks));
	/* Pairs with the payload's acquire load of stack_index. */
	__atomic_store_n(&shm->header->stack_index,
			 (uint64_t)((uint8_t *)copy - (uint8_t *)shm->header), __ATOMIC_RELEASE);
	return NULL;
}

struct error *shm_tick(struct shm *shm, uint64_t elapsed_ms)
{
	struct error *err;

	__atomic_store_n(&shm->header->tick, (uint32_t)(elapsed_ms / HA_TICK_MS), __ATOMIC_RELAXED);
	/* What a segment takes, sites cannot have. */
	err = shm_live_tick(shm);
	return err ? err : sites_touch(shm);
}

void shm_release(struct shm *shm)
{
	uint64_t from = shm->region[HA_REGION_MODULES].offset;

	/* Where it fails, the memory goes with the last mapping. */
	while (fallocate(shm->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)from,
			 (off_t)(shm->size - from)) &&
	       errno == EINTR)
		;
}

uint64_t shm_held_bytes(const struct shm *shm)
{
	struct stat st;

	if (fstat(shm->fd, &st))
		return 0;
	return (uint64_t)st.st_blocks * 512 + shm->next.size - shm->next.touched;
}

void shm_set_room(struct shm *shm, const struct shm_room *room)
{
	shm->room = *room;
	if (shm->room.sites_made > shm->site_capacity)
		shm->room.sites_made = shm->site_capacity;
	sites_limit(shm);
}
