/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A program whose slots a test writes. It loads the entry object itself and
 * plays core: it counts what comes through the hooks. Built in several ways
 * (slots_lazy.c and the others), which differ in how its calls are bound.
 *
 *	entry PATH       load entry; answers with its address
 *	on, off          entry's state
 *	work N           N rounds of calls; answers "ALLOCATED REALLOCATED FREED"
 *			 as counted through hooks since the last answer
 *	load PATH, deepbind PATH, newspace PATH, unload
 *			 a library with plugin_work()
 *	plugin N         plugin_work(N); answers with its result and the counts
 *	save             keep three copies of free's address
 *	stop
 */
#ifndef TESTS_TARGETS_SLOTS_PROGRAM_H
#define TESTS_TARGETS_SLOTS_PROGRAM_H

#include "tests/targets/entry_load.h"
#include "tests/targets/target.h"

static struct ha_gate gate = {HA_GATE_MAGIC};
static uint64_t allocated, reallocated, freed;

static void count_alloc(void *shm, const void *frame, uint64_t ptr, uint64_t size, uint64_t line)
{
	allocated++;
}

static void count_free(void *shm, uint64_t ptr, uint64_t line)
{
	if (ptr)
		freed++;
}

static uint64_t count_realloc_begin(void *shm, uint64_t old, uint64_t line)
{
	return 1;
}

static void count_realloc_end(void *shm, const void *frame, uint64_t token, uint64_t ptr,
			      uint64_t size, uint64_t line)
{
	reallocated++;
}

/* What the hooks saw since the last time. */
static void say_counts(void)
{
	uint64_t a = allocated, r = reallocated, f = freed;

	allocated = reallocated = freed = 0;
	target_say("%llu %llu %llu", (unsigned long long)a, (unsigned long long)r,
		   (unsigned long long)f);
}

/* Three allocations, a realloc and three releases a round. */
static NOINLINE void work(unsigned long rounds)
{
	for (unsigned long i = 0; i < rounds; i++) {
		void *a = malloc(i % 200 + 1), *b = calloc(2, 8), *c = aligned_alloc(64, 64);

		KEEP(a);
		a = realloc(a, 300);
		KEEP(a);
		KEEP(b);
		KEEP(c);
		free(a);
		free(b);
		free(c);
	}
}

static struct ha_entry *load_entry(const char *path)
{
	struct ha_entry *entry = entry_load(path);

	if (!entry)
		target_fail("dlopen of entry");
	entry->gate = (uint64_t)&gate;
	entry->core_alloc = (uint64_t)count_alloc;
	entry->core_free = (uint64_t)count_free;
	entry->core_realloc_begin = (uint64_t)count_realloc_begin;
	entry->core_realloc_end = (uint64_t)count_realloc_end;
	target_say("%llx", (unsigned long long)((uint64_t)entry - HA_ENTRY_DATA));
	return entry;
}

static void *load_library(const char *line)
{
	const char *path = strchr(line, ' ') + 1;
	void *handle = NULL;

	if (line[0] == 'l')
		handle = dlopen(path, RTLD_LAZY);
#ifdef RTLD_DEEPBIND
	if (line[0] == 'd')
		handle = dlopen(path, RTLD_LAZY | RTLD_DEEPBIND);
	if (line[0] == 'n')
		handle = dlmopen(LM_ID_NEWLM, path, RTLD_LAZY);
#endif
	target_say(handle ? "ok" : "no library");
	return handle;
}

static void call_plugin(void *library, unsigned long rounds)
{
	unsigned long (*function)(unsigned long) =
		(unsigned long (*)(unsigned long))dlsym(library, "plugin_work");
	unsigned long bad = function ? function(rounds) : ~0ul;
	uint64_t a = allocated, r = reallocated, f = freed;

	allocated = reallocated = freed = 0;
	target_say("%lu %llu %llu %llu", bad, (unsigned long long)a, (unsigned long long)r,
		   (unsigned long long)f);
}

static void (*volatile saved_static)(void *);

static NOINLINE void save_pointers(void)
{
	void (**saved)(void *) = malloc(2 * sizeof(*saved));

	saved[0] = saved[1] = free;
	saved_static = free;
	KEEP(saved);
	target_say("ok");
}

int main(void)
{
	struct ha_entry *entry = NULL;
	void *library = NULL;
	char line[512];
	void *first;

	target_begin();
	first = malloc(10);
	KEEP(first);
	free(first);
	target_say("ready");
	while (target_command(line, sizeof(line)) && strcmp(line, "stop") != 0) {
		if (strncmp(line, "entry ", 6) == 0) {
			entry = load_entry(line + 6);
		} else if (strcmp(line, "on") == 0 || strcmp(line, "off") == 0) {
			entry->state = line[1] == 'n' ? HA_STATE_ON : HA_STATE_OFF;
			target_say("ok");
		} else if (strncmp(line, "work ", 5) == 0) {
			work(strtoul(line + 5, NULL, 10));
			say_counts();
		} else if (strncmp(line, "plugin ", 7) == 0) {
			call_plugin(library, strtoul(line + 7, NULL, 10));
		} else if (strcmp(line, "unload") == 0) {
			target_say(dlclose(library) == 0 ? "ok" : "no");
		} else if (strcmp(line, "save") == 0) {
			save_pointers();
		} else {
			library = load_library(line);
		}
	}
	return 0;
}

#endif
