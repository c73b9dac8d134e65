/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The contract between the injector and the payload: everything that both
 * sides read or write, and nothing else. Fixed-width types only; every struct
 * has its size asserted; every field says who writes it.
 *
 *   I   written by the injector      P   written by the payload (in the target)
 *   I0  written by the injector before the payload first runs, then constant
 *
 * Three objects are placed in the target (see ARCHITECTURE.md):
 *
 *   entry   at most HA_ENTRY_PAGES pages, never unmapped: stubs that stand in
 *           the slots, struct ha_entry behind them
 *   core    recording code, no data, no relocations; unmapped at stop
 *   shm     one sparse memfd, mapped shared on both sides: the profile itself
 *
 * and one private page, the gate (struct ha_gate), which fork wipes. A session
 * that samples also needs the filter (HA_FILTER_SIZE), which stays like entry.
 *
 * References inside shm are byte offsets from its start, never pointers.
 */
#ifndef PAYLOAD_PROTOCOL_H
#define PAYLOAD_PROTOCOL_H

#include <stdint.h>

#define HA_MAGIC 0x3130744168656168ull /* "haehAt01" in memory order */
#define HA_ABI	 7u

#define HA_PAGE	 4096u

/* ------------------------------------------------------------------------
 * Functions that are hooked
 */

/* How a hooked function takes its arguments: one stub body for each. */
enum ha_class {
	HA_CLASS_ALLOC,		 /* void *f(size_t size, ...): malloc, operator new, mallocx */
	HA_CLASS_ALIGNED,	 /* void *f(size_t align, size_t size): memalign, aligned_alloc */
	HA_CLASS_CALLOC,	 /* void *f(size_t n, size_t size) */
	HA_CLASS_POSIX_MEMALIGN, /* int f(void **ret, size_t align, size_t size) */
	HA_CLASS_REALLOC,	 /* void *f(void *old, size_t size, ...): realloc, rallocx */
	HA_CLASS_REALLOCARRAY,	 /* void *f(void *old, size_t n, size_t size) */
	HA_CLASS_XALLOCX,	 /* size_t f(void *p, size_t size, size_t extra, int flags) */
	HA_CLASS_FREE,		 /* void f(void *p, ...): free, operator delete, sdallocx */
	HA_CLASSES
};

/* ------------------------------------------------------------------------
 * Entry
 *
 *   +0x0000  ELF header, dynamic symbols, .eh_frame, stubs, stub bodies   r-x
 *   +0x1000  struct ha_entry, then .dynamic                               rw-
 *   +0x4000  end
 *
 * Stub k stands at HA_ENTRY_STUBS + k * HA_STUB_SIZE. It loads the address of
 * pairs[k] and jumps to pairs[k].body.
 */
#define HA_ENTRY_PAGES 4u
#define HA_ENTRY_SIZE  (HA_ENTRY_PAGES * HA_PAGE)
#define HA_ENTRY_DATA  0x1000u /* offset of struct ha_entry from entry's load address */
#define HA_ENTRY_STUBS 0x0400u /* offset of stub 0 */
#define HA_STUB_SIZE   16u
#define HA_PAIRS       64u
#define HA_LINES       128u /* a power of two */

/*
 * One (function, call) pair: two modules may bind malloc to two allocators.
 */
struct ha_pair {
	uint64_t call; /* I   what the stub calls or jumps to; constant once a slot points here */
	uint64_t body; /* I   address of the class's stub body (bodies or sampling_bodies) */
	uint32_t function; /* I   index into the injector's list of functions */
	uint32_t flags;	   /* I   0 for now */
};
_Static_assert(sizeof(struct ha_pair) == 24, "ha_pair");

/*
 * One thread's own cache line. A thread finds its line by its thread pointer
 * (the word at fs:0): first probe HA_LINE_HASH(fs), then the next ones. A line with
 * key 0 is free and is claimed by compare-and-swap. A thread that finds no
 * line within HA_LINE_PROBES uses the shared line of its hash in
 * ha_entry.shared, with locked instructions. Lines are not given back when a
 * thread ends: the next thread on that stack has the same thread pointer.
 *
 * left counts down by size + 1 with each allocation of the owner; the one that
 * it does not suffice for is a sample, and the next countdown is drawn. The
 * countdown has no memory, so another thread may go on with it. Shared lines
 * have none: each call there is a draw of its own.
 */
struct ha_line {
	uint64_t key;	  /* P  thread pointer of the owner; 0 = free */
	uint64_t left;	  /* P  bytes to the next sample, a negative number is 0; I  0 before ON,
			     HA_LEFT_ANEW */
	uint32_t depth;	  /* P  how often this thread is in core now (signals nest); see state */
	uint32_t rate;	  /* P  what left was drawn with: index into ha_shm.interval */
	uint32_t session; /* P  whose interval[] that is */
	uint32_t pad;
	uint64_t spare[4];
};
_Static_assert(sizeof(struct ha_line) == 64, "ha_line");

/*
 * The injector asks for a countdown of the interval in force by this as the
 * highest byte of left, since one byte is written whole. Stubs take it for a
 * negative number, as it stays for any size below 2^62 that they take off: the next call
 * enters core, where it is no sample before a new countdown says so.
 */
#define HA_LEFT_ANEW	      0xc0u
#define HA_LEFT_IS_ANEW(left) ((left) >> 61 == HA_LEFT_ANEW >> 5)

