/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Huge pages for the shared memory. Its tables are read at random, in a target
 * that has better use for its TLB, and a miss costs most in a virtual machine,
 * where two tables of pages are walked.
 *
 * The kernel's settings for huge pages in shared memory are off almost
 * everywhere. What is asked for explicitly, page by page, is given all the same
 * since Linux 6.1, and is shared by all who map it; where it is not, small
 * pages stay. A mapping can use them if it begins at a multiple of their size.
 */
#ifndef INJECTOR_HUGEPAGE_H
#define INJECTOR_HUGEPAGE_H

#include <stdint.h>

#include "resolver/maps.h"

#define HUGEPAGE_SIZE (2ull << 20)

/* Map @size bytes of @fd, shared, at an address that huge pages need. NULL: errno says why. */
void *hugepage_map(int fd, uint64_t size);

/*
 * Make huge pages of [@address, + @size) as far as whole ones lie in it. Each
 * must have content already. Takes 0.1 to 0.5 ms for each, and 10 ms where a
 * virtual machine's memory is used for the first time; other processes may use
 * the memory meanwhile.
 */
void hugepage_join(void *address, uint64_t size);

/*
 * Where in the gaps of @maps the kernel could put @size bytes so that huge
 * pages can be used: a hint for mmap. 0: nowhere.
 */
uint64_t hugepage_hint(const struct maps *maps, uint64_t size);

#endif
