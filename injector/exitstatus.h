/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * How a process ended that is not our child.
 *
 * All functions may be called from any thread.
 */
#ifndef INJECTOR_EXITSTATUS_H
#define INJECTOR_EXITSTATUS_H

#include <stdint.h>
#include <sys/types.h>

enum exitstatus {
	EXITSTATUS_UNKNOWN, /* its parent took the status before we looked, on a kernel before 6.15
			     */
	EXITSTATUS_EXITED,  /* value: its exit status */
	EXITSTATUS_KILLED,  /* value: the signal */
};

/*
 * @pidfd became readable: the process @pid has ended. While it is a zombie its
 * status is in /proc; after that the kernel keeps it for the holders of pidfds.
 */
enum exitstatus exitstatus_read(int pidfd, pid_t pid, int32_t *value_ret);

#endif
