// SPDX-License-Identifier: GPL-3.0-or-later
#include "resolver/maps.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "resolver/cleanup.h"

/* The kernel lists mappings while they change: how often to start over. */
enum { READ_TRIES = 4 };

/* What is left of a line; never runs past @end. */
struct cursor {
	const char *at, *end;
};

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return -1;
}

/* A number without sign, at least one digit, at most @max. */
static bool cursor_number(struct cursor *cursor, unsigned int base, uint64_t max, uint64_t *ret)
{
	const char *start = cursor->at;
	uint64_t value = 0;

	for (; cursor->at < cursor->end; cursor->at++) {
		int digit = hex_digit(*cursor->at);

		if (digit < 0 || (unsigned int)digit >= base)
			break;
		if (value > (max - (unsigned int)digit) / base)
			return false;
		value = value * base + (unsigned int)digit;
	}
	*ret = value;
	return cursor->at > start;
}

static bool cursor_char(struct cursor *cursor, char c)
{
	if (cursor->at == cursor->end || *cursor->at != c)
		return false;
	cursor->at++;
	return true;
}

/* One of two characters; *ret tells whether it was @yes. */
static bool cursor_flag(struct cursor *cursor, char yes, char no, bool *ret)
{
	*ret = cursor_char(cursor, yes);
	return *ret || cursor_char(cursor, no);
}

/*
 * A newline in a file name is written as "\012"; no other byte is escaped, so
 * a name that really holds these four characters cannot be told from it.
 */
static char *unescape_path(const char *text, size_t size)
{
	static const char newline[4] = "\\012";
	char *path = malloc(size + 1);
	char *to = path;

	if (!path)
		return NULL;
	while (size > 0) {
		if (size >= sizeof(newline) && memcmp(text, newline, sizeof(newline)) == 0) {
			*to++ = '\n';
			text += sizeof(newline);
			size -= sizeof(newline);
		} else {
			*to++ = *text++;
			size--;
		}
	}
	*to = '\0';
	return path;
}

static bool strip_suffix(const char *text, size_t *size, const char *suffix)
{
	size_t length = strlen(suffix);

	if (*size < length || memcmp(text + *size - length, suffix, length) != 0)
		return false;
	*size -= length;
	return true;
}

/* All of a line but its path; NULL or what is wrong with it. */
static const char *parse_fields(struct cursor *cursor, struct map *map)
{
	uint64_t major, minor;

	if (!cursor_number(cursor, 16, UINT64_MAX, &map->start) || !cursor_char(cursor, '-') ||
	    !cursor_number(cursor, 16, UINT64_MAX, &map->end) || !cursor_char(cursor, ' '))
		return "malformed address range";
	if (map->start >= map->end)
		return "empty address range";
	if (!cursor_flag(cursor, 'r', '-', &map->read) ||
	    !cursor_flag(cursor, 'w', '-', &map->write) ||
	    !cursor_flag(cursor, 'x', '-', &map->exec) ||
	    !cursor_flag(cursor, 's', 'p', &map->shared) || !cursor_char(cursor, ' '))
		return "malformed permissions";
	if (!cursor_number(cursor, 16, UINT64_MAX, &map->offset) || !cursor_char(cursor, ' '))
		return "malformed offset";
	if (!cursor_number(cursor, 16, UINT32_MAX, &major) || !cursor_char(cursor, ':') ||
	    !cursor_number(cursor, 16, UINT32_MAX, &minor) || !cursor_char(cursor, ' '))
		return "malformed device";
	if (!cursor_number(cursor, 10, UINT64_MAX, &map->inode))
		return "malformed inode";
	map->major = (uint32_t)major;
	map->minor = (uint32_t)minor;
	if (cursor->at < cursor->end && *cursor->at != ' ')
		return "malformed inode";
	return NULL;
}

static struct error *parse_line(struct cursor line, size_t number, struct map *map)
{
	const char *wrong = parse_fields(&line, map);
	size_t size;

	if (wrong)
		return error_create(ERROR_FORMAT, "line %zu: %s", number, wrong);
	while (cursor_char(&line, ' '))
		;
	size = (size_t)(line.end - line.at);
	if (memchr(line.at, '\0', size))
		return error_create(ERROR_FORMAT, "line %zu: NUL in the path", number);
	map->deleted = strip_suffix(line.at, &size, " (deleted)");
	map->path = unescape_path(line.at, size);
	return map->path ? NULL : error_memory();
}

/* Room for one more; the new element is zeroed and not counted yet. */
static struct error *maps_grow(struct maps *maps, size_t *capacity)
{
	if (maps->count == *capacity) {
		size_t wanted = *capacity ? *capacity * 2 : 64;
		struct map *grown = reallocarray(maps->map, wanted, sizeof(*grown));

		if (!grown)
			return error_memory();
		maps->map = grown;
		*capacity = wanted;
	}
	memset(&maps->map[maps->count], 0, sizeof(maps->map[0]));
	return NULL;
}

