// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/stop.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "injector/leftover.h"
#include "injector/procfacts.h"
#include "resolver/array.h"
#include "resolver/cleanup.h"

#define NS_PER_S 1000000000ull

/* Children may fork while they are cleaned. */
#define ROUNDS_MAX 5

struct error *stop_run(const struct options *options, struct stop_result *ret)
{
	CLEANUP(session_freep) struct session *session = NULL;
	struct journal_mapping left[JOURNAL_LEFT];
	struct error *err = session_create(options, &session);

	*ret = (struct stop_result){0};
	if (err)
		return err;
	err = session_lock(session);
	if (!err)
		err = session_plan(session);
	/* Nothing to hook: then there is nothing of ours either, or nothing that could be told. */
	if (error_is(err, ERROR_NOT_FOUND) && !modules_entry(&session->modules)) {
		error_free(err);
		return NULL;
	}
	if (err)
		return err;
	ret->found = modules_entry(&session->modules) != NULL;
	ret->mappings = leftover_find(&session->memory, &session->maps, &session->modules, left);
	err = session_clear(session);
	return err ? err : session_restore(session, &ret->slots);
}

/* ---- children */

struct pids {
	pid_t *pid; /* owned */
	size_t count;
};

static void pids_deinit(struct pids *pids)
{
	free(pids->pid);
}

static bool maps_shm(pid_t pid, const struct stat *shm)
{
	CLEANUP(maps_deinit) struct maps maps = {0};
	struct error *err = maps_read(pid, &maps);

	if (err) {
		error_free(err);
		return false;
	}
	for (size_t i = 0; i < maps.count; i++) {
		if (maps.map[i].inode == shm->st_ino && maps.map[i].shared &&
		    strstr(maps.map[i].path, "memfd:heapattach"))
			return true;
	}
	return false;
}

static bool is_young(pid_t pid, uint64_t session_start_ns)
{
	uint64_t tick_ns = NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK);
	struct procfacts facts;
	struct error *err = procfacts_read("/proc", pid, &facts);

	if (!err)
		return (facts.start_time + 1) * tick_ns >= session_start_ns;
	error_free(err);
	return false;
}

/* Processes but for the target that have this session's shm mapped. */
static struct error *sharers_find(const struct session *session, const struct stat *shm,
				  uint64_t session_start_ns, struct pids *ret)
{
	const struct dirent *entry;
	struct error *err = NULL;
	DIR *proc = opendir("/proc");

	if (!proc)
		return error_create(ERROR_OS, "cannot list /proc to find forked children");
	while (!err && (entry = readdir(proc))) {
		pid_t pid = atoi(entry->d_name);

		if (pid <= 0 || pid == getpid() || pid == target_pid(session->target) ||
		    !is_young(pid, session_start_ns) || !maps_shm(pid, shm))
			continue;
		err = array_grow(&ret->pid, ret->count, 1);
		if (!err)
			ret->pid[ret->count++] = pid;
	}
	closedir(proc);
	return err;
}

/* One that ended meanwhile, or became another program, is clean. */
static struct error *child_clean(pid_t pid, const struct stat *shm, size_t *count)
{
	const struct options options = {.command = OPTIONS_STOP, .pid = pid};
	struct stop_result result;
	struct error *err = stop_run(&options, &result);

	if (err && !maps_shm(pid, shm)) {
		error_free(err);
		return NULL;
	}
	*count += !err;
	return err;
}

struct error *stop_children(const struct session *session, uint64_t session_start_ns,
			    size_t *count_ret)
{
	struct error *first = NULL;
	struct stat shm;

	*count_ret = 0;
	if (!session->shm || fstat(session->shm->fd, &shm))
		return NULL;
	for (unsigned int round = 0; round < ROUNDS_MAX && !first; round++) {
		CLEANUP(pids_deinit) struct pids pids = {0};

		first = sharers_find(session, &shm, session_start_ns, &pids);
		if (!pids.count)
			break;
		for (size_t i = 0; i < pids.count; i++)
			error_keep_first(&first, child_clean(pids.pid[i], &shm, count_ret));
	}
	return first;
}
