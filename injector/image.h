/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The payload's two objects as memfds, ready to be passed to the target.
 *
 * All functions may be called from any thread.
 */
#ifndef INJECTOR_IMAGE_H
#define INJECTOR_IMAGE_H

#include <stdint.h>

#include "payload/protocol.h"
#include "resolver/error.h"

/* Core's header, from the image in our own binary. ERROR_FORMAT if it is not ours. */
MUST_CHECK struct error *image_core_header(struct ha_core *ret);

/* Core's flat image; descriptors are the caller's, close-on-exec. */
MUST_CHECK struct error *image_core(int *fd_ret);

/* Entry as an ELF file, for dlopen. */
MUST_CHECK struct error *image_entry_file(int *fd_ret);

/* Entry as HA_ENTRY_SIZE bytes of memory, as a loader would lay them out. */
MUST_CHECK struct error *image_entry_memory(int *fd_ret);

#endif