/*
 * A byte for each block that a session which samples has recorded, counted at
 * a hash of its address: 0 = no block with this hash is recorded, and its free
 * passes through. 255 stays. A mapping of its own, which fork wipes. A thread
 * that was held up in a stub may read it long after a session's end: it is
 * emptied then, never unmapped, and serves the next one.
 */
#define HA_FILTER_BITS	    16u
#define HA_FILTER_SIZE	    (1u << HA_FILTER_BITS)
#define HA_FILTER_HASH(ptr) ((uint32_t)((uint32_t)(ptr)*HA_FILTER_MULTIPLIER) >> 16)

#define HA_LINE_PROBES	    8u
#define HA_SHARED_LINES	    4u
#define HA_HASH_MULTIPLIER  0x9e3779b97f4a7c15ull

/*
 * Stubs hash in as few instructions as they can: each one more takes its share
 * of what the processor looks ahead, so a program that waits for memory waits
 * longer. One multiplication by a number of 32 bits, and of the addresses of
 * blocks the lower 32 bits alone. The lines' number was chosen among 2,500 such
 * that 32 and 64 threads at the distances that stacks usually have (64 KiB to
 * 16 MiB, with guard pages or without) have the fewest first probes in common.
 */
#define HA_FILTER_MULTIPLIER 0x9e3779b1u
#define HA_LINE_MULTIPLIER   0x5c8409f1ull
#define HA_LINE_HASH(fs)     ((uint32_t)((uint64_t)(fs)*HA_LINE_MULTIPLIER >> 32) & (HA_LINES - 1))

enum ha_state {
	HA_STATE_OFF = 0, /* pass through: stubs jump to call, core is not entered */
	HA_STATE_ON = 1,
};

/*
 * Entry's data. Entry enters core like this, so that the injector can tell
 * when nobody is in core any more:
 *
 *	line->depth++;
 *	if (entry->state == ON && gate->magic == HA_GATE_MAGIC)
 *		entry->core_...(...);
 *	line->depth--;
 *
 * The injector stores state = OFF, calls membarrier(GLOBAL), and then needs to
 * see each depth at 0 once. The gate is only read while depth > 0, so it may
 * be unmapped together with core.
 *
 * No original is ever called while depth > 0.
 */
struct ha_entry {
	/* These three are in the same places in every version. */
	uint64_t magic;	     /* I0 HA_MAGIC: how a later attach knows an entry object */
	uint32_t abi;	     /* I0 HA_ABI */
	uint32_t state;	     /* I  enum ha_state */
	uint64_t gate;	     /* I  address of struct ha_gate; valid while state is ON */
	uint64_t shm;	     /* I  address of struct ha_shm; valid while state is ON */
	uint64_t core_alloc; /* I  addresses of core's functions, see struct ha_core */
	uint64_t core_free;
	uint64_t core_realloc_begin;
	uint64_t core_realloc_end;
	uint64_t core_xallocx;
	uint32_t npairs;  /* I  pairs in use; only grows */
	uint32_t session; /* I  grows by one with each attach */
	uint64_t filter;  /* I  its address, before pairs look at it; 0 until then */
	/*
	 * Constant: offsets of the stub bodies from entry's start. Those of a session
	 * that records every call, and those that look at countdown and filter first. A
	 * thread that was held up in a stub may take one of a session that has ended:
	 * what it then hands to core is for core to judge, and what it then lets pass
	 * began before the session.
	 */
	uint32_t bodies[HA_CLASSES];
	uint32_t sampling_bodies[HA_CLASSES];
	struct ha_pair pairs[HA_PAIRS];
	struct ha_line shared[HA_SHARED_LINES] __attribute__((aligned(64)));
	struct ha_line lines[HA_LINES];
};
_Static_assert(sizeof(struct ha_entry) + HA_ENTRY_DATA + 512 <= HA_ENTRY_SIZE, "entry is too big");

/* The private page that fork wipes (MADV_WIPEONFORK): who may touch shm. */
#define HA_GATE_MAGIC 0x4f4b2d65746167ull
struct ha_gate {
	uint64_t magic; /* I  HA_GATE_MAGIC; reads 0 in a forked child */
};

/* ------------------------------------------------------------------------
 * Core: a flat image that starts with this header. Offsets are from its start.
 */
struct ha_core {
	uint64_t magic; /* constant HA_MAGIC */
	uint32_t abi;	/* constant HA_ABI */
	uint32_t size;	/* constant: bytes of the image */
	uint32_t alloc;
	uint32_t free;
	uint32_t realloc_begin;
	uint32_t realloc_end;
	uint32_t xallocx;
	uint32_t boot;	 /* void boot(struct ha_boot *): see below */
	uint32_t change; /* see struct ha_change */
	uint32_t pad[3];
};
_Static_assert(sizeof(struct ha_core) == 56, "ha_core");

/*
 * What a stub body pushes before it calls the original, and hands to core
 * after it: the caller's registers. The call stack starts with @ra; the
 * caller's sp after the return is the address just behind this struct.
 */
struct ha_frame {
	uint64_t r15, r14, r13, r12, rbx, rbp;
	uint64_t ra;
};
_Static_assert(sizeof(struct ha_frame) == 56, "ha_frame");

