/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Reading and writing somebody's memory through a callback, so that the parts
 * that parse a target's memory run the same on a live process, on a test's
 * byte array and under the fuzzer.
 *
 * Addresses are the target's. A read or write is whole or an error.
 */
#ifndef INJECTOR_MEMORY_H
#define INJECTOR_MEMORY_H

#include "resolver/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct target;

/* One of many words to be read. */
struct memory_word {
	uint64_t address;
	uint64_t value; /* valid if ok */
	bool ok;
};

struct memory_reader {
	/* Fill @buf with @size bytes from @addr, or fail. */
	struct error *(*read)(void *ctx, uint64_t addr, void *buf, size_t size);
	/* As many bytes as there are before the first gap. NULL: see memory_read_some(). */
	size_t (*some)(void *ctx, uint64_t addr, void *buf, size_t size);
	/*
	 * Which of the @count pages from @addr on have memory behind them now.
	 * NULL: all. See memory_resident().
	 */
	bool (*resident)(void *ctx, uint64_t addr, size_t count, bool *ret);
	/* Many words at once. NULL: one after the other. See memory_try_words(). */
	void (*words)(void *ctx, struct memory_word *words, size_t count);
	void *ctx;
};

struct memory_writer {
	/* Store @size bytes at @addr, read-only pages included, or fail. */
	struct error *(*write)(void *ctx, uint64_t addr, const void *buf, size_t size);
	void *ctx;
};

/* Reader and writer of a live target; valid as long as @target is. */
struct memory_reader memory_reader_of(struct target *target);
struct memory_writer memory_writer_of(struct target *target);

MUST_CHECK struct error *memory_read(const struct memory_reader *memory, uint64_t addr, void *buf,
				     size_t size);
MUST_CHECK struct error *memory_read_u64(const struct memory_reader *memory, uint64_t addr,
					 uint64_t *ret);

/* True if the read succeeded; for probing, where failure is an answer. */
bool memory_try(const struct memory_reader *memory, uint64_t addr, void *buf, size_t size);
bool memory_try_u64(const struct memory_reader *memory, uint64_t addr, uint64_t *ret);

/* Read up to @size bytes; returns how many there were before the first that is not mapped. */
size_t memory_read_some(const struct memory_reader *memory, uint64_t addr, void *buf, size_t size);

/*
 * Read @count words that lie anywhere, of a live target with few system calls: the
 * fewer if words that lie together are neighbours here, too.
 */
void memory_try_words(const struct memory_reader *memory, struct memory_word *words, size_t count);

#define MEMORY_RESIDENT_MAX 64u /* pages asked for at once */

/*
 * Which of @count pages from @addr on (page-aligned) have memory behind them.
 * Whoever reads much of somebody's writable memory asks first: the kernel gives
 * a page to every untouched address that is read from outside, and the target
 * would pay for it. False if it cannot be told; read nothing then.
 */
bool memory_resident(const struct memory_reader *memory, uint64_t addr, size_t count, bool *ret);

/*
 * Read a string of at most @max bytes without its NUL. ERROR_FORMAT if it is
 * longer. The caller frees *ret.
 */
MUST_CHECK struct error *memory_read_string(const struct memory_reader *memory, uint64_t addr,
					    size_t max, char **ret);

#endif
