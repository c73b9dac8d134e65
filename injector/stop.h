/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Taking out what is left of heapattach in a process that nobody records:
 * after a heapattach was killed (`heapattach stop`), and in children that the
 * target forked while it was recorded.
 */
#ifndef INJECTOR_STOP_H
#define INJECTOR_STOP_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "injector/options.h"
#include "injector/session.h"
#include "resolver/error.h"

struct stop_result {
	bool found;	 /* the process had our entry object */
	size_t slots;	 /* that led to it, and were put back */
	size_t mappings; /* of ours that were unmapped; entry itself stays */
};

/*
 * Clean options->pid. ERROR_BUSY: it is being recorded by a heapattach that is
 * alive. Else the errors of an attach.
 */
MUST_CHECK struct error *stop_run(const struct options *options, struct stop_result *ret);

/*
 * After session_stop(), or when the target is gone: clean the processes that
 * still share this session's memory, that is, its forked children. Goes on
 * after one that fails and returns the first error.
 *
 * @session_start_ns  CLOCK_BOOTTIME from before the attach: older processes
 *                    are no children from then
 */
MUST_CHECK struct error *stop_children(const struct session *session, uint64_t session_start_ns,
				       size_t *count_ret);

#endif
