// SPDX-License-Identifier: GPL-3.0-or-later
/*
 * The rules one by one, on stacks made of numbers. Real threads are in
 * test_safepoint_live.c.
 */
#include <elf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#include "injector/safepoint.h"
#include "tests/ehframe_builder.h"
#include "tests/tests.h"

/*
 * All modules have the same code:
 *
 *	+0x1000  functions: each frame is two words, one of its own and the
 *		 return address; wrappers stand in this order every 0x100 bytes
 *	+0x2000  the outermost function (_start, clone3)
 *	+0x2040  a signal trampoline
 *	+0x3000  a function that unwind information does not cover
 */
enum module { EXECUTABLE, LIBC, LOADER, LIBRARY, ALLOCATOR, VDSO, INTERNAL, ENTRY, MODULES };

#define BASE(module)	   (0x10000000u + (uint64_t)(module)*0x1000000)
#define CODE(module)	   (BASE(module) + 0x1840)
#define OUTERMOST(module)  (BASE(module) + 0x2010)
#define TRAMPOLINE(module) (BASE(module) + 0x2041)
#define UNCOVERED(module)  (BASE(module) + 0x3010)
#define UNKNOWN		   0x666000u

/* Code of libc's functions. */
#define EPOLL_WAIT (BASE(LIBC) + 0x1050)
#define READ	   (BASE(LIBC) + 0x1150)
#define MUTEX_LOCK (BASE(LIBC) + 0x1250)
#define MALLOC	   (BASE(LIBC) + 0x1350)

#define STACK	   0x7fff0000u
enum { STACK_WORDS = 4096 };

static struct ehframe_table table;
static struct code_range ranges[MODULES];
static struct safepoint_module modules[MODULES];
static struct safepoint_context context;
static struct safepoint_thread thread;
static uint64_t stack[STACK_WORDS];
static size_t words;
static uint64_t syscall_at; /* address of a system call instruction */
static unsigned int reads;  /* of the stack */

static size_t read_memory(void *data, uint64_t address, void *buf, size_t size)
{
	static const uint8_t instruction[] = {0x0f, 0x05};

	if (address == syscall_at && size == 2) {
		memcpy(buf, instruction, 2);
		return size;
	}
	if (address < STACK || address >= STACK + sizeof(stack)) {
		memset(buf, 0, size);
		return address >= BASE(0) && address < BASE(MODULES) ? size : 0;
	}
	if (size > 8)
		reads++;
	if (size > STACK + sizeof(stack) - address)
		size = STACK + sizeof(stack) - address;
	memcpy(buf, (const char *)stack + (address - STACK), size);
	return size;
}

static void add_table(void)
{
	static struct builder builder;
	struct ehframe_input in;
	size_t cie;

	memset(&builder, 0, sizeof(builder));
	cie = builder_plain_cie(&builder);
	builder_fde(&builder, cie, 0x1000, 0x1000);
	BUILDER_CODE(&builder, 0x0e, 16);
	builder_end(&builder);
	builder_fde(&builder, cie, 0x2000, 0x40);
	BUILDER_CODE(&builder, 0x07, 16);
	builder_end(&builder);
	cie = builder_cie(&builder, "zS", NULL, 0);
	builder_end(&builder);
	builder_begin(&builder, (uint32_t)(builder.size + 4 - cie));
	builder_u64(&builder, 0x2040);
	builder_u64(&builder, 0x10);
	builder_u8(&builder, 0);
	builder_end(&builder);
	in = builder_input(&builder);
	assert_ok(ehframe_compile(&in, &table));
}

