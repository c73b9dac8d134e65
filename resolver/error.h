/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Errors of the host side: an object that says what failed, on what, and why.
 *
 * A function that can fail returns `struct error *`: NULL is success. The
 * caller writes `if (err) return err;` in the open, or handles the error and
 * calls error_free(). Whoever knows the path, PID or address puts it into the
 * message; a message is one sentence without a full stop or newline.
 *
 * All functions may be called from any thread; an error belongs to one thread
 * at a time.
 */
#ifndef RESOLVER_ERROR_H
#define RESOLVER_ERROR_H

#include <stdbool.h>

#define MUST_CHECK   __attribute__((warn_unused_result))
#define PRINTF(f, a) __attribute__((format(printf, f, a)))

enum error_code {
	ERROR_OS,	   /* a system call failed; error_errno() has its errno */
	ERROR_MEMORY,	   /* no memory on our side */
	ERROR_GONE,	   /* the target or thread exited, or became another program */
	ERROR_TIMEOUT,	   /* a deadline passed */
	ERROR_FAULT,	   /* code run on a borrowed thread raised a signal */
	ERROR_FORMAT,	   /* malformed input: ELF file, recording, shared table, message */
	ERROR_UNSUPPORTED, /* the target or file is of a kind that we do not handle */
	ERROR_DENIED,	   /* a privilege is missing */
	ERROR_BUSY,	   /* try again later: unsafe point, lock held, already traced */
	ERROR_NOT_FOUND,   /* a symbol, file or address that is not there */
	ERROR_USAGE,	   /* bad command line */
	ERROR_INTERRUPTED, /* the user asked to stop */
};

struct error;

/*
 * Make an error. Never returns NULL: without memory it returns a static
 * ERROR_MEMORY object, which error_free() accepts.
 */
MUST_CHECK struct error *error_create(enum error_code code, const char *format, ...) PRINTF(2, 3);

/*
 * Make an ERROR_OS error (ERROR_DENIED for EPERM and EACCES, ERROR_GONE for
 * ESRCH); the message gets ": " and the text of @errnum appended.
 */
MUST_CHECK struct error *error_os(int errnum, const char *format, ...) PRINTF(2, 3);

/* The static out-of-memory error. */
MUST_CHECK struct error *error_memory(void);

/*
 * Put "context: " before the message and keep code and errno. Takes @err and
 * returns it (NULL stays NULL), so that callers can write
 * `return error_prefix(err, "%s", path);`.
 */
MUST_CHECK struct error *error_prefix(struct error *err, const char *format, ...) PRINTF(2, 3);

/*
 * Set the way out: one sentence that tells the user what to do, printed on a
 * line of its own. Takes @err and returns it; NULL stays NULL.
 */
MUST_CHECK struct error *error_hint(struct error *err, const char *format, ...) PRINTF(2, 3);

enum error_code error_code(const struct error *err);
/* 0 unless the error came from a system call. */
int error_errno(const struct error *err);
/* Valid until error_free(). */
const char *error_message(const struct error *err);
/* NULL if no hint was set. Valid until error_free(). */
const char *error_hint_text(const struct error *err);
bool error_is(const struct error *err, enum error_code code);

/* NULL is fine. */
void error_free(struct error *err);

/* Scope guard: `CLEANUP(error_freep) struct error *ignored = ...;` */
void error_freep(struct error **err);
/* For what goes on after a failing step: @err becomes *first, or is freed if there was one before.
 */
void error_keep_first(struct error **first, struct error *err);

#endif
