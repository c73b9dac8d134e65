/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The target's code, decoded one instruction at a time at any address, with
 * few reads. Belongs to one thread.
 */
#ifndef INJECTOR_CODEREADER_H
#define INJECTOR_CODEREADER_H

#include "injector/memory.h"
#include "resolver/insn.h"

struct code_reader;

/* @memory must outlive the reader. */
MUST_CHECK struct error *codereader_create(const struct memory_reader *memory,
					   struct code_reader **ret);
/* NULL is fine. */
void codereader_free(struct code_reader *reader);

/* False if there is no valid instruction at @address, or nothing is mapped. */
bool codereader_decode(struct code_reader *reader, uint64_t address, struct insn *ret);

/*
 * If there is a PLT stub at @address, the address of the word that it jumps
 * through goes to *slot_ret.
 */
bool codereader_plt_slot(struct code_reader *reader, uint64_t address, uint64_t *slot_ret);

#endif
