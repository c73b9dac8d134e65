// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/memory.h"

#include "injector/target.h"
#include "resolver/cleanup.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A string is read in pieces that never cross a page: the next may be unmapped. */
#define PIECE 256u

/* Words in so many bytes of one page are read as one range. */
#define SPAN_MAX       1024u
#define RANGES_AT_ONCE 32u

static struct error *read_from_target(void *ctx, uint64_t addr, void *buf, size_t size)
{
	return target_read(ctx, addr, buf, size);
}

static size_t some_of_target(void *ctx, uint64_t addr, void *buf, size_t size)
{
	size_t done = 0;

	error_free(target_read_some(ctx, addr, buf, size, &done));
	return done;
}

static struct error *write_to_target(void *ctx, uint64_t addr, const void *buf, size_t size)
{
	return target_write(ctx, addr, buf, size);
}

/* /proc/PID/pagemap has 8 bytes for each page; bit 63: it is in memory. */
#define PAGEMAP_PRESENT (1ull << 63)
#define PAGE_SIZE_BYTES 4096u

static bool resident_in_target(void *ctx, uint64_t addr, size_t count, bool *ret)
{
	CLEANUP(closep) int fd = -1;
	uint64_t entry[MEMORY_RESIDENT_MAX];
	size_t size = count * sizeof(*entry);
	struct error *err;

	if (count > MEMORY_RESIDENT_MAX)
		return false;
	err = target_open_file(ctx, "pagemap", O_RDONLY, &fd);
	if (err) {
		error_free(err);
		return false;
	}
	if (pread(fd, entry, size, (off_t)(addr / PAGE_SIZE_BYTES * sizeof(*entry))) !=
	    (ssize_t)size)
		return false;
	for (size_t i = 0; i < count; i++)
		ret[i] = entry[i] & PAGEMAP_PRESENT;
	return true;
}

static uint64_t word_end(const struct memory_word *word)
{
	return word->address + sizeof(word->value);
}

/* How many words from the first on are in order, and near enough to be one range? */
static size_t words_together(const struct memory_word *words, size_t count)
{
	uint64_t first = words->address, limit = (first / PAGE_SIZE_BYTES + 1) * PAGE_SIZE_BYTES;
	size_t n = 1;

	if (limit > first + SPAN_MAX)
		limit = first + SPAN_MAX;
	while (n < count && words[n].address >= words[n - 1].address &&
	       word_end(&words[n]) <= limit)
		n++;
	return n;
}

/* The first @count words out of one range of bytes. */
static void words_fill(struct memory_word *words, size_t count, const struct target_range *range)
{
	for (size_t i = 0; i < count; i++) {
		words[i].ok = range->ok;
		if (range->ok)
			memcpy(&words[i].value,
			       (uint8_t *)range->buf + (words[i].address - range->address),
			       sizeof(words->value));
	}
}

/* The kernel looks up the page of each range anew, which takes longer than to copy it. */
static void words_of_target(void *ctx, struct memory_word *words, size_t count)
{
	uint8_t bytes[RANGES_AT_ONCE][SPAN_MAX];
	struct target_range ranges[RANGES_AT_ONCE];
	size_t taken[RANGES_AT_ONCE], n, i;

	while (count) {
		struct memory_word *next = words;

		for (n = 0; n < RANGES_AT_ONCE && count; n++) {
			taken[n] = words_together(next, count);
			ranges[n] = (struct target_range){
				.address = next->address,
				.buf = bytes[n],
				.size = word_end(&next[taken[n] - 1]) - next->address,
			};
			next += taken[n];
			count -= taken[n];
		}
		error_free(target_read_ranges(ctx, ranges, n));
		for (i = 0; i < n; i++) {
			words_fill(words, taken[i], &ranges[i]);
			words += taken[i];
		}
	}
}

struct memory_reader memory_reader_of(struct target *target)
{
	return (struct memory_reader){
		.read = read_from_target,
		.some = some_of_target,
		.resident = resident_in_target,
		.words = words_of_target,
		.ctx = target,
	};
}

struct memory_writer memory_writer_of(struct target *target)
{
	return (struct memory_writer){.write = write_to_target, .ctx = target};
}

struct error *memory_read(const struct memory_reader *memory, uint64_t addr, void *buf, size_t size)
{
	if (size && addr + (size - 1) < addr)
		return error_create(ERROR_FORMAT, "a read of %zu bytes at 0x%llx wraps around",
				    size, (unsigned long long)addr);
	return memory->read(memory->ctx, addr, buf, size);
}

struct error *memory_read_u64(const struct memory_reader *memory, uint64_t addr, uint64_t *ret)
{
	return memory_read(memory, addr, ret, sizeof(*ret));
}

bool memory_resident(const struct memory_reader *memory, uint64_t addr, size_t count, bool *ret)
{
	if (memory->resident)
		return memory->resident(memory->ctx, addr, count, ret);
	for (size_t i = 0; i < count; i++)
		ret[i] = true;
	return true;
}

bool memory_try(const struct memory_reader *memory, uint64_t addr, void *buf, size_t size)
{
	CLEANUP(error_freep) struct error *err = memory_read(memory, addr, buf, size);

	return !err;
}

bool memory_try_u64(const struct memory_reader *memory, uint64_t addr, uint64_t *ret)
{
	return memory_try(memory, addr, ret, sizeof(*ret));
}

size_t memory_read_some(const struct memory_reader *memory, uint64_t addr, void *buf, size_t size)
{
	size_t done = 0;

	if (memory->some)
		return memory->some(memory->ctx, addr, buf, size);
	while (done < size) {
		uint64_t at = addr + done;
		size_t chunk = PAGE_SIZE_BYTES - at % PAGE_SIZE_BYTES;

		if (chunk > size - done)
			chunk = size - done;
		if (!memory_try(memory, at, (uint8_t *)buf + done, chunk))
			break;
		done += chunk;
	}
	return done;
}

void memory_try_words(const struct memory_reader *memory, struct memory_word *words, size_t count)
{
	if (memory->words) {
		memory->words(memory->ctx, words, count);
		return;
	}
	for (size_t i = 0; i < count; i++)
		words[i].ok = memory_try_u64(memory, words[i].address, &words[i].value);
}

struct error *memory_read_string(const struct memory_reader *memory, uint64_t addr, size_t max,
				 char **ret)
{
	CLEANUP(freep) char *text = NULL;
	size_t length = 0, room = 0;
	struct error *err;

	for (;;) {
		size_t piece = PIECE - (addr + length) % PIECE;
		char *grown, *end;

		if (length + piece + 1 > room) {
			room = length + piece + 1;
			grown = realloc(text, room);
			if (!grown)
				return error_memory();
			text = grown;
		}
		err = memory_read(memory, addr + length, text + length, piece);
		if (err)
			return err;
		end = memchr(text + length, '\0', piece);
		length = end ? (size_t)(end - text) : length + piece;
		if (length > max)
			return error_create(ERROR_FORMAT,
					    "the string at 0x%llx is longer than %zu bytes",
					    (unsigned long long)addr, max);
		if (end)
			break;
	}
	*ret = take(text);
	return NULL;
}
