/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * untouched [-l]: has much memory that it never uses: a large mapping, a large
 * static array, and threads with large stacks. With -l it locks all its memory
 * in advance (mlockall), as some databases and real-time programs do.
 */
#include "tests/targets/target.h"

#include <pthread.h>
#include <sys/mman.h>

#define MAPPING_SIZE (256u << 20)
#define THREADS	     8

static char spare[64 << 20];

static void *sleeper(void *unused)
{
	pause();
	return unused;
}

int main(int argc, char **argv)
{
	bool locks = argc > 1 && !strcmp(argv[1], "-l");
	char line[64];
	int i;

	target_begin();
	/* A locking program of this size could not be tested everywhere. */
	if (locks && mlockall(MCL_FUTURE))
		target_fail("mlockall");
	for (i = 0; i < THREADS && !locks; i++) {
		pthread_t thread;

		if (pthread_create(&thread, NULL, sleeper, NULL))
			target_fail("pthread_create");
	}
	if (!locks && mmap(NULL, MAPPING_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			   -1, 0) == MAP_FAILED)
		target_fail("mmap");
	KEEP(spare);
	if (locks) {
		void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
				  -1, 0);

		if (page == MAP_FAILED)
			target_fail("mmap");
	}
	target_say("ready");
	while (target_command(line, sizeof(line)) && strcmp(line, "stop")) {
		void *data = malloc(1000);

		KEEP(data);
		free(data);
		target_say("ok");
	}
	return 0;
}
