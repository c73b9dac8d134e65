/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What a program sees of itself that an attach must not change: contents of its
 * blocks, errno, the return values and lengths of blocking calls, results of
 * vector arithmetic, signals, masks and handlers, descriptors. Threads look at
 * it all the time; witness_check() says what was wrong.
 */
#ifndef TARGETS_WITNESS_H
#define TARGETS_WITNESS_H

#include "tests/targets/target.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/epoll.h>

#define WITNESS_FDS    64
#define WITNESS_BLOCKS 64
#define CALL_MS	       20
#define SA_RESTORER_   0x04000000 /* the C library's own, in what sigaction() returns */

struct witness {
	uint64_t rounds __attribute__((aligned(64)));
	uint64_t seen; /* rounds at the last check */
	uint64_t random;
	pthread_t thread;
	void (*round)(struct witness *);
	struct {
		unsigned char *data;
		size_t size;
	} block[WITNESS_BLOCKS];
};

static struct {
	const char *violation; /* the first; NULL = none */
	bool stopping;
	bool eintr_allowed; /* somebody stops and continues us by signals */
	bool fds_change;    /* somebody opens and closes descriptors all the time */
	int idle[2];	    /* a pipe that nobody writes to before the end */
	int epoll;
	bool fd_open[WITNESS_FDS];
	sigset_t blocked;
	struct sigaction action[65];
} witness;

static void witness_violate(const char *what)
{
	const char *none = NULL;

	__atomic_compare_exchange_n(&witness.violation, &none, what, false, __ATOMIC_RELAXED,
				    __ATOMIC_RELAXED);
}

/* ---- memory and errno */

static void block_fill(unsigned char *data, size_t size, unsigned char seed)
{
	for (size_t i = 0; i < size; i++)
		data[i] = (unsigned char)(seed + i);
}

static void block_verify(const unsigned char *data, size_t size, unsigned char seed)
{
	for (size_t i = 0; i < size; i++) {
		if (data[i] != (unsigned char)(seed + i))
			witness_violate("a block was overwritten");
	}
}

static void heap_round(struct witness *self)
{
	uint64_t random = target_random(&self->random);
	size_t i = random % WITNESS_BLOCKS, size = 1 + (random >> 8) % 2000;
	size_t old_size = self->block[i].size;
	unsigned char *data = self->block[i].data;

	block_verify(data, old_size, (unsigned char)i);
	errno = 77;
	if (random >> 40 & 1) {
		free(data);
		data = random >> 41 & 1 ? malloc(size) : calloc(1, size);
	} else {
		data = realloc(data, size);
		if (data)
			block_verify(data, old_size < size ? old_size : size, (unsigned char)i);
	}
	if (errno != 77)
		witness_violate("errno was changed");
	if (!data)
		target_fail("out of memory");
	block_fill(data, size, (unsigned char)i);
	self->block[i].data = data;
	self->block[i].size = size;
	if (self->rounds % 64 == 0)
		usleep(200);
}

/* ---- blocking calls */

static void call_ended(const char *what, bool timed_out, uint64_t start_ns)
{
	if (!timed_out && errno == EINTR && witness.eintr_allowed)
		return;
	if (!timed_out || target_now_ns() - start_ns < (CALL_MS - 1) * UINT64_C(1000000))
		witness_violate(what);
}

static void sleep_round(struct witness *self)
{
	const struct timespec wait = {.tv_nsec = CALL_MS * 1000000};
	uint64_t start = target_now_ns();

	call_ended("nanosleep", nanosleep(&wait, NULL) == 0, start);
}

static void poll_round(struct witness *self)
{
	struct pollfd fd = {.fd = witness.idle[0], .events = POLLIN};
	uint64_t start = target_now_ns();
	int ready = poll(&fd, 1, CALL_MS);

	if (ready <= 0)
		call_ended("poll", ready == 0, start);
}

static void epoll_round(struct witness *self)
{
	struct epoll_event event;
	uint64_t start = target_now_ns();

	call_ended("epoll_wait", epoll_wait(witness.epoll, &event, 1, CALL_MS) == 0, start);
}

static void futex_round(struct witness *self)
{
	static sem_t semaphore;
	uint64_t start = target_now_ns();
	struct timespec end;
	int ret;

	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_nsec += CALL_MS * 1000000;
	end.tv_sec += end.tv_nsec / 1000000000;
	end.tv_nsec %= 1000000000;
	ret = sem_timedwait(&semaphore, &end);
	call_ended("sem_timedwait", ret < 0 && errno == ETIMEDOUT, start);
}

static void read_round(struct witness *self)
{
	char c;

	if (read(witness.idle[0], &c, 1) < 0)
		call_ended("read", false, target_now_ns());
}

/* ---- arithmetic, with all vector registers that the compiler uses */

static void numbers_round(struct witness *self)
{
	double sum[8] = {0};

	for (int i = 1; i <= 20000; i++) {
		for (int k = 0; k < 8; k++)
			sum[k] += (double)(i * (k + 1));
	}
	for (int k = 0; k < 8; k++) {
		if (sum[k] != 200010000.0 * (k + 1))
			witness_violate("a sum is wrong");
	}
	usleep(1000);
}

/* ---- signals */

static volatile sig_atomic_t signals_seen;

