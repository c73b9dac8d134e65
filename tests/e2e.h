/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * For tests that run the whole program: a folder to work in, processes to
 * attach to, and runs of heapattach. Everything here fails the test when the
 * test's own set-up does not work.
 *
 * Processes die with the test that started them. Use checked fixtures: Check
 * forks for each test, and the parent of a target may trace it.
 */
#ifndef TESTS_E2E_H
#define TESTS_E2E_H

#include "tests/json.h"
#include "tests/tests.h"

#include <stdbool.h>
#include <sys/types.h>

/* ---- a folder of the test's own below /tmp; removed with all that is in it */

struct folder {
	char path[96];
};

/* Environment variable: where folders are made; /tmp if it is not set. */
#define FOLDER_PARENT "HEAPATTACH_TESTS_FOLDER"

void folder_create(struct folder *ret);
/* The same outside of a test, where Check's assertions must not be used. */
bool folder_try_create(struct folder *ret);
void folder_remove(struct folder *folder);

/* Path of a file in it, in a buffer that the next-but-seven call reuses. */
const char *folder_file(const struct folder *folder, const char *format, ...) PRINTF(2, 3);
void folder_write(const struct folder *folder, const char *name, const char *text);

/* ---- a process that is talked to in lines */

struct child {
	pid_t pid; /* 0: none, or waited for */
	int input; /* its stdin */
	int output;
	size_t have;
	char buffer[1 << 16];
};

/*
 * Start argv[0] (looked up in PATH) with @folder as its working directory and
 * its stderr in the file NAME.stderr there. @user: account to run as, or NULL.
 */
void child_start(struct child *ret, const struct folder *folder, const char *user,
		 const char *const argv[]);

/* Start BUILD/targets/NAME with arguments separated by spaces, and wait for its "ready". */
void child_start_target(struct child *ret, const struct folder *folder, const char *command, ...)
	PRINTF(3, 4);

/* The next line, without its newline; fails after four minutes. Valid until the next call. */
const char *child_line(struct child *child);
void child_send(struct child *child, const char *line);
/* Send a line and return the answer. */
const char *child_ask(struct child *child, const char *line);
/* Send a line; the answer must be that. */
void child_expect(struct child *child, const char *line, const char *answer);

/* Wait for its end: exit status, or 128 + signal. -1: still there after @timeout_ms. */
int child_wait(struct child *child, unsigned int timeout_ms);
/* Told to stop, it says that it has, and ends with 0. */
void child_expect_clean_end(struct child *child);
/* Kill it if it is there, and free. A zeroed struct is fine. */
void child_end(struct child *child);

/* Run a command to its end; must exit with 0 within @timeout_s. Returns its output, malloc'ed. */
char *command_run(const struct folder *folder, const char *user, unsigned int timeout_s,
		  const char *command, ...) PRINTF(4, 5);

/* ---- heapattach */

struct run {
	struct child child;
	char out_path[128], err_path[128];
	int status; /* exit status, or 128 + signal */
	char *out;  /* what it wrote, once it has ended */
	char *err;
};

/*
 * From now on the program, and the test itself, have precedence over all
 * targets. For tests of many attaches, or much to compare: beside a target that
 * keeps all processors busy they would wait for their turn most of the time.
 */
void runs_come_first(void);

/* Start the program with arguments separated by spaces. */
void run_start(struct run *ret, const struct folder *folder, const char *arguments, ...)
	PRINTF(3, 4);
/* The same for a copy of it: argv[0], run as an account or, with NULL, as ourselves. */
void run_start_argv(struct run *ret, const struct folder *folder, const char *user,
		    const char *const argv[]);
/* Wait for its end and read what it wrote; fails if it runs longer than @timeout_s. */
void run_finish(struct run *run, unsigned int timeout_s);
/* Both; two minutes at most. */
void run_program(struct run *ret, const struct folder *folder, const char *arguments, ...)
	PRINTF(3, 4);
void run_deinit(struct run *run);

/*
 * Wait until the target has the payload mapped and is not traced any more.
 * Fails after 60 seconds, or if the program ends before.
 */
void run_wait_attached(struct run *run, pid_t pid);
/* The same; false if the program ended before: run_finish() is next. */
bool run_try_attached(struct run *run, pid_t pid);

/* heapattach report FILE --format json. Free with json_free(). */
struct json *run_report_json(const struct folder *folder, const char *recording);
/* End a recording into @file as Ctrl-C does; it must end well. The report as JSON, owned by the
 * caller. */
struct json *run_interrupt_json(struct run *run, const struct folder *folder, const char *file);

#endif
