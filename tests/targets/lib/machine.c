/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Native code of tests/targets/Machine.java; its name and arguments are those of JNI. */
#include <stdlib.h>

static __attribute__((noinline)) void keep_blocks(int count)
{
	for (int i = 0; i < count; i++) {
		void *volatile block = malloc(100);

		(void)block;
	}
}

void Java_Machine_keep(void *environment, void *class, int count);
void Java_Machine_keep(void *environment, void *class, int count)
{
	(void)environment;
	(void)class;
	keep_blocks(count);
}
