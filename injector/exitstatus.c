// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/exitstatus.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "resolver/cleanup.h"

/* From the kernel's include/uapi/linux/pidfd.h, 6.15, which Debian 12's headers lack. */
struct pidfd_info_v0 {
	uint64_t mask;
	uint64_t cgroupid;
	uint32_t pid, tgid, ppid;
	uint32_t ids[8];
	int32_t exit_code;
};
#define INFO_EXIT     (1ull << 3)
#define INFO_GET_CALL _IOWR(0xff, 11, struct pidfd_info_v0)

/* Field 52 of /proc/PID/stat, counted from the state, which is field 3. */
#define STAT_EXIT_CODE 52
#define STAT_STATE     3

static bool zombie_status(pid_t pid, int *status_ret)
{
	CLEANUP(closep) int fd = -1;
	char path[32], text[4096];
	const char *field;
	ssize_t n;
	int i;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (n <= 0)
		return false;
	text[n] = '\0';
	/* The name may hold anything, parentheses too; the last one ends it. */
	field = strrchr(text, ')');
	if (!field || field[1] != ' ' || (field[2] != 'Z' && field[2] != 'X'))
		return false;
	field += 2;
	for (i = STAT_STATE; i < STAT_EXIT_CODE && field; i++) {
		field = strchr(field, ' ');
		if (field)
			field++;
	}
	if (!field)
		return false;
	*status_ret = (int)strtol(field, NULL, 10);
	return true;
}

static bool reaped_status(int pidfd, int *status_ret)
{
	struct pidfd_info_v0 info = {.mask = INFO_EXIT};

	_Static_assert(sizeof(info) == 64, "pidfd_info is not the kernel's");
	if (ioctl(pidfd, INFO_GET_CALL, &info) || !(info.mask & INFO_EXIT))
		return false;
	*status_ret = info.exit_code;
	return true;
}

enum exitstatus exitstatus_read(int pidfd, pid_t pid, int32_t *value_ret)
{
	int status;

	*value_ret = -1;
	if (!zombie_status(pid, &status) && !reaped_status(pidfd, &status))
		return EXITSTATUS_UNKNOWN;
	if (WIFSIGNALED(status)) {
		*value_ret = WTERMSIG(status);
		return EXITSTATUS_KILLED;
	}
	*value_ret = WEXITSTATUS(status);
	return EXITSTATUS_EXITED;
}
