/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Names of source files, made short and comparable.
 */
#ifndef RESOLVER_PATHNAME_H
#define RESOLVER_PATHNAME_H

/*
 * @file below @directory (NULL: as it is) without "." and "//" and with each
 * "name/.." taken out. By the text alone: the files are another machine's, so
 * that symbolic links cannot be asked.
 *
 * Returns a malloc'ed string, NULL without memory.
 */
char *pathname_clean(const char *directory, const char *file);

#endif
