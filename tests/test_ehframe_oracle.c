// SPDX-License-Identifier: GPL-3.0-or-later
/*
 * The tables of real modules against libdw, row by row: what both say about
 * CFA, return address, rbp and the other callee-saved registers is evaluated
 * on made-up registers and memory, so that it does not matter in which words
 * it is said.
 */
#include <dwarf.h>
#include <elfutils/libdw.h>
#include <fcntl.h>
#include <gelf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <time.h>
#include <unistd.h>

#include "resolver/ehframe.h"
#include "tests/tests.h"

/* A module on disk: its .eh_frame as the sections have it, and libdw's view. */
struct module {
	int fd;
	Elf *elf;
	Dwarf_CFI *cfi;
	struct ehframe_input in;
	uint64_t hdr_vaddr;
	const uint8_t *hdr;
	size_t hdr_size;
};

static void find_text(struct module *module)
{
	size_t count;

	module->in.text_low = UINT64_MAX;
	ck_assert_int_eq(elf_getphdrnum(module->elf, &count), 0);
	for (size_t i = 0; i < count; i++) {
		GElf_Phdr phdr;

		ck_assert_ptr_nonnull(gelf_getphdr(module->elf, (int)i, &phdr));
		if (phdr.p_type == PT_GNU_EH_FRAME) {
			module->hdr_vaddr = phdr.p_vaddr;
			module->hdr_size = phdr.p_filesz;
			module->hdr =
				(const uint8_t *)elf_rawfile(module->elf, NULL) + phdr.p_offset;
		}
		if (phdr.p_type != PT_LOAD || !(phdr.p_flags & PF_X))
			continue;
		if (phdr.p_vaddr < module->in.text_low)
			module->in.text_low = phdr.p_vaddr;
		if (phdr.p_vaddr + phdr.p_memsz > module->in.text_high)
			module->in.text_high = phdr.p_vaddr + phdr.p_memsz;
	}
}

static void find_section(struct module *module)
{
	Elf_Scn *section = NULL;
	size_t names;

	ck_assert_int_eq(elf_getshdrstrndx(module->elf, &names), 0);
	while ((section = elf_nextscn(module->elf, section))) {
		GElf_Shdr shdr;

		ck_assert_ptr_nonnull(gelf_getshdr(section, &shdr));
		if (strcmp(elf_strptr(module->elf, names, shdr.sh_name), ".eh_frame") != 0)
			continue;
		module->in.data = (const uint8_t *)elf_rawfile(module->elf, NULL) + shdr.sh_offset;
		module->in.size = shdr.sh_size;
		module->in.vaddr = shdr.sh_addr;
	}
}

/* The vDSO has no file; its image lies in every process, this one included. */
static Elf *vdso_open(void)
{
	char *image = (char *)getauxval(AT_SYSINFO_EHDR);
	Elf64_Ehdr header;

	ck_assert_ptr_nonnull(image);
	memcpy(&header, image, sizeof(header));
	return elf_memory(image, header.e_shoff + header.e_shnum * header.e_shentsize);
}

/* @path: NULL for the vDSO. */
static bool module_open(const char *path, struct module *module)
{
	memset(module, 0, sizeof(*module));
	module->fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	if (path && module->fd < 0)
		return false;
	elf_version(EV_CURRENT);
	module->elf = path ? elf_begin(module->fd, ELF_C_READ_MMAP, NULL) : vdso_open();
	ck_assert_ptr_nonnull(module->elf);
	find_text(module);
	find_section(module);
	ck_assert_ptr_nonnull(module->in.data);
	module->cfi = dwarf_getcfi_elf(module->elf);
	ck_assert_ptr_nonnull(module->cfi);
	return true;
}

static void module_close(struct module *module)
{
	dwarf_cfi_end(module->cfi);
	elf_end(module->elf);
	if (module->fd >= 0)
		close(module->fd);
}

/* Made-up machine: registers by DWARF number, 16 is the pc. */
static uint64_t registers[17];

static uint64_t memory(uint64_t address)
{
	return (address * 0x9e3779b97f4a7c15u) ^ (address >> 7);
}

