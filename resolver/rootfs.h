/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Opening files by names that were chosen by somebody else, in the target's
 * root directory or ours.
 */
#ifndef RESOLVER_ROOTFS_H
#define RESOLVER_ROOTFS_H

#include "resolver/error.h"

/*
 * Open a regular file for reading, close-on-exec.
 *
 * @root  directory that / stands for, e.g. "/proc/123/root"; NULL for ours. No symbolic
 *        link and no ".." leads out of it (given openat2, Linux 5.6).
 *
 * Anything but a regular file is refused before it is opened for reading: a
 * FIFO would block, a device may act. Any thread.
 *
 * Errors: ERROR_OS, ERROR_DENIED, ERROR_UNSUPPORTED (not a regular file).
 */
MUST_CHECK struct error *rootfs_open(const char *root, const char *path, int *fd_ret);

#endif
