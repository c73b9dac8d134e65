/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Calls through the stubs of the real entry object, one thread. */
#include "injector/payload_image.h"
#include "resolver/cleanup.h"
#include "tests/hooked.h"
#include "tests/tests.h"

#include <errno.h>
#include <link.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* A call that allocates, for each class. */
static const struct {
	enum ha_class class;
	uint64_t argument[4];
	uint64_t size;
} allocations[] = {
	{HA_CLASS_ALLOC, {100, 2, 3, 4}, 100},
	{HA_CLASS_ALLOC, {0, 2, 3, 4}, 0},
	{HA_CLASS_ALIGNED, {64, 256, 3, 4}, 256},
	{HA_CLASS_CALLOC, {7, 9, 3, 4}, 63},
	{HA_CLASS_CALLOC, {0, UINT64_MAX, 3, 4}, 0},
	{HA_CLASS_POSIX_MEMALIGN, {(uint64_t)(uintptr_t)&hooked_block, 64, 5000, 4}, 5000},
	{HA_CLASS_REALLOC, {0, 77, 3, 4}, 77},
	{HA_CLASS_REALLOCARRAY, {0, 11, 13, 4}, 143},
};
#define ALLOCATIONS ((int)(sizeof(allocations) / sizeof(allocations[0])))

static void assert_original(const struct hooked_event *event, const uint64_t argument[4])
{
	ck_assert_int_eq(event->kind, HOOKED_ORIGINAL);
	ck_assert_mem_eq(event->argument, argument, sizeof(event->argument));
	ck_assert_uint_eq(event->depth, 0);
	ck_assert(event->aligned);
}

static void assert_core(const struct hooked_event *event, enum hooked_event_kind kind, uint64_t ptr)
{
	ck_assert_int_eq(event->kind, kind);
	ck_assert_uint_eq(event->shm, hooked.shm);
	ck_assert_uint_eq(event->ptr, ptr);
	ck_assert_uint_lt(event->line, HA_LINES);
	ck_assert_uint_eq(event->depth, 1);
	ck_assert_uint_eq(event->line_depth, 1);
	ck_assert(event->aligned);
}

/* The frame that core got is the one of @call. */
static void assert_frame(const struct hooked_event *event, const struct marked_call *call)
{
	ck_assert_mem_eq(&event->frame, &call->before, sizeof(event->frame));
	ck_assert_uint_eq(event->frame_address + sizeof(event->frame), call->sp);
}

/* One event, and it came straight from the caller. */
static void assert_tail_jump(const struct marked_call *call, const uint64_t argument[4])
{
	ck_assert_uint_eq(hooked.events, 1);
	assert_original(&hooked.event[0], argument);
	ck_assert_uint_eq(hooked.event[0].return_address, call->before.ra);
	ck_assert_uint_eq(call->result, hooked.result);
	ck_assert_int_eq(errno, hooked.error_number);
}

/* ------------------------------------------------------------------------ */

START_TEST(object_is_as_the_contract_says)
{
	const Elf64_Ehdr *ehdr = (const Elf64_Ehdr *)hooked.base;

	ck_assert_mem_eq(ehdr->e_ident, ELFMAG, SELFMAG);
	ck_assert_uint_eq(hooked.entry->magic, HA_MAGIC);
	ck_assert_uint_eq(hooked.entry->abi, HA_ABI);
	ck_assert_uint_le(payload_entry_size, HA_ENTRY_SIZE);
	for (int i = 0; i < HA_CLASSES; i++) {
		const uint32_t offsets[] = {hooked.entry->bodies[i],
					    hooked.entry->sampling_bodies[i]};

		for (int k = 0; k < 2; k++) {
			ck_assert_uint_ge(offsets[k], HA_ENTRY_STUBS + HA_PAIRS * HA_STUB_SIZE);
			ck_assert_uint_lt(offsets[k], HA_ENTRY_DATA);
		}
	}
}
END_TEST

