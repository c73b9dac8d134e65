/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * forker [-t THREADS]: forks while it is recorded.
 *
 *	stay N   fork N children that allocate until they are told to end:
 *		 "staying PID PID ..."
 *	churn N  N times in all, the threads keep a block of 100 bytes and fork a
 *		 child that allocates and ends: "churned", if each ended well
 *	loop     the threads fork such children until the end: "looping"
 *	check    "ok" if each child that stays has moved on since the last check
 *	clean    "clean" if no child that stays, nor we, call malloc through anybody
 *	stop     end them, and us
 *
 * Built so that calls go through the same word that &malloc is read from.
 */
#include "tests/targets/forked.h"

#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <sys/wait.h>

#define CHILDREN_MAX 16
#define THREADS_MAX  32

struct shared {
	uint64_t rounds[CHILDREN_MAX];
	bool hooked[CHILDREN_MAX];
};

static struct shared *shared;
static pid_t children[CHILDREN_MAX];
static uint64_t seen[CHILDREN_MAX];
static int child_count, thread_count = 8, left;

NOINLINE static void work(unsigned int rounds)
{
	void *blocks[16] = {0};

	for (unsigned int i = 0; i < rounds; i++) {
		unsigned char *data;

		free(blocks[i % 16]);
		data = malloc(24 + i % 500);
		if (!data)
			_exit(3);
		memset(data, (int)i, 24);
		blocks[i % 16] = realloc(data, 64 + i % 900);
	}
	for (unsigned int i = 0; i < 16; i++)
		free(blocks[i]);
}

__attribute__((noreturn)) static void child_stay(int number)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;) {
		work(100);
		__atomic_store_n(&shared->hooked[number], forked_is_hooked(), __ATOMIC_RELAXED);
		__atomic_fetch_add(&shared->rounds[number], 1, __ATOMIC_RELAXED);
		poll(NULL, 0, 1);
	}
}

static void children_start(int count)
{
	char text[CHILDREN_MAX * 12 + 16] = "staying";

	for (int i = 0; i < count && child_count < CHILDREN_MAX; i++) {
		pid_t pid = fork();

		if (pid < 0)
			target_fail("fork");
		if (pid == 0)
			child_stay(child_count);
		children[child_count++] = pid;
		snprintf(text + strlen(text), sizeof(text) - strlen(text), " %d", pid);
	}
	target_say("%s", text);
}

NOINLINE static void *keep_block(void)
{
	void *block = malloc(100);

	KEEP(block);
	return block;
}

static void *churn_main(void *bad)
{
	while (__atomic_fetch_sub(&left, 1, __ATOMIC_RELAXED) > 0) {
		int status;
		pid_t pid;

		keep_block();
		pid = fork();
		if (pid < 0)
			target_fail("fork");
		if (pid == 0) {
			work(200);
			_exit(0);
		}
		if (waitpid(pid, &status, 0) != pid || status != 0)
			__atomic_fetch_add((int *)bad, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void churn(int count)
{
	pthread_t threads[THREADS_MAX];
	int bad = 0;

	left = count;
	for (int i = 0; i < thread_count; i++) {
		if (pthread_create(&threads[i], NULL, churn_main, &bad))
			target_fail("pthread_create");
	}
	for (int i = 0; i < thread_count; i++)
		pthread_join(threads[i], NULL);
	target_say(bad ? "a child ended badly" : "churned");
}

static pthread_t loopers[THREADS_MAX];
static int loop_threads, loop_bad, forks_seen;

static void loop_start(void)
{
	left = INT_MAX;
	for (; loop_threads < thread_count; loop_threads++) {
		if (pthread_create(&loopers[loop_threads], NULL, churn_main, &loop_bad))
			target_fail("pthread_create");
	}
	target_say("looping");
}

static bool loop_moves(void)
{
	uint64_t start = target_now_ns();
	int now;

	do {
		now = __atomic_load_n(&left, __ATOMIC_RELAXED);
		poll(NULL, 0, 1);
	} while (now == forks_seen && target_now_ns() - start < 10000000000u);
	forks_seen = now;
	return !__atomic_load_n(&loop_bad, __ATOMIC_RELAXED) &&
	       target_now_ns() - start < 10000000000u;
}

static void loop_end(void)
{
	__atomic_store_n(&left, 0, __ATOMIC_RELAXED);
	for (int i = 0; i < loop_threads; i++)
		pthread_join(loopers[i], NULL);
}

static bool children_move(void)
{
	if (loop_threads && !loop_moves())
		return false;
	for (int i = 0; i < child_count; i++) {
		uint64_t start = target_now_ns(), rounds;

		do {
			rounds = __atomic_load_n(&shared->rounds[i], __ATOMIC_RELAXED);
			poll(NULL, 0, 1);
		} while (rounds < seen[i] + 2 && target_now_ns() - start < 5000000000u);
		if (rounds < seen[i] + 2)
			return false;
		seen[i] = rounds;
	}
	return true;
}

static bool is_clean(void)
{
	if (!children_move() || forked_is_hooked())
		return false;
	for (int i = 0; i < child_count; i++) {
		if (__atomic_load_n(&shared->hooked[i], __ATOMIC_RELAXED))
			return false;
	}
	return true;
}

static void children_end(void)
{
	for (int i = 0; i < child_count; i++) {
		kill(children[i], SIGKILL);
		waitpid(children[i], NULL, 0);
	}
}

int main(int argc, char **argv)
{
	char line[64];
	int option;

	target_begin();
	while ((option = getopt(argc, argv, "t:")) != -1)
		thread_count = option == 't' ? atoi(optarg) : 0;
	if (thread_count < 1 || thread_count > THREADS_MAX)
		return 2;
	shared = forked_share(sizeof(*shared));
	target_say("ready");
	while (target_command(line, sizeof(line)) && strcmp(line, "stop") != 0) {
		if (!strncmp(line, "stay ", 5))
			children_start(atoi(line + 5));
		else if (!strcmp(line, "loop"))
			loop_start();
		else if (!strncmp(line, "churn ", 6))
			churn(atoi(line + 6));
		else if (!strcmp(line, "check"))
			target_say(children_move() ? "ok" : "stuck");
		else
			target_say(is_clean() ? "clean" : "hooked");
	}
	loop_end();
	children_end();
	target_say("ended");
	return 0;
}
