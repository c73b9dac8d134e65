// SPDX-License-Identifier: GPL-3.0-or-later
#include "resolver/ehframe_cfi.h"

/* DW_CFA_* of DWARF 5, section 7.24, and the GNU extensions of .eh_frame. */
enum {
	CFA_NOP = 0x00,
	CFA_SET_LOC = 0x01,
	CFA_ADVANCE_LOC1 = 0x02,
	CFA_ADVANCE_LOC2 = 0x03,
	CFA_ADVANCE_LOC4 = 0x04,
	CFA_OFFSET_EXTENDED = 0x05,
	CFA_RESTORE_EXTENDED = 0x06,
	CFA_UNDEFINED = 0x07,
	CFA_SAME_VALUE = 0x08,
	CFA_REGISTER = 0x09,
	CFA_REMEMBER_STATE = 0x0a,
	CFA_RESTORE_STATE = 0x0b,
	CFA_DEF_CFA = 0x0c,
	CFA_DEF_CFA_REGISTER = 0x0d,
	CFA_DEF_CFA_OFFSET = 0x0e,
	CFA_DEF_CFA_EXPRESSION = 0x0f,
	CFA_EXPRESSION = 0x10,
	CFA_OFFSET_EXTENDED_SF = 0x11,
	CFA_DEF_CFA_SF = 0x12,
	CFA_DEF_CFA_OFFSET_SF = 0x13,
	CFA_VAL_OFFSET = 0x14,
	CFA_VAL_OFFSET_SF = 0x15,
	CFA_VAL_EXPRESSION = 0x16,
	CFA_GNU_ARGS_SIZE = 0x2e,
	CFA_GNU_NEGATIVE_OFFSET_EXTENDED = 0x2f,
	/* The high two bits; the low six are an operand. */
	CFA_ADVANCE_LOC = 0x40,
	CFA_OFFSET = 0x80,
	CFA_RESTORE = 0xc0,
};

/* Compilers nest DW_CFA_remember_state once or twice, assembly a little deeper. */
enum { REMEMBERED_MAX = 32 };

/* Larger offsets are garbage; a bound keeps all sums of them from overflowing. */
static const int64_t OFFSET_MAX = (int64_t)1 << 40;

struct machine {
	const struct cfi_cie *cie;
	struct reader reader;
	struct cfi_state state;
	bool initial; /* running a CIE: no location, nothing to restore to */
	bool changed; /* since the last row */
	uint64_t location, end;
	const uint8_t *base_byte;
	uint64_t base;
	cfi_row_function *row;
	void *data;
	unsigned int remembered;
	struct cfi_state memory[REMEMBERED_MAX];
};

/* The rule of a register by DWARF number; NULL for those that are not followed. */
static struct cfi_rule *machine_rule(struct machine *machine, uint64_t number)
{
	static const int8_t index[17] = {
		[3] = 1 + CFI_RBX,  [6] = 1 + CFI_RBP,	[7] = 1 + CFI_RSP,  [12] = 1 + CFI_R12,
		[13] = 1 + CFI_R13, [14] = 1 + CFI_R14, [15] = 1 + CFI_R15, [16] = 1 + CFI_RA,
	};

	if (number >= sizeof(index) || !index[number])
		return NULL;
	machine->changed = true;
	return &machine->state.reg[index[number] - 1];
}

static void set_rule(struct machine *machine, uint64_t number, enum cfi_how how, int64_t offset)
{
	struct cfi_rule *rule = machine_rule(machine, number);

	if (rule)
		*rule = (struct cfi_rule){.how = how, .offset = offset};
}

/* @factor times the CIE's data alignment. */
static int64_t factored(struct machine *machine, int64_t factor)
{
	int64_t offset;

	if (__builtin_mul_overflow(factor, machine->cie->data_align, &offset) ||
	    offset > OFFSET_MAX || offset < -OFFSET_MAX) {
		machine->reader.bad = true;
		return 0;
	}
	return offset;
}

static int64_t read_factored(struct machine *machine)
{
	uint64_t factor = reader_uleb(&machine->reader);

	return factored(machine, factor > INT64_MAX ? INT64_MAX : (int64_t)factor);
}

static int64_t read_factored_signed(struct machine *machine)
{
	return factored(machine, reader_sleb(&machine->reader));
}

static struct cfi_rule read_expression(struct machine *machine, enum cfi_how how)
{
	uint64_t size = reader_uleb(&machine->reader);
	const uint8_t *bytes = reader_bytes(&machine->reader, size);