static uint64_t evaluate(const Dwarf_Op *ops, size_t count, uint64_t cfa, bool *value_ret)
{
	uint64_t stack[16];
	size_t top = 0;

	*value_ret = false;
	for (size_t i = 0; i < count; i++) {
		const Dwarf_Op *op = &ops[i];

		ck_assert_uint_lt(top, 15);
		switch (op->atom) {
		case DW_OP_call_frame_cfa:
			stack[top++] = cfa;
			break;
		case DW_OP_bregx:
			stack[top++] = registers[op->number] + op->number2;
			break;
		case DW_OP_breg0 ... DW_OP_breg16:
			stack[top++] = registers[op->atom - DW_OP_breg0] + op->number;
			break;
		case DW_OP_regx:
			stack[top++] = registers[op->number];
			*value_ret = true;
			break;
		case DW_OP_reg0 ... DW_OP_reg16:
			stack[top++] = registers[op->atom - DW_OP_reg0];
			*value_ret = true;
			break;
		case DW_OP_lit0 ... DW_OP_lit31:
			stack[top++] = op->atom - DW_OP_lit0;
			break;
		case DW_OP_const1u ... DW_OP_consts:
			stack[top++] = op->number;
			break;
		case DW_OP_plus_uconst:
			stack[top - 1] += op->number;
			break;
		case DW_OP_deref:
			stack[top - 1] = memory(stack[top - 1]);
			break;
		case DW_OP_stack_value:
			*value_ret = true;
			break;
		case DW_OP_plus:
			top--, stack[top - 1] += stack[top];
			break;
		case DW_OP_minus:
			top--, stack[top - 1] -= stack[top];
			break;
		case DW_OP_mul:
			top--, stack[top - 1] *= stack[top];
			break;
		case DW_OP_and:
			top--, stack[top - 1] &= stack[top];
			break;
		case DW_OP_shl:
			top--, stack[top - 1] <<= stack[top];
			break;
		case DW_OP_ge:
			top--, stack[top - 1] = (int64_t)stack[top - 1] >= (int64_t)stack[top];
			break;
		default:
			ck_abort_msg("DWARF operation %#x is not known to this test", op->atom);
		}
	}
	ck_assert_uint_gt(top, 0);
	return stack[top - 1];
}

/* What one side says about the caller. */
struct answer {
	bool covered, end, signal, stop;
	uint64_t cfa, ra, rbp;
	uint64_t saved[EHFRAME_CALLEE_SAVED];
	bool lost[EHFRAME_CALLEE_SAVED];
};

static const int saved_number[EHFRAME_CALLEE_SAVED] = {3, 12, 13, 14, 15};

static uint64_t libdw_register(Dwarf_Frame *frame, int number, uint64_t cfa, bool *undefined_ret)
{
	Dwarf_Op space[3], *ops;
	size_t count;
	bool is_value;
	uint64_t value;

	ck_assert_int_eq(dwarf_frame_register(frame, number, space, &ops, &count), 0);
	*undefined_ret = ops == space && count == 0;
	if (count == 0)
		return registers[number];
	value = evaluate(ops, count, cfa, &is_value);
	return is_value ? value : memory(value);
}

static struct answer ask_libdw(const struct module *module, uint64_t vaddr)
{
	struct answer answer = {0};
	Dwarf_Addr low, high;
	Dwarf_Frame *frame;
	Dwarf_Op *ops;
	size_t count;
	bool undefined;

	registers[16] = vaddr;
	if (dwarf_cfi_addrframe(module->cfi, vaddr, &frame) != 0)
		return answer;
	answer.covered = true;
	ck_assert_int_eq(dwarf_frame_info(frame, &low, &high, &answer.signal), 16);
	ck_assert_int_eq(dwarf_frame_cfa(frame, &ops, &count), 0);
	answer.cfa = evaluate(ops, count, 0, &undefined);
	answer.ra = libdw_register(frame, 16, answer.cfa, &answer.end);
	answer.rbp = libdw_register(frame, 6, answer.cfa, &undefined);
	for (int i = 0; i < EHFRAME_CALLEE_SAVED; i++)
		answer.saved[i] =
			libdw_register(frame, saved_number[i], answer.cfa, &answer.lost[i]);
	free(frame);
	return answer;
}

static void ask_signal(struct answer *answer)
{
	/* struct ucontext's gregs: RBX, R12..R15, RBP, RSP, RIP */
	static const unsigned int saved[] = {0x80, 0x48, 0x50, 0x58, 0x60};
	uint64_t sp = registers[HA_EXT_RSP];

	answer->signal = true;
	answer->cfa = memory(sp + 0xa0);
	answer->ra = memory(sp + 0xa8);
	answer->rbp = memory(sp + 0x78);
	for (int i = 0; i < EHFRAME_CALLEE_SAVED; i++)
		answer->saved[i] = memory(sp + saved[i]);
}

