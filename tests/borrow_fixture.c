// SPDX-License-Identifier: GPL-3.0-or-later
#include "tests/borrow_fixture.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "injector/threads.h"
#include "tests/tests.h"

#define PATIENCE_MS 5000u

bool wait_for(const volatile uint64_t *word, uint64_t least)
{
	double end = now_ms() + PATIENCE_MS;

	while (__atomic_load_n(word, __ATOMIC_ACQUIRE) < least) {
		if (now_ms() > end)
			return false;
		wait_ms(1);
	}
	return true;
}

void die_with_parent(void)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
}

struct board *board_create(void)
{
	struct board *board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE,
				   MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(board, MAP_FAILED);
	return board;
}

void victim_start_on(struct victim *victim, victim_main *main, struct board *board)
{
	victim->board = board;
	victim->pid = fork();
	ck_assert_int_ge(victim->pid, 0);
	if (victim->pid == 0) {
		die_with_parent();
		main(board);
		_exit(0);
	}
	ck_assert_msg(wait_for(&board->ready, 1), "the victim does not start");
	assert_ok(target_open(victim->pid, &victim->target));
}

void victim_start(struct victim *victim, victim_main *main)
{
	victim_start_on(victim, main, board_create());
}

void victim_wait_in(const struct victim *victim, pid_t tid, long number)
{
	double end = now_ms() + PATIENCE_MS;
	struct thread_syscall call;

	for (;;) {
		assert_ok(thread_read_syscall(victim->target, tid, &call));
		if (call.blocked && call.number == number)
			return;
		ck_assert_msg(now_ms() < end, "thread %d does not wait in call %ld", tid, number);
		wait_ms(1);
	}
}

void victim_wait_state(const struct victim *victim, pid_t tid, char state)
{
	double end = now_ms() + PATIENCE_MS;
	char is[64];

	for (;;) {
		status_line(victim->pid, tid, "State", is, sizeof(is));
		if (is[0] == state)
			return;
		ck_assert_msg(now_ms() < end, "thread %d is '%s', not %c", tid, is, state);
		wait_ms(1);
	}
}

void victim_stop(struct victim *victim)
{
	kill(victim->pid, SIGKILL);
	waitpid(victim->pid, NULL, __WALL);
	target_free(victim->target);
	munmap(victim->board, sizeof(*victim->board));
}

struct borrow *victim_borrow(struct victim *victim)
{
	struct borrow *borrow = NULL;

	assert_ok(borrow_begin(victim->target, victim->pid, PATIENCE_MS, &borrow));
	return borrow;
}

void borrow_call_getpid(struct borrow *borrow, const struct victim *victim, unsigned int count)
{
	static const uint64_t args[6];

	for (unsigned int i = 0; i < count; i++) {
		int64_t result;

		assert_ok(borrow_syscall(borrow, SYS_getpid, args, &result));
		ck_assert_int_eq(result, victim->pid);
	}
}

struct borrow_stats victim_return(struct borrow *borrow)
{
	struct borrow_stats stats;

	assert_ok(borrow_end(borrow, &stats));
	return stats;
}

uint64_t borrow_map(struct borrow *borrow, size_t size)
{
	const uint64_t args[6] = {
		0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, UINT64_MAX, 0,
	};
	int64_t result;

	assert_ok(borrow_syscall(borrow, SYS_mmap, args, &result));
	ck_assert_msg(result > 0, "remote mmap: %s", strerror((int)-result));
	return (uint64_t)result;
}

void victim_expect_progress(const struct victim *victim)
{
	uint64_t before = victim->board->rounds;

	ck_assert_msg(wait_for(&victim->board->rounds, before + 2), "the victim is stuck");
	ck_assert_uint_eq(victim->board->bad, 0);
}

void status_line(pid_t pid, pid_t tid, const char *key, char *buf, size_t size)
{
	char path[64], line[256];
	size_t length = strlen(key);
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/status", pid, tid);
	buf[0] = '\0';
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file)) {
		if (strncmp(line, key, length) != 0 || line[length] != ':')
			continue;
		line[strcspn(line, "\n")] = '\0';
		snprintf(buf, size, "%s", line + length + 1 + strspn(line + length + 1, "\t "));
	}
	if (file)
		fclose(file);
}
