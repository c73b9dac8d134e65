// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/functions.h"
#include "injector/nesting.h"
#include "resolver/cleanup.h"
#include "resolver/insn.h"
#include "tests/subject.h"

#include <string.h>

#define JEMALLOC "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2"

static struct subject subject;

static void teardown(void)
{
	subject_end(&subject);
}

/* Start a target with a preloaded library (NULL = none) and plan its slots. */
static void start(const char *command, const char *preload)
{
	if (preload)
		setenv("LD_PRELOAD", preload, 1);
	subject_start(&subject, command);
	unsetenv("LD_PRELOAD");
	subject_plan(&subject);
}

static bool is_hooked(const struct module *module, const char *function)
{
	return subject_slot(&subject, module, function) != NULL;
}

/* ---- glibc and libstdc++ */

START_TEST(hooks_malloc_instead_of_libstdcxx_new)
{
	const struct module *program, *library;

	start("slots_new", NULL);
	program = modules_executable(&subject.modules);
	library = subject_module(&subject, "libstdc++.so.6");
	ck_assert(is_hooked(library, "malloc"));
	ck_assert(is_hooked(library, "free"));
	ck_assert(!is_hooked(program, "_Znwm"));
	ck_assert(!is_hooked(program, "_ZdlPvm"));
	ck_assert_uint_eq(subject_skipped(&subject, program, "_Znwm", SLOT_SKIP_INNER), 1);
	ck_assert_uint_eq(subject_skipped(&subject, program, "_ZdlPvm", SLOT_SKIP_INNER), 1);
	/* new[] calls new, the nothrow form catches what new throws. */
	ck_assert_uint_eq(subject_skipped(&subject, program, "_Znam", SLOT_SKIP_INNER), 1);
	ck_assert_uint_eq(
		subject_skipped(&subject, program, "_ZnwmRKSt9nothrow_t", SLOT_SKIP_INNER), 1);
	ck_assert_uint_eq(subject.slots.skipped[SLOT_SKIP_UNDECIDED], 0);
}
END_TEST

START_TEST(hooks_all_of_glibcs_own_functions)
{
	static const char *const names[] = {"malloc", "free", "calloc", "realloc", "aligned_alloc"};
	const struct module *program;

	start("slots_now", NULL);
	program = modules_executable(&subject.modules);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		ck_assert_msg(is_hooked(program, names[i]), "%s", names[i]);
	ck_assert_uint_eq(subject.slots.skipped[SLOT_SKIP_UNDECIDED], 0);
	ck_assert_uint_eq(subject.slots.skipped[SLOT_SKIP_INTERNAL], 0);
}
END_TEST

static enum nesting decide(struct nesting_walker *walker, const struct module *module,
			   const char *name)
{
	enum nesting nesting;
	uint64_t address;

	assert_ok(module_symbol(module, name, &address));
	assert_ok(nesting_decide(walker, (size_t)functions_find(name), address, &nesting));
	return nesting;
}

static struct nesting_walker *walker_create(void)
{
	struct nesting_walker *walker;

	assert_ok(nesting_create(&subject.memory, &subject.modules, &walker));
	for (size_t i = 0; i < subject.slots.count; i++) {
		const struct slot *slot = &subject.slots.slot[i];

		assert_ok(nesting_add_slot(walker, slot->address, slot->function, slot->call));
	}
	assert_ok(nesting_find_self_contained(walker));
	return walker;
}

START_TEST(decides_about_every_function_of_glibc)
{
	static const char *const hooked[] = {"malloc",	      "free",	  "calloc",
					     "realloc",	      "memalign", "posix_memalign",
					     "aligned_alloc", "valloc",	  "pvalloc"};
	struct nesting_walker *walker;
	const struct module *libc;

	start("slots_now", NULL);
	walker = walker_create();
	libc = modules_libc(&subject.modules);
	for (size_t i = 0; i < sizeof(hooked) / sizeof(hooked[0]); i++)
		ck_assert_msg(decide(walker, libc, hooked[i]) == NESTING_HOOK, "%s", hooked[i]);
	/* It calls realloc through libc's PLT. */
	ck_assert_int_eq(decide(walker, libc, "reallocarray"), NESTING_INNER);
	nesting_free(walker);
}
END_TEST

/* ---- musl */

START_TEST(sees_that_musls_calloc_calls_malloc)
{
	struct nesting_walker *walker;
	const struct module *libc;

	start("slots_musl", NULL);
	walker = walker_create();
	libc = modules_libc(&subject.modules);
	ck_assert_int_eq(decide(walker, libc, "malloc"), NESTING_HOOK);
	ck_assert_int_eq(decide(walker, libc, "free"), NESTING_HOOK);
	ck_assert_int_eq(decide(walker, libc, "realloc"), NESTING_HOOK);
	ck_assert_int_eq(decide(walker, libc, "calloc"), NESTING_INNER);
	ck_assert_int_eq(decide(walker, libc, "posix_memalign"), NESTING_INNER);
	nesting_free(walker);
	ck_assert_uint_eq(subject.slots.skipped[SLOT_SKIP_UNDECIDED], 0);
}
END_TEST

