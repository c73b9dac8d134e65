/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Shared by inject.c and inject_fds.c alone. */
#ifndef INJECTOR_INJECT_PRIVATE_H
#define INJECTOR_INJECT_PRIVATE_H

#include <stddef.h>
#include <stdint.h>

#include "injector/borrow.h"
#include "injector/inject.h"
#include "resolver/error.h"

/*
 * The gate as scratch memory:
 *
 *	+0     struct ha_gate, left alone
 *	+32    int[2] of socketpair
 *	+64    struct msghdr
 *	+128   struct iovec
 *	+192   the message's one byte
 *	+256   control buffer
 *	+512   the frame that guards calls on T (borrow_guard)
 */
#define SCRATCH_PAIR	32
#define SCRATCH_HEADER	64
#define SCRATCH_IOVEC	128
#define SCRATCH_DATA	192
#define SCRATCH_CONTROL 256
#define CONTROL_SIZE	128
#define SCRATCH_GUARD	512

/* A call on T whose failure is an error that names the call. */
MUST_CHECK struct error *inject_call(struct borrow *borrow, const char *name, long number,
				     const uint64_t args[6], int64_t *ret);

/*
 * From here on T restores itself if we die in the middle of a call: by a frame
 * in the gate or, where there is none or it is about to go, below T's stack.
 */
MUST_CHECK struct error *inject_guard(const struct inject *inject, struct borrow *borrow);

/* ---- inject_fds.c */

/* T makes the socketpair, and we take our end of it. */
MUST_CHECK struct error *inject_make_pair(struct inject *inject, struct borrow *borrow);

/* T gets copies of the @count descriptors @fds of ours; their numbers there go to @remote_ret. */
MUST_CHECK struct error *inject_pass(struct inject *inject, struct borrow *borrow, const int *fds,
				     size_t count, int *remote_ret);

/* A descriptor of ours was another file's when it was used. */
MUST_CHECK struct error *inject_fds_lost(struct inject *inject);

/* Say why, if @err came since a descriptor of ours is closed or another file's by now. */
MUST_CHECK struct error *inject_explain(struct inject *inject, struct error *err);

/* Our end of the socketpair; closed already is fine. */
void inject_close_socket(struct inject *inject);

#endif
