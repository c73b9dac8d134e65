/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Call frame information: the bytes of an .eh_frame section, compiled into the
 * compact table that the payload and the injector's own stack walk look up
 * (struct ha_table in payload/protocol.h).
 *
 * The bytes come from a file or from the target's memory and are not trusted:
 * whatever they hold, the table is well-formed and its rows are sorted.
 * Nothing here depends on section headers.
 *
 * All functions may be called from any thread.
 */
#ifndef RESOLVER_EHFRAME_H
#define RESOLVER_EHFRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "payload/protocol.h"
#include "resolver/error.h"

/* Gaps between functions of up to this many bytes are padding, not unknown code. */
#define EHFRAME_GAP_MAX 15u
/* Bytes behind ha_table's low[] that vector reads may touch. */
#define EHFRAME_LOW_SLACK 16u

struct ehframe_input {
	const uint8_t *data; /* the section; may be followed by other bytes, see @last_fde */
	size_t size;	     /* bytes */
	uint64_t vaddr;	     /* address of data[0], unrelocated */
	/*
	 * Range of the module's executable segments, unrelocated, [low, high), at
	 * most 4 GiB. FDEs outside of it (left over from discarded sections) are
	 * left out.
	 */
	uint64_t text_low, text_high;
	uint64_t got_vaddr; /* base of DW_EH_PE_datarel pointers; 0 = unknown */
	/*
	 * Address of the last FDE in the section, if known (ehframe_find()): what
	 * follows it is not read. 0 = read to the terminator or to @size.
	 */
	uint64_t last_fde;
	/*
	 * Make every row an ext row that also tells where rbx and r12..r15 were
	 * saved. For modules with frames whose CFA is based on one of these (ld.so:
	 * _dl_runtime_resolve), and those whose frames lie inside of them.
	 */
	bool full;
};

/* What was met; offsets are bytes from the start of the section. */
struct ehframe_stats {
	uint32_t cies;
	uint32_t fdes;	       /* that rows were made of */
	uint32_t skipped;      /* FDEs that are malformed or use what we do not know */
	size_t skipped_offset; /* of the first of them */
	uint32_t outside;      /* FDEs outside of the text range */
	uint32_t overlaps;     /* FDEs cut short or dropped since another one starts inside */
	uint32_t stops;	       /* rows that end the walk: rules that cannot be expressed */
	bool terminated;       /* a terminator was met */
	size_t end;	       /* where reading ended */
	bool damaged;	       /* reading ended at @end since the bytes there are no entry */
};

struct ehframe_table {
	struct ha_table *table; /* position-independent; bias is 0 */
	size_t size;		/* bytes */
	struct ehframe_stats stats;
};

/*
 * Compile. ERROR_NOT_FOUND: the section is in order, but has no FDE for the
 * text range. ERROR_FORMAT (with the offset): it is malformed and not a single
 * FDE is usable; single bad FDEs are left out and counted. ERROR_UNSUPPORTED: the
 * text range is too large. Released with ehframe_table_deinit().
 */
MUST_CHECK struct error *ehframe_compile(const struct ehframe_input *in, struct ehframe_table *ret);

/* Leaves @table empty; an empty one is fine. */
void ehframe_table_deinit(struct ehframe_table *table);

/* Where a module has its .eh_frame, taken from its .eh_frame_hdr. */
struct ehframe_location {
	uint64_t vaddr;	   /* of the first byte, unrelocated */
	uint64_t last_fde; /* of the last FDE; 0 if there is no search table */
	uint64_t fdes;	   /* entries of the search table */
};

/*
 * Find .eh_frame from the bytes of the PT_GNU_EH_FRAME segment. Its length is
 * not recorded anywhere: pass what is mapped from @vaddr to the end of the
 * segment, and last_fde, to ehframe_compile().
 *
 * @hdr   @size bytes; more than the segment has is an error of the caller
 * @vaddr address of hdr[0], unrelocated
 *
 * ERROR_FORMAT: malformed, or of an unknown encoding.
 */
MUST_CHECK struct error *ehframe_find(const uint8_t *hdr, size_t size, uint64_t vaddr,
				      struct ehframe_location *ret);

enum ehframe_kind {
	EHFRAME_NORMAL,	 /* CFA and return address are given by the fields below */
	EHFRAME_UNKNOWN, /* no FDE covers this address */
	EHFRAME_END,	 /* outermost frame */
	EHFRAME_SIGNAL,	 /* rt_sigreturn trampoline: a ucontext stands at sp */
	EHFRAME_PLT11,	 /* CFA = sp + 8 + ((pc & 15) >= 11) * 8 */
	EHFRAME_PLT10,	 /* CFA = sp + 8 + ((pc & 15) >= 10) * 8 */
	EHFRAME_STOP,	 /* there is a rule, but none that we can follow */
};

enum ehframe_saved {
	EHFRAME_SAME,	/* the caller's value is still in the register */
	EHFRAME_AT_CFA, /* it was saved at CFA + offset */
	EHFRAME_AT_RBP, /* it was saved at *(rbp + offset) */
	EHFRAME_LOST,	/* it cannot be told */
};

/* Callee-saved registers other than rbp, in the order of ha_rule_ext.saved. */
enum { EHFRAME_RBX, EHFRAME_R12, EHFRAME_R13, EHFRAME_R14, EHFRAME_R15, EHFRAME_CALLEE_SAVED };

/* An unpacked row. */
struct ehframe_rule {
	enum ehframe_kind kind;
	uint64_t start;	       /* unrelocated address of the row; 0 if below the table */
	enum ha_ext_base base; /* CFA = base + cfa_offset, or, with deref, */
	bool deref;	       /*       *(base + cfa_offset) + cfa_add */
	int32_t cfa_offset;
	int32_t cfa_add;
	int ra_register; /* register with the return address (enum ha_ext_base), or -1: CFA - 8 */
	enum ehframe_saved rbp;
	int32_t rbp_offset;
	/*
	 * The other callee-saved registers: EHFRAME_LOST in rows that do not say
	 * (most modules are compiled without them), else SAME or AT_CFA.
	 */
	enum ehframe_saved saved[EHFRAME_CALLEE_SAVED];
	int32_t saved_offset[EHFRAME_CALLEE_SAVED];
};

/*
 * Look up the row of @vaddr (unrelocated). Every access is checked against
 * @size, so that the table may lie in memory that somebody else writes to;
 * what makes no sense is EHFRAME_UNKNOWN.
 */
void ehframe_lookup(const struct ha_table *table, size_t size, uint64_t vaddr,
		    struct ehframe_rule *ret);

/*
 * Check a table: all arrays inside of @size, rows sorted, blocks consistent.
 * ERROR_FORMAT otherwise.
 */
MUST_CHECK struct error *ehframe_verify(const struct ha_table *table, size_t size);

#endif
