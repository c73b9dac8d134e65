// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/journal.h"

#include <errno.h>
#include <sys/mman.h>

struct error *journal_create(struct journal **ret)
{
	struct journal *journal = mmap(NULL, sizeof(*journal), PROT_READ | PROT_WRITE,
				       MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (journal == MAP_FAILED)
		return error_os(errno, "cannot make room for the record of changes");
	journal_clear_fds(journal);
	*ret = journal;
	return NULL;
}

void journal_free(struct journal *journal)
{
	if (journal)
		munmap(journal, sizeof(*journal));
}

const struct ha_file *journal_file(const struct journal *journal, int fd)
{
	size_t i;

	for (i = 0; i < JOURNAL_FDS && fd >= 0; i++) {
		if (journal->fd[i] == fd)
			return &journal->fd_file[i];
	}
	return NULL;
}

void journal_forget_fd(struct journal *journal, int fd)
{
	size_t i;

	for (i = 0; i < JOURNAL_FDS; i++) {
		if (journal->fd[i] == fd)
			journal->fd[i] = -1;
	}
}

bool journal_has_made(const struct journal *journal, const struct ha_file *file)
{
	size_t i;

	for (i = 0; i < JOURNAL_MADE && i < journal->made_count; i++) {
		if (journal->made[i].device == file->device &&
		    journal->made[i].inode == file->inode)
			return true;
	}
	return false;
}

bool journal_add_fd(struct journal *journal, int fd, const struct ha_file *file)
{
	size_t i;

	if (!journal_has_made(journal, file))
		journal->made[journal->made_count++ % JOURNAL_MADE] = *file;
	/* It was free to be opened: whatever had that number is closed. */
	journal_forget_fd(journal, fd);
	for (i = 0; i < JOURNAL_FDS; i++) {
		if (journal->fd[i] < 0) {
			journal->fd[i] = fd;
			journal->fd_file[i] = *file;
			return true;
		}
	}
	return false;
}

void journal_clear_fds(struct journal *journal)
{
	size_t i;

	for (i = 0; i < JOURNAL_FDS; i++)
		journal->fd[i] = -1;
}

static bool mapping_covers(const struct journal_mapping *mapping, uint64_t address)
{
	return mapping->state != JOURNAL_NONE && address - mapping->address < mapping->size;
}

bool journal_covers(const struct journal *journal, uint64_t address)
{
	size_t i;

	for (i = 0; i < JOURNAL_LEFT; i++) {
		if (mapping_covers(&journal->left[i], address))
			return true;
	}
	return mapping_covers(&journal->gate, address) || mapping_covers(&journal->core, address) ||
	       mapping_covers(&journal->shm, address);
}