/*
 * Core's functions, called with depth > 0 and state ON:
 *
 * void alloc(struct ha_shm *, const struct ha_frame *, uint64_t ptr, uint64_t size,
 *	      uint64_t line_index)
 * void free(struct ha_shm *, uint64_t ptr, uint64_t line_index)
 *	Before the original frees it.
 * uint64_t realloc_begin(struct ha_shm *, uint64_t old, uint64_t line_index)
 *	Marks the entry of @old busy; returns a token for realloc_end().
 * void realloc_end(struct ha_shm *, const struct ha_frame *, uint64_t token, uint64_t ptr,
 *		    uint64_t size, uint64_t line_index)
 *	@ptr is what the original returned; 0 with size > 0: the old block lives on.
 *	(0 with size 0: the old block was freed.)
 * void xallocx(struct ha_shm *, const struct ha_frame *, uint64_t ptr, uint64_t size,
 *		uint64_t line_index)
 *	The block @ptr now has @size usable bytes, in place.
 *
 * line_index: index into ha_entry.lines, or HA_LINES + index into .shared.
 */

/* ------------------------------------------------------------------------
 * Shared memory
 */
enum ha_region_id {
	HA_REGION_BOOT,	      /* struct ha_boot, then the boot stack, then the sigreturn frame */
	HA_REGION_CHANGES,    /* struct ha_changes, for boot */
	HA_REGION_MODULES,    /* struct ha_module_index, append-only versions */
	HA_REGION_TABLES,     /* unwind tables (struct ha_table), append-only */
	HA_REGION_STACKS,     /* struct ha_stack_index, append-only versions */
	HA_REGION_PC_CACHE,   /* core's own: HA_PC_CACHE_SIZE bytes */
	HA_REGION_TRIE,	      /* core's own: HA_TRIE_SIZE */
	HA_REGION_CANDIDATES, /* core's own: HA_CANDIDATES_SIZE */
	HA_REGION_SCRATCH,    /* core's own: HA_SCRATCH_SIZE; buffers for walks */
	HA_REGION_SITE_HASH,  /* core's own: HA_SITE_HASH_SIZE(site_capacity) */
	HA_REGION_SITE_INDEX, /* u64[site_capacity]: offset of struct ha_site from shm; 0 = not yet
			       */
	HA_REGION_SITE_ARENA, /* struct ha_site bodies */
	HA_REGION_STRIPES,   /* HA_STRIPES times: struct ha_stripe, struct ha_sums[site_capacity] */
	HA_REGION_LIVE,	     /* live table segments */
	HA_REGION_CAPTURES,  /* struct ha_captures: states that stacks were taken from */
	HA_REGION_VARIANCES, /* HA_STRIPES times: struct ha_variances[site_capacity] */
	HA_REGION_HISTOGRAMS, /* HA_STRIPES times: struct ha_histograms[site_capacity] */
	HA_REGIONS
};

struct ha_region {
	uint64_t offset; /* from the start of shm; page-aligned */
	uint64_t size;	 /* bytes */
};

/*
 * Bytes of the regions whose content is core's own. All zeros is a valid
 * initial state of each of them; they are sparse, and touched as they fill.
 */
#define HA_PC_CACHE_SIZE		 (512u << 10)
#define HA_TRIE_SIZE			 (5u << 20)
#define HA_CANDIDATES_SIZE		 (16u << 20)
#define HA_SCRATCH_SIZE			 (1u << 20)
#define HA_SITE_HASH_SIZE(site_capacity) ((uint64_t)(site_capacity)*16u)

#define HA_STRIPES			 (HA_LINES + HA_SHARED_LINES)
#define HA_SEGMENTS			 20u
#define HA_FRAMES_MAX			 256u /* frames kept of one stack; deeper ones lose the outermost */

#define HA_SITE_UNKNOWN			 0u /* site 0: blocks whose stack could not be kept */

/*
 * One segment of the live table: @buckets buckets of 3 cells. A bucket is one
 * cache line: most operations miss the caches once, and no more.
 *
 *	key    busy mark, ptr >> 3, site; 0 = empty	(HA_KEY)
 *	value  size (40 bits), lower bits of the tick	(HA_VALUE)
 *	note   mark, line, upper bits of the tick	(HA_NOTE)
 *	passed counts the blocks that stand elsewhere because this bucket was full
 *
 * For a reader a cell is what its key says. The busy mark alone: the cell is
 * being written, its value means nothing. The busy mark with a block: its
 * realloc is under way, the block is in use.
 */
#define HA_CELLS 3u
struct ha_bucket {
	uint64_t key[HA_CELLS];	  /* P  a cell is claimed by compare-and-swap of its key */
	uint64_t value[HA_CELLS]; /* P  written by the owner of the cell */
	uint32_t note[HA_CELLS];  /* P  likewise */
	uint8_t passed;		  /* P  by compare-and-swap */
	uint8_t spare[3];
};
_Static_assert(sizeof(struct ha_bucket) == 64, "ha_bucket");

/*
 * Addresses have 47 bits and blocks are 8-aligned: 44 bits. Site: 19 bits.
 *
 *	 63    62........19   18....0
 *	busy    ptr >> 3       site
 */
#define HA_KEY_SITE_BITS     19u
#define HA_KEY_BUSY	     (1ull << 63)
#define HA_KEY(ptr, site)    ((((uint64_t)(ptr) >> 3) << HA_KEY_SITE_BITS) | (uint64_t)(site))
#define HA_KEY_PTR(key)	     ((((key) & ~HA_KEY_BUSY) >> HA_KEY_SITE_BITS) << 3)
#define HA_KEY_SITE(key)     ((uint32_t)((key) & ((1u << HA_KEY_SITE_BITS) - 1)))
#define HA_SITES_MAX	     (1u << HA_KEY_SITE_BITS)

