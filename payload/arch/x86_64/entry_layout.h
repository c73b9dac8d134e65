/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * struct ha_entry in numbers, for assembly: payload/protocol.h is C and cannot
 * be included there. payload/entry/entry.c compares each of them with the
 * contract at compile time.
 */
#ifndef PAYLOAD_ARCH_X86_64_ENTRY_LAYOUT_H
#define PAYLOAD_ARCH_X86_64_ENTRY_LAYOUT_H

#define LAYOUT_MAGIC	  0x3130744168656168
#define LAYOUT_ABI	  7

#define LAYOUT_STATE_ON	  1
#define LAYOUT_GATE_MAGIC 0x4f4b2d65746167

#define LAYOUT_PAIRS	  64
#define LAYOUT_STUB_SIZE  16
#define LAYOUT_DATA	  0x1000 /* of struct ha_entry from entry's start */

/* struct ha_pair */
#define PAIR_SIZE 24
#define PAIR_CALL 0
#define PAIR_BODY 8

/* struct ha_line */
#define LINE_SHIFT	     6
#define LINE_SIZE	     64
#define LINE_KEY	     0
#define LINE_LEFT	     8
#define LINE_DEPTH	     16
#define LINE_COUNT	     128
#define LINE_PROBES	     8
#define LINE_SHARED	     4
#define LINE_HASH_MULTIPLIER 0x5c8409f1
#define LINE_HASH_SHIFT	     32

/* struct ha_entry */
#define ENTRY_STATE	   12
#define ENTRY_GATE	   16
#define ENTRY_SHM	   24
#define ENTRY_CORE_ALLOC   32
#define ENTRY_CORE_FREE	   40
#define ENTRY_CORE_BEGIN   48
#define ENTRY_CORE_END	   56
#define ENTRY_CORE_XALLOCX 64
#define ENTRY_SESSION	   76
#define ENTRY_FILTER	   80
#define ENTRY_BODIES	   88
#define ENTRY_BODIES_END   120
#define ENTRY_SAMPLING	   120
#define ENTRY_SAMPLING_END 152
#define ENTRY_PAIRS	   152
#define ENTRY_SHARED_LINES 1728
#define ENTRY_LINES	   1984
#define ENTRY_STRUCT_SIZE  10176

/* HA_FILTER_HASH: of 32 bits */
#define FILTER_HASH_MULTIPLIER 0x9e3779b1
#define FILTER_HASH_SHIFT      16

#endif
