/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The payload as it was built, inside the program's own read-only data.
 * Nothing of it runs in this process; the injector copies it into memfds for
 * the target. Constant; any thread may read it.
 */
#ifndef INJECTOR_PAYLOAD_IMAGE_H
#define INJECTOR_PAYLOAD_IMAGE_H

#include <stddef.h>
#include <stdint.h>

/*
 * Entry: a shared object for the target's loader, and for ours. The file
 * offset of everything that gets loaded equals its address, so the first
 * HA_ENTRY_SIZE bytes (zero-filled behind the file) are also its image;
 * struct ha_entry lies at HA_ENTRY_DATA. Page-aligned.
 */
extern const uint8_t payload_entry[];
extern const size_t payload_entry_size;

/*
 * Core: a flat image to be mapped read and execute at any page; it begins with
 * struct ha_core. Page-aligned.
 */
extern const uint8_t payload_core[];
extern const size_t payload_core_size;

#endif
