/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * alloc_bench [-t THREADS] [-d DEPTH] [-s STACKS] [-l LIVE]: allocates and frees
 * as fast as it can, at the end of a chain of DEPTH calls that takes one of STACKS
 * ways. One operation is a free and a malloc of 16 to 512 bytes; LIVE blocks live
 * a thread, 1,024 unless told: with a million, each operation misses the caches.
 *
 *	mark   "ops=N wall_ns=N cpu_ns=N gap_us=N" since the last mark: operations,
 *	       time, processor time of the process, and the longest time that any
 *	       thread took for 16 operations
 *	stop   end
 */
#include "tests/targets/target.h"

#include <pthread.h>

#define THREADS_MAX 64
#define BATCH	    16

struct worker {
	uint64_t ops __attribute__((aligned(128)));
	uint64_t gap_ns;
	uint64_t random;
	unsigned char **live;
};

typedef void *(*chain_function)(unsigned int path, int left, size_t size);

static struct worker workers[THREADS_MAX];
static int threads = 1, depth = 20;
static unsigned int stacks = 2000, live = 1024;

static chain_function const chain[8];

/* The path's four octal digits are spread over the depth. */
INLINE void *chain_step(unsigned int path, int left, size_t size)
{
	unsigned int digit, next;

	if (left <= 0)
		return malloc(size);
	digit = (unsigned int)left * 4 / (unsigned int)(depth + 1);
	next = ((path >> (3 * digit)) + (unsigned int)left) & 7;
	return chain[next](path, left - 1, size);
}

#define CHAIN(number, pad)                                                             \
	static NOINLINE void *chain_##number(unsigned int path, int left, size_t size) \
	{                                                                              \
		char frame[pad];                                                       \
		void *data;                                                            \
		KEEP(frame);                                                           \
		data = chain_step(path, left, size);                                   \
		KEEP(frame);                                                           \
		return data;                                                           \
	}
CHAIN(0, 8)
CHAIN(1, 24)
CHAIN(2, 40)
CHAIN(3, 16)
CHAIN(4, 64)
CHAIN(5, 8)
CHAIN(6, 104)
CHAIN(7, 32)

static chain_function const chain[8] = {chain_0, chain_1, chain_2, chain_3,
					chain_4, chain_5, chain_6, chain_7};

/* Four sizes a stack. */
static void operation(struct worker *worker)
{
	uint64_t random = target_random(&worker->random);
	unsigned int slot = random % live;
	unsigned int path = (unsigned int)((random >> 32) % stacks);
	size_t size = 16 + (path * 7919u + (unsigned int)(random >> 16) % 4 * 131u) % 497;
	unsigned char *old = worker->live[slot], *data;

	if (old && old[0] != (unsigned char)slot)
		target_fail("a block was overwritten");
	free(old);
	data = chain_step(path, depth, size);
	data[0] = (unsigned char)slot;
	worker->live[slot] = data;
}

static void *worker_main(void *arg)
{
	struct worker *worker = arg;
	uint64_t last = target_now_ns();

	for (;;) {
		uint64_t now;

		for (int i = 0; i < BATCH; i++)
			operation(worker);
		__atomic_store_n(&worker->ops, worker->ops + BATCH, __ATOMIC_RELAXED);
		now = target_now_ns();
		if (now - last > __atomic_load_n(&worker->gap_ns, __ATOMIC_RELAXED))
			__atomic_store_n(&worker->gap_ns, now - last, __ATOMIC_RELAXED);
		last = now;
	}
	return NULL;
}

static uint64_t cpu_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void mark(void)
{
	static uint64_t last_ops, last_wall, last_cpu;
	uint64_t ops = 0, gap = 0, wall = target_now_ns(), cpu = cpu_ns();

	for (int i = 0; i < threads; i++) {
		uint64_t own = __atomic_exchange_n(&workers[i].gap_ns, 0, __ATOMIC_RELAXED);

		gap = own > gap ? own : gap;
		ops += __atomic_load_n(&workers[i].ops, __ATOMIC_RELAXED);
	}
	target_say("ops=%lu wall_ns=%lu cpu_ns=%lu gap_us=%lu", ops - last_ops, wall - last_wall,
		   cpu - last_cpu, gap / 1000);
	last_ops = ops;
	last_wall = wall;
	last_cpu = cpu;
}

int main(int argc, char **argv)
{
	pthread_t thread;
	char line[64];
	int option;

	target_begin();
	while ((option = getopt(argc, argv, "t:d:s:l:")) != -1) {
		int value = atoi(optarg ? optarg : "0");

		if (option == 't' && value > 0 && value <= THREADS_MAX)
			threads = value;
		else if (option == 'd' && value >= 0)
			depth = value;
		else if (option == 's' && value > 0)
			stacks = (unsigned int)value;
		else if (option == 'l' && value > 0)
			live = (unsigned int)value;
		else
			return 2;
	}
	for (int i = 0; i < threads; i++) {
		workers[i].random = 0x9e3779b97f4a7c15u * (uint64_t)(i + 1);
		workers[i].live = calloc(live, sizeof(*workers[i].live));
		if (!workers[i].live || pthread_create(&thread, NULL, worker_main, &workers[i]))
			target_fail("cannot start a thread");
	}
	target_say("ready");
	while (target_command(line, sizeof(line)) && strcmp(line, "stop") != 0)
		mark();
	target_say("ended");
	fflush(stdout);
	_exit(0);
}