static void signal_handler(int number)
{
	sigset_t mask;
	void *block = malloc(33);

	pthread_sigmask(SIG_SETMASK, NULL, &mask);
	if (!sigismember(&mask, SIGUSR1) || !sigismember(&mask, SIGUSR2))
		witness_violate("the mask in a handler");
	free(block);
	signals_seen++;
}

static void signal_round(struct witness *self)
{
	int before = signals_seen;

	pthread_kill(pthread_self(), SIGUSR1);
	/* Tracers may delay it. */
	for (int i = 0; i < 2000 && signals_seen == before; i++)
		usleep(1000);
	if (signals_seen != before + 1)
		witness_violate("a signal was lost");
	usleep(2000);
}

/* ---- all of it */

static struct witness witnesses[] = {
	{.round = heap_round},	  {.round = heap_round},   {.round = sleep_round},
	{.round = poll_round},	  {.round = epoll_round},  {.round = futex_round},
	{.round = numbers_round}, {.round = signal_round}, {.round = read_round},
};

#define WITNESSES (sizeof(witnesses) / sizeof(witnesses[0]))

static void *witness_main(void *arg)
{
	struct witness *self = arg;

	while (!__atomic_load_n(&witness.stopping, __ATOMIC_RELAXED)) {
		self->round(self);
		__atomic_store_n(&self->rounds, self->rounds + 1, __ATOMIC_RELAXED);
	}
	for (size_t i = 0; i < WITNESS_BLOCKS; i++) {
		block_verify(self->block[i].data, self->block[i].size, (unsigned char)i);
		free(self->block[i].data);
		self->block[i].data = NULL;
		self->block[i].size = 0;
	}
	return NULL;
}

/* What is true now has to stay so. */
static void witness_remember(void)
{
	for (int fd = 0; fd < WITNESS_FDS; fd++)
		witness.fd_open[fd] = fcntl(fd, F_GETFD) >= 0;
	pthread_sigmask(SIG_SETMASK, NULL, &witness.blocked);
	for (int i = 1; i <= 64; i++)
		sigaction(i, NULL, &witness.action[i]);
}

static void witness_start(void)
{
	struct sigaction action = {.sa_handler = signal_handler, .sa_flags = SA_RESTART};

	sigaddset(&action.sa_mask, SIGUSR2);
	witness.stopping = false;
	witness.epoll = epoll_create1(EPOLL_CLOEXEC);
	if (sigaction(SIGUSR1, &action, NULL) || pipe2(witness.idle, O_CLOEXEC) ||
	    witness.epoll < 0)
		target_fail("set-up");
	for (size_t i = 0; i < WITNESSES; i++) {
		witnesses[i].random = 0x9e3779b97f4a7c15u * (i + 1);
		if (pthread_create(&witnesses[i].thread, NULL, witness_main, &witnesses[i]))
			target_fail("pthread_create");
	}
	/* Threads have made their arenas by then, which a limit may deny them. */
	while (!__atomic_load_n(&witnesses[4].rounds, __ATOMIC_RELAXED))
		usleep(1000);
	witness_remember();
}

/* Each thread but the one that reads for ever gets ten seconds to move on. */
static void witness_expect_progress(void)
{
	for (size_t i = 0; i + 1 < WITNESSES; i++) {
		uint64_t rounds, start = target_now_ns();

		do {
			usleep(1000);
			rounds = __atomic_load_n(&witnesses[i].rounds, __ATOMIC_RELAXED);
		} while (rounds == witnesses[i].seen &&
			 target_now_ns() - start < UINT64_C(10000000000));
		if (rounds == witnesses[i].seen)
			witness_violate("a thread does not move");
		witnesses[i].seen = rounds;
	}
}

static void witness_expect_same(void)
{
	sigset_t mask;

	for (int fd = 0; fd < WITNESS_FDS; fd++) {
		if (!witness.fds_change && (fcntl(fd, F_GETFD) >= 0) != witness.fd_open[fd])
			witness_violate("descriptors changed");
	}
	pthread_sigmask(SIG_SETMASK, NULL, &mask);
	if (memcmp(&mask, &witness.blocked, 8) != 0)
		witness_violate("the signal mask changed");
	for (int i = 1; i <= 64; i++) {
		struct sigaction now = {0};

		sigaction(i, NULL, &now);
		if (now.sa_handler != witness.action[i].sa_handler ||
		    ((now.sa_flags ^ witness.action[i].sa_flags) & ~SA_RESTORER_))
			witness_violate("a signal's handler changed");
	}
}

/* Of those that allocate. */
__attribute__((unused)) static uint64_t witness_rounds(void)
{
	return __atomic_load_n(&witnesses[0].rounds, __ATOMIC_RELAXED) +
	       __atomic_load_n(&witnesses[1].rounds, __ATOMIC_RELAXED);
}

/* NULL, or what was wrong at any time. */
static const char *witness_check(void)
{
	witness_expect_progress();
	witness_expect_same();
	return __atomic_load_n(&witness.violation, __ATOMIC_RELAXED);
}

/* It may be started again. */
static void witness_end(void)
{
	__atomic_store_n(&witness.stopping, true, __ATOMIC_RELAXED);
	if (write(witness.idle[1], "0123456789", 10) != 10)
		target_fail("write");
	for (size_t i = 0; i < WITNESSES; i++)
		pthread_join(witnesses[i].thread, NULL);
	close(witness.idle[0]);
	close(witness.idle[1]);
	close(witness.epoll);
}

#endif
