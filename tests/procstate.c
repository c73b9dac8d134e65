/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/procstate.h"

#include "payload/protocol.h"
#include "resolver/cleanup.h"
#include "tests/tests.h"

#include <dirent.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ENTRY_BYTES_MAX (4 * 4096)

/* What follows "name:" and a tab in the text of a status file. */
static const char *status_field(const char *text, const char *name)
{
	char label[32];
	const char *at;

	snprintf(label, sizeof(label), "\n%s:\t", name);
	at = text ? strstr(text, label) : NULL;
	ck_assert_msg(at != NULL, "no %s in a status file", name);
	return at + strlen(label);
}

uint64_t procstate_status(pid_t pid, const char *name, int base)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	CLEANUP(freep) char *text = tests_read_file(path);
	return strtoull(status_field(text, name), NULL, base);
}

char procstate_state(pid_t pid)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	CLEANUP(freep) char *text = tests_read_file(path);
	return *status_field(text, "State");
}

static bool mapping_parse(const char *line, struct procstate_mapping *ret)
{
	int path = 0;

	memset(ret, 0, sizeof(*ret));
	if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %*s %*s %*s %n", &ret->start, &ret->end,
		   ret->protection, &path) < 3)
		return false;
	snprintf(ret->path, sizeof(ret->path), "%s", path ? line + path : "");
	ret->path[strcspn(ret->path, "\n")] = '\0';
	return true;
}

static void mappings_read(pid_t pid, struct procstate *state)
{
	char path[64], line[1024];
	size_t room = 0;

	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	CLEANUP(fclosep) FILE *file = fopen(path, "re");
	ck_assert_msg(file != NULL, "no process %d", pid);
	while (fgets(line, sizeof(line), file)) {
		if (state->mapping_count == room) {
			room = room ? room * 2 : 64;
			state->mapping = realloc(state->mapping, room * sizeof(*state->mapping));
		}
		ck_assert(mapping_parse(line, &state->mapping[state->mapping_count++]));
	}
}

static void fds_read(pid_t pid, struct procstate *state)
{
	char path[64], link[330], target[48];
	struct dirent *entry;
	size_t room = 0;
	DIR *folder;

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	folder = opendir(path);
	ck_assert_msg(folder != NULL, "cannot list %s", path);
	while ((entry = readdir(folder))) {
		ssize_t length;

		if (entry->d_name[0] == '.')
			continue;
		snprintf(link, sizeof(link), "%s/%s", path, entry->d_name);
		length = readlink(link, target, sizeof(target) - 1);
		if (length < 0)
			continue;
		target[length] = '\0';
		/* glibc's free() looks at this file now and then, on any thread. */
		if (strcmp(target, "/proc/sys/vm/overcommit_memory") == 0)
			continue;
		if (state->fd_count == room) {
			room = room ? room * 2 : 64;
			state->fd = realloc(state->fd, room * sizeof(*state->fd));
		}
		snprintf(state->fd[state->fd_count++], sizeof(*state->fd), "%.8s %s", entry->d_name,
			 target);
	}
	closedir(folder);
}

/* While a thread is being started it blocks every signal. */
#define STARTING 0xfffffffffffbfeffu

/*
 * A mask that is about to change: of a thread that is being started, and of one
 * that blocks some and runs, most likely in a signal's handler. That one may be
 * preempted there for longer than anybody waits between two looks.
 */
static bool mask_passes(uint64_t blocked, char state)
{
	return (blocked & STARTING) == STARTING || (blocked && state == 'R');
}

/* False if some mask is about to change. */
static bool threads_read(pid_t pid, struct procstate *state)
{
	char path[64], status[330];
	struct dirent *entry;
	bool steady = true;
	size_t room = 0;
	DIR *folder;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	folder = opendir(path);
	ck_assert_msg(folder != NULL, "cannot list %s", path);
	while ((entry = readdir(folder))) {
		uint64_t blocked;

		snprintf(status, sizeof(status), "%s/%s/status", path, entry->d_name);
		CLEANUP(freep) char *text = tests_read_file(status);
		/* A thread may end between any two looks. */
		if (entry->d_name[0] == '.' || !text || !*text)
			continue;
		if (state->thread_count == room) {
			room = room ? room * 2 : 64;
			state->thread = realloc(state->thread, room * sizeof(*state->thread));
		}
		blocked = strtoull(status_field(text, "SigBlk"), NULL, 16);
		state->thread[state->thread_count++] =
			(struct procstate_thread){atoi(entry->d_name), blocked};
		if (mask_passes(blocked, *status_field(text, "State")))
			steady = false;
	}
	closedir(folder);
	return steady;
}

