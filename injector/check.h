/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * `heapattach check`: would an attach work, and what would it see? Makes the
 * whole plan of an attach and changes nothing.
 */
#ifndef INJECTOR_CHECK_H
#define INJECTOR_CHECK_H

#include <stdio.h>

#include "injector/options.h"
#include "resolver/error.h"

/*
 * Write to @out the answer, and what was found out about options->pid. An error
 * is the reason why an attach would be refused: it has been written, too.
 */
MUST_CHECK struct error *check_run(const struct options *options, FILE *out);

#endif
