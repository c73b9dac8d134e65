/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/matrix.h"

#include "resolver/cleanup.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KEPT_BLOCKS 50
#define KEPT_SIZE   100

void matrix_setup(struct matrix *matrix)
{
	*matrix = (struct matrix){.ignore = PROCSTATE_HEAP};
	folder_create(&matrix->folder);
}

void matrix_teardown(struct matrix *matrix)
{
	run_deinit(&matrix->run);
	child_end(&matrix->target);
	procstate_deinit(&matrix->before);
	procstate_deinit(&matrix->after);
	folder_remove(&matrix->folder);
}

void matrix_look(struct matrix *matrix)
{
	procstate_deinit(&matrix->before);
	procstate_read_steady(matrix->pid, &matrix->before);
}

static void wait_ready(struct matrix *matrix)
{
	const char *line = child_line(&matrix->target);

	matrix->pid = matrix->target.pid;
	if (sscanf(line, "pid %d", &matrix->pid) == 1)
		line = child_line(&matrix->target);
	ck_assert_str_eq(line, "ready");
	matrix_check(matrix);
	matrix_look(matrix);
}

void matrix_start_user(struct matrix *matrix, const char *user, const char *const argv[])
{
	child_start(&matrix->target, &matrix->folder, user, argv);
	wait_ready(matrix);
}

void matrix_start_argv(struct matrix *matrix, const char *const argv[])
{
	matrix_start_user(matrix, NULL, argv);
}

void matrix_start(struct matrix *matrix, const char *command, ...)
{
	const char *argv[16] = {NULL};
	CLEANUP(freep) char *line = NULL, *path = NULL;
	char *save, *word;
	size_t count = 1;
	va_list args;

	va_start(args, command);
	ck_assert_int_ge(vasprintf(&line, command, args), 0);
	va_end(args);
	argv[0] = path = tests_build_path("targets/%s", strtok_r(line, " ", &save));
	while ((word = strtok_r(NULL, " ", &save)) && count < 15)
		argv[count++] = word;
	matrix_start_argv(matrix, argv);
}

static const char *recording(const struct matrix *matrix)
{
	return folder_file(&matrix->folder, "row.hap");
}

void matrix_record(struct matrix *matrix, const char *arguments)
{
	run_start(&matrix->run, &matrix->folder, "-p %d --exact -q -o %s %s", matrix->pid,
		  recording(matrix), arguments);
	run_wait_attached(&matrix->run, matrix->pid);
}

void matrix_check(struct matrix *matrix)
{
	child_expect(&matrix->target, "check", "ok");
}

void matrix_keep(struct matrix *matrix)
{
	char line[32];

	snprintf(line, sizeof(line), "keep %d", KEPT_BLOCKS);
	child_expect(&matrix->target, line, "kept");
	matrix->keeps++;
}

struct json *matrix_record_end(struct matrix *matrix)
{
	ck_assert_int_eq(kill(matrix->run.child.pid, SIGINT), 0);
	run_finish(&matrix->run, 60);
	ck_assert_msg(matrix->run.status == 0, "ended with %d: %s", matrix->run.status,
		      matrix->run.err);
	ck_assert_msg(!matrix->run.err[0], "said: %s", matrix->run.err);
	return run_report_json(&matrix->folder, recording(matrix));
}

uint64_t matrix_blocks(const struct json *report, const char *function)
{
	const struct json *sites = json_get(report, "sites", JSON_ARRAY);
	uint64_t count = 0;

	for (size_t i = 0; i < sites->count; i++) {
		const struct json *frames = json_get(&sites->item[i], "frames", JSON_ARRAY);

		for (size_t k = 0; k < frames->count; k++) {
			if (strcmp(json_text(&frames->item[k], "function"), function) == 0)
				count += json_count(&sites->item[i], "inuse_count");
		}
	}
	return count;
}

void matrix_expect_kept(const struct matrix *matrix, const struct json *report)
{
	ck_assert_uint_eq(matrix_blocks(report, "keep_blocks"),
			  (uint64_t)matrix->keeps * KEPT_BLOCKS);
}

void matrix_expect_unharmed(struct matrix *matrix)
{
	matrix_check(matrix);
	procstate_read_like(matrix->pid, &matrix->before, &matrix->after);
	procstate_expect_same(&matrix->before, &matrix->after, matrix->ignore);
	child_expect_clean_end(&matrix->target);
}

void matrix_row_works(struct matrix *matrix, const char *situation)
{
	matrix_record(matrix, "");
	matrix_check(matrix);
	matrix_keep(matrix);
	matrix_check(matrix);
	CLEANUP(json_freep) struct json *report = matrix_record_end(matrix);
	matrix_expect_kept(matrix, report);
	matrix_expect_unharmed(matrix);
	matrix_tell(situation, "works");
}

void matrix_cycle(struct matrix *matrix, const char *arguments)
{
	struct run *run = &matrix->run;

	run_start(run, &matrix->folder, "-p %d -q -o %s %s", matrix->pid, recording(matrix),
		  arguments);
	if (!strstr(arguments, "-d ") && run_try_attached(run, matrix->pid)) {
		wait_ms(20);
		kill(run->child.pid, SIGINT);
	}
	run_finish(run, 60);
	ck_assert_msg(run->status == 0, "ended with %d: %s", run->status, run->err);
	unlink(recording(matrix));
	run_deinit(run);
}

static size_t lines_of(const char *text)
{
	size_t lines = 0;

	for (; *text; text++)
		lines += *text == '\n';
	return lines;
}

void matrix_attach_refused(struct matrix *matrix, const char *reason)
{
	const char *file = folder_file(&matrix->folder, "refused.hap");
	struct run *run = &matrix->run;

	run_program(run, &matrix->folder, "-p %d --exact -q -d 1 -o %s", matrix->pid, file);
	ck_assert_msg(run->status == 1, "ended with %d: %s%s", run->status, run->out, run->err);
	ck_assert_msg(strstr(run->err, reason) != NULL, "no \"%s\" in: %s", reason, run->err);
	ck_assert_msg(lines_of(run->err) <= 2, "more than a sentence and a hint: %s", run->err);
	ck_assert_str_eq(run->out, "");
	ck_assert_int_ne(access(file, F_OK), 0);
}

void matrix_row_refused(struct matrix *matrix, const char *situation, const char *reason)
{
	matrix_attach_refused(matrix, reason);
	matrix_expect_unharmed(matrix);
	matrix_tell(situation, "refused: %s", reason);
}

static bool is_verbose(void)
{
	const char *verbosity = getenv("CK_VERBOSITY");

	return verbosity && strcmp(verbosity, "verbose") == 0;
}

void matrix_tell(const char *situation, const char *outcome, ...)
{
	va_list args;

	if (!is_verbose())
		return;
	va_start(args, outcome);
	printf("%-50s ", situation);
	vprintf(outcome, args);
	printf("\n");
	fflush(stdout);
	va_end(args);
}

void matrix_left_out(const char *situation, const char *reason)
{
	matrix_tell(situation, "left out: %s", reason);
}
