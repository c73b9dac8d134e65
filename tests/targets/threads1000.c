/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * threads1000 [-n THREADS]: many threads that wait in epoll_wait, in a
 * condition variable or in a short sleep, and one that only reads the clock.
 *
 *	check  "beats=N gap_us=N eintr=N": since the last check, how often the clock
 *	       was read, the longest time between two readings, and how often a call
 *	       came back with EINTR (since the start)
 *	stop   end
 */
#include "tests/targets/target.h"

#include <errno.h>
#include <pthread.h>
#include <sys/epoll.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static uint64_t interrupted, beats, gap_ns;
static int started;

static void *epoll_main(void *arg)
{
	int epoll = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event event;

	__atomic_fetch_add(&started, 1, __ATOMIC_RELAXED);
	for (;;) {
		if (epoll_wait(epoll, &event, 1, -1) < 0 && errno == EINTR)
			__atomic_fetch_add(&interrupted, 1, __ATOMIC_RELAXED);
	}
	return arg;
}

static void *condition_main(void *arg)
{
	__atomic_fetch_add(&started, 1, __ATOMIC_RELAXED);
	pthread_mutex_lock(&mutex);
	for (;;)
		pthread_cond_wait(&condition, &mutex);
	return arg;
}

static void *sleeper_main(void *arg)
{
	struct timespec tenth = {0, 100000000};

	__atomic_fetch_add(&started, 1, __ATOMIC_RELAXED);
	for (;;) {
		if (nanosleep(&tenth, NULL) < 0 && errno == EINTR)
			__atomic_fetch_add(&interrupted, 1, __ATOMIC_RELAXED);
		void *data = malloc(100);

		KEEP(data);
		free(data);
	}
	return arg;
}

static void *heart_main(void *arg)
{
	uint64_t last = target_now_ns();

	__atomic_fetch_add(&started, 1, __ATOMIC_RELAXED);
	for (;;) {
		uint64_t now = target_now_ns();

		if (now - last > __atomic_load_n(&gap_ns, __ATOMIC_RELAXED))
			__atomic_store_n(&gap_ns, now - last, __ATOMIC_RELAXED);
		last = now;
		__atomic_fetch_add(&beats, 1, __ATOMIC_RELAXED);
	}
	return arg;
}

int main(int argc, char **argv)
{
	static void *(*const mains[10])(void *) = {
		epoll_main,	epoll_main,	epoll_main,	epoll_main,	condition_main,
		condition_main, condition_main, condition_main, condition_main, sleeper_main};
	int option, threads = 1000;
	pthread_attr_t attributes;
	pthread_t thread;
	char line[64];

	target_begin();
	while ((option = getopt(argc, argv, "n:")) != -1) {
		if (option != 'n')
			return 2;
		threads = atoi(optarg);
	}
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, 65536);
	for (int i = 0; i < threads - 1; i++) {
		if (pthread_create(&thread, &attributes, i ? mains[i % 10] : heart_main, NULL))
			target_fail("pthread_create");
	}
	/* With all that they open. */
	while (__atomic_load_n(&started, __ATOMIC_RELAXED) < threads - 1)
		usleep(1000);
	target_say("ready");
	while (target_command(line, sizeof(line)) && strcmp(line, "stop") != 0)
		target_say("beats=%lu gap_us=%lu eintr=%lu",
			   __atomic_exchange_n(&beats, 0, __ATOMIC_RELAXED),
			   __atomic_exchange_n(&gap_ns, 0, __ATOMIC_RELAXED) / 1000,
			   __atomic_load_n(&interrupted, __ATOMIC_RELAXED));
	target_say("ended");
	return 0;
}
