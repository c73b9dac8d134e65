/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Files that heapattach makes for the user: private (0600), never over another
 * one, never through a symbolic link, and gone again unless finished.
 */
#ifndef INJECTOR_OUTFILE_H
#define INJECTOR_OUTFILE_H

#include <sys/types.h>

#include "resolver/error.h"

struct outfile;

/* Make @path, which must not exist: else ERROR_OS with EEXIST and a hint. */
MUST_CHECK struct error *outfile_create(const char *path, struct outfile **ret);

/*
 * Make a recording's file in the working directory: heapattach.COMM.PID.hap,
 * or with .1, .2 ... behind it if that exists. @comm may hold any bytes; those
 * that are unsafe in a name become '_'.
 */
MUST_CHECK struct error *outfile_create_default(const char *comm, pid_t pid, struct outfile **ret);

/* Both valid until outfile_free(). The descriptor is open for writing. */
int outfile_fd(const struct outfile *file);
const char *outfile_path(const struct outfile *file);

/*
 * The file is whole: keep it. An error of closing (a full disk may show only
 * here) is returned, and outfile_free() then removes the file.
 */
MUST_CHECK struct error *outfile_commit(struct outfile *file);

/* Removes the file unless it was committed. NULL is fine. */
void outfile_free(struct outfile *file);
/* Scope guard. */
void outfile_freep(struct outfile **file);

#endif