START_TEST(allocation_is_recorded)
{
	enum ha_class class = allocations[_i].class;
	const uint64_t *argument = allocations[_i].argument;
	uint64_t stub = hooked_logged_pair(HA_PAIRS - 1, class);
	struct marked_call call;

	hooked.result = hooked_result(class);
	hooked.error_number = 1234;
	for (int turn = 0; turn < 2; turn++) {
		errno = 0;
		call = hooked_call(stub, argument);
		ck_assert_uint_eq(hooked.events, 2);
		assert_original(&hooked.event[0], argument);
		assert_core(&hooked.event[1], HOOKED_ALLOC, HOOKED_BLOCK);
		assert_frame(&hooked.event[1], &call);
		ck_assert_uint_eq(hooked.event[1].size, allocations[_i].size);
		ck_assert_uint_eq(call.result, hooked.result);
		ck_assert_int_eq(errno, 1234);
		ck_assert_uint_eq(hooked_lines_owned(), 1);
	}
}
END_TEST

/* It may have spent the countdown. */
static void assert_core_hears_of_failure(const struct marked_call *call)
{
	ck_assert_uint_eq(hooked.events, 2);
	assert_core(&hooked.event[1], HOOKED_ALLOC, 0);
	assert_frame(&hooked.event[1], call);
}

START_TEST(failed_allocation_has_no_block)
{
	enum ha_class class = allocations[_i].class;
	uint64_t stub = hooked_logged_pair(0, class);
	struct marked_call call;

	hooked_block = (void *)HOOKED_BLOCK;
	hooked.result = class == HA_CLASS_POSIX_MEMALIGN ? ENOMEM : 0;
	hooked.error_number = ENOMEM;
	call = hooked_call(stub, allocations[_i].argument);
	ck_assert_uint_eq(call.result, hooked.result);
	ck_assert_int_eq(errno, ENOMEM);
	assert_core_hears_of_failure(&call);
}
END_TEST

START_TEST(posix_memalign_without_a_block_has_none)
{
	const uint64_t argument[4] = {(uint64_t)(uintptr_t)&hooked_block, 64, 0, 0};
	uint64_t stub = hooked_logged_pair(0, HA_CLASS_POSIX_MEMALIGN);

	struct marked_call call;

	hooked_block = NULL;
	call = hooked_call(stub, argument);
	assert_core_hears_of_failure(&call);
}
END_TEST

START_TEST(product_that_overflows_passes_through)
{
	const uint64_t calloc_argument[4] = {1ull << 33, 1ull << 33, 3, 4};
	const uint64_t array_argument[4] = {0x1000, 1ull << 63, 2, 4};
	struct marked_call call;

	call = hooked_call(hooked_logged_pair(0, HA_CLASS_CALLOC), calloc_argument);
	assert_tail_jump(&call, calloc_argument);
	call = hooked_call(hooked_logged_pair(1, HA_CLASS_REALLOCARRAY), array_argument);
	assert_tail_jump(&call, array_argument);
}
END_TEST

START_TEST(stopped_entry_passes_through)
{
	const uint64_t argument[4] = {0x1000, 64, 8, 4};
	uint64_t stub = hooked_logged_pair(5, (enum ha_class)_i);
	struct marked_call call;

	hooked.entry->state = HA_STATE_OFF;
	hooked.entry->gate = 0;
	hooked.result = 42;
	hooked.error_number = 17;
	call = hooked_call(stub, argument);
	assert_tail_jump(&call, argument);
	ck_assert_uint_eq(hooked_lines_owned(), 0);
}
END_TEST

static struct ha_line *line_owned(void)
{
	for (size_t i = 0; i < HA_LINES; i++)
		if (hooked.entry->lines[i].key)
			return &hooked.entry->lines[i];
	ck_abort_msg("no line is owned");
}

START_TEST(countdown_passes_through_until_it_is_spent)
{
	enum ha_class class = allocations[_i].class;
	const uint64_t *argument = allocations[_i].argument;
	uint64_t step = allocations[_i].size + 1;
	uint64_t stub = hooked_logged_pair(0, class);
	struct marked_call call;
	struct ha_line *line;

	hooked.result = hooked_result(class);
	hooked_call(stub, argument);
	line = line_owned();
	line->left = 2 * step + step / 2;
	for (int turn = 0; turn < 2; turn++) {
		call = hooked_call(stub, argument);
		assert_tail_jump(&call, argument);
	}
	ck_assert_uint_eq(line->left, step / 2);
	hooked_call(stub, argument);
	ck_assert_uint_eq(hooked.events, 2);
	ck_assert_int_eq(hooked.event[1].kind, HOOKED_ALLOC);
}
END_TEST