static void add_wrappers(void)
{
	static const char names[] = "\0epoll_wait\0__read\0read\0pthread_mutex_lock\0malloc";
	static const Elf64_Sym symbols[] = {
		{.st_name = 0},
		{.st_name = 1,
		 .st_info = STT_FUNC,
		 .st_shndx = 1,
		 .st_value = 0x1000,
		 .st_size = 0x100},
		{.st_name = 12,
		 .st_info = STT_FUNC,
		 .st_shndx = 1,
		 .st_value = 0x1100,
		 .st_size = 0x100},
		{.st_name = 19,
		 .st_info = STT_FUNC,
		 .st_shndx = 1,
		 .st_value = 0x1100,
		 .st_size = 0x100},
		{.st_name = 24,
		 .st_info = STT_FUNC,
		 .st_shndx = 1,
		 .st_value = 0x1200,
		 .st_size = 0x100},
		{.st_name = 43,
		 .st_info = STT_FUNC,
		 .st_shndx = 1,
		 .st_value = 0x1300,
		 .st_size = 0x100},
		{.st_name = 1,
		 .st_info = STT_FUNC,
		 .st_shndx = 0,
		 .st_value = 0x1400,
		 .st_size = 0x100},
		{.st_name = 1000,
		 .st_info = STT_FUNC,
		 .st_shndx = 1,
		 .st_value = 0x1500,
		 .st_size = 1},
	};

	assert_ok(safepoint_add_dynsym(&context, BASE(LIBC), symbols,
				       sizeof(symbols) / sizeof(symbols[0]), names, sizeof(names)));
}

static void setup(void)
{
	static const struct safepoint_module facts[MODULES] = {
		[EXECUTABLE] = {.name = "server", .flags = SAFEPOINT_EXECUTABLE},
		[LIBC] = {.name = "libc.so.6", .flags = SAFEPOINT_LIBC | SAFEPOINT_DEFINES_MALLOC},
		[LOADER] = {.name = "ld.so", .flags = SAFEPOINT_LOADER},
		[LIBRARY] = {.name = "libx.so"},
		[ALLOCATOR] = {.name = "libjemalloc.so.2", .flags = SAFEPOINT_DEFINES_MALLOC},
		[VDSO] = {.name = "[vdso]", .flags = SAFEPOINT_VDSO},
		[INTERNAL] = {.name = "libgcc_s.so.1", .flags = SAFEPOINT_INTERNAL},
		[ENTRY] = {.name = "entry", .flags = SAFEPOINT_ENTRY},
	};

	memcpy(modules, facts, sizeof(modules));
	add_table();
	for (unsigned int i = 0; i < MODULES; i++) {
		modules[i].bias = BASE(i);
		ranges[i] = (struct code_range){
			.low = BASE(i) + (i == ENTRY ? 0 : 0x1000),
			.high = BASE(i) + 0x8000,
			.bias = BASE(i),
			.table = table.table,
			.table_size = table.size,
			.module = i,
		};
	}
	context = (struct safepoint_context){
		.code = {.range = ranges, .count = MODULES},
		.modules = modules,
		.module_count = MODULES,
		.start = OUTERMOST(EXECUTABLE) - 0x10,
		.read = read_memory,
	};
	add_wrappers();
	memset(stack, 0, sizeof(stack));
	words = 0;
	syscall_at = 0;
	reads = 0;
	thread = (struct safepoint_thread){.syscall_number = -1};
	thread.registers.reg[HA_EXT_RSP] = STACK;
}

static void teardown(void)
{
	safepoint_context_deinit(&context);
	ehframe_table_deinit(&table);
}

/* For a further case in the same test. */
static void start_over(void)
{
	teardown();
	setup();
}

/* Innermost frame, then return addresses outward, up to 0. */
static void set_stack(const uint64_t *pc)
{
	thread.registers.pc = *pc++;
	while (*pc) {
		stack[words++] = 0;
		stack[words++] = *pc++;
	}
}
#define STACK_OF(...) set_stack((const uint64_t[]){__VA_ARGS__, 0})

/* What stands at the outer end of the main thread's and of other threads' stacks. */
#define MAIN_END   CODE(LIBC), CODE(LIBC), OUTERMOST(EXECUTABLE)
#define THREAD_END CODE(LIBC), OUTERMOST(LIBC)

static void in_call(int64_t number)
{
	thread.syscall_number = number;
	syscall_at = thread.registers.pc - 2;
}

static struct safepoint_verdict check(void)
{
	struct safepoint_verdict verdict;

	safepoint_check(&context, &thread, &verdict);
	return verdict;
}

