/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/cgroup.h"

#include "resolver/cleanup.h"
#include "tests/tests.h"

#include <mntent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool file_write(const struct cgroup *cgroup, const char *name, const char *text)
{
	char path[192];

	snprintf(path, sizeof(path), "%s/%s", cgroup->path, name);
	CLEANUP(fclosep) FILE *file = fopen(path, "we");
	return file && fputs(text, file) >= 0 && !fflush(file);
}

static bool file_has(const struct cgroup *cgroup, const char *name, const char *part)
{
	char path[192];

	snprintf(path, sizeof(path), "%s/%s", cgroup->path, name);
	CLEANUP(freep) char *text = tests_read_file(path);
	return text && strstr(text, part);
}

static bool file_exists(const struct cgroup *cgroup, const char *name)
{
	char path[192];

	snprintf(path, sizeof(path), "%s/%s", cgroup->path, name);
	return access(path, W_OK) == 0;
}

/* A folder there is a group; it has the files of the controllers that are on. */
static bool create_in(struct cgroup *cgroup, const struct mntent *mount, enum cgroup_kind kind)
{
	const char *needed;

	cgroup->is_v2 = strcmp(mount->mnt_type, "cgroup2") == 0;
	if (!cgroup->is_v2 && !hasmntopt(mount, kind == CGROUP_FREEZER ? "freezer" : "memory"))
		return false;
	if (kind == CGROUP_FREEZER)
		needed = cgroup->is_v2 ? "cgroup.freeze" : "freezer.state";
	else
		needed = cgroup->is_v2 ? "memory.max" : "memory.limit_in_bytes";
	snprintf(cgroup->path, sizeof(cgroup->path), "%s/heapattach-%d", mount->mnt_dir, getpid());
	if (mkdir(cgroup->path, 0755) == 0 && file_exists(cgroup, needed))
		return true;
	cgroup_remove(cgroup);
	return false;
}

bool cgroup_create(struct cgroup *ret, enum cgroup_kind kind)
{
	const struct mntent *mount;
	bool made = false;
	FILE *mounts = setmntent("/proc/self/mounts", "re");

	*ret = (struct cgroup){0};
	while (mounts && !made && (mount = getmntent(mounts))) {
		if (!strcmp(mount->mnt_type, "cgroup2") || !strcmp(mount->mnt_type, "cgroup"))
			made = create_in(ret, mount, kind);
	}
	if (mounts)
		endmntent(mounts);
	return made;
}

void cgroup_enter(struct cgroup *cgroup, pid_t pid)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", pid);
	ck_assert(file_write(cgroup, "cgroup.procs", text));
}

static bool is_frozen(const struct cgroup *cgroup)
{
	return cgroup->is_v2 ? file_has(cgroup, "cgroup.events", "frozen 1")
			     : file_has(cgroup, "freezer.state", "FROZEN");
}

void cgroup_freeze(struct cgroup *cgroup, bool frozen)
{
	ck_assert(cgroup->is_v2
			  ? file_write(cgroup, "cgroup.freeze", frozen ? "1" : "0")
			  : file_write(cgroup, "freezer.state", frozen ? "FROZEN" : "THAWED"));
	for (int i = 0; is_frozen(cgroup) != frozen; i++) {
		ck_assert_int_lt(i, 2000);
		wait_ms(5);
	}
}

void cgroup_limit_memory(struct cgroup *cgroup, uint64_t bytes)
{
	char text[24];

	snprintf(text, sizeof(text), "%lu", bytes);
	ck_assert(file_write(cgroup, cgroup->is_v2 ? "memory.max" : "memory.limit_in_bytes", text));
}

void cgroup_remove(struct cgroup *cgroup)
{
	if (!cgroup->path[0])
		return;
	file_write(cgroup, "cgroup.freeze", "0");
	for (int i = 0; rmdir(cgroup->path) && i < 100; i++)
		wait_ms(10);
	cgroup->path[0] = '\0';
}
