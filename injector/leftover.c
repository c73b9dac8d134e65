// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/leftover.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "payload/protocol.h"

#define SHM_NAME   "/memfd:heapattach"
#define CORE_NAME  "/memfd:heapattach-core"
#define ENTRY_NAME "/memfd:heapattach-entry"

static bool is_ours(const struct memory_reader *memory, const struct map *map)
{
	uint64_t magic;

	return map->offset == 0 && map->read &&
	       (!strcmp(map->path, SHM_NAME) || !strcmp(map->path, CORE_NAME)) &&
	       memory_try_u64(memory, map->start, &magic) && magic == HA_MAGIC;
}

/* Entry as the map loader begins it, before its data are mapped: no slot can lead there yet. */
static bool is_half_entry(const struct map *map)
{
	return map->offset == 0 && map->exec && !strcmp(map->path, ENTRY_NAME) &&
	       map->end - map->start == HA_ENTRY_SIZE;
}

/* The kernel may list one mapping of ours in pieces. */
static uint64_t mapping_end(const struct maps *maps, size_t first)
{
	size_t i = first;

	while (i + 1 < maps->count && maps->map[i + 1].start == maps->map[i].end &&
	       maps->map[i + 1].inode == maps->map[first].inode &&
	       !strcmp(maps->map[i + 1].path, maps->map[first].path))
		i++;
	return maps->map[i].end;
}

/* What entry says of the gate; false if there is none. */
static bool gate_read(const struct memory_reader *memory, const struct modules *modules,
		      uint64_t *address_ret, uint32_t *state_ret, uint64_t *magic_ret)
{
	const struct module *entry = modules_entry(modules);
	uint64_t data = entry ? entry->low + HA_ENTRY_DATA : 0;

	return entry &&
	       memory_try(memory, data + offsetof(struct ha_entry, state), state_ret,
			  sizeof(*state_ret)) &&
	       memory_try_u64(memory, data + offsetof(struct ha_entry, gate), address_ret) &&
	       *address_ret && memory_try_u64(memory, *address_ret, magic_ret);
}

size_t leftover_find(const struct memory_reader *memory, const struct maps *maps,
		     const struct modules *modules, struct journal_mapping *ret)
{
	uint64_t gate, magic;
	uint32_t state;
	size_t count = 0;

	if (gate_read(memory, modules, &gate, &state, &magic) &&
	    (state == HA_STATE_ON || magic == HA_GATE_MAGIC))
		ret[count++] = (struct journal_mapping){
			.state = JOURNAL_THERE,
			.address = gate,
			.size = HA_PAGE,
		};
	for (size_t i = 0; i < maps->count && count < JOURNAL_LEFT; i++) {
		const struct map *map = &maps->map[i];

		if (!is_ours(memory, map) && !is_half_entry(map))
			continue;
		ret[count++] = (struct journal_mapping){
			.state = JOURNAL_THERE,
			.address = map->start,
			.size = mapping_end(maps, i) - map->start,
		};
	}
	return count;
}

static pid_t boot_tid(const struct memory_reader *memory, const struct journal_mapping *shm)
{
	uint64_t region = shm->address + offsetof(struct ha_shm, region) +
			  HA_REGION_BOOT * sizeof(struct ha_region);
	uint64_t offset;
	int32_t tid;

	if (!memory_try_u64(memory, region, &offset) || offset >= shm->size ||
	    !memory_try(memory, shm->address + offset + offsetof(struct ha_boot, tid), &tid,
			sizeof(tid)))
		return 0;
	return tid;
}

pid_t leftover_thread(const struct memory_reader *memory, const struct maps *maps,
		      const struct journal_mapping *left)
{
	for (size_t i = 0; i < JOURNAL_LEFT; i++) {
		const struct map *map = left[i].state ? maps_find(maps, left[i].address) : NULL;

		if (map && !strcmp(map->path, SHM_NAME))
			return boot_tid(memory, &left[i]);
	}
	return 0;
}

bool leftover_is_forked(const struct memory_reader *memory, const struct modules *modules)
{
	uint64_t gate, magic;
	uint32_t state;

	return gate_read(memory, modules, &gate, &state, &magic) && state == HA_STATE_ON &&
	       magic != HA_GATE_MAGIC;
}

struct error *leftover_check_version(const struct memory_reader *memory,
				     const struct modules *modules, pid_t pid, bool mappings)
{
	const struct module *other = modules_other_entry(modules);
	uint32_t state = HA_STATE_ON;

	if (!other)
		return NULL;
	if (memory_try(memory, other->low + HA_ENTRY_DATA + offsetof(struct ha_entry, state),
		       &state, sizeof(state)) &&
	    state == HA_STATE_OFF && (!mappings || modules_entry(modules)))
		return NULL;
	return error_hint(error_create(ERROR_BUSY,
				       "process %d has the hooks of another version of heapattach "
				       "in force",
				       pid),
			  "end its recording, or take them out by that version: heapattach stop "
			  "-p %d",
			  pid);
}

/* A socket, or memory with our name: others are not looked at, they may be anywhere. */
static bool may_be_ours(const char *path)
{
	char to[64];
	ssize_t size = readlink(path, to, sizeof(to) - 1);

	to[size > 0 ? size : 0] = '\0';
	return !strncmp(to, "socket:", 7) || !strncmp(to, "/memfd:heapattach", 17);
}

size_t leftover_fds(pid_t pid, const struct journal *journal, struct journal *to)
{
	const struct dirent *entry;
	char path[64];
	size_t count = 0;
	DIR *fds;

	if (!journal->made_count)
		return 0;
	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	fds = opendir(path);
	while (fds && (entry = readdir(fds))) {
		struct ha_file file;
		struct stat info;

		snprintf(path, sizeof(path), "/proc/%d/fd/%.16s", pid, entry->d_name);
		if (!may_be_ours(path) || stat(path, &info))
			continue;
		file = (struct ha_file){.device = info.st_dev, .inode = info.st_ino};
		if (!journal_has_made(journal, &file))
			continue;
		count++;
		if (to)
			journal_add_fd(to, atoi(entry->d_name), &file);
	}
	if (fds)
		closedir(fds);
	return count;
}
