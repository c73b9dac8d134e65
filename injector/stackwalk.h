/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Unwind a thread of the target outside of it: over a copy of its stack, with
 * our own unwind tables. Pure: reads nothing but what it is given, so it costs
 * the stopped thread some 50 ns a frame.
 *
 * All functions may be called from any thread.
 */
#ifndef INJECTOR_STACKWALK_H
#define INJECTOR_STACKWALK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "payload/protocol.h"
#include "resolver/ehframe.h"

/* An executable range of the target. */
struct code_range {
	uint64_t low, high;	      /* addresses in the target, [low, high) */
	uint64_t bias;		      /* address in the target = vaddr + bias */
	const struct ha_table *table; /* NULL: no call frame information */
	size_t table_size;	      /* bytes */
	uint32_t module;	      /* the caller's number for the module */
};

/* Ranges sorted by low, none overlapping. */
struct code_map {
	const struct code_range *range;
	size_t count;
};

/* The range that contains @pc, or NULL. */
const struct code_range *code_map_find(const struct code_map *map, uint64_t pc);

/*
 * The psABI's red zone. A thread that was stopped in an epilogue has popped
 * registers which the tables still look for where they were saved: just below
 * its stack pointer.
 */
#define STACKWALK_RED_ZONE 128u

/*
 * A copy of [low, low + size) of the target's memory. For a thread that was
 * stopped anywhere, low is STACKWALK_RED_ZONE below its stack pointer.
 */
struct stack_image {
	uint64_t low;
	const uint8_t *bytes;
	size_t size;
};

/* Registers at the innermost frame, by DWARF number (enum ha_ext_base). */
struct walk_registers {
	uint64_t pc;
	uint64_t reg[16];
};

#define STACKWALK_NO_MODULE UINT32_MAX

struct walk_frame {
	uint64_t pc;	 /* return address, or for the innermost and interrupted frames, the pc */
	uint64_t sp;	 /* value of rsp in this frame */
	uint64_t cfa;	 /* value of rsp in the caller after return; 0 if the walk ends here */
	uint64_t rbp;	 /* value of rbp in this frame */
	uint32_t module; /* code_range.module, or STACKWALK_NO_MODULE */
	enum ehframe_kind kind;
	bool exact; /* @pc is the instruction that runs next, not a return address */
};

enum walk_end {
	WALK_COMPLETE,	/* the outermost frame was reached (undefined return address) */
	WALK_NO_MODULE, /* the last frame lies in no range that we know */
	WALK_NO_CFI,	/* no FDE contains the last frame's pc */
	WALK_STOP,	/* the last frame's rule is none that we can follow */
	WALK_OUTSIDE,	/* a word outside of the image was needed */
	WALK_BACKWARDS, /* the stack pointer would not grow: corrupt */
	WALK_FULL,	/* more frames than there is room for */
};

/*
 * Walk. Frames are stored innermost first, the one in which the walk ended
 * included.
 *
 * @after_call start->pc is a return address, not the instruction that runs next
 * @frames   room for @capacity frames (at least 1)
 * @count_ret how many were stored
 */
enum walk_end stackwalk(const struct code_map *map, const struct stack_image *image,
			const struct walk_registers *start, bool after_call,
			struct walk_frame *frames, size_t capacity, size_t *count_ret);

#endif
