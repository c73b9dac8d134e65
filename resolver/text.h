/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Text that came from the target or from a file, made fit to print.
 *
 * Names may hold any bytes: escape sequences that reprogram a terminal, line
 * ends that forge a line of a report. Each report writer passes such text
 * through here, once, when it prints. What is kept: printable ASCII and
 * well-formed UTF-8, without control characters (C0, DEL, C1), line and
 * paragraph separators, and the marks that change the direction of text. What
 * is not kept is written as \xNN, byte by byte; a backslash stays as it is.
 */
#ifndef RESOLVER_TEXT_H
#define RESOLVER_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* True if text_printable() would return the same bytes. */
bool text_is_printable(const char *text);

/* A malloc'ed printable copy, or NULL without memory. */
char *text_printable(const char *text);

/* Write @text, made printable, to @out. */
void text_print(FILE *out, const char *text);

/*
 * Length in bytes of the well-formed UTF-8 sequence at the start of @bytes (1
 * to 4), 0 if there is none; overlong forms and surrogates are not well-formed.
 */
size_t text_utf8_length(const char *bytes, size_t size);

#endif