#define HA_VALUE_SIZE_MAX    ((1ull << 40) - 1)
#define HA_VALUE(size, tick) (((uint64_t)(size) << 24) | ((uint64_t)(tick)&0xffffffu))
#define HA_VALUE_SIZE(value) ((uint64_t)(value) >> 24)
#define HA_TICK_MS	     10u

/*
 * The tick, HA_TICK_MS each since the session began, has 32 bits: 497 days. Line:
 * of the thread that allocated the block. Mark: what the block stands for if it
 * is a sample (HA_MARK_RATE); 0: for itself.
 *
 *	31..24	23..16		15..8	7..0
 *	  0	tick >> 24	line	mark
 */
#define HA_NOTE(mark, line, tick) \
	((uint32_t)(mark) | (uint32_t)(line) << 8 | (uint32_t)(tick) >> 24 << 16)
#define HA_NOTE_MARK(note)   ((uint8_t)(note))
#define HA_NOTE_LINE(note)   ((uint8_t)((note) >> 8))
#define HA_TICK(value, note) ((uint32_t)((value)&0xffffffu) | ((note) >> 16 & 0xffu) << 24)

/*
 * A sample of @size bytes, drawn at a mean distance of T bytes, was taken with
 * the probability p = 1 - exp(-(size + 1) / T). It stands for 1 / p blocks and
 * size / p bytes, each rounded up or down at random to a whole number with
 * this mean, so that sums of whole numbers are unbiased. The mark keeps which
 * way, and T: what a free takes off is what the allocation has added.
 *
 *	   7          6       5      0
 *	bytes up   count up     rate		T = ha_shm.interval[rate]
 */
#define HA_RATES	   64u
#define HA_MARK_RATE(mark) ((mark) & (HA_RATES - 1))
#define HA_MARK_COUNT_UP   0x40u
#define HA_MARK_BYTES_UP   0x80u
#define HA_RATE_EXACT	   0u
#define HA_INTERVAL_MAX	   (1ull << 38)

struct ha_segment {
	uint64_t offset;  /* I  from the start of shm */
	uint64_t buckets; /* I  a power of two */
};

/*
 * The newest segment in one word, so that offset and size are read together:
 *
 *	     63      62       12    11   6    5       0
 *	 has older    offset, page-aligned     hash shift
 *
 * A hash of 64 bits, shifted right by so much, is the number of one of its
 * pages. 0: there is no segment, or its buckets are less than two pages or
 * don't begin at one.
 */
#define HA_NEWEST_OLDER		(1ull << 63)
#define HA_NEWEST_OFFSET(word)	((word) & ~(HA_NEWEST_OLDER | (HA_PAGE - 1)))
#define HA_NEWEST_SHIFT(word)	((word)&63)
#define HA_SEGMENT_SHIFT(pages) (64 - (uint64_t)__builtin_ctzll(pages))

static inline uint64_t ha_newest(const struct ha_segment *newest, uint64_t segments)
{
	uint64_t pages = newest->buckets * sizeof(struct ha_bucket) / HA_PAGE;

	if (pages < 2 || newest->offset % HA_PAGE)
		return 0;
	return newest->offset | HA_SEGMENT_SHIFT(pages) | (segments > 1 ? HA_NEWEST_OLDER : 0);
}

/*
 * Sums of one site in one stripe. In exact mode each event adds its size and
 * 1; a sample adds what it stands for. "freed" cancels "alloc" exactly: both
 * use what the live cell holds.
 */
struct ha_sums {
	uint64_t alloc_bytes; /* P */
	uint64_t alloc_count;
	uint64_t freed_bytes;
	uint64_t freed_count;
	/*
	 * P  freed by the thread that had allocated them before it allocated anything
	 * else; only of blocks that stand for themselves, and not in shared stripes
	 */
	uint64_t temporary;
	uint64_t spare;
	uint64_t missed_frees; /* P  blocks of this site that were freed unseen */
	uint64_t captures;     /* P  times that the site was captured from this stripe */
};
_Static_assert(sizeof(struct ha_sums) == 64, "ha_sums");

/*
 * Of one site in one stripe, in powers of 2: the sizes of what was allocated,
 * and how long that lived which was freed. Not each event is looked at: the
 * first HA_PICK_ALL, then one of HA_PICK, which counts for HA_PICK; a sample
 * always, and for the blocks that it stands for. All of one array are halved
 * before one of them overflows, so that they say what part of all has which
 * size, and the sums say how many all are.
 */
#define HA_BINS	     24u
#define HA_PICK_ALL  64u
#define HA_PICK_BITS 6u
#define HA_PICK	     (1u << HA_PICK_BITS)
struct ha_histograms {
	uint32_t size[HA_BINS];	    /* P  [0] below 8 bytes, [k] below 8 << k, the last: all else */
	uint32_t lifetime[HA_BINS]; /* P  [0] below 1 tick, [k] below 1 << k, the last: all else */
};
_Static_assert(sizeof(struct ha_histograms) == 192, "ha_histograms");

/* The bin of a number: how many bits it has. */
static inline uint32_t ha_bin(uint64_t number)
{
	uint32_t bits = number ? 64u - (uint32_t)__builtin_clzll(number) : 0;

	return bits < HA_BINS ? bits : HA_BINS - 1;
}
#define HA_SIZE_BIN(size) ha_bin((uint64_t)(size) >> 3)
/* 128 bits: low may have overflowed while high does not yet know. */
struct ha_wide {
	uint64_t low; /* P */
	uint64_t high;
};

