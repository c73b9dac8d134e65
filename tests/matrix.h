/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Rows of the matrix of situations: an attach to a target in some situation
 * either works, or is refused with a stated reason, and leaves the target
 * unharmed in both cases. The targets answer "check" with "ok", or with what
 * they found wrong with themselves, and "stop" with "ended".
 *
 * With CK_VERBOSITY=verbose each row prints a line when all of it held.
 */
#ifndef TESTS_MATRIX_H
#define TESTS_MATRIX_H

#include "tests/e2e.h"
#include "tests/procstate.h"

struct matrix {
	struct folder folder;
	struct child target;
	pid_t pid;	     /* of the process to attach to: the target's, or one it has started */
	unsigned int ignore; /* enum procstate_ignore: what changes by itself */
	struct run run;
	struct procstate before, after;
	int keeps; /* times that matrix_keep() was called */
};

void matrix_setup(struct matrix *matrix);
void matrix_teardown(struct matrix *matrix);

/* Start BUILD/targets/COMMAND, and look at it once it is ready. It may say "pid PID" before. */
void matrix_start(struct matrix *matrix, const char *command, ...) PRINTF(2, 3);
/* The same with any program. */
void matrix_start_argv(struct matrix *matrix, const char *const argv[]);
/* And as an account; NULL = as ourselves. */
void matrix_start_user(struct matrix *matrix, const char *user, const char *const argv[]);

/* It has changed by itself, or is another program: what it is like now is what it is to remain. */
void matrix_look(struct matrix *matrix);

/* Begin an exact recording, with more arguments; it records when this returns. */
void matrix_record(struct matrix *matrix, const char *arguments);
/* The target is well. */
void matrix_check(struct matrix *matrix);
/* Have it keep 50 blocks of 100 bytes, allocated in keep_blocks(). */
void matrix_keep(struct matrix *matrix);
/* End the recording by SIGINT; it worked. */
struct json *matrix_record_end(struct matrix *matrix);
/* The report has all blocks that matrix_keep() had the target keep, by name. */
void matrix_expect_kept(const struct matrix *matrix, const struct json *report);
/* As it was before the attach, and ends well. */
void matrix_expect_unharmed(struct matrix *matrix);

/* Attach, and leave as soon as everything is hooked; it works. @arguments: "--exact"; with
 * "-d SECONDS" it leaves by itself. */
void matrix_cycle(struct matrix *matrix, const char *arguments);

/* ---- whole rows */

/* Record, keep blocks, check, stop: all as above. */
void matrix_row_works(struct matrix *matrix, const char *situation);
/* An attach ends with status 1 and one sentence that has @reason; the target is unharmed. */
void matrix_row_refused(struct matrix *matrix, const char *situation, const char *reason);

/* The attach of matrix_row_refused() alone. */
void matrix_attach_refused(struct matrix *matrix, const char *reason);
/* Blocks still in use at sites with @function among their frames. */
uint64_t matrix_blocks(const struct json *report, const char *function);

/* Say that a row held: @outcome is "works" or "refused: REASON". */
void matrix_tell(const char *situation, const char *outcome, ...) PRINTF(2, 3);
/* Say why a row was left out on this machine. */
void matrix_left_out(const char *situation, const char *reason);

#endif