static void ask_normal(const struct ehframe_rule *rule, struct answer *answer)
{
	uint64_t cfa = registers[rule->base] + (uint64_t)(int64_t)rule->cfa_offset;

	if (rule->deref)
		cfa = memory(cfa) + (uint64_t)(int64_t)rule->cfa_add;
	answer->cfa = cfa;
	answer->ra = rule->ra_register >= 0 ? registers[rule->ra_register] : memory(cfa - 8);
	answer->rbp = registers[HA_EXT_RBP];
	if (rule->rbp == EHFRAME_AT_CFA)
		answer->rbp = memory(cfa + (uint64_t)(int64_t)rule->rbp_offset);
	if (rule->rbp == EHFRAME_AT_RBP)
		answer->rbp = memory(registers[HA_EXT_RBP] + (uint64_t)(int64_t)rule->rbp_offset);
	for (int i = 0; i < EHFRAME_CALLEE_SAVED; i++) {
		answer->lost[i] = rule->saved[i] == EHFRAME_LOST;
		answer->saved[i] = registers[saved_number[i]];
		if (rule->saved[i] == EHFRAME_AT_CFA)
			answer->saved[i] = memory(cfa + (uint64_t)(int64_t)rule->saved_offset[i]);
	}
}

static struct answer ask_table(const struct ehframe_table *table, uint64_t vaddr)
{
	struct answer answer = {.covered = true};
	struct ehframe_rule rule;

	ehframe_lookup(table->table, table->size, vaddr, &rule);
	switch (rule.kind) {
	case EHFRAME_UNKNOWN:
		answer.covered = false;
		break;
	case EHFRAME_END:
		answer.end = true;
		break;
	case EHFRAME_STOP:
		answer.stop = true;
		break;
	case EHFRAME_SIGNAL:
		ask_signal(&answer);
		break;
	case EHFRAME_PLT11:
	case EHFRAME_PLT10:
		answer.cfa = registers[HA_EXT_RSP] + 8 +
			     8 * ((vaddr & 15) >= (rule.kind == EHFRAME_PLT11 ? 11 : 10));
		answer.ra = memory(answer.cfa - 8);
		answer.rbp = registers[HA_EXT_RBP];
		for (int i = 0; i < EHFRAME_CALLEE_SAVED; i++)
			answer.saved[i] = registers[saved_number[i]];
		break;
	case EHFRAME_NORMAL:
		ask_normal(&rule, &answer);
	}
	return answer;
}

struct counts {
	size_t rows, stops, lost, different;
};

static bool saved_differ(const struct answer *ours, const struct answer *theirs, size_t *lost)
{
	for (int i = 0; i < EHFRAME_CALLEE_SAVED; i++) {
		if (ours->lost[i])
			(*lost)++;
		else if (ours->saved[i] != theirs->saved[i] && !theirs->lost[i])
			return true;
	}
	return false;
}

static void compare_at(const struct module *module, const struct ehframe_table *table,
		       uint64_t vaddr, struct counts *counts)
{
	struct answer theirs = ask_libdw(module, vaddr);
	struct answer ours = ask_table(table, vaddr);

	if (ours.stop) {
		counts->stops++;
		return;
	}
	if (ours.covered == theirs.covered && ours.end == theirs.end &&
	    ours.signal == theirs.signal &&
	    (!ours.covered || ours.end ||
	     (ours.cfa == theirs.cfa && ours.ra == theirs.ra && ours.rbp == theirs.rbp &&
	      !saved_differ(&ours, &theirs, &counts->lost))))
		return;
	if (counts->different++ < 10)
		fprintf(stderr,
			"%#lx: covered %d %d end %d %d signal %d %d cfa %lx %lx ra %lx %lx rbp %lx "
			"%lx\n",
			vaddr, ours.covered, theirs.covered, ours.end, theirs.end, ours.signal,
			theirs.signal, ours.cfa, theirs.cfa, ours.ra, theirs.ra, ours.rbp,
			theirs.rbp);
}

/* Address of each row, from the table's arrays; the last one is the end of all code. */
static uint64_t row_address(const struct ha_table *table, uint32_t row, uint32_t *block)
{
	const uint8_t *bytes = (const uint8_t *)table;
	const uint32_t *blocks = (const uint32_t *)(bytes + table->block);

	while (blocks[*block + 1] <= row)
		(*block)++;
	return table->base + ((uint64_t)*block << 8) + bytes[table->low + row];
}

static struct counts compare(const struct module *module, const struct ehframe_table *table)
{
	struct counts counts = {.rows = table->table->nrows};
	uint32_t block = 0;
	uint64_t next = row_address(table->table, 0, &block);