/* What no allocator can serve must not be taken for a step back. */
START_TEST(countdown_is_not_changed_by_huge_sizes)
{
	static const uint64_t sizes[] = {1ull << 63, (1ull << 63) - 1, 3ull << 62, -8ull};
	uint64_t stub = hooked_logged_pair(0, HA_CLASS_ALLOC);
	uint64_t argument[4] = {100, 2, 3, 4};
	struct ha_line *line;

	hooked.result = HOOKED_BLOCK;
	hooked_call(stub, argument);
	line = line_owned();
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		line->left = 5000;
		argument[0] = sizes[i];
		hooked.result = 0;
		hooked_call(stub, argument);
		ck_assert_uint_eq(line->left, 5000);
	}
}
END_TEST

/* For any size that there can be, and whatever is left. */
START_TEST(countdown_to_be_drawn_anew_ends_in_core)
{
	static const uint64_t sizes[] = {0, 100, 1ull << 40, 1ull << 47, 1ull << 61, -8ull};
	static const uint64_t lefts[] = {0, 101, 1ull << 40};
	uint64_t stub = hooked_logged_pair(0, HA_CLASS_ALLOC);
	uint64_t argument[4] = {100, 2, 3, 4};
	struct ha_line *line;

	hooked.result = HOOKED_BLOCK;
	hooked_call(stub, argument);
	line = line_owned();
	for (int i = 0; i < 18; i++) {
		uint64_t left = lefts[i / 6] | (uint64_t)HA_LEFT_ANEW << 56;

		line->left = left;
		argument[0] = sizes[i % 6];
		hooked.events = 0;
		hooked_call(stub, argument);
		ck_assert_uint_eq(hooked.events, 2);
		ck_assert_uint_eq(line->left, left);
		ck_assert(HA_LEFT_IS_ANEW(line->left));
	}
}
END_TEST

START_TEST(countdown_of_zero_stays_zero)
{
	uint64_t stub = hooked_logged_pair(0, HA_CLASS_ALLOC);

	hooked.result = HOOKED_BLOCK;
	for (int turn = 0; turn < 3; turn++) {
		hooked_call(stub, allocations[0].argument);
		ck_assert_uint_eq(hooked.events, 2);
		ck_assert_uint_eq(line_owned()->left, 0);
	}
}
END_TEST

START_TEST(free_is_recorded_before_it_happens)
{
	const uint64_t argument[4] = {HOOKED_BLOCK, 48, 16, 5};
	struct marked_call call = hooked_call(hooked_logged_pair(0, HA_CLASS_FREE), argument);

	ck_assert_uint_eq(hooked.events, 2);
	assert_core(&hooked.event[0], HOOKED_FREE, HOOKED_BLOCK);
	assert_original(&hooked.event[1], argument);
	ck_assert_uint_eq(hooked.event[1].return_address, call.before.ra);
}
END_TEST

START_TEST(free_of_what_was_never_recorded_passes_through)
{
	const uint64_t argument[4] = {HOOKED_BLOCK, 48, 16, 5};
	uint64_t stub = hooked_logged_pair(0, HA_CLASS_FREE);
	struct marked_call call;

	hooked.filter[HA_FILTER_HASH(HOOKED_BLOCK)] = 0;
	call = hooked_call(stub, argument);
	assert_tail_jump(&call, argument);
	ck_assert_uint_eq(hooked_lines_owned(), 0);
	hooked.filter[HA_FILTER_HASH(HOOKED_BLOCK)] = 1;
	hooked_call(stub, argument);
	ck_assert_uint_eq(hooked.events, 2);
	assert_core(&hooked.event[0], HOOKED_FREE, HOOKED_BLOCK);
}
END_TEST