/*
 * The variances of the sums of one site in one stripe; samples only. A sample
 * of size bytes that stands for count blocks and bytes bytes adds the mean of
 * count * (count - 1) and bytes * (bytes - size) over both ways of rounding:
 * unbiased, and above 0 also where hardly any block is missed. With
 * HA_VARIANCE_BITS behind the point. In use has the variance alloc - freed.
 */
#define HA_VARIANCE_BITS 24u
struct ha_variances {
	struct ha_wide alloc_bytes, freed_bytes;
	struct ha_wide alloc_count, freed_count;
};
_Static_assert(sizeof(struct ha_variances) == 64, "ha_variances");

/*
 * Counters of one stripe: what could not be done as wanted. The first line has
 * what each call writes.
 */
struct ha_stripe {
	uint64_t events; /* P  calls that reached core */
	/*
	 * What the owner of an exclusive line recorded last, and the sp of that
	 * call. A nested duplicate is an insert of a block that is live, was the
	 * last one that this thread recorded, and was recorded for a call made
	 * further in on the same stack: the inner of two hooked functions that
	 * call each other handed it out, nobody freed it in between. The block is
	 * then recorded for the outer call. (The same from the same depth or from
	 * further out is a missed free.)
	 */
	uint64_t last_ptr;	/* P */
	uint64_t last_sp;	/* P */
	uint64_t unknown_frees; /* P  frees of blocks not in the live table: from before the attach
				 */
	uint64_t walks;		/* P  plain walks (the trie did not know the stack) */
	uint64_t truncated;	/* P  walks that ended before the outermost frame */
	uint64_t missed_frees;	/* P  an address was handed out again that was still live here */
	uint64_t nested_duplicates; /* P  one call seen at two layers: see last_ptr */
	uint64_t untracked;	    /* P  blocks without room in the live table */
	uint64_t untracked_bytes;
	uint64_t adopted; /* P  reallocs of unknown blocks: counted as new */
	uint64_t adopted_bytes;
	uint64_t no_scratch; /* P  walks given up for want of a buffer */
	uint64_t no_site;    /* P  events put on HA_SITE_UNKNOWN: site table or arena full */
	uint64_t oversized;  /* P  sizes above HA_VALUE_SIZE_MAX, recorded as that */
	uint64_t randoms;    /* P  random numbers used so far */
};
_Static_assert(sizeof(struct ha_stripe) == 128, "ha_stripe");

/* One distinct call stack. Published through the site index after it is whole. */
enum ha_site_flags {
	HA_SITE_TRUNCATED = 1, /* the walk stopped before the outermost frame */
	HA_SITE_GUESSED = 2,   /* a frame-pointer step was taken, or rbp 0 taken for the end */
	HA_SITE_STALE = 4,     /* a frame lies in a module that was not yet known */
	HA_SITE_DEEP = 8,      /* more than HA_FRAMES_MAX frames: the outermost are missing */
};
struct ha_site {
	uint64_t hash;	     /* P */
	uint32_t generation; /* P  of the module index it was first met under; the same stack in
				   the same module instances stays this site under later ones */
	uint16_t frames;     /* P  1..HA_FRAMES_MAX */
	uint16_t flags;	     /* P  enum ha_site_flags */
	/*
	 * P  Innermost first: return addresses; for code that a signal
	 * interrupted, the address of the instruction + 1. pc - 1 lies in the
	 * right instruction either way.
	 */
	uint64_t pc[];
};
_Static_assert(sizeof(struct ha_site) == 16, "ha_site");

/* ---- captures: for checking the stacks of an event now and then ---- */

/*
 * The machine state that a site was found for: the caller's registers, and a
 * copy of the stack from there outwards, cut off where there is no more room.
 * The injector unwinds it by other means and compares. Taken while
 * ha_shm.capture_every is not 0.
 *
 *	FREE --P, compare-and-swap--> WRITING --P--> FULL --I--> FREE
 *
 * A capture that its thread was torn out of stays WRITING.
 */
#define HA_CAPTURES	      64u
#define HA_CAPTURE_STACK_SIZE (128u * 1024u)

enum ha_capture_state {
	HA_CAPTURE_FREE = 0,
	HA_CAPTURE_WRITING = 1,
	HA_CAPTURE_FULL = 2,
};

struct ha_capture {
	uint64_t stack_address; /* P  of the first byte copied: the struct ha_frame of the call */
	uint32_t stack_size;	/* P  bytes copied */
	uint32_t site;		/* P  what the event was recorded under */
	uint64_t module_index;	/* P  offset from shm of the index that it was found with */
	uint64_t spare[5];
	uint64_t stack[HA_CAPTURE_STACK_SIZE / 8]; /* P */
};
_Static_assert(sizeof(struct ha_capture) == 64 + HA_CAPTURE_STACK_SIZE, "ha_capture");

struct ha_captures {
	uint32_t state[HA_CAPTURES]; /* both  enum ha_capture_state */
	uint64_t spare[480];
	struct ha_capture capture[HA_CAPTURES];
};
_Static_assert(sizeof(struct ha_captures) == HA_PAGE + HA_CAPTURES * sizeof(struct ha_capture),
	       "ha_captures");

/* ---- unwind tables, made by the resolver ---- */

