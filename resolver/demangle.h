/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Readable names of C++ and Rust functions. The only user of libiberty.
 */
#ifndef RESOLVER_DEMANGLE_H
#define RESOLVER_DEMANGLE_H

enum { DEMANGLE_MAX_INPUT = 8 << 10, DEMANGLE_MAX_OUTPUT = 64 << 10 };

/*
 * Demangle a C++ (Itanium, clone suffixes such as .part.0 included), Rust
 * legacy (without its hash) or Rust v0 name.
 *
 * Returns a malloc'ed string, or NULL if @name is not mangled, is malformed, is
 * longer than DEMANGLE_MAX_INPUT or would become longer than
 * DEMANGLE_MAX_OUTPUT. Any thread with 4 MiB of stack.
 */
char *demangle(const char *name);

#endif