	if (size > UINT32_MAX)
		machine->reader.bad = true;
	return (struct cfi_rule){.how = how, .size = (uint32_t)size, .expression = bytes};
}

static void set_expression(struct machine *machine, enum cfi_how how)
{
	uint64_t number = reader_uleb(&machine->reader);
	struct cfi_rule expression = read_expression(machine, how);
	struct cfi_rule *rule = machine_rule(machine, number);

	if (rule)
		*rule = expression;
}

static void restore_rule(struct machine *machine, uint64_t number)
{
	struct cfi_rule *rule = machine_rule(machine, number);

	if (machine->initial)
		machine->reader.bad = true;
	else if (rule)
		*rule = machine->cie->initial.reg[rule - machine->state.reg];
}

static void set_cfa(struct machine *machine, uint64_t number, int64_t offset)
{
	machine->state.cfa = (struct cfi_rule){.how = CFI_REGISTER, .offset = offset};
	machine->state.cfa_register = number;
	machine->changed = true;
}

static void set_cfa_offset(struct machine *machine, int64_t offset)
{
	/* Defined only behind a register, not behind an expression. */
	if (machine->state.cfa.how != CFI_REGISTER)
		machine->reader.bad = true;
	else
		set_cfa(machine, machine->state.cfa_register, offset);
}

static int64_t read_offset(struct machine *machine)
{
	uint64_t offset = reader_uleb(&machine->reader);

	if (offset <= (uint64_t)OFFSET_MAX)
		return (int64_t)offset;
	machine->reader.bad = true;
	return 0;
}

static void emit(struct machine *machine)
{
	if (machine->changed && machine->location < machine->end && !machine->reader.bad)
		machine->row(machine->data, machine->location, &machine->state);
	machine->changed = false;
}

static void move_to(struct machine *machine, uint64_t location)
{
	if (machine->initial || location < machine->location) {
		machine->reader.bad = true;
		return;
	}
	if (location > machine->location)
		emit(machine);
	machine->location = location;
}

static void advance(struct machine *machine, uint64_t delta)
{
	uint64_t distance, location;

	if (__builtin_mul_overflow(delta, machine->cie->code_align, &distance) ||
	    __builtin_add_overflow(machine->location, distance, &location))
		machine->reader.bad = true;
	else
		move_to(machine, location);
}

static void set_location(struct machine *machine)
{
	uint64_t vaddr = machine->base + (uint64_t)(machine->reader.at - machine->base_byte);

	move_to(machine, reader_pointer(&machine->reader, machine->cie->encoding, vaddr, 0));
}

static void remember(struct machine *machine)
{
	if (machine->remembered == REMEMBERED_MAX)
		machine->reader.bad = true;
	else
		machine->memory[machine->remembered++] = machine->state;
}

static void restore(struct machine *machine)
{
	if (machine->remembered == 0) {
		machine->reader.bad = true;
		return;
	}
	machine->state = machine->memory[--machine->remembered];
	machine->changed = true;
}

static void run_cfa_instruction(struct machine *machine, uint8_t opcode)
{
	struct reader *reader = &machine->reader;
	uint64_t number;

	switch (opcode) {
	case CFA_DEF_CFA:
		number = reader_uleb(reader);
		set_cfa(machine, number, read_offset(machine));
		break;
	case CFA_DEF_CFA_SF:
		number = reader_uleb(reader);
		set_cfa(machine, number, read_factored_signed(machine));
		break;
	case CFA_DEF_CFA_REGISTER:
		number = reader_uleb(reader);
		if (machine->state.cfa.how != CFI_REGISTER)
			reader->bad = true;
		else
			set_cfa(machine, number, machine->state.cfa.offset);
		break;
	case CFA_DEF_CFA_OFFSET:
		set_cfa_offset(machine, read_offset(machine));
		break;
	case CFA_DEF_CFA_OFFSET_SF:
		set_cfa_offset(machine, read_factored_signed(machine));
		break;
	case CFA_DEF_CFA_EXPRESSION:
		machine->state.cfa = read_expression(machine, CFI_VAL_EXPRESSION);
		machine->changed = true;
		break;
	default:
		reader->bad = true;
	}
}

