/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * lives: blocks whose sizes and lives are known.
 *
 *	go     keep_old: 1,000 blocks of 100 bytes that stay
 *	       free_at_once: 10,000 of 40 bytes, each freed before the next
 *	       free_later: 1,000 of 3,000 bytes, all made, then freed 400 ms later
 *	       keep_young: 500 of 600 bytes that stay, 400 ms after the old ones
 *	stop   end
 */
#include "tests/targets/target.h"

#include <time.h>

#define WAIT_NS 400000000

static void *kept[2000];
static unsigned int kept_count;

static void keep(void *data)
{
	if (!data)
		target_fail("out of memory");
	KEEP(data);
	kept[kept_count++] = data;
}

static NOINLINE void keep_old(void)
{
	for (int i = 0; i < 1000; i++)
		keep(malloc(100));
}

static NOINLINE void keep_young(void)
{
	for (int i = 0; i < 500; i++)
		keep(malloc(600));
}

static NOINLINE void free_at_once(void)
{
	for (int i = 0; i < 10000; i++) {
		void *data = malloc(40);

		KEEP(data);
		free(data);
	}
}

static NOINLINE void free_later(void)
{
	const struct timespec wait = {.tv_nsec = WAIT_NS};
	static void *data[1000];

	for (int i = 0; i < 1000; i++)
		data[i] = malloc(3000);
	KEEP(data[0]);
	nanosleep(&wait, NULL);
	for (int i = 0; i < 1000; i++)
		free(data[i]);
}

int main(void)
{
	char line[64];

	target_begin();
	target_say("ready");
	while (target_command(line, sizeof(line)) && strcmp(line, "stop") != 0) {
		if (strcmp(line, "go") == 0 && !kept_count) {
			keep_old();
			free_at_once();
			free_later();
			keep_young();
		}
		target_say("ok");
	}
	return 0;
}