START_TEST(free_of_null_passes_through)
{
	const uint64_t argument[4] = {0, 48, 16, 5};
	struct marked_call call = hooked_call(hooked_logged_pair(0, HA_CLASS_FREE), argument);

	assert_tail_jump(&call, argument);
}
END_TEST

/* Class, size arguments, size. */
static const struct {
	enum ha_class class;
	uint64_t argument[4];
	uint64_t size;
} reallocations[] = {
	{HA_CLASS_REALLOC, {0x7000, 300, 3, 4}, 300},
	{HA_CLASS_REALLOC, {0x7000, 0, 3, 4}, 0},
	{HA_CLASS_REALLOCARRAY, {0x7000, 30, 20, 4}, 600},
};
#define REALLOCATIONS ((int)(sizeof(reallocations) / sizeof(reallocations[0])))

START_TEST(reallocation_of_what_was_never_recorded_counts_down)
{
	const uint64_t *argument = reallocations[_i].argument;
	uint64_t stub = hooked_logged_pair(0, reallocations[_i].class);
	uint64_t step = reallocations[_i].size + 1;
	struct marked_call call;
	struct ha_line *line;

	hooked.result = HOOKED_BLOCK;
	hooked.filter[HA_FILTER_HASH(argument[0])] = 0;
	hooked_call(stub, argument);
	line = line_owned();
	line->left = step;
	call = hooked_call(stub, argument);
	assert_tail_jump(&call, argument);
	ck_assert_uint_eq(line->left, 0);
	line->left = step;
	hooked.filter[HA_FILTER_HASH(argument[0])] = 1;
	hooked_call(stub, argument);
	ck_assert_uint_eq(hooked.events, 3);
	ck_assert_int_eq(hooked.event[0].kind, HOOKED_REALLOC_BEGIN);
	ck_assert_uint_eq(line->left, step);
}
END_TEST

START_TEST(countdown_below_zero_is_spent)
{
	uint64_t stub = hooked_logged_pair(0, HA_CLASS_ALLOC);
	struct ha_line *line;

	hooked.result = HOOKED_BLOCK;
	hooked_call(stub, allocations[0].argument);
	line = line_owned();
	line->left = (uint64_t)-7;
	hooked_call(stub, allocations[0].argument);
	ck_assert_uint_eq(hooked.events, 2);
	ck_assert_int_eq(hooked.event[1].kind, HOOKED_ALLOC);
}
END_TEST

START_TEST(countdown_is_not_looked_at)
{
	uint64_t stub = hooked_logged_pair(0, HA_CLASS_ALLOC);

	hooked.result = HOOKED_BLOCK;
	hooked_call(stub, allocations[0].argument);
	line_owned()->left = 1 << 20;
	hooked_call(stub, allocations[0].argument);
	ck_assert_uint_eq(hooked.events, 2);
	ck_assert_uint_eq(line_owned()->left, 1 << 20);
}
END_TEST

START_TEST(reallocation_is_framed_by_begin_and_end)
{
	static const uint64_t results[] = {HOOKED_BLOCK, 0};
	const uint64_t *argument = reallocations[_i].argument;
	uint64_t stub = hooked_logged_pair(0, reallocations[_i].class);
	struct marked_call call;

	hooked.token = 0x1234567890;
	for (size_t i = 0; i < 2; i++) {
		hooked.result = results[i];
		hooked.error_number = 99;
		call = hooked_call(stub, argument);
		ck_assert_uint_eq(hooked.events, 3);
		assert_core(&hooked.event[0], HOOKED_REALLOC_BEGIN, 0x7000);
		assert_original(&hooked.event[1], argument);
		assert_core(&hooked.event[2], HOOKED_REALLOC_END, results[i]);
		assert_frame(&hooked.event[2], &call);
		ck_assert_uint_eq(hooked.event[2].token, hooked.token);
		ck_assert_uint_eq(hooked.event[2].size, reallocations[_i].size);
		ck_assert_uint_eq(call.result, results[i]);
		ck_assert_int_eq(errno, 99);
	}
}
END_TEST

static void next_session(void)
{
	hooked.entry->session++;
}

static void switch_off(void)
{
	hooked.entry->state = HA_STATE_OFF;
}

