/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * System calls that wait, in all the ways that the kernel has of being
 * interrupted: for tests that interrupt them.
 */
#ifndef TESTS_BLOCKING_CALLS_H
#define TESTS_BLOCKING_CALLS_H

#include <stddef.h>

#include "tests/borrow_fixture.h"

/* How long the calls wait, if nobody wakes them. */
#define CALL_WAIT_MS 900

/* Words of the board that the calls use: a pipe, open in the test too. */
enum { CALL_PIPE_READ = BOARD_WORDS - 2, CALL_PIPE_WRITE };

/* How long a call takes that a stop has interrupted and that was made to go on. */
enum call_duration {
	CALL_EXACT, /* the kernel keeps the remaining time, or the call has none */
	CALL_ANEW,  /* relative, and returns EINTR when interrupted: waits in full again */
	CALL_WOKEN, /* for ever; by a byte in the pipe, whose end for writing was opened before */
};

/* Returned by calls that this kernel does not have. */
#define CALL_NOT_AVAILABLE (-1000)

struct blocking_call {
	const char *name;
	long (*call)(struct board *board);
	enum call_duration duration;
	long result; /* and errno, if nothing is noticed */
	int errnum;
};

#define BLOCKING_CALLS 26
extern const struct blocking_call blocking_calls[BLOCKING_CALLS];

#endif
