/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Linked with jemalloc. The main thread forks all the time and sleeps in an
 * atfork handler that runs after jemalloc's own: all of jemalloc's locks are
 * held while it sleeps, so a malloc() made on it then would hang. A second
 * thread allocates.
 *
 *	check  "ok" if both have moved on since the last check
 *	stop   end
 */
#include "tests/targets/target.h"

#include <poll.h>
#include <pthread.h>
#include <sys/wait.h>

static uint64_t forks, rounds;

static void prepare_sleep(void)
{
	poll(NULL, 0, 5);
}

static void prepare_register(void)
{
	pthread_atfork(prepare_sleep, NULL, NULL);
}

/*
 * Prepare handlers run newest first, and jemalloc registers its own when it is
 * loaded. Only functions of .preinit_array run before that.
 */
__attribute__((section(".preinit_array"),
	       used)) static void (*const preinit)(void) = prepare_register;

static void *allocator_main(void *arg)
{
	for (;;) {
		unsigned char *data = malloc(1 + rounds % 5000);

		if (!data)
			target_fail("out of memory");
		data[0] = 1;
		free(data);
		__atomic_store_n(&rounds, rounds + 1, __ATOMIC_RELAXED);
	}
	return arg;
}

static void fork_once(void)
{
	pid_t child = fork();
	int status;

	if (child == 0)
		_exit(42);
	if (child < 0 || waitpid(child, &status, 0) != child || status != 42 << 8)
		target_fail("a child ended in another way than it should");
	forks++;
}

int main(void)
{
	struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
	uint64_t seen_forks = 0, seen_rounds = 0;
	pthread_t thread;
	char line[64];

	target_begin();
	if (pthread_create(&thread, NULL, allocator_main, NULL))
		target_fail("pthread_create");
	target_say("ready");
	for (;;) {
		while (poll(&input, 1, 0) == 0)
			fork_once();
		if (!target_command(line, sizeof(line)) || strcmp(line, "stop") == 0)
			break;
		for (int i = 0;
		     i < 100 && __atomic_load_n(&rounds, __ATOMIC_RELAXED) == seen_rounds; i++)
			poll(NULL, 0, 10);
		target_say(forks != seen_forks && rounds != seen_rounds ? "ok" : "stuck");
		seen_forks = forks;
		seen_rounds = __atomic_load_n(&rounds, __ATOMIC_RELAXED);
	}
	target_say("ended");
	fflush(stdout);
	_exit(0);
}
