// SPDX-License-Identifier: GPL-3.0-or-later
#include "resolver/insn.h"

#include <capstone/capstone.h>
#include <stdlib.h>

struct insn_decoder {
	csh handle;
	cs_insn *scratch;
};

struct error *insn_decoder_create(struct insn_decoder **ret)
{
	struct insn_decoder *decoder = calloc(1, sizeof(*decoder));
	cs_err status;

	if (!decoder)
		return error_memory();
	status = cs_open(CS_ARCH_X86, CS_MODE_64, &decoder->handle);
	if (status != CS_ERR_OK) {
		free(decoder);
		return error_create(ERROR_UNSUPPORTED, "capstone cannot decode x86-64: %s",
				    cs_strerror(status));
	}
	cs_option(decoder->handle, CS_OPT_DETAIL, CS_OPT_ON);
	decoder->scratch = cs_malloc(decoder->handle);
	if (!decoder->scratch) {
		insn_decoder_free(decoder);
		return error_memory();
	}
	*ret = decoder;
	return NULL;
}

void insn_decoder_free(struct insn_decoder *decoder)
{
	if (!decoder)
		return;
	if (decoder->scratch)
		cs_free(decoder->scratch, 1);
	cs_close(&decoder->handle);
	free(decoder);
}

/* Where a call or jump goes: stated in the instruction, in a fixed word, or computed. */
static void take_target(const cs_insn *insn, enum insn_kind direct, enum insn_kind memory,
			enum insn_kind indirect, struct insn *ret)
{
	const cs_x86 *x86 = &insn->detail->x86;
	const cs_x86_op *operand = &x86->operands[0];

	ret->kind = indirect;
	if (x86->op_count != 1)
		return;
	if (operand->type == X86_OP_IMM) {
		ret->kind = direct;
		ret->target = (uint64_t)operand->imm;
	} else if (operand->type == X86_OP_MEM && operand->mem.index == X86_REG_INVALID &&
		   operand->mem.segment == X86_REG_INVALID) {
		if (operand->mem.base == X86_REG_RIP) {
			ret->kind = memory;
			ret->target = insn->address + insn->size + (uint64_t)operand->mem.disp;
		} else if (operand->mem.base == X86_REG_INVALID) {
			ret->kind = memory;
			ret->target = (uint64_t)operand->mem.disp;
		}
	}
}

static void classify(const cs_insn *insn, struct insn *ret)
{
	switch (insn->id) {
	case X86_INS_CALL:
	case X86_INS_LCALL:
		take_target(insn, INSN_CALL, INSN_CALL_MEMORY, INSN_CALL_INDIRECT, ret);
		return;
	case X86_INS_JMP:
	case X86_INS_LJMP:
		take_target(insn, INSN_JUMP, INSN_JUMP_MEMORY, INSN_JUMP_INDIRECT, ret);
		return;
	case X86_INS_RET:
	case X86_INS_RETF:
	case X86_INS_RETFQ:
	case X86_INS_IRETQ:
		ret->kind = INSN_RETURN;
		return;
	case X86_INS_UD0:
	case X86_INS_UD2:
	case X86_INS_HLT:
	case X86_INS_INT3:
		ret->kind = INSN_TRAP;
		return;
	case X86_INS_SYSCALL:
		ret->kind = INSN_SYSCALL;
		return;
	default:
		break;
	}
	/* What is left of the jumps are the conditional ones, loop and jrcxz. */
	for (uint8_t i = 0; i < insn->detail->groups_count; i++) {
		if (insn->detail->groups[i] == CS_GRP_JUMP ||
		    insn->detail->groups[i] == CS_GRP_BRANCH_RELATIVE)
			take_target(insn, INSN_BRANCH, INSN_OTHER, INSN_OTHER, ret);
	}
}

bool insn_decode(struct insn_decoder *decoder, const uint8_t *code, size_t size, uint64_t address,
		 struct insn *ret)
{
	uint64_t next = address;

	if (!cs_disasm_iter(decoder->handle, &code, &size, &next, decoder->scratch))
		return false;
	*ret = (struct insn){
		.address = address,
		.size = (uint8_t)decoder->scratch->size,
		.kind = INSN_OTHER,
	};
	classify(decoder->scratch, ret);
	return true;
}