/*
 * Rows of one module, sorted by pc; positions are relative to the module's
 * lowest covered pc rounded down to 256 (@base, unrelocated).
 *
 *	u32 block[nblocks + 1]  index of the first row whose pc >= base + 256 * b
 *	u8  low[nrows]          low 8 bits of the row's pc
 *	u16 rule[nrows]         packed rule
 *	struct ha_rule_ext ext[next]
 *
 * The row of a pc is the last row at or before it (block b holds none: the
 * last row of an earlier block). Row 0 stands at @base.
 */
struct ha_table {
	uint64_t base; /* I0 unrelocated address (ELF vaddr) of block 0 */
	uint64_t bias; /* I0 address in the target = vaddr + bias */
	uint32_t nblocks;
	uint32_t nrows;
	uint32_t next;
	uint32_t block; /* offsets from this struct */
	uint32_t low;	/* 16 bytes of slack behind, for vector reads */
	uint32_t rule;
	uint32_t ext;
	uint32_t size; /* bytes from this struct to the end of its arrays */
};
_Static_assert(sizeof(struct ha_table) == 48, "ha_table");

/*
 * A packed rule for how to step out of a frame:
 *
 *	b15      CFA base: 0 rsp, 1 rbp
 *	b14..b5  CFA offset / 8, 0..1022
 *	b4..b0   0: rbp unchanged; k: caller's rbp saved at CFA - 8k
 *
 * The return address is at CFA - 8. Offset 1023 is the escape space: the low
 * 5 bits and b15 give a code below HA_RULE_EXT, or an index into ext[] (b15
 * and b4..b0 are then taken from the code: HA_ESCAPE).
 */
#define HA_RULE_RBP		0x8000u
#define HA_RULE_OFFSET(rule)	((((rule) >> 5) & 0x3ffu) * 8u)
#define HA_RULE_SAVED(rule)	((rule)&0x1fu)
#define HA_RULE_ESCAPE		0x7fe0u
#define HA_RULE_IS_ESCAPE(rule) (((rule)&HA_RULE_ESCAPE) == HA_RULE_ESCAPE)

enum ha_escape {
	HA_ESCAPE_END = 0x7fe0,	    /* outermost frame: RA undefined */
	HA_ESCAPE_UNKNOWN = 0x7fe1, /* no FDE here */
	HA_ESCAPE_SIGNAL = 0x7fe2,  /* rt_sigreturn trampoline: ucontext at sp */
	HA_ESCAPE_PLT11 = 0x7fe3,   /* CFA = rsp + 8 + ((pc & 15) >= 11) * 8 */
	HA_ESCAPE_PLT10 = 0x7fe4,   /* CFA = rsp + 8 + ((pc & 15) >= 10) * 8 */
	HA_ESCAPE_EXT = 0xffe0,	    /* rule in ext[]: the first ext row with this row's number */
};

/* A rule that does not fit: found by bisecting ext[] for the row number. */
enum ha_ext_base {
	HA_EXT_RAX,
	HA_EXT_RDX,
	HA_EXT_RCX,
	HA_EXT_RBX,
	HA_EXT_RSI,
	HA_EXT_RDI,
	HA_EXT_RBP,
	HA_EXT_RSP,
	HA_EXT_R8,
	HA_EXT_R9,
	HA_EXT_R10,
	HA_EXT_R11,
	HA_EXT_R12,
	HA_EXT_R13,
	HA_EXT_R14,
	HA_EXT_R15, /* DWARF numbers of x86-64 */
};
enum ha_ext_flags {
	HA_EXT_DEREF = 1,     /* CFA = *(base + cfa_offset) + cfa_add */
	HA_EXT_RBP_SAVED = 2, /* caller's rbp at CFA + rbp_offset */
	HA_EXT_RA_REGISTER =
		4,	       /* return address is in register ra (a call site cannot have that) */
	HA_EXT_STOP = 8,       /* an expression that we do not evaluate: stop here, flag it */
	HA_EXT_RBP_DEREF = 16, /* caller's rbp at *(rbp + rbp_offset): DRAP's second form */
};
#define HA_EXT_SAVED_UNKNOWN 0xffu
struct ha_rule_ext {
	uint32_t row;  /* I0 */
	uint8_t base;  /* I0 enum ha_ext_base */
	uint8_t flags; /* I0 enum ha_ext_flags */
	uint8_t ra;    /* I0 enum ha_ext_base */
	uint8_t pad;
	int32_t cfa_offset;
	int32_t cfa_add;
	int32_t rbp_offset;
	/*
	 * Where the callee-saved registers rbx, r12..r15 were saved, in units of
	 * 8 bytes below the CFA; 0 = unchanged. Filled for every row of modules
	 * whose rows need them (a base other than rsp and rbp further out).
	 * HA_EXT_SAVED_UNKNOWN: it was saved, but not at such a place.
	 */
	uint8_t saved[5];
	uint8_t pad2[3];
};
_Static_assert(sizeof(struct ha_rule_ext) == 28, "ha_rule_ext");

/* One executable range of the target, as the walk needs it. */
enum ha_module_flags {
	HA_MODULE_NO_TABLE = 1,	 /* no CFI: frame-pointer steps, flagged */
	HA_MODULE_ENTRY = 2,	 /* our own entry object */
	HA_MODULE_PERMANENT = 4, /* cannot be unloaded: there since the program started */
};
struct ha_module {
	uint64_t low, high; /* I0 addresses in the target, [low, high) */
	uint64_t table;	    /* I0 offset of struct ha_table from shm; 0 = none */
	uint32_t id;	    /* I0 the injector's number for this module instance */
	uint32_t flags;	    /* I0 enum ha_module_flags */
};
_Static_assert(sizeof(struct ha_module) == 32, "ha_module");

