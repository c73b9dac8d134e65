/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Decoding machine instructions, as far as control flow is concerned. The only
 * user of capstone. Decodes for the machine that heapattach was built for.
 *
 * A decoder belongs to one thread at a time.
 */
#ifndef RESOLVER_INSN_H
#define RESOLVER_INSN_H

#include "resolver/error.h"

#include <stddef.h>
#include <stdint.h>

enum insn_kind {
	INSN_OTHER,	    /* goes on with the next one */
	INSN_CALL,	    /* direct; target = where to */
	INSN_CALL_MEMORY,   /* through the word at target: call *x(%rip) */
	INSN_CALL_INDIRECT, /* through a register or computed address */
	INSN_JUMP,	    /* direct, unconditional; target */
	INSN_BRANCH,	    /* conditional; target, or the next one */
	INSN_JUMP_MEMORY,   /* through the word at target: jmp *x(%rip) */
	INSN_JUMP_INDIRECT, /* through a register or computed address: tail call or jump table */
	INSN_RETURN,
	INSN_TRAP, /* ud2, hlt, int3: does not go on */
	INSN_SYSCALL,
};

struct insn {
	uint64_t address;
	uint64_t target; /* see enum insn_kind */
	enum insn_kind kind;
	uint8_t size; /* bytes */
};

struct insn_decoder;

MUST_CHECK struct error *insn_decoder_create(struct insn_decoder **ret);
void insn_decoder_free(struct insn_decoder *decoder);

/*
 * Decode one instruction of @code (@size bytes, of which the first lies at
 * @address). False if there is no valid instruction in these bytes.
 */
bool insn_decode(struct insn_decoder *decoder, const uint8_t *code, size_t size, uint64_t address,
		 struct insn *ret);

#endif