static void run_register_instruction(struct machine *machine, uint8_t opcode)
{
	struct reader *reader = &machine->reader;
	uint64_t number;

	switch (opcode) {
	case CFA_EXPRESSION:
		set_expression(machine, CFI_EXPRESSION);
		return;
	case CFA_VAL_EXPRESSION:
		set_expression(machine, CFI_VAL_EXPRESSION);
		return;
	}
	number = reader_uleb(reader);
	switch (opcode) {
	case CFA_OFFSET_EXTENDED:
		set_rule(machine, number, CFI_OFFSET, read_factored(machine));
		break;
	case CFA_OFFSET_EXTENDED_SF:
		set_rule(machine, number, CFI_OFFSET, read_factored_signed(machine));
		break;
	case CFA_GNU_NEGATIVE_OFFSET_EXTENDED:
		set_rule(machine, number, CFI_OFFSET, -read_factored(machine));
		break;
	case CFA_VAL_OFFSET:
		set_rule(machine, number, CFI_VAL_OFFSET, read_factored(machine));
		break;
	case CFA_VAL_OFFSET_SF:
		set_rule(machine, number, CFI_VAL_OFFSET, read_factored_signed(machine));
		break;
	case CFA_RESTORE_EXTENDED:
		restore_rule(machine, number);
		break;
	case CFA_UNDEFINED:
		set_rule(machine, number, CFI_UNDEFINED, 0);
		break;
	case CFA_SAME_VALUE:
		set_rule(machine, number, CFI_SAME, 0);
		break;
	case CFA_REGISTER:
		set_rule(machine, number, CFI_REGISTER, read_offset(machine));
		break;
	}
}

static void run_instruction(struct machine *machine)
{
	struct reader *reader = &machine->reader;
	uint8_t opcode = reader_u8(reader);

	switch (opcode & 0xc0) {
	case CFA_ADVANCE_LOC:
		advance(machine, opcode & 0x3f);
		return;
	case CFA_OFFSET:
		set_rule(machine, opcode & 0x3f, CFI_OFFSET, read_factored(machine));
		return;
	case CFA_RESTORE:
		restore_rule(machine, opcode & 0x3f);
		return;
	}
	switch (opcode) {
	case CFA_NOP:
		break;
	case CFA_SET_LOC:
		set_location(machine);
		break;
	case CFA_ADVANCE_LOC1:
		advance(machine, reader_u8(reader));
		break;
	case CFA_ADVANCE_LOC2:
		advance(machine, reader_u16(reader));
		break;
	case CFA_ADVANCE_LOC4:
		advance(machine, reader_u32(reader));
		break;
	case CFA_REMEMBER_STATE:
		remember(machine);
		break;
	case CFA_RESTORE_STATE:
		restore(machine);
		break;
	case CFA_GNU_ARGS_SIZE:
		reader_uleb(reader);
		break;
	case CFA_OFFSET_EXTENDED ... CFA_REGISTER:
	case CFA_EXPRESSION ... CFA_OFFSET_EXTENDED_SF:
	case CFA_VAL_OFFSET ... CFA_VAL_EXPRESSION:
	case CFA_GNU_NEGATIVE_OFFSET_EXTENDED:
		run_register_instruction(machine, opcode);
		break;
	default:
		run_cfa_instruction(machine, opcode);
	}
}

bool cfi_run_initial(struct cfi_cie *cie, struct reader reader)
{
	struct machine machine;

	machine.cie = cie;
	machine.reader = reader;
	machine.state = (struct cfi_state){0};
	machine.initial = true;
	machine.changed = false;
	machine.remembered = 0;
	while (!machine.reader.bad && machine.reader.at < machine.reader.end)
		run_instruction(&machine);
	cie->initial = machine.state;
	return !machine.reader.bad;
}

bool cfi_run(const struct cfi_cie *cie, const struct cfi_fde *fde, const uint8_t *base_byte,
	     uint64_t base, cfi_row_function *row, void *data)
{
	/* Not zeroed: that would be 5 KiB for each of some 10,000 FDEs. */
	struct machine machine;

	machine.cie = cie;
	machine.reader = (struct reader){.at = fde->code, .end = fde->code_end};
	machine.state = cie->initial;
	machine.initial = false;
	machine.changed = true;
	machine.location = fde->start;
	machine.end = fde->end;
	machine.base_byte = base_byte;
	machine.base = base;
	machine.row = row;
	machine.data = data;
	machine.remembered = 0;
	while (!machine.reader.bad && machine.reader.at < machine.reader.end)
		run_instruction(&machine);
	emit(&machine);
	return !machine.reader.bad;
}
