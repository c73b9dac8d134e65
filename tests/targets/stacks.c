// SPDX-License-Identifier: GPL-3.0-or-later
/*
 * stacks [-a] [NAME...]: stacks of all shapes, one thread each, for unwinders;
 * all shapes if none is named. Every thread works without end and never leaves
 * its shape. With -a it allocates and frees at the innermost end.
 */
#include <pthread.h>

#include "tests/targets/target.h"

#define DEPTH 24

/* With -a: different ways down the random frames. A profiler keeps each stack. */
#define WAYS 50

static volatile uint64_t sink;
static bool allocates;

/* At the innermost end: some instructions, in registers only. */
NOINLINE static uint64_t work(uint64_t seed)
{
	if (allocates) {
		void *block = malloc(1 + (seed >> 50));

		KEEP(block);
		free(block);
	}
	for (unsigned int i = 0; i < 200; i++)
		seed = seed * 6364136223846793005u + 1442695040888963407u;
	return seed;
}

/* ---- functions with frames and saved registers of all sizes, in random order */

static uint64_t any(uint64_t seed, unsigned int depth);

#define MIXED(name, words, kept)                                         \
	NOINLINE static uint64_t name(uint64_t seed, unsigned int depth) \
	{                                                                \
		volatile uint64_t local[words];                          \
		uint64_t values[kept];                                   \
                                                                         \
		for (unsigned int i = 0; i < (kept); i++)                \
			values[i] = seed * (i + 3);                      \
		local[seed % (words)] = seed;                            \
		seed = any(work(seed), depth + 1);                       \
		for (unsigned int i = 0; i < (kept); i++)                \
			seed += values[i] ^ local[seed % (words)];       \
		return seed;                                             \
	}

MIXED(mixed_a, 1, 1)
MIXED(mixed_b, 3, 2)
MIXED(mixed_c, 10, 3)
MIXED(mixed_d, 40, 5)
MIXED(mixed_e, 200, 6)
MIXED(mixed_f, 1200, 7)

static uint64_t any(uint64_t seed, unsigned int depth)
{
	static uint64_t (*const functions[])(uint64_t, unsigned int) = {
		mixed_a, mixed_b, mixed_c, mixed_d, mixed_e, mixed_f,
	};

	if (depth >= DEPTH)
		return work(seed);
	return functions[(seed >> 33) % 6](seed, depth) + 1;
}

static void *mixed(void *unused)
{
	for (uint64_t seed = 1;; seed++)
		sink = any(work(allocates ? seed % WAYS : seed), 0);
	return unused;
}

/* ---- frame pointers, since the size of the frame is not known */

NOINLINE static uint64_t variable(uint64_t seed, unsigned int depth)
{
	size_t size = 16 + (seed >> 40) % 500;
	volatile uint8_t *bytes = __builtin_alloca(size);

	bytes[seed % size] = (uint8_t)seed;
	if (depth < DEPTH)
		seed += variable(work(seed), depth + 1);
	return work(seed) + bytes[seed % size];
}

static void *alloca_frames(void *unused)
{
	for (uint64_t seed = 1;; seed++)
		sink = variable(work(seed), 0);
	return unused;
}

/* ---- frames that are aligned anew: the CFA is found through memory */

NOINLINE static uint64_t aligned(uint64_t seed, unsigned int depth)
{
	volatile uint64_t line[8] __attribute__((aligned(64)));
	volatile uint8_t *bytes = __builtin_alloca(16 + seed % 100);

	line[seed % 8] = seed;
	bytes[0] = (uint8_t)seed;
	if (depth < DEPTH)
		seed += aligned(work(seed), depth + 1) + line[seed % 8];
	return work(seed) + bytes[0] + line[0];
}

NOINLINE __attribute__((force_align_arg_pointer)) static uint64_t realigned(uint64_t seed,
									    unsigned int depth)
{
	volatile uint64_t line[4] __attribute__((aligned(32)));

	line[seed % 4] = seed;
	if (depth < DEPTH)
		seed += (depth % 2 ? aligned : realigned)(work(seed), depth + 1);
	return work(seed) + line[seed % 4];
}