/* ---- jemalloc: operator new has a fast path, and calls malloc when that fails */

START_TEST(hooks_jemallocs_operators_and_not_what_they_call)
{
	const struct module *program, *jemalloc;

	start("slots_new", JEMALLOC);
	program = modules_executable(&subject.modules);
	jemalloc = subject_module(&subject, "/libjemalloc.so.2");
	ck_assert(is_hooked(program, "_Znwm"));
	ck_assert(is_hooked(program, "_ZdlPvm"));
	ck_assert_ptr_eq(
		modules_find(&subject.modules, subject_slot(&subject, program, "_Znwm")->call),
		jemalloc);
	for (size_t i = 0; i < subject.slots.count; i++) {
		const struct slot *slot = &subject.slots.slot[i];

		ck_assert_msg(slot->module != jemalloc->id, "hooked: jemalloc's own slot of %s",
			      functions_get(slot->function)->name);
	}
	ck_assert_uint_eq(subject_skipped(&subject, jemalloc, "malloc", SLOT_SKIP_INTERNAL), 1);
	ck_assert_uint_eq(subject.slots.skipped[SLOT_SKIP_UNDECIDED], 0);
}
END_TEST

/* ---- decoding */

static void expect_insn(struct insn_decoder *decoder, const char *bytes, size_t size,
			enum insn_kind kind, uint64_t target)
{
	struct insn insn;

	ck_assert(insn_decode(decoder, (const uint8_t *)bytes, size, 0x1000, &insn));
	ck_assert_uint_eq(insn.size, size);
	ck_assert_int_eq(insn.kind, kind);
	ck_assert_uint_eq(insn.target, target);
}

#define EXPECT(bytes, kind, target) expect_insn(decoder, bytes, sizeof(bytes) - 1, kind, target)

START_TEST(tells_where_control_goes)
{
	struct insn_decoder *decoder;
	struct insn insn;

	assert_ok(insn_decoder_create(&decoder));
	EXPECT("\xe8\x10\0\0\0", INSN_CALL, 0x1015);
	EXPECT("\xe9\xfb\xff\xff\xff", INSN_JUMP, 0x1000);
	EXPECT("\xeb\x02", INSN_JUMP, 0x1004);
	EXPECT("\x74\x02", INSN_BRANCH, 0x1004);
	EXPECT("\x0f\x85\0\x01\0\0", INSN_BRANCH, 0x1106);
	EXPECT("\xff\x15\x20\0\0\0", INSN_CALL_MEMORY, 0x1026);
	EXPECT("\xff\x25\x20\0\0\0", INSN_JUMP_MEMORY, 0x1026);
	EXPECT("\xf2\xff\x25\x20\0\0\0", INSN_JUMP_MEMORY, 0x1027); /* bnd */
	EXPECT("\xff\xd0", INSN_CALL_INDIRECT, 0);
	EXPECT("\xff\xe0", INSN_JUMP_INDIRECT, 0);
	EXPECT("\xff\x24\xc5\0\0\0\0", INSN_JUMP_INDIRECT, 0); /* a jump table */
	EXPECT("\xc3", INSN_RETURN, 0);
	EXPECT("\x0f\x0b", INSN_TRAP, 0);
	EXPECT("\x0f\x05", INSN_SYSCALL, 0);
	EXPECT("\xf3\x0f\x1e\xfa", INSN_OTHER, 0); /* endbr64 */
	EXPECT("\x90", INSN_OTHER, 0);
	ck_assert(!insn_decode(decoder, (const uint8_t *)"\xe8\x10", 2, 0x1000, &insn));
	ck_assert(!insn_decode(decoder, (const uint8_t *)"\x06", 1, 0x1000, &insn));
	insn_decoder_free(decoder);
}
END_TEST

/* ---- a function in a byte array */

struct code {
	uint8_t bytes[3 * HA_PAGE];
};
#define CODE_BASE 0x100000ull

static struct error *code_read(void *ctx, uint64_t addr, void *buf, size_t size)
{
	const struct code *code = ctx;

	if (addr < CODE_BASE || addr - CODE_BASE > sizeof(code->bytes) ||
	    size > sizeof(code->bytes) - (addr - CODE_BASE))
		return error_create(ERROR_NOT_FOUND, "not mapped");
	memcpy(buf, code->bytes + (addr - CODE_BASE), size);
	return NULL;
}

/* Decide about operator new at the start of @bytes; its slot of malloc is at +0x800. */
static enum nesting decide_bytes(const char *bytes, size_t size)
{
	static struct code code;
	struct memory_reader memory = {.read = code_read, .ctx = &code};
	struct nesting_walker *walker;
	struct modules none = {0};
	enum nesting nesting;