static struct error *parse_lines(const char *text, size_t size, struct maps *maps)
{
	const char *end = text + size;
	size_t capacity = 0;

	for (size_t number = 1; text < end; number++) {
		const char *newline = memchr(text, '\n', (size_t)(end - text));
		struct cursor line = {.at = text, .end = newline ? newline : end};
		struct error *err = maps_grow(maps, &capacity);
		struct map *map;

		if (err)
			return err;
		map = &maps->map[maps->count];
		err = parse_line(line, number, map);
		if (err)
			return err;
		maps->count++;
		if (maps->count > 1 && map->start < map[-1].end)
			return error_create(ERROR_FORMAT, "line %zu: mappings overlap", number);
		text = newline ? newline + 1 : end;
	}
	return NULL;
}

struct error *maps_parse(const char *text, size_t size, struct maps *ret)
{
	struct maps maps = {0};
	struct error *err = size ? parse_lines(text, size, &maps) : NULL;

	if (err) {
		maps_deinit(&maps);
		return err;
	}
	*ret = maps;
	return NULL;
}

/* The whole of a /proc file, whose size stat() does not tell; 0 or an errno. */
static int read_all(const char *path, char **text_ret, size_t *size_ret)
{
	CLEANUP(freep) char *text = NULL;
	CLEANUP(closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t size = 0, capacity = 0;

	if (fd < 0)
		return errno;
	for (;;) {
		ssize_t got;

		if (capacity - size < 4096) {
			char *grown = realloc(text, capacity + 65536);

			if (!grown)
				return ENOMEM;
			text = grown;
			capacity += 65536;
		}
		got = read(fd, text + size, capacity - size);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return errno;
		if (got == 0)
			break;
		size += (size_t)got;
	}
	*text_ret = take(text);
	*size_ret = size;
	return 0;
}

/* The map of the first thread that still has one; size 0 if there is none. */
static int read_from_threads(pid_t pid, char **text_ret, size_t *size_ret)
{
	char path[80];
	struct dirent *entry;
	DIR *tasks;

	*text_ret = NULL;
	*size_ret = 0;
	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	tasks = opendir(path);
	if (!tasks)
		return errno;
	while (*size_ret == 0 && (entry = readdir(tasks))) {
		long tid = strtol(entry->d_name, NULL, 10);

		if (tid <= 0)
			continue;
		free(*text_ret);
		*text_ret = NULL;
		snprintf(path, sizeof(path), "/proc/%d/task/%ld/maps", (int)pid, tid);
		if (read_all(path, text_ret, size_ret) != 0)
			*size_ret = 0; /* that thread exited meanwhile */
	}
	closedir(tasks);
	return 0;
}

static struct error *read_text(pid_t pid, char **text_ret, size_t *size_ret)
{
	char *text = NULL;
	size_t size = 0;
	char path[40];
	int errnum;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	errnum = read_all(path, &text, &size);
	if (!errnum && size == 0) {
		free(text);
		errnum = read_from_threads(pid, &text, &size);
	}
	if (errnum == ENOENT || errnum == ESRCH)
		return error_create(ERROR_GONE, "there is no process %d", (int)pid);
	if (errnum)
		return error_os(errnum, "cannot read %s", path);
	if (size == 0) {
		free(text);
		return error_create(ERROR_GONE,
				    "process %d has no memory: it exited or is a kernel thread",
				    (int)pid);
	}
	*text_ret = text;
	*size_ret = size;
	return NULL;
}

struct error *maps_read(pid_t pid, struct maps *ret)
{
	for (int tries = 1;; tries++) {
		CLEANUP(freep) char *text = NULL;
		size_t size = 0;
		struct error *err = read_text(pid, &text, &size);

		if (err)
			return err;
		err = maps_parse(text, size, ret);
		/* Mappings that were merged between two reads may seem to overlap. */
		if (error_is(err, ERROR_FORMAT) && tries < READ_TRIES) {
			error_free(err);
			continue;
		}
		return error_prefix(err, "/proc/%d/maps", (int)pid);
	}
}

const struct map *maps_find(const struct maps *maps, uint64_t address)
{
	size_t low = 0, high = maps->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (address >= maps->map[middle].end)
			low = middle + 1;
		else
			high = middle;
	}
	return low < maps->count && address >= maps->map[low].start ? &maps->map[low] : NULL;
}

void maps_deinit(struct maps *maps)
{
	for (size_t i = 0; i < maps->count; i++)
		free(maps->map[i].path);
	free(maps->map);
	*maps = (struct maps){0};
}
