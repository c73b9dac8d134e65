// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/memory.h"
#include "injector/target.h"

#include <elf.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "resolver/cleanup.h"
#include "tests/borrow_fixture.h"
#include "tests/tests.h"

#define PAGE 4096u

/* Words of the board. */
enum { ADDRESS, GO, DESCRIPTOR };

static void spin(struct board *board)
{
	board->ready = 1;
	for (;;)
		board->rounds++;
}

/* ---- opening */

START_TEST(opens_a_process_and_knows_it)
{
	struct victim victim;

	victim_start(&victim, spin);
	ck_assert_int_eq(target_pid(victim.target), victim.pid);
	ck_assert_int_eq(target_file_tid(victim.target), victim.pid);
	ck_assert_int_ge(target_pidfd(victim.target), 0);
	ck_assert_uint_gt(target_start_time(victim.target), 0);
	ck_assert(target_is_alive(victim.target));
	assert_ok(target_check(victim.target));
	victim_stop(&victim);
}
END_TEST

START_TEST(process_that_does_not_exist_is_not_found)
{
	struct target *target;

	assert_fails(target_open(0x7ffffff0, &target), ERROR_NOT_FOUND);
}
END_TEST

START_TEST(process_that_has_ended_is_gone)
{
	struct target *target;
	siginfo_t info;
	pid_t child = fork();

	if (child == 0)
		_exit(0);
	/* A zombie: not waited for. */
	ck_assert_int_eq(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
	assert_fails(target_open(child, &target), ERROR_GONE);
	waitpid(child, NULL, 0);
}
END_TEST

static void *tell_tid(void *argument)
{
	struct board *board = argument;

	board->word[ADDRESS] = (uint64_t)syscall(SYS_gettid);
	board->ready = 1;
	for (;;)
		board->rounds++;
	return NULL;
}

static void spin_in_a_thread(struct board *board)
{
	pthread_t thread;

	pthread_create(&thread, NULL, tell_tid, board);
	pthread_join(thread, NULL);
}

START_TEST(thread_is_no_process)
{
	struct target *target;
	struct victim victim;
	struct error *err;

	victim_start(&victim, spin_in_a_thread);
	err = target_open((pid_t)victim.board->word[ADDRESS], &target);
	ck_assert(error_is(err, ERROR_UNSUPPORTED));
	ck_assert_ptr_nonnull(error_hint_text(err));
	error_free(err);
	victim_stop(&victim);
}
END_TEST

START_TEST(kernel_thread_is_unsupported)
{
	struct target *target;

	/* kthreadd, where we see the whole machine. */
	if (access("/proc/2/exe", F_OK) == 0 || access("/proc/2", F_OK) != 0)
		return;
	assert_fails(target_open(2, &target), ERROR_UNSUPPORTED);
}
END_TEST

/* ---- memory */

START_TEST(reads_what_is_there)
{
	static const char text[] = "in both of us, since it was there before the fork";
	char found[sizeof(text)];
	struct victim victim;

	victim_start(&victim, spin);
	assert_ok(target_read(victim.target, (uint64_t)text, found, sizeof(found)));
	ck_assert_str_eq(found, text);
	victim_stop(&victim);
}
END_TEST

/* @pages readable pages with a pattern, then one that is not mapped. */
static uint8_t *map_before_hole(size_t pages)
{
	uint8_t *start = mmap(NULL, (pages + 1) * PAGE, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(start, MAP_FAILED);
	ck_assert_int_eq(munmap(start + pages * PAGE, PAGE), 0);
	for (size_t i = 0; i < pages * PAGE; i++)
		start[i] = (uint8_t)(i * 7 + i / PAGE);
	return start;
}

START_TEST(read_up_to_the_last_mapped_byte)
{
	const size_t pages = 5;
	uint8_t *start = map_before_hole(pages);
	size_t size = pages * PAGE - 3, got;
	CLEANUP(freep) uint8_t *found = malloc(size + 1);
	struct victim victim;

	victim_start(&victim, spin);
	assert_ok(target_read(victim.target, (uint64_t)start + 3, found, size));
	ck_assert_mem_eq(found, start + 3, size);
	assert_fails(target_read(victim.target, (uint64_t)start + 3, found, size + 1),
		     ERROR_NOT_FOUND);
	assert_ok(target_read_some(victim.target, (uint64_t)start + 3, found, size + 1, &got));
	ck_assert_uint_eq(got, size);
	assert_ok(target_read_some(victim.target, (uint64_t)start + pages * PAGE, found, 8, &got));
	ck_assert_uint_eq(got, 0);
	victim_stop(&victim);
}
END_TEST

START_TEST(reads_pages_without_permission)
{
	uint8_t *start = map_before_hole(2), found[16], large[PAGE + 16];
	uint8_t expected[PAGE + 16];
	struct victim victim;

	memcpy(expected, start, sizeof(expected));
	ck_assert_int_eq(mprotect(start, 2 * PAGE, PROT_NONE), 0);
	victim_start(&victim, spin);
	assert_ok(target_read(victim.target, (uint64_t)start, found, sizeof(found)));
	ck_assert_mem_eq(found, expected, sizeof(found));
	assert_ok(target_read(victim.target, (uint64_t)start, large, sizeof(large)));
	ck_assert_mem_eq(large, expected, sizeof(large));
	victim_stop(&victim);
}
END_TEST

#define RANGES 3000

START_TEST(reads_many_ranges_and_marks_those_that_are_not_there)
{
	static struct target_range ranges[RANGES];
	static uint8_t found[RANGES][16];
	uint8_t *start = map_before_hole(8);
	struct victim victim;

	for (size_t i = 0; i < RANGES; i++) {
		bool there = i % 7 != 3 && i % 1024 != 1023;

		ranges[i] = (struct target_range){
			.address = there ? (uint64_t)start + i * 8 % (8 * PAGE - 16) : 16,
			.buf = found[i],
			.size = 1 + i % 16,
		};
	}
	victim_start(&victim, spin);
	assert_ok(target_read_ranges(victim.target, ranges, RANGES));
	for (size_t i = 0; i < RANGES; i++) {
		ck_assert_int_eq(ranges[i].ok, ranges[i].address != 16);
		if (ranges[i].ok)
			ck_assert_mem_eq(found[i], (void *)ranges[i].address, ranges[i].size);
	}
	assert_ok(target_read_ranges(victim.target, ranges, 0));
	victim_stop(&victim);
}
END_TEST

/* Neighbours that are read together, and such that cannot be: each is what it would be alone. */
START_TEST(reads_words_in_any_order)
{
	enum { WORDS = 2000 };
	static struct memory_word words[WORDS];
	uint8_t *start = map_before_hole(8);
	struct memory_reader memory;
	struct victim victim;

	ck_assert_int_eq(mprotect(start + 2 * PAGE, PAGE, PROT_NONE), 0);
	ck_assert_int_eq(munmap(start + 5 * PAGE, PAGE), 0);
	for (size_t i = 0; i < WORDS; i++) {
		static const uint64_t steps[] = {8, 0, 8, 1020, 4088, 4, 16384, 1024};
		uint64_t at = i ? words[i - 1].address - (uint64_t)start : 0;

		at += i % 211 == 210 ? 8 * PAGE - 24 : steps[i * i % 8];
		words[i].address = (uint64_t)start + at % (8 * PAGE);
	}
	victim_start(&victim, spin);
	memory = memory_reader_of(victim.target);
	memory_try_words(&memory, words, WORDS);
	for (size_t i = 0; i < WORDS; i++) {
		uint64_t value;

		ck_assert_int_eq(words[i].ok, memory_try_u64(&memory, words[i].address, &value));
		if (words[i].ok)
			ck_assert_uint_eq(words[i].value, value);
	}
	memory_try_words(&memory, words, 0);
	victim_stop(&victim);
}
END_TEST

/* A page that may be read and executed, not written. */
static void spin_over_page(struct board *board)
{
	volatile uint64_t *page =
		mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	board->word[ADDRESS] = (uint64_t)page;
	board->ready = 1;
	for (;;)
		board->rounds = page[5];
}

START_TEST(writes_pages_that_may_not_be_written)
{
	const uint64_t value = 0x1122334455667788;
	struct victim victim;

	victim_start(&victim, spin_over_page);
	assert_ok(target_write(victim.target, victim.board->word[ADDRESS] + 40, &value,
			       sizeof(value)));
	ck_assert(wait_for(&victim.board->rounds, value));
	ck_assert_uint_eq(victim.board->rounds, value);
	assert_fails(target_write(victim.target, 64, &value, sizeof(value)), ERROR_NOT_FOUND);
	victim_stop(&victim);
}
END_TEST

/* Any value but the two that are written is bad. */
static void watch_for_torn_values(struct board *board)
{
	static volatile uint64_t slot;

	board->word[ADDRESS] = (uint64_t)&slot;
	board->ready = 1;
	for (;;) {
		uint64_t value = slot;

		board->bad += value != 0 && value != UINT64_MAX;
		board->rounds++;
	}
}

START_TEST(eight_aligned_bytes_are_written_at_once)
{
	struct victim victim;

	victim_start(&victim, watch_for_torn_values);
	for (uint64_t i = 0; i < 100000; i++) {
		uint64_t value = i & 1 ? UINT64_MAX : 0;

		assert_ok(target_write(victim.target, victim.board->word[ADDRESS], &value,
				       sizeof(value)));
	}
	victim_expect_progress(&victim);
	victim_stop(&victim);
}
END_TEST

/* ---- its end */

START_TEST(ended_process_is_gone)
{
	struct victim victim;
	struct target_range range = {.size = 8};
	uint64_t word;

	range.buf = &word;
	victim_start(&victim, spin);
	kill(victim.pid, SIGKILL);
	waitid(P_PID, (id_t)victim.pid, NULL, WEXITED | WNOWAIT);
	ck_assert(!target_is_alive(victim.target));
	assert_fails(target_check(victim.target), ERROR_GONE);
	assert_fails(target_read(victim.target, (uint64_t)&victim, &word, 8), ERROR_GONE);
	assert_fails(target_read_ranges(victim.target, &range, 1), ERROR_GONE);
	assert_fails(target_write(victim.target, (uint64_t)&victim, &word, 8), ERROR_GONE);
	victim_stop(&victim);
}
END_TEST

static void exec_when_told(struct board *board)
{
	board->ready = 1;
	while (!board->word[GO])
		board->rounds++;
	execl("/bin/sleep", "sleep", "60", (char *)NULL);
	_exit(1);
}

START_TEST(process_that_became_another_program_is_gone)
{
	struct victim victim;
	uint8_t large[2 * PAGE];
	uint64_t word;
	struct error *err = NULL;

	victim_start(&victim, exec_when_told);
	assert_ok(target_read(victim.target, (uint64_t)&victim, &word, 8));
	victim.board->word[GO] = 1;
	for (int i = 0; i < 500 && !err; i++) {
		wait_ms(10);
		err = target_check(victim.target);
	}
	ck_assert(error_is(err, ERROR_GONE));
	error_free(err);
	ck_assert(target_is_alive(victim.target));
	assert_fails(target_read(victim.target, (uint64_t)&victim, &word, 8), ERROR_GONE);
	assert_fails(target_read(victim.target, (uint64_t)&victim, large, sizeof(large)),
		     ERROR_GONE);
	assert_fails(target_write(victim.target, (uint64_t)&victim, &word, 8), ERROR_GONE);
	victim_stop(&victim);
}
END_TEST

/* ---- a main thread that has ended */

static struct board *volatile thread_board;

static void *go_on_alone(void *argument)
{
	struct board *board = argument;
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0)
		_exit(1);
	board->word[DESCRIPTOR] = (uint64_t)pair[0];
	board->word[ADDRESS] = (uint64_t)&thread_board;
	wait_ms(50);
	board->ready = 1;
	for (;;)
		board->rounds++;
	return NULL;
}

static void end_main_thread(struct board *board)
{
	pthread_t thread;

	thread_board = board;
	pthread_create(&thread, NULL, go_on_alone, board);
	syscall(SYS_exit, 0);
}

START_TEST(works_without_the_main_thread)
{
	CLEANUP(closep) int taken = -1;
	CLEANUP(closep) int maps = -1;
	const uint64_t args[6] = {0};
	struct victim victim;
	struct borrow *borrow;
	uint64_t word = 0;
	int64_t result;
	uint8_t large[PAGE];

	victim_start(&victim, end_main_thread);
	ck_assert_int_ne(target_file_tid(victim.target), victim.pid);
	ck_assert(target_is_alive(victim.target));
	assert_ok(target_check(victim.target));
	assert_ok(target_read(victim.target, victim.board->word[ADDRESS], &word, sizeof(word)));
	ck_assert_uint_eq(word, (uint64_t)victim.board);
	assert_ok(target_read(victim.target, victim.board->word[ADDRESS] & ~(uint64_t)(PAGE - 1),
			      large, sizeof(large)));
	assert_ok(target_open_file(victim.target, "maps", O_RDONLY, &maps));
	ck_assert_int_gt(read(maps, large, sizeof(large)), 0);
	assert_ok(borrow_begin(victim.target, target_file_tid(victim.target), 1000, &borrow));
	assert_ok(borrow_syscall(borrow, SYS_getpid, args, &result));
	ck_assert_int_eq(result, victim.pid);
	assert_ok(borrow_end(borrow, NULL));
	/* Not all kernels have pidfds of threads. */
	error_free(target_take_fd(victim.target, (int)victim.board->word[DESCRIPTOR], &taken));
	victim_stop(&victim);
}
END_TEST

/* ---- other things */

START_TEST(finds_auxiliary_vector_and_gadget)
{
	uint64_t value, gadget;
	struct victim victim;

	victim_start(&victim, spin);
	assert_ok(target_auxv(victim.target, AT_SYSINFO_EHDR, &value));
	ck_assert_uint_eq(value, getauxval(AT_SYSINFO_EHDR));
	assert_fails(target_auxv(victim.target, 0x123456, &value), ERROR_NOT_FOUND);
	assert_ok(target_gadget(victim.target, &gadget));
	ck_assert_uint_ge(gadget, getauxval(AT_SYSINFO_EHDR));
	ck_assert_uint_lt(gadget, getauxval(AT_SYSINFO_EHDR) + 65536);
	victim_stop(&victim);
}
END_TEST

static void make_descriptor(struct board *board)
{
	int fd = memfd_create("target", MFD_CLOEXEC);

	if (write(fd, "hello", 5) != 5)
		_exit(1);
	board->word[DESCRIPTOR] = (uint64_t)fd;
	spin(board);
}

START_TEST(takes_a_descriptor)
{
	CLEANUP(closep) int fd = -1;
	struct victim victim;
	char text[6] = "";
	int unused;

	victim_start(&victim, make_descriptor);
	assert_ok(target_take_fd(victim.target, (int)victim.board->word[DESCRIPTOR], &fd));
	ck_assert_int_eq(pread(fd, text, 5, 0), 5);
	ck_assert_str_eq(text, "hello");
	ck_assert(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	assert_fails(target_take_fd(victim.target, 9999, &unused), ERROR_OS);
	victim_stop(&victim);
}
END_TEST

START_TEST(opens_files_of_the_process)
{
	CLEANUP(closep) int fd = -1;
	struct victim victim;
	int unused;

	victim_start(&victim, spin);
	assert_ok(target_open_file(victim.target, "exe", O_RDONLY, &fd));
	ck_assert(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	assert_fails(target_open_file(victim.target, "no such file", O_RDONLY, &unused), ERROR_OS);
	kill(victim.pid, SIGKILL);
	waitid(P_PID, (id_t)victim.pid, NULL, WEXITED | WNOWAIT);
	assert_fails(target_open_file(victim.target, "exe", O_RDONLY, &unused), ERROR_GONE);
	victim_stop(&victim);
}
END_TEST

START_TEST(denied_process_comes_with_a_hint)
{
	struct victim victim;
	pid_t child;
	int status;

	if (geteuid() != 0)
		return;
	victim_start(&victim, spin);
	child = fork();
	if (child == 0) {
		struct target *target;
		struct error *err;

		if (setgid(65534) != 0 || setuid(65534) != 0)
			_exit(2);
		err = target_open(victim.pid, &target);
		_exit(error_is(err, ERROR_DENIED) && error_hint_text(err) ? 7 : 1);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(WEXITSTATUS(status), 7);
	victim_stop(&victim);
}
END_TEST

Suite *target_suite(void)
{
	Suite *suite = suite_create("target");
	TCase *opening = tcase_create("opening");
	TCase *memory = tcase_create("memory");
	TCase *ends = tcase_create("ends");
	TCase *others = tcase_create("others");

	tcase_set_timeout(opening, TIMEOUT_S);
	tcase_set_timeout(memory, TIMEOUT_S);
	tcase_set_timeout(ends, TIMEOUT_S);
	tcase_set_timeout(others, TIMEOUT_S);
	tcase_add_test(opening, opens_a_process_and_knows_it);
	tcase_add_test(opening, process_that_does_not_exist_is_not_found);
	tcase_add_test(opening, process_that_has_ended_is_gone);
	tcase_add_test(opening, thread_is_no_process);
	tcase_add_test(opening, kernel_thread_is_unsupported);
	tcase_add_test(opening, denied_process_comes_with_a_hint);
	suite_add_tcase(suite, opening);
	tcase_add_test(memory, reads_what_is_there);
	tcase_add_test(memory, read_up_to_the_last_mapped_byte);
	tcase_add_test(memory, reads_pages_without_permission);
	tcase_add_test(memory, reads_many_ranges_and_marks_those_that_are_not_there);
	tcase_add_test(memory, reads_words_in_any_order);
	tcase_add_test(memory, writes_pages_that_may_not_be_written);
	tcase_add_test(memory, eight_aligned_bytes_are_written_at_once);
	suite_add_tcase(suite, memory);
	tcase_add_test(ends, ended_process_is_gone);
	tcase_add_test(ends, process_that_became_another_program_is_gone);
	tcase_add_test(ends, works_without_the_main_thread);
	suite_add_tcase(suite, ends);
	tcase_add_test(others, finds_auxiliary_vector_and_gadget);
	tcase_add_test(others, takes_a_descriptor);
	tcase_add_test(others, opens_files_of_the_process);
	suite_add_tcase(suite, others);
	return suite;
}
