/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The real entry object loaded into the test's own process, with functions of
 * the test in the places of core and of the originals. One entry a process:
 * tests that use it need Check's fork mode.
 */
#ifndef TESTS_HOOKED_H
#define TESTS_HOOKED_H

#include "payload/protocol.h"
#include "tests/machine.h"

#include <stdbool.h>
#include <stddef.h>

enum hooked_event_kind {
	HOOKED_ORIGINAL,
	HOOKED_ALLOC,
	HOOKED_FREE,
	HOOKED_REALLOC_BEGIN,
	HOOKED_REALLOC_END,
	HOOKED_XALLOCX,
};

/* One call that arrived behind the stubs. */
struct hooked_event {
	enum hooked_event_kind kind;
	uint64_t argument[4];	 /* ORIGINAL: as received */
	uint64_t return_address; /* ORIGINAL: who called */
	uint64_t shm;		 /* the rest: core's arguments */
	uint64_t frame_address;
	struct ha_frame frame;
	uint64_t ptr, size, token, line;
	uint32_t line_depth; /* of the line that core was told */
	uint32_t depth;	     /* sum of all depths during the call */
	bool aligned;	     /* the stack was, as the ABI wants it */
};

#define HOOKED_EVENTS 64

struct hooked {
	uint8_t *base;
	struct ha_entry *entry;
	struct ha_gate *gate;
	uint8_t filter[HA_FILTER_SIZE];
	uint64_t shm;  /* only handed on */
	bool sampling; /* pairs made from now on look at countdown and filter */

	/* What the next originals do. */
	uint64_t result;
	int error_number;
	void (*during_original)(void);
	void (*during_core)(void);
	uint64_t token; /* what realloc_begin returns */

	/* What happened; not locked: for tests with one thread. */
	struct hooked_event event[HOOKED_EVENTS];
	size_t events;
};

extern struct hooked hooked;

/* A memfd with @size bytes of @data; the caller closes it. Fails the test on errors. */
int hooked_file(const char *name, const uint8_t *data, size_t size);

/* Load entry, fill it, state ON. */
void hooked_setup(void);

/* The same for a session that samples, with every block in the filter. */
void hooked_setup_sampling(void);

/* Make pair @k a function of @class with @original; returns its stub's address. */
uint64_t hooked_pair(unsigned int k, enum ha_class class, uint64_t original);

/* The same with an original that logs itself and does what `hooked` says. */
uint64_t hooked_logged_pair(unsigned int k, enum ha_class class);

/* The sum of all depths: 0 when nobody is in core. */
uint32_t hooked_depth(void);

/* Lines whose key is not 0. */
unsigned int hooked_lines_owned(void);

/* Fill @call for the stub with these arguments; the callee-saved registers get marks. */
void hooked_call_prepare(struct marked_call *call, uint64_t stub, const uint64_t argument[4]);

/* The marks are still there after the call. */
void hooked_assert_kept(const struct marked_call *call);

/* Forget the events and call @stub: whatever happens, registers are kept and nobody is in core. */
struct marked_call hooked_call(uint64_t stub, const uint64_t argument[4]);

/* A block that originals hand out, and where posix_memalign's original "returns" it. */
#define HOOKED_BLOCK 0x10002000ull
extern void *hooked_block;

/* What an original of @class returns for HOOKED_BLOCK. */
uint64_t hooked_result(enum ha_class class);

#endif
