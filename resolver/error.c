// SPDX-License-Identifier: GPL-3.0-or-later
#include "resolver/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct error {
	enum error_code code;
	int errnum;
	char *message;
	char *hint;
};

static struct error out_of_memory = {
	.code = ERROR_MEMORY,
	.errnum = ENOMEM,
	.message = (char *)"out of memory",
};

struct error *error_memory(void)
{
	return &out_of_memory;
}

static struct error *error_new(enum error_code code, int errnum, char *message)
{
	struct error *err;

	if (!message)
		return &out_of_memory;
	err = calloc(1, sizeof(*err));
	if (!err) {
		free(message);
		return &out_of_memory;
	}
	err->code = code;
	err->errnum = errnum;
	err->message = message;
	return err;
}

static char *PRINTF(1, 0) format_text(const char *format, va_list args)
{
	char *text;

	return vasprintf(&text, format, args) < 0 ? NULL : text;
}

struct error *error_create(enum error_code code, const char *format, ...)
{
	va_list args;
	char *message;

	va_start(args, format);
	message = format_text(format, args);
	va_end(args);
	return error_new(code, 0, message);
}

static enum error_code code_of_errno(int errnum)
{
	switch (errnum) {
	case EPERM:
	case EACCES:
		return ERROR_DENIED;
	case ESRCH:
		return ERROR_GONE;
	case ENOMEM:
		return ERROR_MEMORY;
	default:
		return ERROR_OS;
	}
}

struct error *error_os(int errnum, const char *format, ...)
{
	va_list args;
	char *what, *message;

	va_start(args, format);
	what = format_text(format, args);
	va_end(args);
	if (!what)
		return &out_of_memory;
	if (asprintf(&message, "%s: %s", what, strerror(errnum)) < 0)
		message = NULL;
	free(what);
	return error_new(code_of_errno(errnum), errnum, message);
}

struct error *error_prefix(struct error *err, const char *format, ...)
{
	va_list args;
	char *prefix, *message;

	if (!err || err == &out_of_memory)
		return err;
	va_start(args, format);
	prefix = format_text(format, args);
	va_end(args);
	if (!prefix)
		return err;
	if (asprintf(&message, "%s: %s", prefix, err->message) >= 0) {
		free(err->message);
		err->message = message;
	}
	free(prefix);
	return err;
}

struct error *error_hint(struct error *err, const char *format, ...)
{
	va_list args;

	if (!err || err == &out_of_memory)
		return err;
	free(err->hint);
	va_start(args, format);
	err->hint = format_text(format, args);
	va_end(args);
	return err;
}

enum error_code error_code(const struct error *err)
{
	return err->code;
}

int error_errno(const struct error *err)
{
	return err->errnum;
}

const char *error_message(const struct error *err)
{
	return err->message;
}

const char *error_hint_text(const struct error *err)
{
	return err->hint;
}

bool error_is(const struct error *err, enum error_code code)
{
	return err && err->code == code;
}

void error_free(struct error *err)
{
	if (!err || err == &out_of_memory)
		return;
	free(err->message);
	free(err->hint);
	free(err);
}

void error_freep(struct error **err)
{
	error_free(*err);
}

void error_keep_first(struct error **first, struct error *err)
{
	if (*first)
		error_free(err);
	else
		*first = err;
}
