/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Walks over the stacks of the test process itself, with tables compiled from
 * its own modules, against glibc's backtrace().
 */
#include "payload/arch/x86_64/thread_pointer.h"
#include "payload/core/sites.h"
#include "payload/core/trie.h"
#include "payload/core/walk.h"
#include "tests/arch/x86_64/capture.h"
#include "tests/core_self.h"
#include "tests/tests.h"

#include <alloca.h>
#include <execinfo.h>
#include <pthread.h>
#include <search.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NO_INLINE __attribute__((noinline))
/* Keeps a call from becoming a jump, and what is around it from being dropped. */
#define BARRIER(value) __asm__ volatile("" : : "r"(value) : "memory")

static struct world world;
static uint32_t captures, hits, expected_flags;
static __thread struct walk_trace trace;

static bool is_signal_frame(const struct walk_start *start, uint64_t ra)
{
	return rules_find(&start->rules, ra - 1) == HA_ESCAPE_SIGNAL;
}

static void compare(const struct walk_start *start, const struct walk_result *result,
		    void *const *oracle, int count)
{
	uint32_t expected = (uint32_t)count < HA_FRAMES_MAX ? (uint32_t)count : HA_FRAMES_MAX;

	ck_assert_uint_eq(result->flags,
			  count > (int)HA_FRAMES_MAX ? HA_SITE_DEEP : expected_flags);
	ck_assert_uint_eq(result->frames, expected);
	for (uint32_t i = 0; i < expected; i++) {
		bool exact = i > 0 && is_signal_frame(start, trace.pc[i - 1]);

		ck_assert_uint_eq(trace.pc[i], (uint64_t)oracle[i] + exact);
	}
}

/* What the trie says must be what the walk says. */
static void compare_trie(const struct walk_start *start, const struct walk_result *result)
{
	struct site_key key = {
		.pc = trace.pc,
		.frames = result->frames,
		.generation = start->rules.index->generation,
		.modules = rules_modules_hash(&start->rules, trace.pc, result->frames),
		.flags = result->flags,
	};
	uint32_t site = sites_intern(world.shm, &key), known;

	known = trie_find(start->shm, start->frame, start->bounds.high);
	if (known) {
		__atomic_fetch_add(&hits, 1, __ATOMIC_RELAXED);
		ck_assert_uint_eq(known, site);
	} else {
		trie_learn(start, &trace, result, site);
	}
}

void capture_frame(const struct ha_frame *frame)
{
	void *oracle[1024];
	struct walk_result result;
	struct walk_start start;
	int count = backtrace(oracle, 1024), first = 0;

	while (first < count && (uint64_t)oracle[first] != frame->ra)
		first++;
	ck_assert_int_lt(first, count);
	ck_assert(walk_prepare(world.shm, frame, thread_pointer(), &start));
	walk_run(&start, &trace, &result);
	compare(&start, &result, oracle + first, count - first);
	compare_trie(&start, &result);
	__atomic_fetch_add(&captures, 1, __ATOMIC_RELAXED);
}

static void setup(void)
{
	void *warm[1];

	/* The first call loads libgcc_s. */
	backtrace(warm, 1);
	world_init(&world, NULL);
	world_find_tcb_offset(&world);
	world_add_self(&world);
	captures = hits = expected_flags = 0;
}

static void teardown(void)
{
	world_deinit(&world);
}

/* ---- call chains of many shapes ---- */

static __thread uint64_t path_state;

static void chain(uint32_t left, uint64_t path);

/* A frame of this size, with the path in a callee-saved register or two. */
#define CHAIN_PLAIN(n, size)                                          \
	static NO_INLINE void chain_##n(uint32_t left, uint64_t path) \
	{                                                             \
		char room[size];                                      \
                                                                      \
		BARRIER(room);                                        \
		chain(left - 1, path);                                \
		BARRIER(path + left);                                 \
	}
/* The CFA is based on rbp. */
#define CHAIN_ALLOCA(n, size)                                         \
	static NO_INLINE void chain_##n(uint32_t left, uint64_t path) \
	{                                                             \
		char *room = alloca((size) + path % 200);             \
                                                                      \
		BARRIER(room);                                        \
		chain(left - 1, path);                                \
		BARRIER(room + path);                                 \
	}
#define CHAIN_WITH(n, attribute)                                                \
	static NO_INLINE attribute void chain_##n(uint32_t left, uint64_t path) \
	{                                                                       \
		chain(left - 1, path);                                          \
		BARRIER(path + left);                                           \
	}
#define CHAIN_FRAME_POINTER(n)                                        \
	static NO_INLINE void chain_##n(uint32_t left, uint64_t path) \
	{                                                             \
		BARRIER(__builtin_frame_address(0));                  \
		chain(left - 1, path);                                \
		BARRIER(path + left);                                 \
	}
