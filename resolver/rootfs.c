// SPDX-License-Identifier: GPL-3.0-or-later
#include "resolver/rootfs.h"

#include "resolver/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/*
 * O_PATH finds the file without opening it. Where openat2 is missing or
 * filtered an absolute link may lead out of the root; what is found is then
 * still only a regular file, and whoever asked checks what is in it.
 */
static int find(int root, const char *path)
{
	struct open_how how = {
		.flags = O_PATH | O_CLOEXEC,
		.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS,
	};
	int fd = (int)syscall(SYS_openat2, root, path, &how, sizeof(how));

	if (fd >= 0 || (errno != ENOSYS && errno != EPERM))
		return fd;
	return openat(root, path + strspn(path, "/"), O_PATH | O_CLOEXEC);
}

static struct error *reopen(int found, const char *path, int *fd_ret)
{
	char link[sizeof("/proc/self/fd/") + 12];
	struct stat stat;
	int fd;

	if (fstat(found, &stat) < 0)
		return error_os(errno, "stat %s", path);
	if (!S_ISREG(stat.st_mode))
		return error_create(ERROR_UNSUPPORTED, "%s: not a regular file", path);
	snprintf(link, sizeof(link), "/proc/self/fd/%d", found);
	fd = open(link, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return error_os(errno, "open %s", path);
	*fd_ret = fd;
	return NULL;
}

struct error *rootfs_open(const char *root, const char *path, int *fd_ret)
{
	CLEANUP(closep) int root_fd = -1;
	CLEANUP(closep) int found = -1;

	root_fd = open(root ? root : "/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root_fd < 0)
		return error_os(errno, "open directory %s", root ? root : "/");
	found = find(root_fd, path);
	if (found < 0)
		return error_os(errno, "open %s", path);
	return reopen(found, path, fd_ret);
}
