/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Short-lived child processes that do everything with ptrace. The kernel
 * releases the tracees of a tracer that dies, so whatever happens to a worker,
 * the target is let go.
 *
 * For the program's main thread.
 */
#ifndef INJECTOR_WORKER_H
#define INJECTOR_WORKER_H

#include <stdint.h>

#include "resolver/error.h"

/*
 * What the child runs. It shares nothing with the program but memory that was
 * mapped shared before; its error is handed to the parent.
 */
typedef struct error *worker_function(void *context);

/*
 * Run @function in a child of its own session, with all signals blocked and
 * high priority, and wait for it.
 *
 * @timeout_ms  after that the child is killed, which releases the target
 *
 * Returns the child's error, ERROR_TIMEOUT, or ERROR_FAULT if it crashed.
 */
MUST_CHECK struct error *worker_run(worker_function *function, void *context,
				    unsigned int timeout_ms);

#endif
