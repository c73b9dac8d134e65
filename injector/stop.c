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

/* Children may fork while they are cleaned, and end while they are looked for. */
#define ROUNDS_MAX 10

/* @journal: of the session whose forked child it is; NULL = of none. */
static struct error *process_clean(const struct options *options, const struct journal *journal,
				   struct stop_result *ret)
{
	CLEANUP(session_freep) struct session *session = NULL;
	struct journal_mapping left[JOURNAL_LEFT];
	struct error *err = session_create(options, &session);

	*ret = (struct stop_result){0};
	if (err)
		return err;
	if (journal) {
		memcpy(session->journal->made, journal->made, sizeof(journal->made));
		session->journal->made_count = journal->made_count;
	}
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

struct error *stop_run(const struct options *options, struct stop_result *ret)
{
	return process_clean(options, NULL, ret);
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

static struct error *pids_add(struct pids *pids, pid_t pid)
{
	struct error *err = array_grow(&pids->pid, pids->count, 1);

	if (!err)
		pids->pid[pids->count++] = pid;
	return err;
}

static bool pids_has(const struct pids *pids, pid_t pid)
{
	for (size_t i = 0; i < pids->count; i++) {
		if (pids->pid[i] == pid)
			return true;
	}
	return false;
}

/* A recording's children, as far as they are known. */
struct family {
	pid_t parent;
	uint64_t session_start_ns;
	struct stat shm;
	const struct journal *journal;
	struct pids failed; /* could not be cleaned */
	struct pids ended;  /* were found at their end, or as zombies */
	size_t cleaned;
};

enum sharing {
	SHARING_NOT,
	SHARING_OURS, /* shm is mapped, or a descriptor of ours is open */
	SHARING_GONE, /* it ended before it could be looked at: its memory is gone, at least */
};

static enum sharing shares_ours(const struct family *family, pid_t pid)
{
	const struct stat *shm = &family->shm;
	CLEANUP(maps_deinit) struct maps maps = {0};
	struct error *err = maps_read(pid, &maps);
	bool gone = error_is(err, ERROR_GONE) || (!err && !maps.count);

	error_free(err);
	for (size_t i = 0; i < maps.count; i++) {
		if (maps.map[i].inode == shm->st_ino && maps.map[i].shared &&
		    strstr(maps.map[i].path, "memfd:heapattach"))
			return SHARING_OURS;
	}
	if (!gone && leftover_fds(pid, family->journal, NULL))
		return SHARING_OURS;
	return gone ? SHARING_GONE : SHARING_NOT;
}

static enum sharing child_look(const struct family *family, pid_t pid)
{
	uint64_t tick_ns = NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK);
	struct procfacts facts;
	struct error *err = procfacts_read("/proc", pid, &facts);

	if (err) {
		error_free(err);
		return SHARING_GONE;
	}
	if (facts.kernel_thread || (facts.start_time + 1) * tick_ns < family->session_start_ns)
		return SHARING_NOT;
	return shares_ours(family, pid);
}

/*
 * Processes that share what is this session's; not the target, nor those that
 * failed before. *again_ret: look once more. One that has ended since the kernel
 * made its list of processes may have forked another that is not in it: that is
 * how a daemon begins.
 */
static struct error *sharers_find(struct family *family, struct pids *ret, bool *again_ret)
{
	const struct dirent *entry;
	struct error *err = NULL;
	DIR *proc = opendir("/proc");

	*again_ret = false;
	if (!proc)
		return error_create(ERROR_OS, "cannot list /proc to find forked children");
	while (!err && (entry = readdir(proc))) {
		pid_t pid = atoi(entry->d_name);
		enum sharing sharing;

		if (pid <= 0 || pid == getpid() || pid == family->parent ||
		    pids_has(&family->failed, pid))
			continue;
		sharing = child_look(family, pid);
		if (sharing == SHARING_NOT ||
		    (sharing == SHARING_GONE && pids_has(&family->ended, pid)))
			continue;
		err = pids_add(sharing == SHARING_OURS ? ret : &family->ended, pid);
		*again_ret = true;
	}
	closedir(proc);
	return err;
}

/* One that ended meanwhile, or became another program, is clean. */
static struct error *child_clean(struct family *family, pid_t pid)
{
	const struct options options = {.command = OPTIONS_STOP, .pid = pid};
	struct stop_result result;
	struct error *err = process_clean(&options, family->journal, &result);

	if (err && shares_ours(family, pid) != SHARING_OURS) {
		error_free(err);
		return NULL;
	}
	family->cleaned += !err;
	if (err)
		error_keep_first(&err, pids_add(&family->failed, pid));
	return err;
}

static struct error *family_clean(struct family *family)
{
	struct error *first = NULL;
	bool again = true;

	for (unsigned int round = 0; round < ROUNDS_MAX && again; round++) {
		CLEANUP(pids_deinit) struct pids pids = {0};
		struct error *err = sharers_find(family, &pids, &again);

		error_keep_first(&first, err);
		for (size_t i = 0; i < pids.count; i++)
			error_keep_first(&first, child_clean(family, pids.pid[i]));
	}
	return first;
}

struct error *stop_children(const struct session *session, uint64_t session_start_ns,
			    size_t *count_ret)
{
	struct family family = {
		.parent = target_pid(session->target),
		.session_start_ns = session_start_ns,
		.journal = session->journal,
	};
	struct error *err;

	*count_ret = 0;
	if (!session->shm || fstat(session->shm->fd, &family.shm))
		return NULL;
	err = family_clean(&family);
	pids_deinit(&family.failed);
	pids_deinit(&family.ended);
	*count_ret = family.cleaned;
	return err;
}