void procstate_read(pid_t pid, struct procstate *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->pid = pid;
	ret->tracer = (pid_t)procstate_status(pid, "TracerPid", 10);
	ret->ignored = procstate_status(pid, "SigIgn", 16);
	ret->caught = procstate_status(pid, "SigCgt", 16);
	mappings_read(pid, ret);
	fds_read(pid, ret);
	for (int tries = 0; !threads_read(pid, ret) && tries < 1000; tries++) {
		ret->thread_count = 0;
		free(ret->thread);
		ret->thread = NULL;
		poll(NULL, 0, 10);
	}
}

void procstate_deinit(struct procstate *state)
{
	free(state->mapping);
	free(state->fd);
	free(state->thread);
	memset(state, 0, sizeof(*state));
}

static bool masks_differ(const struct procstate *one, const struct procstate *other)
{
	for (size_t i = 0; i < one->thread_count; i++) {
		for (size_t j = 0; j < other->thread_count; j++) {
			if (one->thread[i].tid == other->thread[j].tid &&
			    one->thread[i].blocked != other->thread[j].blocked)
				return true;
		}
	}
	return false;
}

void procstate_read_like(pid_t pid, const struct procstate *other, struct procstate *ret)
{
	procstate_read(pid, ret);
	for (int tries = 0; masks_differ(other, ret) && tries < 100; tries++) {
		procstate_deinit(ret);
		poll(NULL, 0, 10);
		procstate_read(pid, ret);
	}
}

void procstate_read_steady(pid_t pid, struct procstate *ret)
{
	struct procstate first;

	procstate_read(pid, &first);
	procstate_read_like(pid, &first, ret);
	procstate_deinit(&first);
}

static bool has_mapping(const struct procstate *state, const struct procstate_mapping *wanted)
{
	for (size_t i = 0; i < state->mapping_count; i++) {
		const struct procstate_mapping *mapping = &state->mapping[i];

		if (mapping->start == wanted->start && mapping->end == wanted->end &&
		    strcmp(mapping->protection, wanted->protection) == 0 &&
		    strcmp(mapping->path, wanted->path) == 0)
			return true;
	}
	return false;
}

/* Memory that the program's own allocator and stacks are made of. */
static bool is_heap(const struct procstate_mapping *mapping)
{
	return (!mapping->path[0] || strcmp(mapping->path, "[heap]") == 0 ||
		strcmp(mapping->path, "[stack]") == 0) &&
	       mapping->protection[2] == '-' && mapping->protection[3] == 'p';
}

static bool is_filter(const struct procstate_mapping *mapping)
{
	return !mapping->path[0] && strcmp(mapping->protection, "rw-p") == 0 &&
	       mapping->end - mapping->start == HA_FILTER_SIZE;
}

const struct procstate_mapping *procstate_filter(const struct procstate *state)
{
	for (size_t i = 0; i < state->mapping_count; i++) {
		if (is_filter(&state->mapping[i]))
			return &state->mapping[i];
	}
	return NULL;
}

uint64_t procstate_resident(pid_t pid, uint64_t start)
{
	char path[64], line[1024], wanted[32];
	bool found = false;
	uint64_t kib;

	snprintf(path, sizeof(path), "/proc/%d/smaps", pid);
	snprintf(wanted, sizeof(wanted), "%" PRIx64 "-", start);
	CLEANUP(fclosep) FILE *file = fopen(path, "re");
	ck_assert_msg(file != NULL, "no process %d", pid);
	while (fgets(line, sizeof(line), file)) {
		found |= strncmp(line, wanted, strlen(wanted)) == 0;
		if (found && sscanf(line, "Rss: %" SCNu64, &kib) == 1)
			return kib << 10;
	}
	ck_abort_msg("no mapping at %" PRIx64, start);
}