START_TEST(reallocation_across_sessions_is_not_ended)
{
	uint64_t stub = hooked_logged_pair(0, HA_CLASS_REALLOC);

	hooked.during_original = _i ? switch_off : next_session;
	hooked_call(stub, reallocations[0].argument);
	ck_assert_uint_eq(hooked.events, 2);
	ck_assert_int_eq(hooked.event[0].kind, HOOKED_REALLOC_BEGIN);
	ck_assert_int_eq(hooked.event[1].kind, HOOKED_ORIGINAL);
}
END_TEST

START_TEST(allocation_that_ends_after_stop_is_not_recorded)
{
	uint64_t stub = hooked_logged_pair(0, HA_CLASS_ALLOC);

	hooked.during_original = switch_off;
	hooked.result = HOOKED_BLOCK;
	hooked_call(stub, allocations[0].argument);
	ck_assert_uint_eq(hooked.events, 1);
}
END_TEST

START_TEST(resize_in_place_is_recorded_with_its_result)
{
	const uint64_t argument[4] = {HOOKED_BLOCK, 100, 20, 4};
	struct marked_call call;

	hooked.result = 160;
	call = hooked_call(hooked_logged_pair(0, HA_CLASS_XALLOCX), argument);
	ck_assert_uint_eq(hooked.events, 2);
	assert_original(&hooked.event[0], argument);
	assert_core(&hooked.event[1], HOOKED_XALLOCX, HOOKED_BLOCK);
	assert_frame(&hooked.event[1], &call);
	ck_assert_uint_eq(hooked.event[1].size, 160);
	ck_assert_uint_eq(call.result, 160);
}
END_TEST