	for (uint32_t row = 0; row + 1 < table->table->nrows; row++) {
		uint64_t start = next, last;

		next = row_address(table->table, row + 1, &block);
		ck_assert_uint_gt(next, start);
		compare_at(module, table, start, &counts);
		/* Padding behind a function counts as part of it here, not for libdw. */
		last = next - 1;
		for (unsigned int i = 0; i < EHFRAME_GAP_MAX && last > start; i++, last--) {
			if (ask_libdw(module, last).covered || !ask_table(table, last).covered)
				break;
		}
		compare_at(module, table, last, &counts);
	}
	return counts;
}

static double cpu_ms(void)
{
	struct timespec time;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
	return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

static void check_module(const char *path, bool full)
{
	struct ehframe_table table = {0};
	struct module module;
	struct counts counts;
	double start;

	if (!module_open(path, &module))
		return;
	module.in.full = full;
	start = cpu_ms();
	assert_ok(ehframe_compile(&module.in, &table));
	start = cpu_ms() - start;
	assert_ok(ehframe_verify(table.table, table.size));
	counts = compare(&module, &table);
	if (getenv("HA_TEST_FIGURES"))
		fprintf(stderr,
			"%-50s %7zu rows %6.2f ms %5.2f B/row, ext %u, stops %u/%zu lost %zu "
			"different "
			"%zu, skipped %u "
			"outside %u overlaps %u term %d damaged %d\n",
			path ? path : "[vdso]", counts.rows, start,
			(double)table.size / (double)counts.rows, table.table->next,
			table.stats.stops, counts.stops, counts.lost, counts.different,
			table.stats.skipped, table.stats.outside, table.stats.overlaps,
			table.stats.terminated, table.stats.damaged);
	ck_assert_uint_eq(counts.different, 0);
	ehframe_table_deinit(&table);
	module_close(&module);
}

static void make_registers(void)
{
	for (unsigned int i = 0; i < 17; i++)
		registers[i] = 0x7ffc00001000u + (uint64_t)i * 0x123450;
}

/* Installed on every Debian 12 that builds this; the servers only where they were installed. */
static const char *const modules[] = {
	"/lib/x86_64-linux-gnu/libc.so.6",
	"/lib64/ld-linux-x86-64.so.2",
	"/lib/x86_64-linux-gnu/libstdc++.so.6",
	"/lib/x86_64-linux-gnu/libcrypto.so.3",
	"/usr/bin/redis-server",
	"/usr/sbin/mariadbd",
};
enum { MODULES = sizeof(modules) / sizeof(modules[0]) };

START_TEST(rows_agree_with_libdw)
{
	make_registers();
	check_module(modules[_i], false);
}
END_TEST

START_TEST(full_rows_agree_with_libdw)
{
	make_registers();
	check_module(modules[_i], true);
}
END_TEST

START_TEST(vdso_agrees_with_libdw)
{
	make_registers();
	check_module(NULL, false);
}
END_TEST

/* What preflight does: no section headers, the length unknown. */
START_TEST(finds_the_section_from_its_header)
{
	struct ehframe_table whole = {0}, found = {0};
	struct ehframe_location location;
	struct module module;

	if (!module_open(modules[_i], &module))
		return;
	assert_ok(ehframe_find(module.hdr, module.hdr_size, module.hdr_vaddr, &location));
	ck_assert_uint_eq(location.vaddr, module.in.vaddr);
	ck_assert_uint_gt(location.last_fde, location.vaddr);
	assert_ok(ehframe_compile(&module.in, &whole));
	/* The file goes on behind the section with bytes that are none of it. */
	module.in.size += 4096;
	module.in.last_fde = location.last_fde;
	assert_ok(ehframe_compile(&module.in, &found));
	ck_assert_uint_eq(found.stats.fdes, whole.stats.fdes);
	ck_assert_uint_eq(found.size, whole.size);
	ck_assert_mem_eq(found.table, whole.table, whole.size);
	ehframe_table_deinit(&whole);
	ehframe_table_deinit(&found);
	module_close(&module);
}
END_TEST

Suite *ehframe_oracle_suite(void)
{
	Suite *suite = suite_create("ehframe_oracle");
	TCase *tcase = tcase_create("modules");

	tcase_set_timeout(tcase, 120);
	tcase_add_loop_test(tcase, rows_agree_with_libdw, 0, MODULES);
	tcase_add_loop_test(tcase, full_rows_agree_with_libdw, 0, MODULES);
	tcase_add_test(tcase, vdso_agrees_with_libdw);
	tcase_add_loop_test(tcase, finds_the_section_from_its_header, 0, MODULES);
	suite_add_tcase(suite, tcase);
	return suite;
}