/* An immutable version of the module list, sorted by low. */
struct ha_module_index {
	uint32_t count;
	uint32_t generation; /* I0 grows when a range was unmapped or replaced */
	uint64_t loads;	     /* I0 _dl_load_adds when this version was made */
	struct ha_module module[];
};

/* Stack regions other than pthread stacks, sorted by low; immutable versions. */
struct ha_stack {
	uint64_t low, high; /* I0 [low, high) is mapped and is one stack */
};
struct ha_stack_index {
	uint64_t count;
	struct ha_stack stack[];
};

/* ---- the header ---- */
struct ha_shm {
	uint64_t magic;			     /* I0 HA_MAGIC */
	uint32_t abi;			     /* I0 HA_ABI */
	uint32_t session;		     /* I0 */
	uint64_t size;			     /* I0 bytes of shm */
	struct ha_region region[HA_REGIONS]; /* I0 */
	uint64_t site_capacity;		     /* I0 sites, at most HA_SITES_MAX */
	uint64_t stripe_size;		     /* I0 bytes from one stripe to the next */
	/*
	 * I0 as in ha_entry. 0: every call reaches core, blocks are not in the
	 * filter; all are recorded until rate is another than HA_RATE_EXACT.
	 */
	uint32_t sampling;
	uint32_t rate;				  /* I  index into interval of the one in force */
	uint64_t seed;				  /* I0 of the random numbers */
	uint64_t lines;				  /* I  address of ha_entry.lines in the target */
	uint64_t filter;			  /* I  as in ha_entry */
	uint64_t main_fs;			  /* I0 thread pointer of the main thread */
	uint64_t main_stack_low, main_stack_high; /* I  bounds of [stack] */
	uint64_t tcb_stack_offset; /* I0 offset in the TCB of (block, size) words; 0 = unknown */
	uint64_t load_adds;	   /* I0 address of the loader's load counter; 0 = unknown */
	uint64_t capture_every; /* I  capture one of so many events of a stripe, and the first few
				   of each site; 0 = none */
	uint64_t entry_low, entry_high; /* I0 entry's stubs */
	uint64_t interval[HA_RATES];	/* I  mean bytes between samples; [HA_RATE_EXACT] is 1. An
				      entry that was in force does not change any more */

	/* A robust mutex held by the injector's main thread: bit 30 = it died. */
	uint8_t owner[64]
		__attribute__((aligned(64))); /* I  pthread_mutex_t; its first word is read */

	/* Words that change while recording; on lines of their own. */
	uint32_t tick __attribute__((aligned(64))); /* I  time since start in units of HA_TICK_MS */
	uint32_t tick_pad;
	uint64_t module_index; /* I  offset of the current struct ha_module_index */
	uint64_t stack_index;  /* I  offset of the current struct ha_stack_index */
	uint64_t segments;     /* I  live table segments in use */
	uint64_t newest;       /* I  the last one of them in one word, see HA_NEWEST */
	struct ha_segment segment[HA_SEGMENTS]; /* I */

	uint32_t site_next __attribute__((aligned(64))); /* P  next site number; starts at 1 */
	uint32_t site_limit; /* I  numbers from here on are not given out: no memory for more */
	uint64_t arena_next; /* P  bytes used of the site arena */

	/*
	 * Counters of rare things that need no stripe; locked adds.
	 */
	uint64_t unknown_pc
		__attribute__((aligned(64))); /* P  a pc outside every known module (last seen) */
	uint64_t unknown_pcs;		      /* P  how often */
	uint64_t gave_up; /* P  calls that passed through because the injector died; the first 1000
			   */
};

#define HA_OWNER_DIED 0x40000000u /* FUTEX_OWNER_DIED in the first word of ha_shm.owner */

/* ------------------------------------------------------------------------
 * Boot: what runs on the borrowed thread (in core's image, on a stack of its
 * own in HA_REGION_BOOT), and the messages on the socket.
 *
 *	close peer_fd, give the new mappings their madvise
 *	save errno, park the pending dlerror
 *	trylock the loader's lock, at most lock_timeout_us
 *	dlopen(path)		(mode DLOPEN only)
 *	send HELLO, wait for window to leave WAITING, at most window_timeout_us
 *	make the changes	(window GO only)
 *	unlock, put dlerror and errno back
 *	close close_fds, send DONE, close the socket
 *	wait at most done_timeout_us to be stopped; then, if nobody took over
 *	(compare-and-swap on restore), rt_sigreturn to where T was
 */
enum ha_boot_mode {
	HA_BOOT_DLOPEN,	   /* under the loader's lock, load entry, then the window */
	HA_BOOT_LOCK_ONLY, /* under the loader's lock, the window (stop, map loader) */
};

enum ha_window {
	HA_WINDOW_WAITING = 0,
	HA_WINDOW_GO = 1,	 /* I  by compare-and-swap: make the changes */
	HA_WINDOW_TIMED_OUT = 2, /* P  by compare-and-swap: nothing will be changed */
	HA_WINDOW_ABORT = 3,	 /* I  by compare-and-swap: nothing is to be changed */
};

