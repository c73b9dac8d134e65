/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Victims for the tests of borrow.h: children of the test process that share a
 * page with it, so that their functions have the same addresses on both sides.
 */
#ifndef TESTS_BORROW_FIXTURE_H
#define TESTS_BORROW_FIXTURE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "injector/borrow.h"
#include "injector/target.h"

#define BOARD_WORDS 1024
/* For each test: some run for seconds, and the machine may have other things to do. */
#define TIMEOUT_S 120

/* The shared page(s). What the words mean is the test's business. */
struct board {
	volatile uint64_t ready;
	volatile uint64_t rounds; /* progress */
	volatile uint64_t bad;	  /* something was not as it should be */
	volatile uint64_t word[BOARD_WORDS];
};

struct victim {
	pid_t pid;
	struct board *board;
	struct target *target;
};

/* Never returns; sets ready when it may be borrowed. */
typedef void victim_main(struct board *board);

struct board *board_create(void);
/* Fork a child that runs @main, wait until it is ready, and open it. */
void victim_start(struct victim *victim, victim_main *main);
/* The same with a board that exists. */
void victim_start_on(struct victim *victim, victim_main *main, struct board *board);
/* Until the thread is blocked in system call @number; fails after 5 s. */
void victim_wait_in(const struct victim *victim, pid_t tid, long number);
/* Until @tid's state is @state, a letter of /proc/PID/stat; fails after 5 s. */
void victim_wait_state(const struct victim *victim, pid_t tid, char state);
/* Kill it. */
void victim_stop(struct victim *victim);

/* Borrow, with a time-out that only a broken machine reaches. */
struct borrow *victim_borrow(struct victim *victim);
/* Have T make @count calls that change nothing, and verify their results. */
void borrow_call_getpid(struct borrow *borrow, const struct victim *victim, unsigned int count);
/* Hand back without error. */
struct borrow_stats victim_return(struct borrow *borrow);

/* T makes a new mapping of @size bytes, readable and writable. */
uint64_t borrow_map(struct borrow *borrow, size_t size);

/* Fails unless the victim makes progress within 5 s. */
void victim_expect_progress(const struct victim *victim);

/* The value of a line "Key:<tab>VALUE" of /proc/PID/task/TID/status, up to the newline. */
void status_line(pid_t pid, pid_t tid, const char *key, char *buf, size_t size);

/* Wait up to 5 s for the word to be at least @least; false if it does not. */
bool wait_for(const volatile uint64_t *word, uint64_t least);

/* For victims: fork's child ends with the test. */
void die_with_parent(void);

#endif
