/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The shared memory as a hostile payload leaves it: any words anywhere in what
 * the injector reads. The reader, the look ahead, the self-check, the profile
 * and its reports get what they find there. The input is
 *
 *	u8	where: one of places[]
 *	u16	which word there
 *	u8	how to read the value: as it is, or near something that is there
 *	u64	the value
 *
 * and so on; an item with place 255 has the injector look, one with 254 has it
 * check itself from then on, which is slow.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "injector/fill.h"
#include "injector/selfcheck.h"
#include "resolver/cleanup.h"
#include "resolver/report.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define ITEM_SIZE 12
#define ITEMS_MAX 512
#define LOOK	  255
#define CHECK	  254

static struct shm *shm;

/* What the injector looks at each time, reset by undoing the writes. */
static struct {
	uint64_t *word;
	uint64_t old;
} writes[ITEMS_MAX];
static size_t write_count;

struct world {
	struct reader *reader;
	struct selfcheck *selfcheck;
	struct profile *profile;
	struct symbolizer *symbolizer;
	struct instances instances;
	struct modules modules;
	struct fill fill;
	uint64_t time_ns;
};

static void must(struct error *err)
{
	if (!err)
		return;
	fprintf(stderr, "%s\n", error_message(err));
	abort();
}

static struct error *nothing_read(void *ctx, uint64_t addr, void *buf, size_t size)
{
	return error_create(ERROR_NOT_FOUND, "nothing there");
}

static const struct memory_reader nothing = {.read = nothing_read};

static void shm_make(void)
{
	const struct shm_options options = {
		.site_capacity = 64,
		.live_size_max = 16 << 20,
		.sampling = true,
		.interval = 512,
		.session = 1,
		.capture_every = 1,
	};

	must(shm_create(&options, &shm));
}

/* Of each region the first so many words; regions that only the payload reads are left out. */
static uint64_t *place_word(uint8_t where, uint16_t which)
{
	static const struct {
		enum ha_region_id region;
		uint32_t words;
	} places[] = {
		{HA_REGION_STRIPES, 2048},    {HA_REGION_SITE_INDEX, 64},
		{HA_REGION_SITE_ARENA, 2048}, {HA_REGION_VARIANCES, 512},
		{HA_REGION_LIVE, 2048},	      {HA_REGION_CAPTURES, 16},
		{HA_REGION_CAPTURES, 4096},   {HA_REGION_BOOT, 64},
	};
	size_t count = sizeof(places) / sizeof(places[0]), i = where % (count + 2);
	uint8_t *base = (uint8_t *)shm->header;
	uint64_t words = sizeof(*shm->header) / 8, offset = 0;

	if (i < count) {
		base = shm_region(shm, places[i].region);
		words = places[i].words;
		/* The first stripes, and the first captures behind their states. */
		if (places[i].region == HA_REGION_STRIPES)
			offset = (which >> 12) * shm->stripe_size;
		if (i == 6)
			offset = HA_PAGE + (which >> 14) * sizeof(struct ha_capture);
	}
	return (uint64_t *)(base + offset) + which % words;
}

static uint64_t value_make(uint8_t how, uint64_t value)
{
	const struct ha_region *arena = &shm->region[HA_REGION_SITE_ARENA];

	switch (how % 6) {
	case 1:
		return arena->offset + (value % 4096) / 8 * 8;
	case 2:
		return value % 64;
	case 3:
		return arena->offset + arena->size - value % 256;
	case 4:
		return UINT64_MAX - value % 64;
	case 5:
		return value >> (value % 64);
	default:
		return value;
	}
}

static void world_make(struct world *world)
{
	*world = (struct world){0};
	must(profile_create(&world->profile));
	must(symbolizer_create(NULL, &world->symbolizer));
	must(reader_create(shm, &world->reader));
	must(fill_init(&world->fill, world->profile, world->reader, world->symbolizer,
		       &world->instances));
}

static void world_drop(struct world *world)
{
	fill_deinit(&world->fill);
	selfcheck_free(world->selfcheck);
	reader_free(world->reader);
	symbolizer_free(world->symbolizer);
	profile_free(world->profile);
}

/* As the session does each second; an error is an answer, too. */
static void world_look(struct world *world)
{
	struct profile_snapshot head = {.time_ns = world->time_ns += 1000000000};
	struct error *err = shm_tick(shm, world->time_ns / 1000000);

	if (!err && world->selfcheck)
		err = selfcheck_drain(world->selfcheck);
	if (!err)
		err = reader_scan(world->reader);
	if (!err)
		err = fill_snapshot(&world->fill, &head);
	if (!err)
		fill_counters(&world->fill);
	error_free(err);
	shm_live(shm);
}

static void report_all(const struct profile *profile)
{
	const struct report_options options = {.sort = REPORT_SORT_INUSE, .top = 5};

	for (int format = REPORT_TEXT; format <= REPORT_PPROF; format++) {
		CLEANUP(fclosep) FILE *out = fopen("/dev/null", "w");

		if (!out)
			abort();
		must(report_write(out, profile, format, &options));
	}
}

static void item_run(struct world *world, const uint8_t *item)
{
	uint64_t *word, value;
	uint16_t which;

	if (item[0] == LOOK) {
		world_look(world);
		return;
	}
	if (item[0] == CHECK) {
		if (!world->selfcheck)
			must(selfcheck_create(world->reader, &nothing, &world->modules,
					      &world->selfcheck));
		return;
	}
	memcpy(&which, item + 1, sizeof(which));
	memcpy(&value, item + 4, sizeof(value));
	word = place_word(item[0], which);
	writes[write_count].word = word;
	writes[write_count++].old = *word;
	*word = value_make(item[3], value);
}

/* In the opposite order: a word may have been written twice. */
static void writes_undo(void)
{
	while (write_count) {
		write_count--;
		*writes[write_count].word = writes[write_count].old;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct world world;

	if (!shm)
		shm_make();
	world_make(&world);
	for (; size >= ITEM_SIZE && write_count < ITEMS_MAX; size -= ITEM_SIZE, data += ITEM_SIZE)
		item_run(&world, data);
	world_look(&world);
	must(fill_names(&world.fill));
	report_all(world.profile);
	world_drop(&world);
	writes_undo();
	return 0;
}