static void expect(enum safepoint_reason reason)
{
	struct safepoint_verdict verdict = check();

	ck_assert_str_eq(safepoint_reason_name(verdict.reason), safepoint_reason_name(reason));
}

static void expect_at(enum safepoint_reason reason, uint32_t module, size_t frame)
{
	struct safepoint_verdict verdict = check();

	expect(reason);
	ck_assert_uint_eq(verdict.module, module);
	ck_assert_uint_eq(verdict.frame, frame);
}

/* ---- running */

START_TEST(program_running_its_own_code_is_safe)
{
	struct safepoint_verdict verdict;

	STACK_OF(CODE(EXECUTABLE), CODE(EXECUTABLE), MAIN_END);
	verdict = check();
	ck_assert_int_eq(verdict.reason, SAFEPOINT_SAFE);
	ck_assert(!verdict.blocked);
	ck_assert_uint_eq(verdict.frames, 5);
	ck_assert_uint_eq(reads, 1);
}
END_TEST

START_TEST(thread_running_in_a_library_is_safe)
{
	STACK_OF(CODE(LIBRARY), CODE(EXECUTABLE), CODE(LIBRARY), THREAD_END);
	expect(SAFEPOINT_SAFE);
}
END_TEST

START_TEST(old_libc_has_one_frame_below_main)
{
	STACK_OF(CODE(EXECUTABLE), CODE(LIBC), OUTERMOST(EXECUTABLE));
	expect(SAFEPOINT_SAFE);
}
END_TEST

static const struct {
	enum module module;
	enum safepoint_reason reason;
} forbidden[] = {
	{LIBC, SAFEPOINT_IN_LIBC},	   {LOADER, SAFEPOINT_IN_LOADER},
	{VDSO, SAFEPOINT_IN_VDSO},	   {ALLOCATOR, SAFEPOINT_IN_ALLOCATOR},
	{INTERNAL, SAFEPOINT_IN_INTERNAL}, {ENTRY, SAFEPOINT_IN_HOOK},
};

START_TEST(running_in_a_special_module_is_refused_without_a_look_at_the_stack)
{
	STACK_OF(CODE(forbidden[_i].module), CODE(EXECUTABLE), MAIN_END);
	expect_at(forbidden[_i].reason, forbidden[_i].module, 0);
	ck_assert_uint_eq(reads, 0);
}
END_TEST

START_TEST(special_module_further_out_is_refused)
{
	enum safepoint_reason reason = forbidden[_i].reason;

	if (reason == SAFEPOINT_IN_LIBC)
		reason = SAFEPOINT_LIBC_FRAME;
	STACK_OF(CODE(EXECUTABLE), CODE(LIBRARY), CODE(forbidden[_i].module), CODE(EXECUTABLE),
		 MAIN_END);
	expect_at(reason, forbidden[_i].module, 2);
	start_over();
	STACK_OF(EPOLL_WAIT, CODE(EXECUTABLE), CODE(forbidden[_i].module), CODE(EXECUTABLE),
		 THREAD_END);
	in_call(SYS_epoll_wait);
	expect_at(reason, forbidden[_i].module, 2);
}
END_TEST

START_TEST(unknown_code_is_told_apart)
{
	STACK_OF(UNKNOWN, CODE(EXECUTABLE), MAIN_END);
	expect_at(SAFEPOINT_UNKNOWN_CODE, STACKWALK_NO_MODULE, 0);
	start_over();
	STACK_OF(CODE(EXECUTABLE), UNKNOWN, MAIN_END);
	expect_at(SAFEPOINT_UNKNOWN_CODE, STACKWALK_NO_MODULE, 1);
}
END_TEST

START_TEST(restartable_sequence_is_refused)
{
	STACK_OF(CODE(EXECUTABLE), MAIN_END);
	thread.rseq_cs = 0x1000;
	expect(SAFEPOINT_IN_RSEQ);
}
END_TEST

/* ---- blocked */

