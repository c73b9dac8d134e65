/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Names of functions as demanglers write them, C++'s above all, made shorter
 * for people. Works on any text; what it does not understand stays as it is.
 */
#ifndef RESOLVER_FUNCNAME_H
#define RESOLVER_FUNCNAME_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Where the qualified name begins: behind the return type that templates carry
 * ("int* std::copy<int*>(...)"). 0 if there is none.
 */
size_t funcname_begin(const char *function);

/*
 * A malloc'ed copy without return type, and with long template arguments and
 * parameters as dots: "std::vector<...>::push_back(...)"; NULL without memory.
 */
char *funcname_shorten(const char *function);

/* True for functions of the standard libraries of C++ and Rust. */
bool funcname_is_standard(const char *function);

#endif