#define CHAIN_ALIGNED(n, alignment)                                   \
	static NO_INLINE void chain_##n(uint32_t left, uint64_t path) \
	{                                                             \
		char room[64] __attribute__((aligned(alignment)));    \
                                                                      \
		BARRIER(room);                                        \
		chain(left - 1, path);                                \
		BARRIER(room);                                        \
	}

CHAIN_PLAIN(0, 8)
CHAIN_PLAIN(1, 24)
CHAIN_PLAIN(2, 40)
CHAIN_PLAIN(3, 136)
CHAIN_PLAIN(4, 1000)
CHAIN_PLAIN(5, 9000)
CHAIN_ALLOCA(6, 16)
CHAIN_ALLOCA(7, 333)
CHAIN_FRAME_POINTER(8)
CHAIN_FRAME_POINTER(9)
CHAIN_WITH(10, __attribute__((force_align_arg_pointer)))
CHAIN_ALIGNED(11, 64)
CHAIN_ALIGNED(12, 256)
CHAIN_WITH(13, __attribute__((cold)))

static int compare_and_capture(const void *a, const void *b)
{
	if (path_state)
		chain((uint32_t)(path_state & 3), path_state >> 2);
	path_state = 0;
	return *(const char *)a - *(const char *)b;
}

/* Through qsort, which calls back from libc. */
static NO_INLINE void chain_14(uint32_t left, uint64_t path)
{
	char letters[] = "heap";

	path_state = path << 2 | (left & 3);
	qsort(letters, 4, 1, compare_and_capture);
	BARRIER(letters);
}

static NO_INLINE _Noreturn void leave(uint32_t left, uint64_t path, jmp_buf *buf)
{
	chain(left, path);
	longjmp(*buf, 1);
}

/* The return address lies in whatever function follows. */
static NO_INLINE void end_with_a_call(uint32_t left, uint64_t path, jmp_buf *buf)
{
	leave(left, path, buf);
}

static NO_INLINE void chain_15(uint32_t left, uint64_t path)
{
	jmp_buf buf;

	if (setjmp(buf) == 0)
		end_with_a_call(left - 1, path, &buf);
	capture_call();
	BARRIER(&buf);
}

static void (*const chains[16])(uint32_t, uint64_t) = {
	chain_0, chain_1, chain_2,  chain_3,  chain_4,	chain_5,  chain_6,  chain_7,
	chain_8, chain_9, chain_10, chain_11, chain_12, chain_13, chain_14, chain_15,
};

static void chain(uint32_t left, uint64_t path)
{
	if (left)
		chains[path & 15](left, path >> 4);
	else
		capture_call();
	BARRIER(path);
}

START_TEST(agree_on_random_call_chains)
{
	uint64_t state = (uint64_t)_i + 1;

	for (uint32_t i = 0; i < 4000; i++)
		chain((uint32_t)(world_random(&state) % 16), world_random(&state));
	ck_assert_uint_ge(captures, 4000);
}
END_TEST

static NO_INLINE void recurse(uint32_t depth)
{
	if (depth)
		recurse(depth - 1);
	else
		capture_call();
	BARRIER(depth);
}

START_TEST(agree_on_recursion)
{
	/* Not deeper than what can be learned if each frame saves rbp. */
	for (uint32_t i = 0; i < 2000; i++)
		recurse(i % 200);
	/* Each stack is met ten times; the third time it is known. */
	ck_assert_uint_ge(hits, 1500);
	for (uint32_t i = 0; i < 1000; i++)
		recurse(i % 500);
	ck_assert_uint_eq(captures, 3000);
}
END_TEST

static NO_INLINE void huge_frame(uint32_t left)
{
	char room[300000];

	BARRIER(room);
	if (left)
		huge_frame(left - 1);
	else
		capture_call();
	BARRIER(room);
}

START_TEST(agree_on_frames_of_300000_bytes)
{
	huge_frame(3);
	ck_assert_uint_eq(captures, 1);
}
END_TEST

/* ---- signals ---- */

static void on_signal(int signal)
{
	uint64_t state = captures + 1;

	chain((uint32_t)(captures % 5), world_random(&state));
}

static void handle(int signal, int flags)
{
	struct sigaction action = {.sa_handler = on_signal, .sa_flags = flags};

	sigemptyset(&action.sa_mask);
	ck_assert_int_eq(sigaction(signal, &action, NULL), 0);
}

static NO_INLINE void raise_from(uint32_t left)
{
	if (left)
		raise_from(left - 1);
	else
		raise(SIGUSR1);
	BARRIER(left);
}

