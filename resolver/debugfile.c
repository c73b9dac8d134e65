// SPDX-License-Identifier: GPL-3.0-or-later
#include "resolver/debugfile.h"

#include "resolver/cleanup.h"
#include "resolver/rootfs.h"

#include <elf.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>

static const char debug_directory[] = "/usr/lib/debug";

/* What a candidate must be to be taken. */
struct wanted {
	const uint8_t *build_id;
	size_t build_id_size; /* 0: the CRC decides */
	uint32_t crc;
	bool has_crc;
};

struct search {
	const char *root;
	struct wanted wanted;
	struct elffile *found;
	char *refused; /* why the last candidate that was there was not taken */
};

static void search_deinit(struct search *search)
{
	elffile_free(search->found);
	free(search->refused);
}

/* ---- is it the right one? */

static struct error *crc_of_file(const struct elffile *file, uint32_t *ret)
{
	enum { CHUNK = 256 << 10 };
	CLEANUP(freep) uint8_t *chunk = malloc(CHUNK);
	uint64_t size = elffile_size(file);
	uLong crc = crc32(0, NULL, 0);

	if (!chunk)
		return error_memory();
	for (uint64_t at = 0; at < size; at += CHUNK) {
		size_t count = size - at < CHUNK ? (size_t)(size - at) : CHUNK;
		struct error *err = elffile_read(file, at, chunk, count);

		if (err)
			return err;
		crc = crc32(crc, chunk, (uInt)count);
	}
	*ret = (uint32_t)crc;
	return NULL;
}

static struct error *check_build_id(const struct elffile *file, const struct wanted *wanted)
{
	const uint8_t *build_id;
	size_t size = elffile_build_id(file, &build_id);

	if (size == wanted->build_id_size && memcmp(build_id, wanted->build_id, size) == 0)
		return NULL;
	return error_create(ERROR_NOT_FOUND, "%s: has another build id", elffile_name(file));
}

/* A link may lead back to the stripped file itself, which has the right build id. */
static bool has_contents(const struct elffile *file)
{
	const struct elffile_section *section;
	size_t count = elffile_sections(file, &section);

	for (size_t i = 0; i < count; i++) {
		if (section[i].type == SHT_SYMTAB ||
		    (section[i].type != SHT_NOBITS &&
		     (strncmp(section[i].name, ".debug_", 7) == 0 ||
		      strncmp(section[i].name, ".zdebug_", 8) == 0)))
			return true;
	}
	return false;
}

static struct error *check_candidate(const struct elffile *file, const struct wanted *wanted)
{
	struct error *err;
	uint32_t crc = 0;

	if (!has_contents(file))
		return error_create(ERROR_NOT_FOUND, "%s: holds no debug info", elffile_name(file));
	if (wanted->build_id_size)
		return check_build_id(file, wanted);
	if (!wanted->has_crc)
		return error_create(ERROR_NOT_FOUND, "%s: nothing to check it by",
				    elffile_name(file));
	err = crc_of_file(file, &crc);
	if (err)
		return err;
	if (crc != wanted->crc)
		return error_create(ERROR_NOT_FOUND, "%s: its CRC is %08" PRIx32 ", not %08" PRIx32,
				    elffile_name(file), crc, wanted->crc);
	return NULL;
}

/* ---- trying candidates */

static struct error *try_root(struct search *search, const char *root, const char *path)
{
	CLEANUP(elffile_freep) struct elffile *file = NULL;
	CLEANUP(closep) int fd = -1;
	struct error *err = rootfs_open(root, path, &fd);

	if (err) {
		/* Not there is the usual case and no reason worth telling. */
		error_free(err);
		return NULL;
	}
	err = elffile_open_fd(fd, path, &file);
	if (!err)
		err = check_candidate(file, &search->wanted);
	if (!err)
		search->found = take(file);
	if (!err || error_is(err, ERROR_MEMORY))
		return err;
	free(search->refused);
	search->refused = strdup(error_message(err));
	error_free(err);
	return NULL;
}

/* The path is made by the format; too long a one is not there. */
static struct error *PRINTF(2, 3) try(struct search *search, const char *format, ...)
{
	char path[PATH_MAX];
	struct error *err = NULL;
	va_list args;
	int length;

	va_start(args, format);
	length = vsnprintf(path, sizeof(path), format, args);
	va_end(args);
	if (search->found || length < 0 || (size_t)length >= sizeof(path))
		return NULL;
	if (search->root)
		err = try_root(search, search->root, path);
	if (!err && !search->found)
		err = try_root(search, NULL, path);
	return err;
}

static struct error *try_build_id(struct search *search)
{
	const struct wanted *wanted = &search->wanted;
	char hex[2 * 64 + 1];

	if (wanted->build_id_size < 2 || wanted->build_id_size > 64)
		return NULL;
	for (size_t i = 0; i < wanted->build_id_size; i++)
		snprintf(hex + 2 * i, 3, "%02x", wanted->build_id[i]);
	return try(search, "%s/.build-id/%.2s/%s.debug", debug_directory, hex, hex + 2);
}

/* Length of the directory part of @path, without the last slash. */
static int directory_length(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? (int)(slash - path) : 0;
}

static struct error *try_debuglink(struct search *search, const char *path, const char *name)
{
	int length = directory_length(path);
	struct error *err;

	err = try(search, "%.*s/%s", length, path, name);
	if (!err)
		err = try(search, "%.*s/.debug/%s", length, path, name);
	if (!err)
		err = try(search, "%s%.*s/%s", debug_directory, length, path, name);
	return err;
}

static struct error *finish(struct search *search, struct elffile **ret)
{
	if (search->found) {
		*ret = take(search->found);
		return NULL;
	}
	if (search->refused)
		return error_create(ERROR_NOT_FOUND, "debug file refused: %s", search->refused);
	return error_create(ERROR_NOT_FOUND, "no debug file found below %s", debug_directory);
}

struct error *debugfile_open(struct elffile *file, const char *path, const char *root,
			     struct elffile **ret)
{
	CLEANUP(search_deinit) struct search search = {.root = root};
	struct wanted *wanted = &search.wanted;
	const char *link = elffile_debuglink(file, &wanted->crc);
	struct error *err;

	wanted->has_crc = link;
	wanted->build_id_size = elffile_build_id(file, &wanted->build_id);
	err = try_build_id(&search);
	if (!err && link && !search.found)
		err = try_debuglink(&search, path, link);
	return err ? err : finish(&search, ret);
}

struct error *debugfile_open_alt(struct elffile *file, const char *path, const char *root,
				 struct elffile **ret)
{
	CLEANUP(search_deinit) struct search search = {.root = root};
	struct elffile_bytes build_id;
	const char *name = elffile_debugaltlink(file, &build_id);
	struct error *err;

	if (!name || !build_id.size)
		return error_create(ERROR_NOT_FOUND, "%s: names no dwz file", elffile_name(file));
	search.wanted.build_id = build_id.data;
	search.wanted.build_id_size = build_id.size;
	err = try_build_id(&search);
	if (!err && name[0] == '/')
		err = try(&search, "%s", name);
	else if (!err)
		err = try(&search, "%.*s/%s", directory_length(path), path, name);
	return err ? err : finish(&search, ret);
}
