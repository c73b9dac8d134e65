// SPDX-License-Identifier: GPL-3.0-or-later
/*
 * A session and its memory: what recording holds here and in the shared memory,
 * and what follows from that for tables, sites and the interval.
 */
#include "injector/session.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "resolver/cleanup.h"

#define NS_PER_MS 1000000ull

/* How often the kernel is asked what this process holds. */
#define PRIVATE_PERIOD_MS 100u

/* Where it was exact: as near to that as can be. */
#define LEAST_SAMPLED 2u

/* The start of a file of /proc as a string; false if it cannot be read. */
static bool text_read(const char *path, char *text, size_t size)
{
	CLEANUP(closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t got = fd < 0 ? -1 : read(fd, text, size - 1);

	if (got <= 0)
		return false;
	text[got] = '\0';
	return true;
}

static uint64_t available_bytes(void)
{
	char text[4096];
	const char *field;
	unsigned long long kib;

	if (!text_read("/proc/meminfo", text, sizeof(text)))
		return UINT64_MAX;
	field = strstr(text, "MemAvailable:");
	return field && sscanf(field, "MemAvailable: %llu", &kib) == 1 ? kib * 1024 : UINT64_MAX;
}

/* Memory of this process that belongs to no file and is not shared. */
static uint64_t private_bytes(void)
{
	unsigned long long total, resident, shared;
	char text[256];

	if (!text_read("/proc/self/statm", text, sizeof(text)) ||
	    sscanf(text, "%llu %llu %llu", &total, &resident, &shared) != 3 || resident < shared)
		return 0;
	return (resident - shared) * (uint64_t)sysconf(_SC_PAGESIZE);
}

void session_memory_init(struct session *session)
{
	struct profile *profile = session->profile;
	uint64_t asked = session->options->max_memory;

	session->memlimit = (struct memlimit){
		.limit_bytes = asked ? asked : memlimit_default(available_bytes()),
	};
	profile->limits.memory_max_bytes = session->memlimit.limit_bytes;
	profile_bound_changes(profile,
			      memlimit_changes(&session->memlimit, sizeof(struct profile_change)));
}

/* Sites that the reader has not seen yet will take memory here. */
static uint64_t held_bytes(const struct session *session, uint64_t sites)
{
	uint64_t unread = sites > session->reader->sites ? sites - session->reader->sites : 0;

	return session->private_bytes + shm_held_bytes(session->shm) +
	       unread * SHM_SITE_PRIVATE_BYTES;
}

/* By the table, which is of now, or by the sums, which know the large blocks. */
static uint64_t inuse_bytes(const struct session *session, const struct shm_live *live)
{
	uint64_t scanned = reader_inuse_bytes(&session->reader->total);

	if (live->bytes < (double)scanned)
		return scanned;
	return live->bytes < 0x1p62 ? (uint64_t)live->bytes : 1ull << 62;
}

/* Once samples were taken, that a block is not in the table says nothing: there is no way back. */
static uint64_t least_interval(const struct session *session, uint64_t wanted)
{
	const struct profile_limits *limits = &session->profile->limits;

	return limits->began_exact && wanted <= 1 ? LEAST_SAMPLED : wanted;
}

static void raised_note(struct session *session, uint64_t elapsed_ns)
{
	struct profile_limits *limits = &session->profile->limits;

	if (limits->raised)
		return;
	limits->raised = true;
	limits->raised_ns = elapsed_ns;
	limits->began_exact = session->options->exact;
}

uint64_t session_memory_room(struct session *session, uint64_t elapsed_ns)
{
	const struct memlimit *limit = &session->memlimit;
	struct profile_limits *limits = &session->profile->limits;
	struct shm_room room = {.sites_made = shm_sites_made(session->shm)};
	uint64_t held;

	if (elapsed_ns >= session->private_due_ns) {
		session->private_bytes = private_bytes();
		session->private_due_ns = elapsed_ns + PRIVATE_PERIOD_MS * NS_PER_MS;
	}
	held = held_bytes(session, room.sites_made);
	if (held > limits->memory_peak_bytes)
		limits->memory_peak_bytes = held;
	room.segments = memlimit_segments_room(limit, held);
	room.sites = memlimit_sites_room(limit, held);
	shm_set_room(session->shm, &room);
	return held;
}

struct error *session_memory(struct session *session, uint64_t elapsed_ns)
{
	struct memlimit *limit = &session->memlimit;
	uint64_t held = session_memory_room(session, elapsed_ns);
	struct shm_live live = shm_live(session->shm);
	struct memlimit_state state = {
		.held_bytes = held,
		.can_grow = shm_can_grow(session->shm),
		.live_cells = live.cells,
		.live_permille = live.permille,
		.inuse_bytes = inuse_bytes(session, &live),
	};
	uint64_t least;

	least = memlimit_step(limit, &state);
	if (least > 1)
		raised_note(session, elapsed_ns);
	session->least_interval = least_interval(session, least);
	return session_interval(session);
}