START_TEST(agree_on_signal_handlers)
{
	handle(SIGUSR1, 0);
	for (uint32_t i = 0; i < 200; i++)
		raise_from(i % 20);
	ck_assert_uint_ge(captures, 200);
}
END_TEST

static char alternate[128 * 1024] __attribute__((aligned(4096)));

START_TEST(agree_on_handlers_on_an_alternate_stack)
{
	struct ha_stack range = {(uint64_t)alternate, (uint64_t)alternate + sizeof(alternate)};
	stack_t stack = {.ss_sp = alternate, .ss_size = sizeof(alternate)};

	world_publish_stacks(&world, &range, 1);
	ck_assert_int_eq(sigaltstack(&stack, NULL), 0);
	handle(SIGUSR1, SA_ONSTACK);
	for (uint32_t i = 0; i < 200; i++)
		raise_from(i % 20);
	ck_assert_uint_ge(captures, 200);
}
END_TEST

/* Short work with prologues, epilogues and PLT calls, to be interrupted anywhere. */
static void *spin(void *stop)
{
	uint64_t state = 1;
	char text[64];

	while (!__atomic_load_n((bool *)stop, __ATOMIC_RELAXED)) {
		uint64_t r = world_random(&state);

		memset(text, (int)r, r % sizeof(text));
		BARRIER(text);
		BARRIER(strnlen(text, sizeof(text)));
		getppid();
	}
	return NULL;
}

static __thread bool in_handler;
static uint32_t handled;

/* An interrupted pc may be where backtrace() itself gives up: only the walk is looked at. */
static void on_random_signal(int signal)
{
	if (in_handler)
		return;
	in_handler = true;
	capture_call();
	in_handler = false;
	__atomic_fetch_add(&handled, 1, __ATOMIC_RELEASE);
}

START_TEST(agree_wherever_a_thread_is_interrupted)
{
	struct sigaction action = {.sa_handler = on_random_signal};
	pthread_t thread;
	bool stop = false;

	ck_assert_int_eq(sigaction(SIGUSR2, &action, NULL), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, spin, &stop), 0);
	for (uint32_t i = 0; i < 3000; i++) {
		uint32_t before = __atomic_load_n(&handled, __ATOMIC_ACQUIRE);

		pthread_kill(thread, SIGUSR2);
		while (__atomic_load_n(&handled, __ATOMIC_ACQUIRE) == before)
			usleep(1);
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	ck_assert_uint_eq(captures, 3000);
}
END_TEST

/* ---- threads ---- */

static void *chain_thread(void *seed)
{
	uint64_t state = (uint64_t)seed;

	for (uint32_t i = 0; i < 500; i++)
		chain((uint32_t)(world_random(&state) % 8), world_random(&state) & ~0xfull);
	return NULL;
}

START_TEST(agree_on_the_stacks_of_threads)
{
	pthread_t thread[8];

	for (uint64_t i = 0; i < 8; i++)
		ck_assert_int_eq(pthread_create(&thread[i], NULL, chain_thread, (void *)(i + 1)),
				 0);
	for (uint32_t i = 0; i < 8; i++)
		pthread_join(thread[i], NULL);
	ck_assert_uint_ge(captures, 4000);
}
END_TEST

START_TEST(agree_on_a_stack_that_the_thread_was_given)
{
	pthread_attr_t attr;
	pthread_t thread;

	pthread_attr_init(&attr);
	ck_assert_int_eq(pthread_attr_setstack(&attr, alternate, sizeof(alternate)), 0);
	ck_assert_int_eq(pthread_create(&thread, &attr, chain_thread, (void *)1), 0);
	pthread_join(thread, NULL);
	pthread_attr_destroy(&attr);
	ck_assert_uint_ge(captures, 500);
}
END_TEST

Suite *core_real_suite(void)
{
	Suite *suite = suite_create("core_real");
	TCase *walks = tcase_create("walks");

	tcase_set_timeout(walks, 60);
	tcase_add_checked_fixture(walks, setup, teardown);
	tcase_add_loop_test(walks, agree_on_random_call_chains, 0, 3);
	tcase_add_test(walks, agree_on_recursion);
	tcase_add_test(walks, agree_on_frames_of_300000_bytes);
	tcase_add_test(walks, agree_on_signal_handlers);
	tcase_add_test(walks, agree_on_handlers_on_an_alternate_stack);
	tcase_add_test(walks, agree_wherever_a_thread_is_interrupted);
	tcase_add_test(walks, agree_on_the_stacks_of_threads);
	tcase_add_test(walks, agree_on_a_stack_that_the_thread_was_given);
	suite_add_tcase(suite, walks);
	return suite;
}
