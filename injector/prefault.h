/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A worker's page faults, taken before it stops anybody. Its memory is a copy
 * of the program's that the kernel makes page by page at the first write, and
 * code and tables in files are mapped again at the first look: together that is
 * more than half of an attach's pause.
 */
#ifndef INJECTOR_PREFAULT_H
#define INJECTOR_PREFAULT_H

#include <sys/types.h>

/*
 * Make our private memory present and our own, as far as process @like, of which
 * we are a copy, has used it: what it has never touched, as the greater part of
 * a large table, we shall not need either. The stack is made present from here
 * on, and 32 MiB in all; likewise the C library's code, and all of ours. What
 * the kernel cannot do (before 5.14) or tell is left alone.
 */
void prefault_all(pid_t like);

#endif
