/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Interned strings: each text is kept once, so that equal strings are one
 * pointer, and each has a number (0, 1, 2 ... in the order of arrival), which
 * is what files store. A string stays where it is until the pool is freed.
 */
#ifndef RESOLVER_STRPOOL_H
#define RESOLVER_STRPOOL_H

#include <stddef.h>
#include <stdint.h>

#include "resolver/error.h"

struct strpool;

MUST_CHECK struct error *strpool_create(struct strpool **ret);
/* NULL is fine. */
void strpool_free(struct strpool *pool);

/* The pool's copy of the @size bytes at @text, which must hold no NUL. */
MUST_CHECK struct error *strpool_add(struct strpool *pool, const char *text, size_t size,
				     const char **ret);

size_t strpool_count(const struct strpool *pool);
/* @id: below strpool_count(). */
const char *strpool_text(const struct strpool *pool, uint32_t id);
/* @text: a pointer that came from a pool. */
uint32_t strpool_id(const char *text);
size_t strpool_size(const char *text);

#endif
