/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * exits_soon [-e] MILLISECONDS: allocates from the start and ends after that
 * time with status 7; with -e it becomes another program (sleep 1) instead.
 */
#include "tests/targets/target.h"

#include <sched.h>

int main(int argc, char **argv)
{
	bool executes = argc == 3 && strcmp(argv[1], "-e") == 0;
	uint64_t start, end;

	target_begin();
	if (argc < 2)
		return 2;
	target_say("ready");
	start = target_now_ns();
	end = start + strtoul(argv[argc - 1], NULL, 10) * 1000000;
	while (target_now_ns() < end) {
		void *data = malloc(100);

		KEEP(data);
		free(data);
		sched_yield();
	}
	if (executes)
		execlp("sleep", "sleep", "1", NULL);
	_exit(7);
}