/*
 * A word that threads of the target read while it is changed: a slot, a pair's
 * body. Its thread changes it, by one compare-and-swap. The kernel does not
 * promise to store a word at once: where it copies byte by byte (rep movsb, on
 * processors that have FSRM), a thread that reads meanwhile jumps to a mixture
 * of the two addresses.
 *
 * Outside of boot, T makes one change at a time at ha_core.change: compare rax with
 * the word at rdi, and store rdx; then make the system call r8, and return.
 */
struct ha_change {
	uint64_t address; /* a multiple of 8 */
	uint64_t expected;
	uint64_t value; /* stored if the word is @expected */
	uint32_t page;	/* index into ha_changes.page */
	uint32_t pad;
};

/* Slots of a program that is linked with -z relro lie in pages that cannot be written to. */
struct ha_change_page {
	uint64_t address;
	uint32_t protection; /* PROT_*: what the page has, and gets back */
	int32_t error;	     /* P  -errno: words on it are not changed, or it stayed writable */
};

#define HA_CHANGES_MAX	    32768u
#define HA_CHANGE_PAGES_MAX 8192u
struct ha_changes {
	uint32_t count, page_count; /* I */
	uint32_t made;		    /* P  1: all that could be changed is */
	uint32_t pad;
	struct ha_change_page page[HA_CHANGE_PAGES_MAX];
	struct ha_change change[HA_CHANGES_MAX]; /* in this order */
};

enum ha_restorer {
	HA_RESTORE_NOBODY = 0,
	HA_RESTORE_INJECTOR = 1, /* I  by compare-and-swap, while T is stopped: the injector
				    restores it. If boot still runs 1 s after, the injector
				    has died, and boot turns the word into SELF */
	HA_RESTORE_SELF = 2,	 /* P  by compare-and-swap: T restores itself by rt_sigreturn */
};

enum ha_boot_status {
	HA_BOOT_STARTED = 0,
	HA_BOOT_BUSY = 1,   /* the loader's lock was not free within lock_timeout_us */
	HA_BOOT_FAILED = 2, /* dlopen failed; message has dlerror's text */
	HA_BOOT_LOCKED = 3, /* lock held (and entry loaded): HELLO was sent */
	HA_BOOT_UNLOCKED = 4,
};

/* What a descriptor is open on: st_dev and st_ino of fstat(). */
struct ha_file {
	uint64_t device, inode;
};

struct ha_boot {
	/* I, before boot runs */
	uint32_t mode;	     /* enum ha_boot_mode */
	int32_t sock_fd;     /* in the target */
	uint64_t fn_trylock; /* pthread_mutex_trylock, pthread_mutex_unlock */
	uint64_t fn_unlock;
	uint64_t fn_dlopen;
	uint64_t fn_dlerror;
	uint64_t fn_errno_location;
	uint64_t lock;		/* address of the loader's lock */
	int64_t dlerror_offset; /* of libc's pending-dlerror word from the thread pointer; 0 = not
				   found */
	uint32_t lock_timeout_us;
	uint32_t window_timeout_us;
	uint32_t done_timeout_us;
	int32_t close_fds[3]; /* -1 = none; closed before DONE */
	uint32_t watch_us; /* for so long a word is looked at before T sleeps; 0 where T shares its
			      processor with the injector */
	/*
	 * What would cost a stop and a resumption each if it were asked for from
	 * outside: close the injector's end of the socket pair, so that boot sees
	 * when the injector dies; have fork wipe the gate; leave shm out of core dumps;
	 * at the end of a session, give back the filter's memory.
	 */
	int32_t peer_fd;	    /* -1 = none */
	uint64_t wipe, wipe_size;   /* mapping for MADV_WIPEONFORK; size 0 = none */
	uint64_t hide, hide_size;   /* for MADV_DONTDUMP */
	uint64_t empty, empty_size; /* for MADV_DONTNEED, last; may fail */
	uint64_t sigframe;	    /* address for rsp at rt_sigreturn; 0 = there is none */
	uint64_t changes;	    /* address of struct ha_changes; 0 = there are none */
	char path[64];

	/* P */
	uint32_t status; /* enum ha_boot_status */
	uint32_t lock_tries;
	uint64_t handle; /* what dlopen returned: a struct link_map */
	uint64_t begin_ns, locked_ns, loaded_ns, end_ns; /* CLOCK_MONOTONIC */
	char message[256];				 /* dlerror's text, NUL-terminated */

	/* both, by compare-and-swap */
	uint32_t window;  /* enum ha_window */
	uint32_t restore; /* enum ha_restorer */
	uint32_t done;	  /* P  1: DONE was sent and the socket closed: T may be stopped */
	int32_t tid;	  /* I  the thread, in the injector's PID namespace */

	/*
	 * I, before boot runs: what was opened under those numbers. A program that
	 * closes all that it did not open itself may have its own there by now.
	 */
	struct ha_file sock_file, peer_file, close_files[3];
};

/* Layout of HA_REGION_BOOT. */
#define HA_BOOT_STACK_TOP (256u * 1024u) /* stack grows down from here to struct ha_boot */
#define HA_BOOT_SIGFRAME  (256u * 1024u) /* the sigreturn frame lies above */
#define HA_BOOT_SIZE	  (384u * 1024u)

enum ha_message_kind {
	HA_MESSAGE_HELLO = 1,
	HA_MESSAGE_DONE = 2,
};
struct ha_message {
	uint64_t magic;	 /* HA_MAGIC */
	uint32_t kind;	 /* enum ha_message_kind */
	uint32_t status; /* enum ha_boot_status */
	uint64_t handle;
};
_Static_assert(sizeof(struct ha_message) == 24, "ha_message");

#endif
