/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The recording: a profile in one file, to be reported from anywhere later.
 *
 *	 8  magic "heapatt\n"
 *	 4  version, little-endian
 *	 4  zero
 *	 8  bytes of the body, little-endian
 *	    the body, one Zstandard frame
 *	 8  checksum of all bytes before it (FNV-1a, 64 bits), little-endian
 *
 * The body is a sequence of sections: a number, a length, then so many bytes,
 * all numbers as varints. Strings have their own section and are named by
 * number; sums are stored as differences from the snapshot before. A reader
 * skips sections that it does not know, and refuses versions above its own.
 * What only some profiles have comes in a section of its own at the end.
 *
 * Everything read is validated: a damaged or hostile file gives ERROR_FORMAT
 * with the file's name and the place, never a crash.
 */
#ifndef RESOLVER_RECORDING_H
#define RESOLVER_RECORDING_H

#include <stddef.h>
#include <stdint.h>

#include "resolver/error.h"

#define RECORDING_VERSION 1u
#define RECORDING_MAX	  (1ull << 28) /* bytes of a body that we write or accept */

struct profile;

/*
 * Write @profile to @fd, an empty file open for writing, from its start, and
 * sync it. @name is for messages. On error the file is incomplete, and the
 * caller removes it.
 */
MUST_CHECK struct error *recording_write(const struct profile *profile, int fd, const char *name);

/* Read a recording; free the profile with profile_free(). */
MUST_CHECK struct error *recording_read(const char *path, struct profile **ret);

/*
 * The body alone: what the two above do between the frame and the profile.
 * *data_ret is malloc'ed. Errors of decode name the place in the body.
 */
MUST_CHECK struct error *recording_encode(const struct profile *profile, uint8_t **data_ret,
					  size_t *size_ret);
MUST_CHECK struct error *recording_decode(const uint8_t *data, size_t size, struct profile **ret);

#endif
