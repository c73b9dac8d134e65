/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The filter in front of free (HA_FILTER_HASH in payload/protocol.h): which
 * addresses may be in the live table. For sessions that sample.
 */
#ifndef PAYLOAD_CORE_FILTER_H
#define PAYLOAD_CORE_FILTER_H

#include "payload/protocol.h"

#include <stdint.h>

/* The block @ptr is in the live table, before the program knows it. */
void filter_add(struct ha_shm *shm, uint64_t ptr);

/* It is not there any more. */
void filter_remove(struct ha_shm *shm, uint64_t ptr);

#endif
