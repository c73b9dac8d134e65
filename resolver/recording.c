// SPDX-License-Identifier: GPL-3.0-or-later
#include "resolver/recording.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "resolver/cleanup.h"
#include "resolver/profile.h"
#include "resolver/zstream.h"

#define MAGIC	     "heapatt\n"
#define MAGIC_SIZE   8
#define VERSION_AT   8
#define ZERO_AT	     12
#define BODY_SIZE_AT 16
#define HEADER_SIZE  24
#define TRAILER_SIZE 8

static void put_le(uint8_t *to, uint64_t value, size_t size)
{
	for (size_t i = 0; i < size; i++)
		to[i] = value >> (8 * i);
}

static uint64_t get_le(const uint8_t *from, size_t size)
{
	uint64_t value = 0;

	for (size_t i = size; i-- > 0;)
		value = value << 8 | from[i];
	return value;
}

/*
 * FNV-1a. Each step is a bijection of the state, so that no single changed
 * byte goes unnoticed; the frame's own checksum covers only what comes out.
 */
static uint64_t checksum(uint64_t sum, const uint8_t *data, size_t size)
{
	for (size_t i = 0; i < size; i++)
		sum = (sum ^ data[i]) * 0x100000001b3ull;
	return sum;
}

#define CHECKSUM_START 0xcbf29ce484222325ull

static struct error *write_all(int fd, const void *data, size_t size, const char *name)
{
	const char *at = data;

	while (size) {
		ssize_t written = write(fd, at, size);

		if (written < 0 && errno == EINTR)
			continue;
		if (written <= 0)
			return error_os(written < 0 ? errno : EIO, "cannot write %s", name);
		at += written;
		size -= written;
	}
	return NULL;
}

static struct error *write_file(int fd, const char *name, const uint8_t *frame, size_t frame_size,
				size_t body_size)
{
	uint8_t header[HEADER_SIZE] = {0}, trailer[TRAILER_SIZE];
	uint64_t sum;
	struct error *err;

	memcpy(header, MAGIC, MAGIC_SIZE);
	put_le(header + VERSION_AT, RECORDING_VERSION, 4);
	put_le(header + BODY_SIZE_AT, body_size, 8);
	sum = checksum(CHECKSUM_START, header, sizeof(header));
	put_le(trailer, checksum(sum, frame, frame_size), sizeof(trailer));
	err = write_all(fd, header, sizeof(header), name);
	if (err)
		return err;
	err = write_all(fd, frame, frame_size, name);
	if (err)
		return err;
	err = write_all(fd, trailer, sizeof(trailer), name);
	if (err)
		return err;
	/* A full disk may show only here; files without a disk behind them have no fsync. */
	if (fsync(fd) && errno != EINVAL && errno != EROFS)
		return error_os(errno, "cannot write %s", name);
	return NULL;
}

struct error *recording_write(const struct profile *profile, int fd, const char *name)
{
	CLEANUP(freep) uint8_t *body = NULL;
	CLEANUP(freep) uint8_t *frame = NULL;
	size_t body_size, frame_size;
	struct error *err = recording_encode(profile, &body, &body_size);

	if (err)
		return err;
	if (body_size > RECORDING_MAX)
		return error_create(ERROR_UNSUPPORTED,
				    "cannot write %s: %zu bytes are more than a recording may hold",
				    name, body_size);
	err = zstream_compress(body, body_size, &frame, &frame_size);
	if (err)
		return error_prefix(err, "%s", name);
	return write_file(fd, name, frame, frame_size, body_size);
}

/* Read the whole regular file @path; no more than a recording can take. */
static struct error *read_file(const char *path, uint8_t **ret, size_t *size_ret)
{
	/* Non-blocking: a FIFO must not hang us; for files it means nothing. */
	CLEANUP(closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	CLEANUP(freep) uint8_t *data = NULL;
	size_t size, at = 0;
	struct stat st;

	if (fd < 0 || fstat(fd, &st))
		return error_os(errno, "cannot open %s", path);
	if (!S_ISREG(st.st_mode))
		return error_create(ERROR_FORMAT, "%s is not a file", path);
	if ((uint64_t)st.st_size > RECORDING_MAX + (RECORDING_MAX >> 4))
		return error_create(ERROR_FORMAT, "%s has %lld bytes, too many for a recording",
				    path, (long long)st.st_size);
	size = st.st_size;
	data = malloc(size + 1);
	if (!data)
		return error_memory();
	while (at < size) {
		ssize_t got = read(fd, data + at, size - at);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return error_os(errno, "cannot read %s", path);
		if (!got)
			break;
		at += got;
	}
	*ret = take(data);
	*size_ret = at;
	return NULL;
}

static struct error *check_envelope(const uint8_t *data, size_t size)
{
	uint64_t version;

	if (size < MAGIC_SIZE || memcmp(data, MAGIC, MAGIC_SIZE))
		return error_create(ERROR_FORMAT, "not a heapattach recording (byte 0)");
	if (size < HEADER_SIZE + TRAILER_SIZE)
		return error_create(ERROR_FORMAT, "cut off at byte %zu", size);
	version = get_le(data + VERSION_AT, 4);
	if (version > RECORDING_VERSION)
		return error_create(ERROR_UNSUPPORTED,
				    "made by a newer heapattach (format %llu, this one reads %u)",
				    (unsigned long long)version, RECORDING_VERSION);
	if (checksum(CHECKSUM_START, data, size - TRAILER_SIZE) !=
	    get_le(data + size - TRAILER_SIZE, TRAILER_SIZE))
		return error_create(ERROR_FORMAT,
				    "damaged or cut off: the checksum at byte %zu does not match",
				    size - TRAILER_SIZE);
	if (!version || get_le(data + ZERO_AT, 4))
		return error_create(ERROR_FORMAT, "no such format (byte %d)", VERSION_AT);
	if (get_le(data + BODY_SIZE_AT, 8) > RECORDING_MAX)
		return error_create(ERROR_FORMAT, "the body is too large (byte %d)", BODY_SIZE_AT);
	return NULL;
}

static struct error *parse_file(const uint8_t *data, size_t size, struct profile **ret)
{
	CLEANUP(freep) uint8_t *body = NULL;
	struct error *err = check_envelope(data, size);
	size_t body_size;

	if (err)
		return err;
	body_size = get_le(data + BODY_SIZE_AT, 8);
	err = zstream_decompress(data + HEADER_SIZE, size - HEADER_SIZE - TRAILER_SIZE, body_size,
				 &body);
	if (err)
		return error_prefix(err, "at byte %d", HEADER_SIZE);
	return recording_decode(body, body_size, ret);
}

struct error *recording_read(const char *path, struct profile **ret)
{
	CLEANUP(freep) uint8_t *data = NULL;
	size_t size = 0;
	struct error *err = read_file(path, &data, &size);

	if (err)
		return err;
	return error_prefix(parse_file(data, size, ret), "%s", path);
}
