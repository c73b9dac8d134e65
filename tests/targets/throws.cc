/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * throws: a C++ program whose operator new is its allocator's own (jemalloc).
 * At each command it asks for more than there is, and catches what is thrown.
 */
#include <cstdio>
#include <cstring>
#include <new>
#include <sys/prctl.h>
#include <unistd.h>

static char *volatile kept;

/* Not by stdio, whose lock is held while it waits. */
static bool command_read(char *line, std::size_t size)
{
	std::size_t length = 0;
	char c;

	while (read(STDIN_FILENO, &c, 1) == 1 && c != '\n') {
		if (length + 1 < size)
			line[length++] = c;
	}
	line[length] = '\0';
	return length > 0;
}

int main()
{
	char line[64];

	prctl(PR_SET_PDEATHSIG, 9);
	puts("ready");
	fflush(stdout);
	while (command_read(line, sizeof(line)) && std::strcmp(line, "stop")) {
		bool caught = false;

		delete[] kept;
		kept = new char[1000];
		try {
			kept[0] = *new char[1ull << 60];
		} catch (const std::bad_alloc &) {
			caught = true;
		}
		puts(caught ? "ok" : "not caught");
		fflush(stdout);
	}
	return 0;
}
