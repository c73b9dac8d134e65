// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/target_private.h"

#include <errno.h>
#include <inttypes.h>
#include <sys/uio.h>
#include <unistd.h>

/* From this size on process_vm_readv beats the memory file. */
#define READV_MIN 4096u
/* UIO_MAXIOV of the kernel, for one call. */
#define RANGES_MAX 1024u

static struct error *unmapped(const struct target *target, const char *what, uint64_t address)
{
	return error_create(ERROR_NOT_FOUND, "cannot %s memory of process %d at 0x%" PRIx64, what,
			    target->pid, address);
}

/* Up to the first page that is not there. */
static struct error *mem_read(const struct target *target, uint64_t address, void *buf, size_t size,
			      size_t *size_ret)
{
	size_t done = 0;

	while (done < size) {
		ssize_t got = pread(target->mem_fd, (char *)buf + done, size - done,
				    (off_t)(address + done));

		if (got == 0)
			return target_gone(target);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			break;
		done += (size_t)got;
	}
	*size_ret = done;
	return NULL;
}

/*
 * Of which address space process_vm_readv reads it does not say; after an exec
 * it is the new program's. So the memory file is asked for a byte afterwards.
 */
static struct error *vm_read(const struct target *target, uint64_t address, void *buf, size_t size,
			     size_t *size_ret)
{
	struct iovec local = {.iov_base = buf, .iov_len = size};
	struct iovec remote = {.iov_base = (void *)(uintptr_t)address, .iov_len = size};
	ssize_t got = process_vm_readv(target->file_tid, &local, 1, &remote, 1, 0);
	uint8_t byte;

	*size_ret = got > 0 ? (size_t)got : 0;
	if (got > 0 && pread(target->mem_fd, &byte, 1, (off_t)address) == 0)
		return target_gone(target);
	return NULL;
}

struct error *target_read_some(const struct target *target, uint64_t address, void *buf,
			       size_t size, size_t *size_ret)
{
	size_t done = 0, more;
	struct error *err = NULL;

	if (size >= READV_MIN)
		err = vm_read(target, address, buf, size, &done);
	if (!err && done < size) {
		err = mem_read(target, address + done, (char *)buf + done, size - done, &more);
		if (!err)
			done += more;
	}
	if (!err)
		*size_ret = done;
	return err;
}

struct error *target_read(const struct target *target, uint64_t address, void *buf, size_t size)
{
	size_t done;
	struct error *err = target_read_some(target, address, buf, size, &done);

	if (!err && done < size)
		err = unmapped(target, "read", address + done);
	return err;
}

/*
 * One call for @count ranges, at most RANGES_MAX. It stops in the first that is
 * not mapped; returns how many are complete.
 */
static size_t read_batch(const struct target *target, struct target_range *ranges, size_t count)
{
	struct iovec local[RANGES_MAX], remote[RANGES_MAX];
	ssize_t got;
	size_t i;

	for (i = 0; i < count; i++) {
		local[i] = (struct iovec){.iov_base = ranges[i].buf, .iov_len = ranges[i].size};
		remote[i] = (struct iovec){.iov_base = (void *)(uintptr_t)ranges[i].address,
					   .iov_len = ranges[i].size};
	}
	got = process_vm_readv(target->file_tid, local, count, remote, count, 0);
	for (i = 0; i < count && got >= (ssize_t)ranges[i].size; i++) {
		got -= (ssize_t)ranges[i].size;
		ranges[i].ok = true;
	}
	return i;
}

struct error *target_read_ranges(const struct target *target, struct target_range *ranges,
				 size_t count)
{
	size_t done = 0;

	while (done < count) {
		size_t batch = count - done < RANGES_MAX ? count - done : RANGES_MAX;
		size_t complete = read_batch(target, ranges + done, batch);
		struct target_range *range = &ranges[done + complete];
		struct error *err;
		size_t got;

		done += complete;
		if (complete == batch)
			continue;
		/* Perhaps readable through the memory file, which ignores protections. */
		err = mem_read(target, range->address, range->buf, range->size, &got);
		if (err)
			return err;
		range->ok = got == range->size;
		done++;
	}
	return count ? target_check(target) : NULL;
}

struct error *target_write(const struct target *target, uint64_t address, const void *buf,
			   size_t size)
{
	size_t done = 0;

	while (done < size) {
		ssize_t got = pwrite(target->mem_fd, (const char *)buf + done, size - done,
				     (off_t)(address + done));

		if (got == 0)
			return target_gone(target);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return unmapped(target, "write", address + done);
		done += (size_t)got;
	}
	return NULL;
}
