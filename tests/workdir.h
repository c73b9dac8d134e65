/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A temporary directory in which a test builds the files that it needs, by the
 * compiler and the binutils of the machine. Failures end the test.
 */
#ifndef TESTS_WORKDIR_H
#define TESTS_WORKDIR_H

#include "resolver/error.h"

#include <stddef.h>

struct workdir {
	char path[64];
};

void workdir_create(struct workdir *ret);
/* With all that is in it. */
void workdir_remove(struct workdir *dir);

void workdir_write(const struct workdir *dir, const char *name, const void *data, size_t size);
void workdir_write_text(const struct workdir *dir, const char *name, const char *text);

/* Run a shell command in the directory; it must succeed. */
void workdir_run(const struct workdir *dir, const char *format, ...) PRINTF(2, 3);

/* What a shell command prints; malloc'ed. */
char *workdir_output(const struct workdir *dir, const char *format, ...) PRINTF(2, 3);

/* Open a file in it for reading. */
int workdir_open(const struct workdir *dir, const char *name);

#endif
