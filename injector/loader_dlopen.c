// SPDX-License-Identifier: GPL-3.0-or-later
/*
 * The default loader: entry comes in by dlopen on the borrowed thread, so that
 * the target's own unwinders and exceptions know its frames. Core and shm are
 * mapped by raw system calls as always. Needs glibc and a safe point.
 */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "injector/image.h"
#include "injector/job.h"

/* What the loader shall call entry from now on; shorter than "/proc/self/fd/N". */
#define ENTRY_NAME "[heapattach]"

static const char *dlopen_unusable(const struct job *job)
{
	const char *why;

	/* dlopen opens, maps and protects: one forbidden call may kill the target. */
	if (job->filtered)
		return "the target runs under a seccomp filter";
	return loaderinfo_can_dlopen(job->loader_info, &why) ? NULL : why;
}

/*
 * The loader keeps the path in two places and compares it with the paths of
 * later dlopens: the descriptor's number will mean another file by then.
 */
static struct error *names_replace(struct job *job, uint64_t link_map)
{
	const struct ha_boot *boot = shm_region(job->shm, HA_REGION_BOOT);
	char path[sizeof(boot->path)], name[sizeof(boot->path)] = ENTRY_NAME;
	uint64_t addresses[2];
	struct error *err;
	size_t i, length;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", job->inject.remote_entry);
	length = strlen(path);
	err = loaderinfo_names(&job->reader, link_map, path, addresses);
	for (i = 0; i < 2 && !err; i++)
		err = job->writer.write(job->writer.ctx, addresses[i], name, length);
	return err;
}

static struct error *window_loaded(void *context, uint64_t link_map)
{
	struct job *job = context;
	struct journal_mapping *entry = &job->journal->entry;
	struct error *err;

	/* l_addr is the first word of a link map. */
	err = memory_read_u64(&job->reader, link_map, &entry->address);
	if (err)
		return err;
	entry->size = HA_ENTRY_SIZE;
	entry->state = JOURNAL_THERE;
	job->journal->entry_by_loader = 1;
	err = names_replace(job, link_map);
	return err ? err : job_hook(job, entry->address);
}

static struct error *window_again(void *context, uint64_t link_map)
{
	struct job *job = context;

	(void)link_map;
	return job_hook(job, job->journal->entry.address);
}

static struct error *dlopen_attach(struct job *job, struct borrow *borrow, uint32_t lock_timeout_us,
				   struct inject_boot_result *boot)
{
	bool again = job->journal->entry.state == JOURNAL_THERE;
	struct error *err;

	job->inject.boot_follows = true;
	err = inject_place(&job->inject, borrow);
	if (!err)
		err = inject_boot(&job->inject, borrow, again ? HA_BOOT_LOCK_ONLY : HA_BOOT_DLOPEN,
				  lock_timeout_us, again ? window_again : window_loaded, job, boot);
	return err ? err : job_switch_on(job, boot->let_go ? NULL : borrow);
}

const struct loader loader_dlopen = {
	.name = "dlopen",
	.needs_safe_point = true,
	.unusable = dlopen_unusable,
	.image = image_entry_file,
	.attach = dlopen_attach,
};