	memset(&code, 0xcc, sizeof(code));
	memcpy(code.bytes, bytes, size);
	assert_ok(nesting_create(&memory, &none, &walker));
	assert_ok(nesting_add_slot(walker, CODE_BASE + 0x800, (size_t)functions_find("malloc"),
				   CODE_BASE + 0x2000));
	assert_ok(nesting_decide(walker, (size_t)functions_find("_Znwm"), CODE_BASE, &nesting));
	nesting_free(walker);
	return nesting;
}

#define DECIDE(bytes) decide_bytes(bytes, sizeof(bytes) - 1)

START_TEST(follows_calls_jumps_and_branches_to_a_slot)
{
	/* call *slot; ret */
	ck_assert_int_eq(DECIDE("\xff\x15\xfa\x07\0\0\xc3"), NESTING_INNER);
	/* je +1; ret; jmp *slot */
	ck_assert_int_eq(DECIDE("\x74\x01\xc3\xff\x25\xf7\x07\0\0"), NESTING_INNER);
	/* call +1; ret; call *slot; ret */
	ck_assert_int_eq(DECIDE("\xe8\x01\0\0\0\xc3\xff\x15\xf4\x07\0\0\xc3"), NESTING_INNER);
	/* jmp to itself: ends */
	ck_assert_int_eq(DECIDE("\xeb\xfe"), NESTING_HOOK);
	/* a slot that names nothing of ours */
	ck_assert_int_eq(DECIDE("\xff\x15\xf2\x07\0\0\xc3"), NESTING_HOOK);
	/* call *%rax: could be anything */
	ck_assert_int_eq(DECIDE("\xff\xd0\xc3"), NESTING_UNDECIDED);
	ck_assert_int_eq(DECIDE("\xc3"), NESTING_HOOK);
	/* behind a trap nothing runs */
	ck_assert_int_eq(DECIDE("\x0f\x0b\xff\x15\xf8\x07\0\0\xc3"), NESTING_HOOK);
}
END_TEST

static bool plt_slot(const char *bytes, size_t size, uint64_t *slot)
{
	static struct code code;
	struct memory_reader memory = {.read = code_read, .ctx = &code};
	struct nesting_walker *walker;
	struct modules none = {0};
	bool found;

	memset(&code, 0xcc, sizeof(code));
	memcpy(code.bytes, bytes, size);
	assert_ok(nesting_create(&memory, &none, &walker));
	found = nesting_plt_slot(walker, CODE_BASE, slot);
	nesting_free(walker);
	return found;
}

#define PLT(bytes) plt_slot(bytes, sizeof(bytes) - 1, &slot)

START_TEST(recognises_plt_stubs)
{
	uint64_t slot = 0;

	ck_assert(PLT("\xff\x25\xfa\x07\0\0")); /* jmp *slot */
	ck_assert_uint_eq(slot, CODE_BASE + 0x800);
	ck_assert(PLT("\xf3\x0f\x1e\xfa\xf2\xff\x25\xf5\x07\0\0")); /* endbr64; bnd jmp *slot */
	ck_assert_uint_eq(slot, CODE_BASE + 0x800);
	ck_assert(!PLT("\x55\xff\x25\xf9\x07\0\0")); /* push %rbp first: a function */
	ck_assert(!PLT("\xff\xe0"));
	ck_assert(!PLT("\xe9\0\0\0\0"));
}
END_TEST

START_TEST(survives_random_code)
{
	uint64_t random = 2463534242ull;

	for (int round = 0; round < 300; round++) {
		char bytes[2048];

		for (size_t i = 0; i < sizeof(bytes); i++) {
			random ^= random << 13;
			random ^= random >> 7;
			random ^= random << 17;
			bytes[i] = (char)(random >> 32);
		}
		decide_bytes(bytes, sizeof(bytes));
	}
}
END_TEST

Suite *nesting_suite(void)
{
	Suite *suite = suite_create("nesting");
	TCase *process = tcase_create("process"), *pure = tcase_create("pure");

	tcase_add_checked_fixture(process, NULL, teardown);
	tcase_set_timeout(process, 60);
	tcase_add_test(process, hooks_malloc_instead_of_libstdcxx_new);
	tcase_add_test(process, hooks_all_of_glibcs_own_functions);
	tcase_add_test(process, decides_about_every_function_of_glibc);
	tcase_add_test(process, sees_that_musls_calloc_calls_malloc);
	tcase_add_test(process, hooks_jemallocs_operators_and_not_what_they_call);
	suite_add_tcase(suite, process);
	tcase_set_timeout(pure, 60);
	tcase_add_test(pure, tells_where_control_goes);
	tcase_add_test(pure, follows_calls_jumps_and_branches_to_a_slot);
	tcase_add_test(pure, recognises_plt_stubs);
	tcase_add_test(pure, survives_random_code);
	suite_add_tcase(suite, pure);
	return suite;
}
