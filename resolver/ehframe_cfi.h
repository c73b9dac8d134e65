/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The call frame instructions of one FDE, executed: what CFA, return address
 * and callee-saved registers are at each address.
 *
 * Internal to resolver/ehframe*.c.
 */
#ifndef RESOLVER_EHFRAME_CFI_H
#define RESOLVER_EHFRAME_CFI_H

#include "resolver/ehframe_reader.h"

/* How a register of the caller is found. */
enum cfi_how {
	CFI_UNSPECIFIED, /* no instruction named it: unchanged */
	CFI_SAME,
	CFI_UNDEFINED,
	CFI_OFFSET,	    /* at CFA + offset */
	CFI_VAL_OFFSET,	    /* is CFA + offset */
	CFI_REGISTER,	    /* in register @offset; for the CFA: register @reg + offset */
	CFI_EXPRESSION,	    /* at the address that the expression gives */
	CFI_VAL_EXPRESSION, /* is what the expression gives */
};

struct cfi_rule {
	enum cfi_how how;
	uint32_t size; /* of the expression */
	union {
		int64_t offset;
		const uint8_t *expression;
	};
};

/* The registers that are followed. */
enum cfi_register {
	CFI_RBP,
	CFI_RA,
	CFI_RBX, /* and on, in the order of ha_rule_ext.saved */
	CFI_R12,
	CFI_R13,
	CFI_R14,
	CFI_R15,
	CFI_RSP, /* by convention the CFA, without a rule of its own */
	CFI_REGISTERS
};

struct cfi_state {
	struct cfi_rule cfa; /* CFI_REGISTER or CFI_VAL_EXPRESSION */
	uint64_t cfa_register;
	struct cfi_rule reg[CFI_REGISTERS];
};

/* A CIE that FDEs refer to. */
struct cfi_cie {
	size_t offset; /* from the start of the section */
	uint64_t code_align;
	int64_t data_align;
	uint8_t encoding; /* of FDE pointers */
	bool augmented;	  /* FDEs have augmentation data, with its length */
	bool signal;	  /* frames are signal trampolines */
	bool usable;	  /* all of it was understood */
	struct cfi_state initial;
};

/*
 * Run the initial instructions of @cie from @reader into cie->initial. Returns
 * false if they are malformed.
 */
bool cfi_run_initial(struct cfi_cie *cie, struct reader reader);

/* Called for each address at which the state may have changed, in order. */
typedef void cfi_row_function(void *data, uint64_t address, const struct cfi_state *state);

/* An FDE: [start, end), and where its instructions are. */
struct cfi_fde {
	uint64_t start, end;
	const uint8_t *code, *code_end;
	uint32_t cie; /* index */
};

/*
 * Run an FDE. The first row is at fde->start; rows at or behind fde->end are
 * not reported. @base is the address of @base_byte, for DW_CFA_set_loc.
 * Returns false if the instructions are malformed.
 */
bool cfi_run(const struct cfi_cie *cie, const struct cfi_fde *fde, const uint8_t *base_byte,
	     uint64_t base, cfi_row_function *row, void *data);

#endif
