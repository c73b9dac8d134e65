/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Slots: the words of the target that hold an allocation function's address.
 * Planned (which words, what they hold, what the hook must call), written,
 * verified and put back.
 *
 * Three values belong to a slot and are never confused:
 *
 *	restore   what it gets back at the end: the bytes found
 *	call      what the hook jumps to: the bytes found, or for a slot that
 *		  lazy binding has not filled yet the definition that the
 *		  loader would choose
 *	hook      the stub of the (function, call) pair
 *
 * Slots may be written and restored only while no object can be unloaded: the
 * loader's lock is held by the borrowed thread, or it cannot run. Threads of the
 * target read them meanwhile, so what is to be written is only listed here
 * (injector/changes.h), and looked at when it has been made.
 */
#ifndef INJECTOR_SLOTS_H
#define INJECTOR_SLOTS_H

#include "injector/changes.h"
#include "injector/loaderinfo.h"
#include "injector/memory.h"
#include "injector/modules.h"
#include "payload/protocol.h"

enum slot_state {
	SLOT_PLANNED,
	SLOT_WRITTEN,  /* holds hook (or held it before) */
	SLOT_RESTORED, /* holds restore again */
	SLOT_SKIPPED,  /* changed under our hands before it was written */
	SLOT_LOST,     /* somebody else wrote it after us: left alone */
	SLOT_GONE,     /* its object was unloaded */
};

struct slot {
	uint64_t address;
	uint64_t found; /* what it held when planned; hook if inherited from an earlier attach */
	uint64_t restore;
	uint64_t call;
	uint64_t hook;	    /* 0 until slots_place() */
	uint32_t module;    /* struct module.id */
	uint32_t word;	    /* its place if slots were in order of address */
	uint16_t function;  /* index into functions.h's table */
	uint16_t pair;	    /* index into slots.pair */
	uint8_t kind;	    /* enum reference_kind */
	uint8_t state;	    /* enum slot_state */
	uint8_t rebound;    /* times that it was written again */
	uint8_t protection; /* PROT_* of its page when planned */
	bool unbound;	    /* was not yet bound when planned */
	bool inherited;	    /* held an entry stub already */
};

/* Why a reference is not hooked. The first five take nothing from coverage. */
enum slot_skip_reason {
	SLOT_SKIP_UNRESOLVED,	 /* a weak reference that nobody defines: the word is 0 */
	SLOT_SKIP_INNER,	 /* the function calls another hooked one: recorded there */
	SLOT_SKIP_THROUGH_PLT,	 /* points to a PLT stub whose own slot is hooked */
	SLOT_SKIP_INTERNAL,	 /* an allocator calling itself: recorded at its entry points */
	SLOT_SKIP_REPLACED,	 /* the program has put a function of its own there */
	SLOT_SKIP_UNDECIDED,	 /* an indirect call might reach a hooked function */
	SLOT_SKIP_NO_CODE,	 /* the value lies in no executable mapping */
	SLOT_SKIP_IFUNC,	 /* an IFUNC or TLS symbol */
	SLOT_SKIP_NO_DEFINITION, /* unbound, and the definition to be chosen is not certain */
	SLOT_SKIP_NO_PAIR,	 /* more than HA_PAIRS pairs */
	SLOT_SKIP_REGISTRY,	 /* holds an entry stub that the entry object does not know */
	SLOT_SKIP_UNREADABLE,	 /* the word could not be read */
	SLOT_SKIP_REASONS
};

struct slot_skip {
	uint64_t address;
	uint64_t value;
	uint32_t module; /* struct module.id */
	uint16_t function;
	uint8_t reason; /* enum slot_skip_reason */
};

struct slot_pair {
	uint64_t call;
	uint16_t function;
	bool existing; /* in the entry object already, at this index */
};

struct slots {
	struct slot *slot; /* in order of writing; owned */
	size_t count;
	struct slot_pair pair[HA_PAIRS]; /* index = stub number */
	size_t pair_count;
	struct slot_skip *skip; /* owned */
	size_t skip_count;
	size_t skipped[SLOT_SKIP_REASONS]; /* counts by reason */
	/* Objects that define malloc and have no slot for it: their own calls go direct. */
	uint32_t *direct; /* struct module.id; owned */
	size_t direct_count;
	uint64_t entry; /* address of the entry object; 0 until slots_place() */
};

/*
 * Plan all slots of @modules. An entry object among them is reused: its pairs
 * keep their numbers. Reads each slot once. ERROR_NOT_FOUND if there is nothing
 * to hook at all. *ret is to be given to slots_deinit().
 */
MUST_CHECK struct error *slots_plan(const struct memory_reader *memory, const struct maps *maps,
				    const struct modules *modules, struct slots *ret);

void slots_deinit(struct slots *slots);

/* Modules that slots are of. */
size_t slots_modules(const struct slots *slots);

/* True if calls through such a word are not seen: the reason belongs in a report's coverage. */
bool slot_skip_is_loss(enum slot_skip_reason reason);

/* One phrase for a reason, for reports. Static. */
const char *slot_skip_text(enum slot_skip_reason reason);

/*
 * Settle where entry is: every slot's hook becomes the address of its pair's
 * stub in the entry object at @entry.
 */
void slots_place(struct slots *slots, uint64_t entry);

/*
 * Take over what was written under an older plan: a slot of @slots at the same
 * address in the same object that @old has written keeps old's restore value.
 * Used when the plan is made anew after objects were loaded.
 */
void slots_inherit(struct slots *slots, const struct slots *old);

struct slots_result {
	size_t written;	 /* slots_write, slots_verify: slots to be (re)written */
	size_t already;	 /* held the hook before */
	size_t skipped;	 /* changed since they were planned */
	size_t lost;	 /* hold somebody else's value */
	size_t restored; /* slots_restore: slots to be put back, or that are back */
	size_t gone;	 /* object unloaded */
};

/*
 * List the writes of all planned slots, free-type first. Each is read right before;
 * one that changed is skipped (bound meanwhile to the planned call: fine).
 * slots_place() must have been called. Until the changes are made and
 * slots_observe() has looked, the slots stay as they were.
 */
MUST_CHECK struct error *slots_write(const struct memory_reader *memory, struct slots *slots,
				     struct changes *changes, struct slots_result *ret);

/*
 * Read all written slots again. One that lazy binding in flight has overwritten
 * is planned again, at most 3 times in its life; anything else is lost.
 */
MUST_CHECK struct error *slots_verify(const struct memory_reader *memory, struct slots *slots,
				      struct slots_result *ret);

/*
 * List what puts back every written slot that still holds its hook and whose object
 * is still the same in @modules (which must be fresh), in the opposite order. May
 * be called again for what was not changed.
 */
MUST_CHECK struct error *slots_restore(const struct memory_reader *memory,
				       const struct modules *modules, struct slots *slots,
				       struct changes *changes, struct slots_result *ret);

/* All planned slots were tried: one that was so too often is skipped from now on. */
void slots_tried(struct slots *slots);

/* Bring the states up to what the slots hold now: hooks, or what they were given back. */
void slots_observe(const struct memory_reader *memory, struct slots *slots);

/*
 * Count copies of the hooked functions' addresses in writable memory outside
 * the slots: calls through them are not seen. At most @limit_bytes are read;
 * *truncated_ret tells that there was more.
 */
MUST_CHECK struct error *slots_saved_pointers(const struct memory_reader *memory,
					      const struct maps *maps, const struct slots *slots,
					      uint64_t limit_bytes, size_t *count_ret,
					      bool *truncated_ret);

#endif
