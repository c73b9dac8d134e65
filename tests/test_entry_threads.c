/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Calls through the stubs of the real entry object from many threads. */
#include "tests/hooked.h"
#include "tests/tests.h"

#include <pthread.h>
#include <stdatomic.h>

#define THREADS 300
#define CALLS	2000

typedef void *alloc_function(size_t size);
typedef void free_function(void *ptr);

static alloc_function *hooked_alloc;
static free_function *hooked_free;

/* What core saw, by line; and whether two threads were ever in an exclusive one. */
static _Atomic uint64_t allocs[HA_STRIPES], frees[HA_STRIPES], bytes;
static _Atomic uint64_t line_owner[HA_LINES];
static atomic_bool line_was_shared;
static pthread_barrier_t barrier;

static void line_note(uint64_t line)
{
	uint64_t self = (uint64_t)pthread_self();
	uint64_t owner = 0;

	if (line < HA_LINES && !atomic_compare_exchange_strong(&line_owner[line], &owner, self) &&
	    owner != self)
		line_was_shared = true;
}

static void count_alloc(struct ha_shm *shm, const struct ha_frame *frame, uint64_t ptr,
			uint64_t size, uint64_t line)
{
	line_note(line);
	allocs[line]++;
	bytes += size;
}

static void count_free(struct ha_shm *shm, uint64_t ptr, uint64_t line)
{
	line_note(line);
	frees[line]++;
}

static void *some_block(size_t size)
{
	static char block[16];

	return block;
}

static void no_free(void *ptr)
{
}

static void threads_setup(void)
{
	hooked_setup();
	hooked.entry->core_alloc = (uint64_t)(uintptr_t)count_alloc;
	hooked.entry->core_free = (uint64_t)(uintptr_t)count_free;
	hooked_alloc =
		(alloc_function *)hooked_pair(0, HA_CLASS_ALLOC, (uint64_t)(uintptr_t)some_block);
	hooked_free = (free_function *)hooked_pair(1, HA_CLASS_FREE, (uint64_t)(uintptr_t)no_free);
}

static void *work(void *argument)
{
	pthread_barrier_wait(&barrier);
	for (size_t i = 0; i < CALLS; i++)
		hooked_free(hooked_alloc(i));
	pthread_barrier_wait(&barrier);
	return NULL;
}

static uint64_t sum(_Atomic uint64_t *counter, size_t count)
{
	uint64_t total = 0;

	for (size_t i = 0; i < count; i++)
		total += counter[i];
	return total;
}

START_TEST(more_threads_than_lines_lose_nothing)
{
	pthread_t thread[THREADS];
	pthread_attr_t attr;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 256 << 10);
	pthread_barrier_init(&barrier, NULL, THREADS);
	for (size_t i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&thread[i], &attr, work, NULL), 0);
	for (size_t i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	ck_assert_uint_eq(sum(allocs, HA_STRIPES), (uint64_t)THREADS * CALLS);
	ck_assert_uint_eq(sum(frees, HA_STRIPES), (uint64_t)THREADS * CALLS);
	ck_assert_uint_eq(bytes, (uint64_t)THREADS * CALLS * (CALLS - 1) / 2);
	ck_assert(!line_was_shared);
	ck_assert_uint_gt(sum(allocs, HA_LINES), 0);
	ck_assert_uint_gt(sum(allocs + HA_LINES, HA_SHARED_LINES), 0);
	ck_assert_uint_eq(hooked_depth(), 0);
	pthread_attr_destroy(&attr);
}
END_TEST

/* The state changes under the threads' feet, as at start and stop. */
START_TEST(switching_while_threads_run_leaves_nobody_in_core)
{
	enum { FEW = 4 };
	pthread_t thread[FEW];
	uint64_t seen;

	pthread_barrier_init(&barrier, NULL, FEW);
	for (size_t i = 0; i < FEW; i++)
		ck_assert_int_eq(pthread_create(&thread[i], NULL, work, NULL), 0);
	for (int i = 0; i < 2000; i++)
		__atomic_store_n(&hooked.entry->state, i & 1, __ATOMIC_SEQ_CST);
	__atomic_store_n(&hooked.entry->state, HA_STATE_OFF, __ATOMIC_SEQ_CST);
	for (size_t i = 0; i < FEW; i++)
		pthread_join(thread[i], NULL);
	ck_assert_uint_eq(hooked_depth(), 0);
	seen = sum(allocs, HA_STRIPES);
	hooked_free(hooked_alloc(1));
	ck_assert_uint_eq(sum(allocs, HA_STRIPES), seen);
}
END_TEST

static atomic_int cleaned;

static void note_cleanup(void *argument)
{
	cleaned++;
}

static void *exit_thread(size_t size)
{
	pthread_exit((void *)size);
}

static void *call_that_ends_the_thread(void *argument)
{
	pthread_cleanup_push(note_cleanup, NULL);
	hooked_alloc(123);
	pthread_cleanup_pop(0);
	return NULL;
}

START_TEST(thread_that_ends_inside_an_original_unwinds_through_the_slow_path)
{
	pthread_t thread;
	void *result;

	hooked_alloc =
		(alloc_function *)hooked_pair(0, HA_CLASS_ALLOC, (uint64_t)(uintptr_t)exit_thread);
	ck_assert_int_eq(pthread_create(&thread, NULL, call_that_ends_the_thread, NULL), 0);
	ck_assert_int_eq(pthread_join(thread, &result), 0);
	ck_assert_uint_eq((uint64_t)(uintptr_t)result, 123);
	ck_assert_int_eq(cleaned, 1);
	ck_assert_uint_eq(hooked_depth(), 0);
}
END_TEST

static void *one_call(void *argument)
{
	hooked_free(hooked_alloc(5));
	return NULL;
}

START_TEST(next_thread_on_the_same_stack_uses_the_same_line)
{
	pthread_t thread;

	for (int i = 0; i < 50; i++) {
		ck_assert_int_eq(pthread_create(&thread, NULL, one_call, NULL), 0);
		pthread_join(thread, NULL);
	}
	ck_assert_uint_eq(sum(allocs, HA_LINES), 50);
	ck_assert_uint_le(hooked_lines_owned(), 2);
}
END_TEST

Suite *entry_threads_suite(void)
{
	Suite *suite = suite_create("entry_threads");
	TCase *tcase = tcase_create("threads");

	tcase_add_checked_fixture(tcase, threads_setup, NULL);
	tcase_set_timeout(tcase, 30);
	tcase_add_test(tcase, more_threads_than_lines_lose_nothing);
	tcase_add_test(tcase, switching_while_threads_run_leaves_nobody_in_core);
	tcase_add_test(tcase, thread_that_ends_inside_an_original_unwinds_through_the_slow_path);
	tcase_add_test(tcase, next_thread_on_the_same_stack_uses_the_same_line);
	suite_add_tcase(suite, tcase);
	return suite;
}
