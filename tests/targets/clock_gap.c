/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * clock_gap [-b]: the main thread looks at the time without a pause, in code of
 * its own (the cycle counter, no vDSO), and remembers the longest time between
 * two looks: so long was it stopped. With -b it sleeps a millisecond between
 * two looks instead, in nanosleep. Another thread talks.
 *
 *	check  "gap_us=N": the longest since the last check
 *	stop   end
 */
#include "tests/targets/target.h"

#include <pthread.h>
#include <x86intrin.h>

static uint64_t gap_cycles;
static double cycles_per_us;

static void *talker_main(void *arg)
{
	char line[64];

	target_say("ready");
	while (target_command(line, sizeof(line)) && strcmp(line, "stop") != 0)
		target_say("gap_us=%.0f",
			   (double)__atomic_exchange_n(&gap_cycles, 0, __ATOMIC_RELAXED) /
				   cycles_per_us);
	target_say("ended");
	fflush(stdout);
	_exit(0);
	return arg;
}

static NOINLINE void look(uint64_t *last, uint64_t expected)
{
	uint64_t now = __rdtsc();

	if (now - *last > expected &&
	    now - *last - expected > __atomic_load_n(&gap_cycles, __ATOMIC_RELAXED))
		__atomic_store_n(&gap_cycles, now - *last - expected, __ATOMIC_RELAXED);
	*last = now;
}

static void calibrate(void)
{
	uint64_t start = target_now_ns(), cycles = __rdtsc();

	while (target_now_ns() - start < 50000000)
		;
	cycles_per_us = (double)(__rdtsc() - cycles) * 1000 / (double)(target_now_ns() - start);
}

int main(int argc, char **argv)
{
	bool blocks = argc > 1 && strcmp(argv[1], "-b") == 0;
	struct timespec millisecond = {0, 1000000};
	pthread_t thread;
	uint64_t last;

	target_begin();
	calibrate();
	if (pthread_create(&thread, NULL, talker_main, NULL))
		target_fail("pthread_create");
	last = __rdtsc();
	for (;;) {
		if (blocks)
			nanosleep(&millisecond, NULL);
		look(&last, blocks ? (uint64_t)(1000 * cycles_per_us) : 0);
	}
}
