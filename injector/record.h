/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * `heapattach -p PID` from the first check to the finished profile: runs a
 * session until its time is up, the user asks, or the target ends.
 *
 * For the program's main thread.
 */
#ifndef INJECTOR_RECORD_H
#define INJECTOR_RECORD_H

#include "injector/options.h"
#include "resolver/error.h"
#include "resolver/profile.h"

/* How the program tells the user what happens; each gets whole lines without their end. */
struct record_output {
	void (*say)(const char *line);	/* left out when quiet */
	void (*warn)(const char *line); /* something is not as it should be */
};

/*
 * Blocks SIGINT, SIGTERM and SIGHUP in the calling thread, which stay blocked.
 * The first of them ends the session as if its time were up, also in the
 * middle of the attach.
 *
 * On error nothing was recorded and the target is untouched, or the message
 * says what is left.
 */
MUST_CHECK struct error *record_run(const struct options *options,
				    const struct record_output *output, struct profile **ret);

#endif
