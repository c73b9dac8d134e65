/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * late: loads a library when told to.
 *
 *	load, unload	the library
 *	first, second, third	its function allocates 100 blocks of 1,000 bytes
 *	own	the program itself allocates 100 blocks
 */
#include "tests/targets/target.h"

#include <dlfcn.h>
#include <limits.h>

#define BLOCKS 100
#define SIZE   1000

static void *library;

static void library_load(void)
{
	char path[PATH_MAX];
	ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 16);

	if (length < 0)
		target_fail("readlink");
	path[length] = '\0';
	strcpy(strrchr(path, '/'), "/liblate.so");
	library = dlopen(path, RTLD_NOW);
	if (!library)
		target_fail(dlerror());
}

static void library_call(const char *function)
{
	char name[32];
	void *(*call)(size_t);

	snprintf(name, sizeof(name), "late_%s", function);
	call = (void *(*)(size_t))dlsym(library, name);
	for (int i = 0; call && i < BLOCKS; i++)
		KEEP(call(SIZE));
}

NOINLINE static void own(void)
{
	for (int i = 0; i < BLOCKS; i++)
		KEEP(malloc(SIZE));
}

int main(void)
{
	char line[32];

	target_begin();
	target_say("ready");
	while (target_command(line, sizeof(line)) && strcmp(line, "stop") != 0) {
		if (strcmp(line, "load") == 0)
			library_load();
		else if (strcmp(line, "unload") == 0)
			dlclose(library);
		else if (strcmp(line, "own") == 0)
			own();
		else
			library_call(line);
		target_say("ok");
	}
	return 0;
}
