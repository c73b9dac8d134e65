/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What the targets share. A target is a small program to attach to, which
 * knows what it did and checks itself. It talks in lines:
 *
 *	stdout  "ready" once it can be attached to, then one answer a command
 *	stdin   "go" starts the work, "check" asks for the state, "stop" ends
 *
 * Nothing here allocates, so that a target's figures are its own.
 */
#ifndef TARGETS_TARGET_H
#define TARGETS_TARGET_H

#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))
#define INLINE	 static inline __attribute__((always_inline, unused))

/* The value is used and memory may have changed, for all that the compiler knows. */
#define KEEP(value) __asm__ volatile("" : : "r"(value) : "memory")

/* First of all in main(): end with the test that started us, and have stdio allocate nothing. */
static inline void target_begin(void)
{
	static char out[8192];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setvbuf(stdout, out, _IOLBF, sizeof(out));
}

__attribute__((format(printf, 1, 2))) static inline void target_say(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
	fflush(stdout);
}

/* The next command without its newline; false at the end of stdin. */
static inline bool target_command(char *line, size_t size)
{
	size_t length = 0;
	char c;

	while (read(STDIN_FILENO, &c, 1) == 1 && c != '\n') {
		if (length + 1 < size)
			line[length++] = c;
	}
	line[length] = '\0';
	return length > 0;
}

static inline uint64_t target_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* xorshift64: @state must not be 0. */
static inline uint64_t target_random(uint64_t *state)
{
	uint64_t x = *state;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return *state = x;
}

__attribute__((noreturn, unused)) static void target_fail(const char *what)
{
	target_say("failed %s", what);
	exit(1);
}

#endif
