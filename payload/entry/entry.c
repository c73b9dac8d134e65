/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Entry has no C code: what it does is written in payload/arch. This file
 * holds the numbers that the assembly uses against the contract.
 */
#include "entry_layout.h"
#include "payload/protocol.h"

#include <stddef.h>

#define SAME(number, value) _Static_assert((number) == (value), #number " is not " #value)

SAME(LAYOUT_MAGIC, HA_MAGIC);
SAME(LAYOUT_ABI, HA_ABI);
SAME(LAYOUT_STATE_ON, HA_STATE_ON);
SAME(LAYOUT_GATE_MAGIC, HA_GATE_MAGIC);
SAME(LAYOUT_PAIRS, HA_PAIRS);
SAME(LAYOUT_STUB_SIZE, HA_STUB_SIZE);
SAME(LAYOUT_DATA, HA_ENTRY_DATA);

SAME(PAIR_SIZE, sizeof(struct ha_pair));
SAME(PAIR_CALL, offsetof(struct ha_pair, call));
SAME(PAIR_BODY, offsetof(struct ha_pair, body));

SAME(1 << LINE_SHIFT, sizeof(struct ha_line));
SAME(LINE_SIZE, sizeof(struct ha_line));
SAME(LINE_KEY, offsetof(struct ha_line, key));
SAME(LINE_LEFT, offsetof(struct ha_line, left));
SAME(LINE_DEPTH, offsetof(struct ha_line, depth));
SAME(LINE_COUNT, HA_LINES);
SAME(LINE_PROBES, HA_LINE_PROBES);
SAME(LINE_SHARED, HA_SHARED_LINES);
SAME(LINE_HASH_MULTIPLIER, HA_LINE_MULTIPLIER);
/* An immediate operand of 32 bits would be extended with its sign. */
SAME(LINE_HASH_MULTIPLIER >> 31, 0);
SAME((uint32_t)((LINE_HASH_MULTIPLIER * 0x7f1234567890ull) >> LINE_HASH_SHIFT) % LINE_COUNT,
     HA_LINE_HASH(0x7f1234567890ull));
SAME(FILTER_HASH_MULTIPLIER, HA_FILTER_MULTIPLIER);
SAME((uint32_t)(0x34567890u * FILTER_HASH_MULTIPLIER) >> FILTER_HASH_SHIFT,
     HA_FILTER_HASH(0x7f1234567890ull));
/* The bits that the shift leaves must number the bytes. */
SAME(1ull << (32 - FILTER_HASH_SHIFT), HA_FILTER_SIZE);

SAME(ENTRY_STATE, offsetof(struct ha_entry, state));
SAME(ENTRY_GATE, offsetof(struct ha_entry, gate));
SAME(ENTRY_SHM, offsetof(struct ha_entry, shm));
SAME(ENTRY_CORE_ALLOC, offsetof(struct ha_entry, core_alloc));
SAME(ENTRY_CORE_FREE, offsetof(struct ha_entry, core_free));
SAME(ENTRY_CORE_BEGIN, offsetof(struct ha_entry, core_realloc_begin));
SAME(ENTRY_CORE_END, offsetof(struct ha_entry, core_realloc_end));
SAME(ENTRY_CORE_XALLOCX, offsetof(struct ha_entry, core_xallocx));
SAME(ENTRY_SESSION, offsetof(struct ha_entry, session));
SAME(ENTRY_BODIES, offsetof(struct ha_entry, bodies));
SAME(ENTRY_BODIES_END - ENTRY_BODIES, sizeof(((struct ha_entry *)0)->bodies));
SAME(ENTRY_SAMPLING, offsetof(struct ha_entry, sampling_bodies));
SAME(ENTRY_SAMPLING_END - ENTRY_SAMPLING, sizeof(((struct ha_entry *)0)->sampling_bodies));
SAME(ENTRY_FILTER, offsetof(struct ha_entry, filter));
SAME(ENTRY_PAIRS, offsetof(struct ha_entry, pairs));
SAME(ENTRY_SHARED_LINES, offsetof(struct ha_entry, shared));
SAME(ENTRY_LINES, offsetof(struct ha_entry, lines));
SAME(ENTRY_STRUCT_SIZE, sizeof(struct ha_entry));

/* enter tells a shared line by its address below the lines. */
SAME(ENTRY_LINES - ENTRY_SHARED_LINES, HA_SHARED_LINES * sizeof(struct ha_line));

/* The order of the words in `bodies` and `sampling_bodies`, and how the frame is pushed. */
SAME(HA_CLASS_ALLOC, 0);
SAME(HA_CLASS_ALIGNED, 1);
SAME(HA_CLASS_CALLOC, 2);
SAME(HA_CLASS_POSIX_MEMALIGN, 3);
SAME(HA_CLASS_REALLOC, 4);
SAME(HA_CLASS_REALLOCARRAY, 5);
SAME(HA_CLASS_XALLOCX, 6);
SAME(HA_CLASS_FREE, 7);
SAME(HA_CLASSES, 8);