START_TEST(blocked_in_a_listed_wrapper_is_safe)
{
	struct safepoint_verdict verdict;

	STACK_OF(EPOLL_WAIT, CODE(LIBRARY), CODE(EXECUTABLE), MAIN_END);
	in_call(SYS_epoll_wait);
	verdict = check();
	ck_assert_int_eq(verdict.reason, SAFEPOINT_SAFE);
	ck_assert(verdict.blocked);
	ck_assert_str_eq(verdict.wrapper, "epoll_wait");
	ck_assert_int_eq(verdict.number, SYS_epoll_wait);
}
END_TEST

START_TEST(blocked_below_a_listed_wrapper_is_safe)
{
	STACK_OF(CODE(LIBC), CODE(LIBC), MUTEX_LOCK, CODE(EXECUTABLE), THREAD_END);
	in_call(SYS_futex);
	expect(SAFEPOINT_SAFE);
	ck_assert_str_eq(check().wrapper, "pthread_mutex_lock");
}
END_TEST

START_TEST(wrapper_must_be_the_outermost_of_its_libc_frames)
{
	STACK_OF(READ, CODE(LIBC), CODE(EXECUTABLE), MAIN_END); /* stdio called read */
	in_call(SYS_read);
	expect_at(SAFEPOINT_IN_LIBC, LIBC, 1);
}
END_TEST

START_TEST(too_many_frames_below_a_wrapper_are_refused)
{
	STACK_OF(CODE(LIBC), CODE(LIBC), CODE(LIBC), CODE(LIBC), CODE(LIBC), MUTEX_LOCK,
		 CODE(EXECUTABLE), MAIN_END);
	in_call(SYS_futex);
	expect(SAFEPOINT_IN_LIBC);
}
END_TEST

START_TEST(blocked_in_the_allocator_of_libc_is_refused)
{
	STACK_OF(CODE(LIBC), MALLOC, CODE(EXECUTABLE), MAIN_END);
	in_call(SYS_futex);
	expect_at(SAFEPOINT_IN_LIBC, LIBC, 1);
}
END_TEST

START_TEST(calls_that_allocate_are_refused_by_number)
{
	static const long numbers[] = {SYS_brk,	    SYS_mmap,	      SYS_munmap, SYS_mremap,
				       SYS_madvise, SYS_mprotect,     SYS_clone,  SYS_execve,
				       SYS_exit,    SYS_rt_sigaction, 100000};

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		start_over();
		STACK_OF(READ, CODE(EXECUTABLE), MAIN_END);
		in_call(numbers[i]);
		expect(SAFEPOINT_UNLISTED_SYSCALL);
		ck_assert_uint_eq(reads, 0);
		start_over();
		STACK_OF(CODE(LIBRARY), CODE(EXECUTABLE), MAIN_END);
		in_call(numbers[i]);
		expect(SAFEPOINT_UNLISTED_SYSCALL);
	}
}
END_TEST

START_TEST(call_that_is_to_be_made_again_is_safe)
{
	STACK_OF(EPOLL_WAIT, CODE(EXECUTABLE), MAIN_END);
	syscall_at = thread.registers.pc;
	thread.registers.reg[HA_EXT_RAX] = SYS_epoll_wait;
	expect(SAFEPOINT_SAFE);
	thread.registers.reg[HA_EXT_RAX] = SYS_mmap;
	expect(SAFEPOINT_UNLISTED_SYSCALL);
}
END_TEST

START_TEST(libc_code_beside_a_system_call_is_refused)
{
	STACK_OF(EPOLL_WAIT, CODE(EXECUTABLE), MAIN_END);
	expect(SAFEPOINT_IN_LIBC);
	thread.syscall_number = SYS_epoll_wait; /* but the instruction is none */
	expect(SAFEPOINT_IN_LIBC);
}
END_TEST

START_TEST(system_call_of_a_library_itself_is_safe)
{
	STACK_OF(CODE(LIBRARY), CODE(EXECUTABLE), MAIN_END);
	in_call(SYS_io_uring_enter);
	expect(SAFEPOINT_SAFE);
}
END_TEST

/* ---- the allocator inside of the program */

