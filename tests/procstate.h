/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What can be seen of a process from outside, before and after: mappings and
 * their protections, descriptors, threads, signal masks and dispositions,
 * tracer. For the proof that an attach leaves nothing behind.
 */
#ifndef TESTS_PROCSTATE_H
#define TESTS_PROCSTATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct procstate_mapping {
	uint64_t start, end;
	char protection[5];
	char path[256]; /* "" = anonymous */
};

struct procstate_thread {
	pid_t tid;
	uint64_t blocked;
};

struct procstate {
	pid_t pid, tracer;
	uint64_t ignored, caught;
	size_t mapping_count, fd_count, thread_count;
	struct procstate_mapping *mapping;
	char (*fd)[64]; /* "7 /dev/null" */
	struct procstate_thread *thread;
};

enum procstate_ignore {
	PROCSTATE_FDS = 1,	 /* it opens and closes files of its own */
	PROCSTATE_THREADS = 2,	 /* it starts and ends threads of its own */
	PROCSTATE_HEAP = 4,	 /* it allocates: anonymous memory comes and goes */
	PROCSTATE_MASKS = 8,	 /* it changes its signal masks */
	PROCSTATE_HANDLERS = 16, /* and what it does with signals */
	PROCSTATE_FILTER = 32,	 /* samples were taken in it: free's filter stays */
	PROCSTATE_OBJECTS = 64,	 /* it loads and unloads libraries */
};

/* Fails the test if the process is not there. */
void procstate_read(pid_t pid, struct procstate *ret);
/*
 * The same, again for up to a second, until every thread blocks the signals that
 * it blocks in @other: one that is in a handler blocks more for a moment.
 */
void procstate_read_like(pid_t pid, const struct procstate *other, struct procstate *ret);
/* Read it twice, so that a thread in a handler is not taken for one that blocks so much. */
void procstate_read_steady(pid_t pid, struct procstate *ret);
void procstate_deinit(struct procstate *state);

/*
 * Fail the test unless @after is like @before, but for one new object of at
 * most four pages and what @ignore (of enum procstate_ignore) allows.
 */
void procstate_expect_same(const struct procstate *before, const struct procstate *after,
			   unsigned int ignore);

/* State: R, S, D, T, t, Z. */
char procstate_state(pid_t pid);

/* The first number after "NAME:" in /proc/PID/status, e.g. VmRSS in kB. */
uint64_t procstate_status(pid_t pid, const char *name, int base);

/* Bytes of memory behind the mapping of @pid that starts at @start. */
uint64_t procstate_resident(pid_t pid, uint64_t start);

/* The filter of @state's process: a nameless mapping of its size; NULL = none. */
const struct procstate_mapping *procstate_filter(const struct procstate *state);

/* Bytes of mappings of @pid whose path contains @part. */
uint64_t procstate_mapped(pid_t pid, const char *part);

/*
 * We have left @pid: neither shm nor core is mapped, nobody traces it. The gate
 * has no name to look for, entry stays.
 */
void procstate_expect_left(pid_t pid);

#endif
