/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Functions of libchain.so, see chain.c. */
#ifndef TARGETS_LIB_CHAIN_H
#define TARGETS_LIB_CHAIN_H

#include <stddef.h>

/* The line of the allocation in chain_library_alloc(), once that ran. */
extern int chain_library_line;

void *chain_library_alloc(size_t size);
void chain_library_call(void (*function)(void *), void *argument);

#endif