START_TEST(program_with_an_allocator_is_safe_only_while_it_waits)
{
	modules[EXECUTABLE].flags |= SAFEPOINT_DEFINES_MALLOC;
	STACK_OF(CODE(EXECUTABLE), CODE(EXECUTABLE), MAIN_END);
	expect(SAFEPOINT_IN_ALLOCATOR);
	thread.registers.pc = CODE(LIBRARY);
	expect_at(SAFEPOINT_IN_ALLOCATOR, EXECUTABLE, 1);
	thread.registers.pc = EPOLL_WAIT;
	in_call(SYS_epoll_wait);
	expect(SAFEPOINT_SAFE);
	thread.registers.pc = READ;
	in_call(SYS_read);
	expect_at(SAFEPOINT_IN_ALLOCATOR, EXECUTABLE, 1);
	thread.registers.pc = MUTEX_LOCK;
	in_call(SYS_futex);
	expect_at(SAFEPOINT_IN_ALLOCATOR, EXECUTABLE, 1);
}
END_TEST

START_TEST(thread_of_an_allocator_library_is_never_safe)
{
	STACK_OF(EPOLL_WAIT, CODE(ALLOCATOR), THREAD_END);
	in_call(SYS_epoll_wait);
	expect_at(SAFEPOINT_IN_ALLOCATOR, ALLOCATOR, 1);
}
END_TEST

/* ---- entry's stubs */

START_TEST(stub_counts_as_its_caller)
{
	uint64_t stub = BASE(ENTRY) + HA_ENTRY_STUBS + 5 * HA_STUB_SIZE + 7;

	/* Nothing pushed yet: the return address stands at sp. */
	stack[words++] = CODE(EXECUTABLE);
	STACK_OF(stub, MAIN_END);
	expect(SAFEPOINT_SAFE);
	stack[0] = CODE(LIBC);
	expect(SAFEPOINT_IN_LIBC);
	stack[0] = CODE(ALLOCATOR);
	expect(SAFEPOINT_IN_ALLOCATOR);
	stack[0] = UNKNOWN;
	expect(SAFEPOINT_UNKNOWN_CODE);
	thread.registers.pc = BASE(ENTRY) + HA_ENTRY_STUBS + HA_PAIRS * HA_STUB_SIZE;
	expect(SAFEPOINT_IN_HOOK);
}
END_TEST

START_TEST(unreadable_stack_below_a_stub_is_refused)
{
	thread.registers.pc = BASE(ENTRY) + HA_ENTRY_STUBS;
	thread.registers.reg[HA_EXT_RSP] = 0x1000;
	expect(SAFEPOINT_IN_HOOK);
}
END_TEST

/* ---- the stack as a whole */

START_TEST(signal_frame_is_refused)
{
	STACK_OF(CODE(EXECUTABLE), CODE(EXECUTABLE), TRAMPOLINE(LIBC), MAIN_END);
	expect_at(SAFEPOINT_SIGNAL_FRAME, LIBC, 2);
}
END_TEST

START_TEST(frame_without_unwind_information_is_refused)
{
	STACK_OF(CODE(EXECUTABLE), UNCOVERED(LIBRARY), MAIN_END);
	expect_at(SAFEPOINT_NO_CFI, LIBRARY, 1);
	ranges[LIBRARY].table = NULL;
	stack[1] = CODE(LIBRARY);
	expect_at(SAFEPOINT_NO_CFI, LIBRARY, 1);
}
END_TEST

START_TEST(third_libc_frame_at_the_outer_end_is_refused)
{
	STACK_OF(CODE(EXECUTABLE), CODE(LIBC), MAIN_END); /* an exit handler */
	expect_at(SAFEPOINT_LIBC_FRAME, LIBC, 1);
	start_over();
	STACK_OF(CODE(EXECUTABLE), CODE(LIBC), THREAD_END); /* a TSD destructor */
	expect_at(SAFEPOINT_LIBC_FRAME, LIBC, 1);
}
END_TEST

START_TEST(stack_that_libc_did_not_start_is_refused)
{
	STACK_OF(CODE(EXECUTABLE), OUTERMOST(LIBC)); /* a bare clone */
	expect(SAFEPOINT_BAD_END);
	start_over();
	STACK_OF(CODE(EXECUTABLE), OUTERMOST(EXECUTABLE)); /* no libc below main */
	expect(SAFEPOINT_BAD_END);
	start_over();
	STACK_OF(CODE(EXECUTABLE), CODE(LIBC), OUTERMOST(LIBRARY));
	expect(SAFEPOINT_BAD_END);
	start_over();
	context.start += 0x1000; /* outermost, but not _start */
	STACK_OF(CODE(EXECUTABLE), MAIN_END);
	expect(SAFEPOINT_BAD_END);
}
END_TEST