static void mappings_compare(const struct procstate *before, const struct procstate *after,
			     unsigned int ignore)
{
	bool heap_changes = ignore & PROCSTATE_HEAP, filter_stays = ignore & PROCSTATE_FILTER;
	uint64_t entry_bytes = 0;

	for (size_t i = 0; i < before->mapping_count; i++) {
		const struct procstate_mapping *old = &before->mapping[i];

		if (ignore & PROCSTATE_OBJECTS)
			break;
		ck_assert_msg((heap_changes && is_heap(old)) || strcmp(old->path, "[heap]") == 0 ||
				      has_mapping(after, old),
			      "mapping gone: %lx-%lx %s %s", old->start, old->end, old->protection,
			      old->path);
	}
	for (size_t i = 0; i < after->mapping_count; i++) {
		const struct procstate_mapping *new = &after->mapping[i];

		if (ignore & PROCSTATE_OBJECTS && !strstr(new->path, "heapattach"))
			continue;
		if (has_mapping(before, new) || strcmp(new->path, "[heap]") == 0 ||
		    (heap_changes && is_heap(new)))
			continue;
		if (filter_stays && is_filter(new)) {
			filter_stays = false;
			continue;
		}
		ck_assert_msg(new->path[0] && new->protection[3] == 'p' && before->tracer == 0,
			      "new mapping: %lx-%lx %s %s", new->start, new->end, new->protection,
			      new->path);
		entry_bytes += new->end - new->start;
		ck_assert_msg(entry_bytes <= ENTRY_BYTES_MAX,
			      "more than four new pages: %lx-%lx %s %s", new->start, new->end,
			      new->protection, new->path);
	}
}

static bool has_fd(const struct procstate *state, const char *fd)
{
	for (size_t i = 0; i < state->fd_count; i++) {
		if (strcmp(state->fd[i], fd) == 0)
			return true;
	}
	return false;
}

static void fds_compare(const struct procstate *before, const struct procstate *after)
{
	for (size_t i = 0; i < before->fd_count; i++)
		ck_assert_msg(has_fd(after, before->fd[i]), "descriptor gone: %s", before->fd[i]);
	for (size_t i = 0; i < after->fd_count; i++)
		ck_assert_msg(has_fd(before, after->fd[i]), "new descriptor: %s", after->fd[i]);
}

static void threads_compare(const struct procstate *before, const struct procstate *after,
			    unsigned int ignore)
{
	if (!(ignore & PROCSTATE_THREADS))
		ck_assert_uint_eq(before->thread_count, after->thread_count);
	for (size_t i = 0; i < after->thread_count; i++) {
		for (size_t j = 0; j < before->thread_count; j++) {
			if (after->thread[i].tid != before->thread[j].tid ||
			    ignore & PROCSTATE_MASKS)
				continue;
			ck_assert_msg(after->thread[i].blocked == before->thread[j].blocked,
				      "thread %d blocks %lx, before %lx", after->thread[i].tid,
				      after->thread[i].blocked, before->thread[j].blocked);
		}
	}
}

void procstate_expect_same(const struct procstate *before, const struct procstate *after,
			   unsigned int ignore)
{
	ck_assert_int_eq(before->pid, after->pid);
	ck_assert_int_eq(before->tracer, after->tracer);
	if (!(ignore & PROCSTATE_HANDLERS)) {
		ck_assert_uint_eq(before->ignored, after->ignored);
		ck_assert_uint_eq(before->caught, after->caught);
	}
	mappings_compare(before, after, ignore);
	if (!(ignore & PROCSTATE_FDS))
		fds_compare(before, after);
	threads_compare(before, after, ignore);
}

uint64_t procstate_mapped(pid_t pid, const char *part)
{
	CLEANUP(procstate_deinit) struct procstate state = {0};
	uint64_t bytes = 0;

	mappings_read(pid, &state);
	for (size_t i = 0; i < state.mapping_count; i++) {
		if (strstr(state.mapping[i].path, part))
			bytes += state.mapping[i].end - state.mapping[i].start;
	}
	return bytes;
}

void procstate_expect_left(pid_t pid)
{
	ck_assert_uint_eq(procstate_mapped(pid, "memfd:heapattach ("), 0);
	ck_assert_uint_eq(procstate_mapped(pid, "memfd:heapattach-core"), 0);
	ck_assert_uint_eq(procstate_status(pid, "TracerPid", 10), 0);
}
