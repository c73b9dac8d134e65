/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * crowd COUNT: a program with so many libraries, copies of one file that it makes
 * in its working directory.
 *
 *	work   each library allocates a block of 1,000 bytes
 *	check  nothing
 *
 * Either is answered by the number of libraries whose word that leads to malloc is not
 * what it was at first.
 */
#include "tests/targets/target.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

#define COUNT_MAX 10000
#define SIZE	  1000

static struct library {
	void *(*work)(size_t size);
	uint64_t (*word)(void);
	uint64_t first;
} libraries[COUNT_MAX];

static int file_open(void)
{
	char path[PATH_MAX];
	ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 16);
	int fd;

	if (length < 0)
		target_fail("readlink");
	path[length] = '\0';
	strcpy(strrchr(path, '/'), "/libcrowd.so");
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		target_fail("open");
	return fd;
}

static void file_copy(int file, const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0700);
	struct stat stat;
	off_t at = 0;

	if (fd < 0 || fstat(file, &stat) || sendfile(fd, file, &at, (size_t)stat.st_size) < 0)
		target_fail("copy");
	close(fd);
}

static void library_load(int file, int number, struct library *ret)
{
	char path[32];
	void *handle;

	snprintf(path, sizeof(path), "./crowd%d.so", number);
	file_copy(file, path);
	handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!handle)
		target_fail(dlerror());
	ret->work = (void *(*)(size_t))dlsym(handle, "crowd_work");
	ret->word = (uint64_t(*)(void))dlsym(handle, "crowd_word");
	ret->first = ret->word();
}

int main(int argc, char **argv)
{
	int count = argc > 1 ? atoi(argv[1]) : 0, file;
	char line[32];

	target_begin();
	if (count > COUNT_MAX)
		target_fail("too many");
	file = file_open();
	for (int i = 0; i < count; i++)
		library_load(file, i, &libraries[i]);
	close(file);
	target_say("ready");
	while (target_command(line, sizeof(line)) && strcmp(line, "stop") != 0) {
		int changed = 0;

		for (int i = 0; i < count && strcmp(line, "work") == 0; i++)
			KEEP(libraries[i].work(SIZE));
		for (int i = 0; i < count; i++)
			changed += libraries[i].word() != libraries[i].first;
		target_say("%d", changed);
	}
	return 0;
}
