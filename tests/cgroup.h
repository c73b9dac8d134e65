/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A control group of the test's own, of version 2 or 1, wherever such a file
 * system is mounted. Needs root.
 */
#ifndef TESTS_CGROUP_H
#define TESTS_CGROUP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum cgroup_kind { CGROUP_FREEZER, CGROUP_MEMORY };

struct cgroup {
	char path[128]; /* "" = none */
	bool is_v2;
};

/* False where none can be made. */
bool cgroup_create(struct cgroup *ret, enum cgroup_kind kind);
/* The process with all its threads. It must have left, or ended, before cgroup_remove(). */
void cgroup_enter(struct cgroup *cgroup, pid_t pid);
/* Waits until it is so. */
void cgroup_freeze(struct cgroup *cgroup, bool frozen);
void cgroup_limit_memory(struct cgroup *cgroup, uint64_t bytes);
/* Thaw it and remove it. A zeroed struct is fine. */
void cgroup_remove(struct cgroup *cgroup);

#endif