START_TEST(forked_child_passes_through)
{
	const uint64_t argument[4] = {(uint64_t)(uintptr_t)&hooked_block, 64, 8, 4};
	uint64_t stub = hooked_logged_pair(0, (enum ha_class)_i);
	int status;
	pid_t pid;

	hooked.result = hooked_result((enum ha_class)_i);
	hooked_call(stub, argument);
	ck_assert_uint_ge(hooked.events, 2);
	pid = fork();
	if (pid == 0) {
		struct marked_call call;

		hooked.events = 0;
		hooked_call_prepare(&call, stub, argument);
		marked_call(&call);
		_exit(!(hooked.events == 1 && hooked.event[0].kind == HOOKED_ORIGINAL &&
			!memcmp(hooked.event[0].argument, argument, sizeof(argument)) &&
			call.result == hooked.result && hooked_depth() == 0));
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}
END_TEST

static void handler_allocates(int number)
{
	struct marked_call call;

	hooked.during_core = NULL;
	hooked_call_prepare(&call, (uint64_t)(uintptr_t)hooked.base + HA_ENTRY_STUBS,
			    allocations[0].argument);
	marked_call(&call);
}

static void raise_signal(void)
{
	raise(SIGUSR1);
}

START_TEST(allocation_in_a_handler_that_interrupts_core_is_recorded)
{
	uint64_t stub = hooked_logged_pair(0, HA_CLASS_ALLOC);

	signal(SIGUSR1, handler_allocates);
	hooked.during_core = raise_signal;
	hooked.result = HOOKED_BLOCK;
	hooked_call(stub, allocations[0].argument);
	ck_assert_uint_eq(hooked.events, 4);
	ck_assert_int_eq(hooked.event[1].kind, HOOKED_ALLOC);
	ck_assert_int_eq(hooked.event[2].kind, HOOKED_ORIGINAL);
	ck_assert_int_eq(hooked.event[3].kind, HOOKED_ALLOC);
	ck_assert_uint_eq(hooked.event[3].depth, 2);
}
END_TEST

static __attribute__((no_sanitize_address)) void quiet_alloc(struct ha_shm *shm,
							     const struct ha_frame *frame,
							     uint64_t ptr, uint64_t size,
							     uint64_t line)
{
	hooked.event[0].line = line;
	hooked.event[0].line_depth = hooked.entry->shared[0].depth;
	hooked.events++;
}

static __attribute__((no_sanitize_address)) uint64_t quiet_original(uint64_t size)
{
	return HOOKED_BLOCK;
}

START_TEST(thread_whose_thread_pointer_is_0_uses_a_shared_line)
{
	struct marked_call call;
	uint64_t stub = hooked_pair(0, HA_CLASS_ALLOC, (uint64_t)(uintptr_t)quiet_original);

	hooked.entry->core_alloc = (uint64_t)(uintptr_t)quiet_alloc;
	hooked_call_prepare(&call, stub, allocations[0].argument);
	marked_call_without_thread_pointer(&call);
	ck_assert_uint_eq(hooked.events, 1);
	ck_assert_uint_eq(hooked.event[0].line, HA_LINES);
	ck_assert_uint_eq(hooked.event[0].line_depth, 1);
	ck_assert_uint_eq(hooked_lines_owned(), 0);
	ck_assert_uint_eq(hooked_depth(), 0);
}
END_TEST

START_TEST(every_stub_leads_to_its_own_pair)
{
	static const uint64_t argument[4] = {8, 0, 0, 0};

	for (unsigned int k = 0; k < HA_PAIRS; k++)
		hooked_pair(k, HA_CLASS_ALLOC, 0);
	for (unsigned int k = 0; k < HA_PAIRS; k++) {
		hooked.result = HOOKED_BLOCK + k;
		ck_assert_uint_eq(
			hooked_call(hooked_logged_pair(k, HA_CLASS_ALLOC), argument).result,
			HOOKED_BLOCK + k);
		hooked_pair(k, HA_CLASS_ALLOC, 0);
	}
}
END_TEST

/* What holds whether every call is recorded or none passes for other reasons. */
static TCase *calls_case(const char *name, void (*setup)(void))
{
	TCase *tcase = tcase_create(name);

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_loop_test(tcase, allocation_is_recorded, 0, ALLOCATIONS);
	tcase_add_loop_test(tcase, failed_allocation_has_no_block, 0, ALLOCATIONS);
	tcase_add_test(tcase, posix_memalign_without_a_block_has_none);
	tcase_add_test(tcase, product_that_overflows_passes_through);
	tcase_add_loop_test(tcase, stopped_entry_passes_through, 0, HA_CLASSES);
	tcase_add_test(tcase, free_is_recorded_before_it_happens);
	tcase_add_test(tcase, free_of_null_passes_through);
	tcase_add_loop_test(tcase, reallocation_is_framed_by_begin_and_end, 0, REALLOCATIONS);
	tcase_add_loop_test(tcase, reallocation_across_sessions_is_not_ended, 0, 2);
	tcase_add_test(tcase, allocation_that_ends_after_stop_is_not_recorded);
	tcase_add_test(tcase, resize_in_place_is_recorded_with_its_result);
	tcase_add_loop_test(tcase, forked_child_passes_through, 0, HA_CLASSES);
	tcase_add_test(tcase, allocation_in_a_handler_that_interrupts_core_is_recorded);
	tcase_add_test(tcase, thread_whose_thread_pointer_is_0_uses_a_shared_line);
	tcase_add_test(tcase, every_stub_leads_to_its_own_pair);
	return tcase;
}

Suite *entry_suite(void)
{
	Suite *suite = suite_create("entry");
	TCase *calls = calls_case("calls", hooked_setup);
	TCase *sampling = calls_case("sampling", hooked_setup_sampling);

	tcase_add_test(calls, object_is_as_the_contract_says);
	tcase_add_test(calls, countdown_is_not_looked_at);
	tcase_add_loop_test(sampling, countdown_passes_through_until_it_is_spent, 0, ALLOCATIONS);
	tcase_add_test(sampling, countdown_is_not_changed_by_huge_sizes);
	tcase_add_test(sampling, countdown_to_be_drawn_anew_ends_in_core);
	tcase_add_test(sampling, countdown_of_zero_stays_zero);
	tcase_add_test(sampling, countdown_below_zero_is_spent);
	tcase_add_test(sampling, free_of_what_was_never_recorded_passes_through);
	tcase_add_loop_test(sampling, reallocation_of_what_was_never_recorded_counts_down, 0,
			    REALLOCATIONS);
	suite_add_tcase(suite, calls);
	suite_add_tcase(suite, sampling);
	return suite;
}
