// SPDX-License-Identifier: GPL-3.0-or-later
#include "tests/workdir.h"

#include "resolver/cleanup.h"
#include "tests/tests.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void workdir_create(struct workdir *ret)
{
	strcpy(ret->path, "/tmp/heapattach-test-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(ret->path));
}

void workdir_remove(struct workdir *dir)
{
	workdir_run(dir, "rm -rf '%s'", dir->path);
}

void workdir_write(const struct workdir *dir, const char *name, const void *data, size_t size)
{
	CLEANUP(freep) char *path = NULL;
	CLEANUP(fclosep) FILE *file = NULL;

	ck_assert_int_gt(asprintf(&path, "%s/%s", dir->path, name), 0);
	file = fopen(path, "we");
	ck_assert_ptr_nonnull(file);
	ck_assert_uint_eq(fwrite(data, 1, size, file), size);
}

void workdir_write_text(const struct workdir *dir, const char *name, const char *text)
{
	workdir_write(dir, name, text, strlen(text));
}

/* A shell command line that runs @format in the directory. */
static char *PRINTF(2, 0) command_line(const struct workdir *dir, const char *format, va_list args)
{
	CLEANUP(freep) char *command = NULL;
	char *line;

	if (vasprintf(&command, format, args) < 0 ||
	    asprintf(&line, "cd '%s' && %s", dir->path, command) < 0)
		abort();
	return line;
}

void workdir_run(const struct workdir *dir, const char *format, ...)
{
	CLEANUP(freep) char *line = NULL;
	va_list args;

	va_start(args, format);
	line = command_line(dir, format, args);
	va_end(args);
	ck_assert_msg(system(line) == 0, "failed: %s", line);
}

char *workdir_output(const struct workdir *dir, const char *format, ...)
{
	CLEANUP(freep) char *line = NULL;
	size_t size = 0, room = 1 << 16, count;
	char *text = malloc(room);
	va_list args;
	FILE *pipe;

	va_start(args, format);
	line = command_line(dir, format, args);
	va_end(args);
	pipe = popen(line, "re");
	ck_assert_ptr_nonnull(pipe);
	while (text && (count = fread(text + size, 1, room - size - 1, pipe)) > 0) {
		size += count;
		if (size + 1 == room)
			text = realloc(text, room *= 2);
	}
	ck_assert_ptr_nonnull(text);
	ck_assert_msg(pclose(pipe) == 0, "failed: %s", line);
	text[size] = '\0';
	return text;
}

int workdir_open(const struct workdir *dir, const char *name)
{
	CLEANUP(freep) char *path = NULL;
	int fd;

	ck_assert_int_gt(asprintf(&path, "%s/%s", dir->path, name), 0);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	ck_assert_msg(fd >= 0, "cannot open %s", path);
	return fd;
}
