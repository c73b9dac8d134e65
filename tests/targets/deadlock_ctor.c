/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The main thread sleeps in a system call and holds a mutex; another thread is
 * inside dlopen(), owns the loader's lock, and its library's constructor wants
 * that mutex. A dlopen() made on the main thread now would never return.
 *
 * Both go round and round:
 *
 *	check  "ok" if both have moved on since the last check
 *	stop   end
 */
#include "tests/targets/target.h"

#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static uint64_t sleeps, loads;
static char library[PATH_MAX];

/* Called by the constructor of libctor.so. */
void deadlock_ctor_enter(void);
void deadlock_ctor_enter(void)
{
	pthread_mutex_lock(&mutex);
	pthread_mutex_unlock(&mutex);
}

static void *loader_main(void *arg)
{
	for (;;) {
		void *handle = dlopen(library, RTLD_NOW);

		if (!handle)
			target_fail(dlerror());
		dlclose(handle);
		__atomic_fetch_add(&loads, 1, __ATOMIC_RELAXED);
	}
	return arg;
}

/* Sleep with the mutex held; true when a command waits. */
static bool sleep_locked(void)
{
	struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
	bool command;

	pthread_mutex_lock(&mutex);
	command = poll(&input, 1, 5) > 0;
	pthread_mutex_unlock(&mutex);
	sleeps++;
	return command;
}

int main(int argc, char **argv)
{
	uint64_t seen_sleeps = 0, seen_loads = 0;
	pthread_t thread;
	char line[64];

	target_begin();
	snprintf(library, sizeof(library), "%s/libctor.so", dirname(argv[0]));
	if (pthread_create(&thread, NULL, loader_main, NULL))
		target_fail("pthread_create");
	target_say("ready");
	for (;;) {
		if (!sleep_locked())
			continue;
		if (!target_command(line, sizeof(line)) || strcmp(line, "stop") == 0)
			break;
		for (int i = 0; i < 1000 && __atomic_load_n(&loads, __ATOMIC_RELAXED) == seen_loads;
		     i++)
			sleep_locked();
		target_say(sleeps != seen_sleeps && loads != seen_loads ? "ok" : "stuck");
		seen_sleeps = sleeps;
		seen_loads = __atomic_load_n(&loads, __ATOMIC_RELAXED);
	}
	target_say("ended");
	fflush(stdout);
	_exit(0);
}
