/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Found by libouter.so alone, by its RUNPATH $ORIGIN. */
#include <stdlib.h>
#include <string.h>

char *inner_copy(const char *text);

char *inner_copy(const char *text)
{
	char *copy = malloc(strlen(text) + 1);

	return copy ? strcpy(copy, text) : NULL;
}