START_TEST(thread_of_libc_itself_is_refused)
{
	STACK_OF(EPOLL_WAIT, THREAD_END);
	in_call(SYS_epoll_wait);
	ck_assert_int_ne(check().reason, SAFEPOINT_SAFE);
	start_over();
	STACK_OF(EPOLL_WAIT, MAIN_END);
	in_call(SYS_epoll_wait);
	ck_assert_int_ne(check().reason, SAFEPOINT_SAFE);
}
END_TEST

START_TEST(stack_that_ends_early_is_refused)
{
	STACK_OF(CODE(EXECUTABLE), CODE(EXECUTABLE), MAIN_END);
	thread.registers.reg[HA_EXT_RSP] = STACK + sizeof(stack) - 8;
	expect(SAFEPOINT_INCOMPLETE);
	thread.registers.reg[HA_EXT_RSP] = STACK - 0x100000;
	expect(SAFEPOINT_INCOMPLETE);
}
END_TEST

START_TEST(deep_stack_is_read_again_in_full)
{
	uint64_t pc[1800];
	size_t count = 0;

	/* Rows that lie 64 KiB above sp need the larger read. */
	STACK_OF(CODE(EXECUTABLE));
	while (count < 1500)
		pc[count++] = CODE(LIBRARY);
	for (size_t i = 0; i < count; i++) {
		stack[words++] = 0;
		stack[words++] = pc[i];
	}
	stack[words++] = 0;
	stack[words++] = CODE(LIBC);
	stack[words++] = 0;
	stack[words++] = CODE(LIBC);
	stack[words++] = 0;
	stack[words++] = OUTERMOST(EXECUTABLE);
	expect(SAFEPOINT_SAFE);
	ck_assert_uint_eq(check().frames, 1504);
}
END_TEST

START_TEST(without_a_known_libc_nothing_is_safe)
{
	safepoint_context_deinit(&context);
	STACK_OF(CODE(EXECUTABLE), MAIN_END);
	expect(SAFEPOINT_NO_LIBC);
}
END_TEST

/* ---- the rest */

START_TEST(precheck_reads_no_stack)
{
	struct safepoint_verdict verdict;

	STACK_OF(EPOLL_WAIT, UNKNOWN);
	in_call(SYS_epoll_wait);
	safepoint_precheck(&context, &thread, &verdict);
	ck_assert_int_eq(verdict.reason, SAFEPOINT_SAFE);
	ck_assert_uint_eq(verdict.frames, 0);
	ck_assert_uint_eq(reads, 0);
	expect(SAFEPOINT_UNKNOWN_CODE);
}
END_TEST

START_TEST(aliases_of_a_wrapper_count_once_and_others_not)
{
	ck_assert_uint_eq(context.wrapper_count, 3);
	ck_assert_uint_eq(context.wrappers[1].low, BASE(LIBC) + 0x1100);
	ck_assert_str_eq(context.wrappers[1].name, "read");
	ck_assert(!context.wrappers[1].waits);
	ck_assert(context.wrappers[0].waits);
}
END_TEST

START_TEST(knows_internal_modules_by_name)
{
	ck_assert(safepoint_is_internal("/lib/x86_64-linux-gnu/libgcc_s.so.1"));
	ck_assert(safepoint_is_internal("libnss_files.so.2"));
	ck_assert(safepoint_is_internal("/usr/lib/x86_64-linux-gnu/gconv/UTF-16.so"));
	ck_assert(!safepoint_is_internal("/opt/libnss/libx.so"));
	ck_assert(!safepoint_is_internal("/usr/lib/libnss3.so"));
}
END_TEST

static const char *name_function(void *data, uint32_t module, uint64_t pc)
{
	return module == LIBC && pc == MALLOC ? "malloc" : NULL;
}

