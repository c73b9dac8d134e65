/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Buffers for walks, which need more room than a signal handler's stack has.
 *
 * A buffer belongs to the activation of core whose sp is in its owner word. An
 * activation that was left by siglongjmp or by the end of its thread cannot
 * give it back; the next one that runs on the same stack further out takes it.
 */
#ifndef PAYLOAD_CORE_SCRATCH_H
#define PAYLOAD_CORE_SCRATCH_H

#include "payload/core/walk.h"

/* A buffer for the walk from @start, or NULL: all are in use. Never waits. */
struct walk_trace *scratch_claim(const struct walk_start *start, uint64_t line_index);

void scratch_release(struct walk_trace *trace);

#endif
