/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The separate debug file of an ELF file.
 *
 * Searched in this order, first below the target's root and then below ours:
 * /usr/lib/debug/.build-id/xx/yyyy.debug; then the name in .gnu_debuglink in
 * the file's directory, in its .debug directory, and in /usr/lib/debug/<dir>.
 * Never over the network. A file whose build id differs is refused; one without
 * a build id is taken only if its CRC is the one that .gnu_debuglink gives.
 * Names below the target's root are resolved inside it (no link leads out), and only regular
 * files are opened.
 */
#ifndef RESOLVER_DEBUGFILE_H
#define RESOLVER_DEBUGFILE_H

#include "resolver/elffile.h"
#include "resolver/error.h"

/*
 * Find and open the debug file of @file.
 *
 * @path  @file's path as the target names it; its directory is searched
 * @root  root directory of the target, e.g. "/proc/123/root"; NULL for ours
 *
 * ERROR_NOT_FOUND says what was missing or why candidates were refused.
 */
MUST_CHECK struct error *debugfile_open(struct elffile *file, const char *path, const char *root,
					struct elffile **ret);

/*
 * Find and open the dwz file that @file's .gnu_debugaltlink names. A relative
 * name starts at @path's directory. ERROR_NOT_FOUND if @file names none, or
 * none with that build id is there.
 */
MUST_CHECK struct error *debugfile_open_alt(struct elffile *file, const char *path,
					    const char *root, struct elffile **ret);

#endif
