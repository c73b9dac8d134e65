/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Scope guards: a local that is released when its scope ends, and take(), the
 * one word that says "ownership leaves here".
 *
 *	CLEANUP(freep) char *path = strdup(name);
 *	...
 *	*ret = take(path);
 *	return NULL;
 */
#ifndef RESOLVER_CLEANUP_H
#define RESOLVER_CLEANUP_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define CLEANUP(function) __attribute__((cleanup(function)))

/* The pointer's value; the variable becomes NULL and its guard does nothing. */
#define take(pointer)                                   \
	({                                              \
		__typeof__(pointer) taken_ = (pointer); \
		(pointer) = NULL;                       \
		taken_;                                 \
	})

/* The same for a file descriptor, which becomes -1. */
static inline int take_fd(int *fd)
{
	int taken = *fd;

	*fd = -1;
	return taken;
}

/* @pointer: address of any pointer that came from malloc(). */
static inline void freep(void *pointer)
{
	free(*(void **)pointer);
}

static inline void closep(int *fd)
{
	if (*fd >= 0)
		close(*fd);
}

static inline void fclosep(FILE **file)
{
	if (*file)
		fclose(*file);
}

#endif
