/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * clock_gap [-b]: the main thread looks at the time without a pause, in code of
 * its own (the cycle counter, no vDSO), and remembers the longest time between
 * two looks: so long was it stopped. With -b it sleeps a millisecond between
 * two looks instead, in nanosleep. Another thread talks.
 *
 *	check  "gap_us=N waiting_us=N": the longest since the last check, and how much
 *	       of it the thread was ready to run but had no processor
 *	stop   end
 */
#include "tests/targets/target.h"

#include <fcntl.h>
#include <pthread.h>
#include <x86intrin.h>

static uint64_t gap_cycles, waiting_ns;
static double cycles_per_us;
static int schedstat;

static void *talker_main(void *arg)
{
	char line[64];

	target_say("ready");
	while (target_command(line, sizeof(line)) && strcmp(line, "stop") != 0)
		target_say("gap_us=%.0f waiting_us=%lu",
			   (double)__atomic_exchange_n(&gap_cycles, 0, __ATOMIC_RELAXED) /
				   cycles_per_us,
			   __atomic_load_n(&waiting_ns, __ATOMIC_RELAXED) / 1000);
	target_say("ended");
	fflush(stdout);
	_exit(0);
	return arg;
}

/* The second number of the main thread's schedstat: nanoseconds spent waiting for a processor. */
static uint64_t waited_ns(void)
{
	char text[128];
	ssize_t length = pread(schedstat, text, sizeof(text) - 1, 0);
	unsigned long waited = 0;

	text[length > 0 ? length : 0] = '\0';
	sscanf(text, "%*u %lu", &waited);
	return waited;
}

static NOINLINE void look(uint64_t *last, uint64_t expected)
{
	static uint64_t waited;
	uint64_t gap = __rdtsc() - *last;

	if (gap > expected && gap - expected > __atomic_load_n(&gap_cycles, __ATOMIC_RELAXED)) {
		uint64_t now = waited_ns();

		__atomic_store_n(&waiting_ns, now - waited, __ATOMIC_RELAXED);
		__atomic_store_n(&gap_cycles, gap - expected, __ATOMIC_RELAXED);
	}
	/* Read before each look, it would be most of what is measured. */
	if (gap > 50 * (uint64_t)cycles_per_us)
		waited = waited_ns();
	*last = __rdtsc();
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
	schedstat = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
	last = __rdtsc();
	for (;;) {
		if (blocks)
			nanosleep(&millisecond, NULL);
		look(&last, blocks ? (uint64_t)(1000 * cycles_per_us) : 0);
	}
}
