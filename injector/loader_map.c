// SPDX-License-Identifier: GPL-3.0-or-later
/*
 * The other loader: entry is mapped by raw system calls, the C library of the
 * target is not asked for anything but a try at the loader's lock. For musl,
 * for targets where dlopen cannot work, and where no safe point was met. The
 * target's unwinders do not know entry, so that an exception cannot pass
 * through it: throwing operators new are not hooked then.
 */
#include "injector/image.h"
#include "injector/job.h"

static const char *map_unusable(const struct job *job)
{
	(void)job;
	return NULL;
}

static struct error *window_mapped(void *context, uint64_t link_map)
{
	struct job *job = context;

	(void)link_map;
	return job_hook(job, job->journal->entry.address);
}

static struct error *map_attach(struct job *job, struct borrow *borrow, uint32_t lock_timeout_us,
				struct inject_boot_result *boot)
{
	bool again = job->journal->entry.state == JOURNAL_THERE;
	struct error *err;

	job->inject.boot_follows = job_can_lock(job);
	err = inject_place(&job->inject, borrow);
	if (!err && !again)
		err = inject_map_entry(&job->inject, borrow);
	if (err)
		return err;
	err = job_window(job, borrow, lock_timeout_us, window_mapped, boot);
	return err ? err : job_switch_on(job, boot->let_go ? NULL : borrow);
}

const struct loader loader_map = {
	.name = "map",
	.needs_safe_point = false,
	.unusable = map_unusable,
	.image = image_entry_memory,
	.attach = map_attach,
};
