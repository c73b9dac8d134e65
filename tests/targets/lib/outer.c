/* SPDX-License-Identifier: GPL-3.0-or-later */
/* A plugin that needs libinner.so from its own folder. */
#include <stdlib.h>
#include <string.h>

char *inner_copy(const char *text);
int outer_work(int rounds);

/* The number of rounds, if all went well. */
int outer_work(int rounds)
{
	int good = 0;

	for (int i = 0; i < rounds; i++) {
		char *text = calloc(1, 64);
		char *copy = inner_copy("what a plugin says");

		text = realloc(text, 4096);
		strcpy(text, "what a plugin says");
		good += strcmp(text, copy) == 0;
		free(copy);
		free(text);
	}
	return good;
}