static void *aligned_frames(void *unused)
{
	for (uint64_t seed = 1;; seed++)
		sink = realigned(work(seed), 0);
	return unused;
}

/* ---- calls that do not return: the return address is behind the function */

NOINLINE __attribute__((noreturn)) static void forever(uint64_t seed)
{
	for (;;)
		sink = seed = any(work(seed), DEPTH - 3);
}

NOINLINE __attribute__((noreturn)) static void no_return(uint64_t seed, unsigned int depth)
{
	if (depth < 5)
		no_return(work(seed), depth + 1);
	forever(seed);
}

static void *no_return_frames(void *unused)
{
	no_return(1, 0);
	return unused;
}

/* ---- frames over 64 KiB */

NOINLINE static uint64_t huge(uint64_t seed, unsigned int depth)
{
	volatile uint8_t bytes[70000];

	bytes[seed % sizeof(bytes)] = (uint8_t)seed;
	if (depth < 3)
		seed += huge(work(seed), depth + 1);
	return work(seed) + bytes[seed % sizeof(bytes)];
}

static void *huge_frames(void *unused)
{
	for (uint64_t seed = 1;; seed++)
		sink = huge(work(seed), 0);
	return unused;
}

/* ---- libc calls through the PLT, blocked and not */

static void *library_calls(void *unused)
{
	struct timespec moment = {.tv_nsec = 20000};

	for (uint64_t seed = 1;; seed++) {
		char text[64];

		snprintf(text, sizeof(text), "%lu %f", seed, (double)seed / 3);
		sink += strlen(text) + (uint64_t)getppid();
		if (seed % 16 == 0)
			clock_nanosleep(CLOCK_MONOTONIC, 0, &moment, NULL);
	}
	return unused;
}

/* ---- signal handlers, nested, on the thread's stack and on one of their own */

static void on_signal(int number)
{
	uint64_t seed = target_now_ns() | 1;

	if (number == SIGUSR1 && seed % 3 == 0)
		raise(SIGUSR2);
	for (unsigned int i = 0; i < 20; i++)
		sink = seed = any(work(seed), DEPTH - 4);
}

static void *signalled(void *alternate)
{
	static _Thread_local char memory[128 * 1024];
	stack_t stack = {.ss_sp = memory, .ss_size = sizeof(memory)};

	if (alternate)
		sigaltstack(&stack, NULL);
	for (uint64_t seed = 1;; seed++) {
		for (unsigned int i = 0; i < 20; i++)
			sink = any(work(allocates ? i : seed + i), 10);
		raise(alternate ? SIGPROF : SIGUSR1);
	}
	return NULL;
}

static void *signals(void *unused)
{
	return signalled(unused);
}

static void *signals_alternate(void *unused)
{
	(void)unused;
	return signalled("");
}

static const struct {
	const char *name;
	void *(*run)(void *);
} shapes[] = {
	{"mixed", mixed},
	{"alloca", alloca_frames},
	{"aligned", aligned_frames},
	{"noreturn", no_return_frames},
	{"huge", huge_frames},
	{"library", library_calls},
	{"signals", signals},
	{"signals_alternate", signals_alternate},
};

static bool is_wanted(const char *name, int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		if (strcmp(name, argv[i]) == 0)
			return true;
	}
	return argc == 1 + allocates;
}

int main(int argc, char **argv)
{
	struct sigaction action = {.sa_handler = on_signal};
	pthread_t thread;
	char line[64];

	target_begin();
	allocates = argc > 1 && strcmp(argv[1], "-a") == 0;
	sigaction(SIGUSR1, &action, NULL);
	sigaction(SIGUSR2, &action, NULL);
	action.sa_flags = SA_ONSTACK;
	sigaction(SIGPROF, &action, NULL);
	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
		if (is_wanted(shapes[i].name, argc, argv) &&
		    pthread_create(&thread, NULL, shapes[i].run, NULL) != 0)
			target_fail("pthread_create");
	}
	target_say("ready");
	while (target_command(line, sizeof(line)) && strcmp(line, "stop") != 0)
		;
	return 0;
}
