/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * symbolize FILE <ADDRESSES: unrelocated addresses in hexadecimal, one a
 * line, to functions and lines in addr2line's manner (-f -i -C): for each frame a
 * line with the function and one with file:line. The time goes to stderr.
 */
#include "resolver/cleanup.h"
#include "resolver/symbolizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now_s(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static struct error *address_print(struct symbolizer *symbolizer, uint32_t module, uint64_t vaddr)
{
	const struct symbolizer_frame *frames;
	size_t count;
	struct error *err = symbolizer_resolve(symbolizer, module, vaddr, &frames, &count);

	for (size_t i = 0; i < count && !err; i++) {
		const struct symbolizer_frame *frame = &frames[i];

		printf("%s\n%s:%u\n", frame->function ? frame->function : "??",
		       frame->file ? frame->file : "??", frame->line);
	}
	return err;
}

static struct error *run(const char *path)
{
	struct symbolizer_module file = {.path = path, .fd = -1};
	struct symbolizer *symbolizer = NULL;
	double begin = now_s();
	char line[64];
	uint32_t module;
	struct error *err = symbolizer_create(NULL, &symbolizer);

	if (!err)
		err = symbolizer_add(symbolizer, &file, &module);
	while (!err && fgets(line, sizeof(line), stdin))
		err = address_print(symbolizer, module, strtoull(line, NULL, 16));
	fprintf(stderr, "%.3f\n", now_s() - begin);
	symbolizer_free(symbolizer);
	return err;
}

int main(int argc, char **argv)
{
	struct error *err;

	if (argc != 2)
		return 2;
	err = run(argv[1]);
	if (!err)
		return 0;
	fprintf(stderr, "symbolize: %s\n", error_message(err));
	error_free(err);
	return 1;
}
