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

struct error *journal_add_slot(struct journal *journal, const struct journal_slot *slot)
{
	if (journal->slots == JOURNAL_SLOTS)
		return error_create(ERROR_MEMORY, "more than %d slots to hook", JOURNAL_SLOTS);
	journal->slot[journal->slots] = *slot;
	/* A reader in another process may come after our death. */
	__atomic_store_n(&journal->slots, journal->slots + 1, __ATOMIC_RELEASE);
	return NULL;
}

bool journal_add_fd(struct journal *journal, int fd)
{
	size_t i;

	for (i = 0; i < JOURNAL_FDS; i++) {
		if (journal->fd[i] < 0) {
			journal->fd[i] = fd;
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

size_t journal_slots_left(const struct journal *journal)
{
	size_t left = 0, i;

	for (i = 0; i < journal->slots; i++)
		left += !journal->slot[i].restored;
	return left;
}
