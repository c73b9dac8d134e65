/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/tests.h"

#include "resolver/cleanup.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static char *path_join(const char *folder, const char *format, va_list args)
{
	CLEANUP(freep) char *tail = NULL;
	char *path;

	if (vasprintf(&tail, format, args) < 0 || asprintf(&path, "%s/%s", folder, tail) < 0)
		abort();
	return path;
}

/* The runner is BUILD/tests/run. */
char *tests_build_path(const char *format, ...)
{
	char folder[PATH_MAX];
	ssize_t length = readlink("/proc/self/exe", folder, sizeof(folder) - 1);
	va_list args;
	char *path;

	ck_assert_int_gt(length, 0);
	folder[length] = '\0';
	for (int up = 0; up < 2; up++)
		*strrchr(folder, '/') = '\0';
	va_start(args, format);
	path = path_join(folder, format, args);
	va_end(args);
	return path;
}

char *tests_source_path(const char *format, ...)
{
	va_list args;
	char *path;

	va_start(args, format);
	path = path_join(HA_SOURCE_DIR, format, args);
	va_end(args);
	return path;
}

char *tests_read_file(const char *path)
{
	CLEANUP(fclosep) FILE *file = fopen(path, "re");
	size_t size = 0, room = 1 << 16;
	char *text;

	if (!file)
		return NULL;
	text = malloc(room);
	while (text) {
		size_t got = fread(text + size, 1, room - size - 1, file);

		size += got;
		if (!got)
			break;
		if (room - size < 2)
			text = realloc(text, room *= 2);
	}
	if (text)
		text[size] = '\0';
	return text;
}

int tests_cycles(int usual)
{
	const char *text = getenv("HEAPATTACH_TESTS_CYCLES");

	return text ? atoi(text) : usual;
}

void wait_ms(unsigned int ms)
{
	struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};

	while (nanosleep(&left, &left))
		;
}

double now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}
