/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * storm [-t THREADS] [-d LOADERS] [-s LOW-HIGH]... [-m] [-w]: threads that
 * allocate, grow and free all the time and check their own blocks, of 1 to 16384
 * bytes or of the ranges of -s by turns, and others that load and unload
 * libraries all the time. With -m the main thread allocates too; without it the
 * main thread only waits for commands. With -w the allocators sleep for 0.2 ms
 * after 64 rounds, so that others can run on a machine of few processors.
 *
 *	check  "ok" if every thread has made progress since the last check
 *	stop   join the threads, end with status 0
 */
#include "tests/targets/target.h"

#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>

#define THREADS_MAX 64
#define BLOCKS	    64
#define RANGES_MAX  4

struct worker {
	uint64_t rounds __attribute__((aligned(64)));
	uint64_t seen; /* rounds at the last check */
	pthread_t thread;
	uint64_t random;
	struct {
		unsigned char *data;
		size_t size;
	} block[BLOCKS];
};

static struct worker workers[THREADS_MAX];
static bool stopping, is_gentle;
static struct range {
	size_t low, high;
} ranges[RANGES_MAX] = {{1, 16384}};
static size_t range_count;

static void block_check(const unsigned char *data, size_t size, size_t index)
{
	unsigned char mark = (unsigned char)(index + size);

	if (data && (data[0] != mark || data[size - 1] != mark))
		target_fail("a block was overwritten");
}

static void round_run(struct worker *worker)
{
	uint64_t random = target_random(&worker->random);
	const struct range *range = &ranges[worker->rounds % range_count];
	size_t index = random % BLOCKS,
	       size = range->low + (random >> 8) % (range->high - range->low + 1);
	unsigned char *data = worker->block[index].data;

	block_check(data, worker->block[index].size, index);
	if (random >> 40 & 3) {
		free(data);
		data = random >> 42 & 3 ? malloc(size) : calloc(1, size);
	} else {
		data = realloc(data, size);
	}
	if (!data)
		target_fail("out of memory");
	worker->block[index].data = data;
	worker->block[index].size = size;
	data[0] = data[size - 1] = (unsigned char)(index + size);
	__atomic_store_n(&worker->rounds, worker->rounds + 1, __ATOMIC_RELAXED);
	if (is_gentle && worker->rounds % 64 == 0)
		usleep(200);
}

static void blocks_free(struct worker *worker)
{
	for (size_t i = 0; i < BLOCKS; i++) {
		block_check(worker->block[i].data, worker->block[i].size, i);
		free(worker->block[i].data);
	}
}

static void *allocator_main(void *arg)
{
	struct worker *worker = arg;

	while (!__atomic_load_n(&stopping, __ATOMIC_RELAXED))
		round_run(worker);
	blocks_free(worker);
	return NULL;
}

static void *loader_main(void *arg)
{
	static const char *const libraries[] = {"libm.so.6", "libutil.so.1", "libresolv.so.2"};
	struct worker *worker = arg;

	while (!__atomic_load_n(&stopping, __ATOMIC_RELAXED)) {
		void *library = dlopen(libraries[worker->rounds % 3], RTLD_NOW);

		if (library)
			dlclose(library);
		__atomic_store_n(&worker->rounds, worker->rounds + 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

/* Each thread gets five seconds to move on. */
static bool all_move(int count)
{
	for (int i = 0; i < count; i++) {
		uint64_t rounds, start = target_now_ns();

		do {
			rounds = __atomic_load_n(&workers[i].rounds, __ATOMIC_RELAXED);
			if (rounds != workers[i].seen)
				break;
			poll(NULL, 0, 1);
		} while (target_now_ns() - start < 5000000000u);
		if (rounds == workers[i].seen)
			return false;
		workers[i].seen = rounds;
	}
	return true;
}

static bool range_add(const char *text)
{
	struct range *range = &ranges[range_count];

	if (range_count == RANGES_MAX || sscanf(text, "%zu-%zu", &range->low, &range->high) != 2 ||
	    !range->low || range->high < range->low)
		return false;
	range_count++;
	return true;
}

static bool command_waits(void)
{
	struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};

	return poll(&input, 1, 0) != 0;
}

int main(int argc, char **argv)
{
	static struct worker own = {.random = 88172645463325252u};
	int option, allocators = 1, loaders = 0;
	bool main_allocates = false;
	char line[64];

	target_begin();
	while ((option = getopt(argc, argv, "t:d:s:mw")) != -1) {
		if (option == 't')
			allocators = atoi(optarg);
		else if (option == 'd')
			loaders = atoi(optarg);
		else if (option == 's' && range_add(optarg))
			continue;
		else if (option == 'm')
			main_allocates = true;
		else if (option == 'w')
			is_gentle = true;
		else
			return 2;
	}
	if (allocators < 0 || loaders < 0 || allocators + loaders > THREADS_MAX)
		return 2;
	range_count += !range_count;
	for (int i = 0; i < allocators + loaders; i++) {
		workers[i].random = 0x9e3779b97f4a7c15u * (uint64_t)(i + 1);
		if (pthread_create(&workers[i].thread, NULL,
				   i < allocators ? allocator_main : loader_main, &workers[i]))
			target_fail("pthread_create");
	}
	target_say("ready");
	for (;;) {
		while (main_allocates && !command_waits())
			round_run(&own);
		if (!target_command(line, sizeof(line)) || strcmp(line, "stop") == 0)
			break;
		target_say(all_move(allocators + loaders) ? "ok" : "stuck");
	}
	__atomic_store_n(&stopping, true, __ATOMIC_RELAXED);
	for (int i = 0; i < allocators + loaders; i++)
		pthread_join(workers[i].thread, NULL);
	blocks_free(&own);
	target_say("ended");
	return 0;
}