static void expect_text(const char *text)
{
	struct safepoint_verdict verdict = check();
	char *described = safepoint_describe(&context, &verdict, 123);

	ck_assert_str_eq(described, text);
	free(described);
}

START_TEST(describes_what_is_in_the_way)
{
	context.symbol = name_function;
	STACK_OF(MALLOC, CODE(EXECUTABLE), MAIN_END);
	expect_text("thread 123 is in malloc (libc.so.6)");
	thread.registers.pc = UNKNOWN;
	expect_text("thread 123 runs code of no known module at 0x666000");
	thread.registers.pc = CODE(EXECUTABLE);
	expect_text("thread 123 is at a safe point");
	stack[1] = CODE(LOADER);
	expect_text("thread 123 is in 0x1840 in ld.so, the dynamic loader");
}
END_TEST

static TCase *make_case(Suite *suite, const char *name)
{
	TCase *tcase = tcase_create(name);

	tcase_add_checked_fixture(tcase, setup, teardown);
	suite_add_tcase(suite, tcase);
	return tcase;
}

static void add_thread_tests(Suite *suite)
{
	const int special = sizeof(forbidden) / sizeof(forbidden[0]);
	TCase *running = make_case(suite, "running");
	TCase *blocked = make_case(suite, "blocked");

	tcase_add_test(running, program_running_its_own_code_is_safe);
	tcase_add_test(running, thread_running_in_a_library_is_safe);
	tcase_add_test(running, old_libc_has_one_frame_below_main);
	tcase_add_loop_test(running,
			    running_in_a_special_module_is_refused_without_a_look_at_the_stack, 0,
			    special);
	tcase_add_loop_test(running, special_module_further_out_is_refused, 0, special);
	tcase_add_test(running, unknown_code_is_told_apart);
	tcase_add_test(running, restartable_sequence_is_refused);
	tcase_add_test(running, program_with_an_allocator_is_safe_only_while_it_waits);
	tcase_add_test(running, stub_counts_as_its_caller);
	tcase_add_test(running, unreadable_stack_below_a_stub_is_refused);
	tcase_add_test(blocked, blocked_in_a_listed_wrapper_is_safe);
	tcase_add_test(blocked, blocked_below_a_listed_wrapper_is_safe);
	tcase_add_test(blocked, wrapper_must_be_the_outermost_of_its_libc_frames);
	tcase_add_test(blocked, too_many_frames_below_a_wrapper_are_refused);
	tcase_add_test(blocked, blocked_in_the_allocator_of_libc_is_refused);
	tcase_add_test(blocked, calls_that_allocate_are_refused_by_number);
	tcase_add_test(blocked, call_that_is_to_be_made_again_is_safe);
	tcase_add_test(blocked, libc_code_beside_a_system_call_is_refused);
	tcase_add_test(blocked, system_call_of_a_library_itself_is_safe);
	tcase_add_test(blocked, thread_of_an_allocator_library_is_never_safe);
}

Suite *safepoint_suite(void)
{
	Suite *suite = suite_create("safepoint");
	TCase *stacks, *rest;

	add_thread_tests(suite);
	stacks = make_case(suite, "stack");
	tcase_add_test(stacks, signal_frame_is_refused);
	tcase_add_test(stacks, frame_without_unwind_information_is_refused);
	tcase_add_test(stacks, third_libc_frame_at_the_outer_end_is_refused);
	tcase_add_test(stacks, stack_that_libc_did_not_start_is_refused);
	tcase_add_test(stacks, thread_of_libc_itself_is_refused);
	tcase_add_test(stacks, stack_that_ends_early_is_refused);
	tcase_add_test(stacks, deep_stack_is_read_again_in_full);
	tcase_add_test(stacks, without_a_known_libc_nothing_is_safe);
	rest = make_case(suite, "rest");
	tcase_add_test(rest, precheck_reads_no_stack);
	tcase_add_test(rest, aliases_of_a_wrapper_count_once_and_others_not);
	tcase_add_test(rest, knows_internal_modules_by_name);
	tcase_add_test(rest, describes_what_is_in_the_way);
	return suite;
}
