/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The profile: sums by call stack, at the start, in between and at the end of
 * one session, with what was and was not seen. The one aggregate that the
 * recording file and every report come from.
 *
 *	site      a distinct stack: a list of locations, innermost first
 *	location  an address in a module; resolves to frames, inlined ones first
 *	frame     function, file and line, as far as known
 *	snapshot  sums of the sites at one time; holds only what changed
 *
 * The structs are open for reading; they are filled by the functions below.
 * All strings belong to the profile and are interned: two equal strings are
 * one pointer, and an unknown string is NULL. They may hold any byte: a writer
 * escapes them for its format.
 *
 * A profile belongs to one thread at a time. Adding may move the arrays:
 * pointers into them are good until the next call that adds.
 */
#ifndef RESOLVER_PROFILE_H
#define RESOLVER_PROFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "resolver/error.h"
#include "resolver/hashindex.h"

#define PROFILE_NONE UINT32_MAX /* no module, no location */

/* Bounds, so that neither days of recording nor a hostile file fills our memory. */
#define PROFILE_MODULES_MAX   (1u << 14)
#define PROFILE_LOCATIONS_MAX (1u << 23)
#define PROFILE_FRAMES_MAX    (1u << 23)
#define PROFILE_SITES_MAX     (1u << 20) /* HA_SITES_MAX is half of it */
#define PROFILE_DEPTH_MAX     1024u	 /* locations of one site */
#define PROFILE_SNAPSHOTS_MAX 600u	 /* more than these are thinned out evenly */
#define PROFILE_CHANGES_KEPT  1000000u	 /* of all snapshots but the last three: 40 MB */
#define PROFILE_CHANGES_MAX   4000000u	 /* the same in what is read: others may keep more */

/* Why the session ended. */
enum profile_end {
	PROFILE_END_TIME,	 /* the asked-for time was up */
	PROFILE_END_INTERRUPTED, /* the user asked (Ctrl-C, SIGTERM) */
	PROFILE_END_EXITED,	 /* the target exited; end_status is its exit status, -1 unknown */
	PROFILE_END_KILLED,	 /* the target was killed; end_status is the signal, -1 unknown */
	PROFILE_END_EXEC,	 /* the target became another program */
	PROFILE_ENDS
};

/* What the one borrowed thread was stopped for. */
enum profile_pause_kind {
	PROFILE_PAUSE_ATTACH,
	PROFILE_PAUSE_STOP,   /* slots put back */
	PROFILE_PAUSE_UNLOAD, /* core unmapped */
	PROFILE_PAUSE_RETRY,  /* no safe point, or the loader was busy: handed back at once */
	PROFILE_PAUSE_UPDATE, /* new modules */
	PROFILE_PAUSES
};

struct profile_pause {
	enum profile_pause_kind kind;
	uint32_t stopped_us; /* how long the thread did not run its own code */
	uint32_t dlopen_us;  /* the part of it that was spent in dlopen */
};

struct profile_target {
	int64_t pid;
	uint32_t uid;	     /* effective */
	const char *comm;    /* as in /proc/PID/comm */
	const char *exe;     /* as the target names it */
	const char *cmdline; /* arguments joined by spaces */
};

/* One ELF object of the target. Equal path and build id: one module, even if mapped twice. */
struct profile_module {
	const char *path;     /* as the target names it */
	const char *build_id; /* lower-case hex; NULL if it has none */
	uint64_t low, high;   /* hull of its executable mappings in the target, [low, high) */
	uint64_t file_offset; /* of low in the file */
	uint64_t bias;	      /* address in the target = vaddr + bias */
	const char *symbols;  /* where names came from ("symtab", "debug file PATH"), NULL: none */
	const char *no_symbols; /* why there are none or no lines; NULL: there are */
	bool executable;	/* the program itself */
};

struct profile_frame {
	const char *function; /* demangled */
	const char *linkage;  /* as in the symbol table */
	const char *file;
	uint32_t line; /* 0 = unknown */
	bool inlined;  /* into the frame that follows */
};

struct profile_location {
	uint32_t module; /* index, or PROFILE_NONE: vaddr is the address in the target */
	uint32_t frame_first;
	uint32_t frame_count; /* frames, innermost first; 0 = not resolved */
	uint64_t vaddr;	      /* unrelocated address of the call: return address - 1 */
};

enum profile_site_flags {
	PROFILE_SITE_TRUNCATED = 1, /* the walk stopped before the outermost frame */
	PROFILE_SITE_GUESSED = 2,   /* a frame-pointer step was taken */
	PROFILE_SITE_STALE = 4,	    /* a frame lies in a module that was not yet known */
	PROFILE_SITE_DEEP = 8,	    /* the outermost frames are missing: too many */
	PROFILE_SITE_UNKNOWN = 16,  /* the stack could not be kept; no locations */
	PROFILE_SITE_FLAGS = 31
};

/* In exact mode counts of events; sampled, estimates. In use = allocated - freed, never negative.
 */
struct profile_sums {
	uint64_t alloc_bytes;
	uint64_t alloc_count;
	uint64_t freed_bytes;
	uint64_t freed_count;
};

/* Of the estimates in a site's sums; all 0 where every allocation was recorded. */
struct profile_variance {
	double alloc_bytes;
	double alloc_count;
	double inuse_bytes;
	double inuse_count;
};

struct profile_site {
	uint32_t location_first; /* into profile.site_location */
	uint32_t location_count;
	uint32_t flags; /* enum profile_site_flags */
	uint64_t missed_frees;
	struct profile_sums sums; /* as of the last snapshot */
	struct profile_variance variance;
	/*
	 * Blocks that the thread that had allocated them freed before it allocated
	 * anything else. Known only where every allocation was recorded.
	 */
	uint64_t temporary;
	uint64_t peak_bytes, peak_count; /* in use at the profile's peak */
};

/* When most bytes were in use, of the times of all snapshots, dropped ones too. */
struct profile_peak {
	uint64_t time_ns; /* since the start */
	uint64_t bytes, count;
};

/* What is told apart by powers of 2. */
enum profile_bin_kind {
	PROFILE_SIZES,	   /* of allocated blocks: bin k is below 8 << k bytes */
	PROFILE_LIFETIMES, /* of freed blocks: bin k is below 1 << k times 10 ms */
	PROFILE_AGES,	   /* of blocks still in use at the end: likewise */
	PROFILE_BIN_KINDS
};
#define PROFILE_BINS	      24u /* the last one has no upper end */
#define PROFILE_BINS_MAX      (1u << 25)
#define PROFILE_SIZE_LEAST    8u /* bytes */
#define PROFILE_TIME_LEAST_NS 10000000u

/* So many blocks of a site are in this bin. */
struct profile_bin {
	uint32_t site;
	uint8_t kind; /* enum profile_bin_kind */
	uint8_t bin;
	uint64_t count;
	uint64_t bytes; /* PROFILE_AGES; else 0 */
};

struct profile_change {
	uint32_t site;
	struct profile_sums sums; /* from this snapshot on */
};

struct profile_snapshot {
	uint64_t time_ns;	/* since the start */
	uint64_t rss_bytes;	/* of the target, all kinds; 0 = not known (it is dead) */
	uint64_t anon_bytes;	/* RssAnon: without files and shared memory, so without ours */
	uint64_t unknown_frees; /* so far */
	uint64_t interval;	/* samples: the largest since the snapshot before; 0 = not known */
	struct profile_sums totals;
	size_t change_count;
	struct profile_change *change; /* sites whose sums differ from the snapshot before */
};

/* What the target's memory was made of at one time. From /proc/PID/status. */
struct profile_memory {
	uint64_t rss_bytes; /* 0 = not known */
	uint64_t anon_bytes;
	uint64_t file_bytes;
	uint64_t shmem_bytes;
	uint64_t own_bytes;	  /* heapattach's own pages in it */
	bool allocator_known;	  /* the next two are known */
	uint64_t allocator_bytes; /* handed out by the allocator, by its own account */
	uint64_t allocator_free;  /* held by it, but free */
};

struct profile_skipped {
	const char *module;
	const char *reason;
};

/* What was not seen, or not as wanted. */
struct profile_coverage {
	uint64_t modules; /* looked at */
	uint64_t slots;	  /* hooked */
	size_t skipped_count;
	struct profile_skipped *skipped; /* modules, functions or slots that were not hooked */
	uint64_t events;		 /* calls recorded */
	uint64_t truncated_stacks;	 /* walks */
	uint64_t unknown_frees;		 /* frees of blocks from before the attach */
	uint64_t missed_frees;
	uint64_t untracked; /* blocks without room in the live table */
	uint64_t untracked_bytes;
	uint64_t adopted; /* reallocs of blocks from before the attach, counted as new */
	uint64_t adopted_bytes;
	uint64_t nested_duplicates;
	uint64_t saved_pointers; /* copies of hooked functions' addresses in memory: not hooked */
	uint64_t rebound_slots;	 /* the loader or the program replaced our hook */
	uint64_t not_restored_slots; /* at stop */
	uint64_t no_site;	     /* events whose stack could not be kept */
	uint64_t no_scratch;	     /* walks given up for want of a buffer */
	uint64_t oversized;	     /* sizes clipped to what a cell can hold */
	uint64_t gave_up;	     /* calls that passed through unseen */
	bool core_left;		     /* not all of ours could be taken out of the target */
	/*
	 * An allocator that the program calls directly, so that no slot leads to
	 * it: its name ("jemalloc in /usr/bin/x"). NULL if there is none.
	 */
	const char *direct_allocator;
};

/* How often samples were taken. All 0 in an exact profile. */
struct profile_sampling {
	uint64_t interval_low;	  /* least and largest interval that was in force; 1 = all */
	uint64_t interval_high;	  /* above 1: the sums are estimates */
	uint64_t changes;	  /* of the interval, while recording */
	uint32_t budget_permille; /* of the target's CPU time, as asked for; 0 = none */
	uint32_t cost_permille;	  /* what recording took of it, as estimated */
};

/* The memory that recording held, here and in the target, and what its bound changed. */
struct profile_limits {
	uint64_t memory_max_bytes;  /* 0 = not known */
	uint64_t memory_peak_bytes; /* without the reading of debug files at the end */
	bool raised;		    /* the interval had to rise for it */
	uint64_t raised_ns;	    /* when it first did, since the start */
	bool began_exact;	    /* every allocation was recorded until then */
};

struct profile_selfcheck {
	bool ran;
	uint64_t compared; /* captures */
	uint64_t distinct; /* stacks among them */
	uint64_t different;
};

struct strpool;

struct profile {
	struct profile_target target;
	int64_t start_unix_ns; /* CLOCK_REALTIME */
	uint64_t duration_ns;
	enum profile_end end;
	int32_t end_status;
	uint64_t interval; /* mean bytes between samples at the end; 1 = all */
	struct profile_sampling sampling;
	const char *loader;    /* "dlopen" or "map" */
	const char *allocator; /* what was hooked, in words ("glibc 2.36"); NULL unknown */
	struct profile_memory memory_start, memory_end;
	struct profile_memory memory_last; /* while it was recorded; 0 = not known */
	uint64_t own_peak_bytes;	   /* the most that own_bytes was */
	struct profile_coverage coverage;
	struct profile_limits limits;
	struct profile_selfcheck selfcheck;

	struct profile_peak peak;
	uint64_t look_ns; /* the longest time between two looks at it; 0 = not known */

	size_t pause_count, module_count, location_count, frame_count;
	size_t site_count, site_location_count, snapshot_count, bin_count;
	struct profile_pause *pause;
	struct profile_module *module;
	struct profile_location *location;
	struct profile_frame *frame;
	struct profile_site *site;
	uint32_t *site_location;
	struct profile_snapshot *snapshot;
	struct profile_bin *bin; /* by site, kind, bin; none is there twice, none is empty */

	/* Private. */
	struct strpool *strings;
	struct hashindex location_index, site_index;
	struct profile_sums *pending; /* sums of the snapshot that is being made */
	size_t pending_count;
	uint64_t spacing_ns; /* snapshots are at least so far apart, but for the last */
	size_t change_total, changes_max;
};

/* An empty profile: exact, no sites, no snapshots. */
MUST_CHECK struct error *profile_create(struct profile **ret);
/* NULL is fine. */
void profile_free(struct profile *profile);
/* Scope guard. */
void profile_freep(struct profile **profile);

/*
 * The interned copy of @text (NULL gives NULL), for the string fields:
 * `err = profile_string(profile, comm, &profile->target.comm);`
 */
MUST_CHECK struct error *profile_string(struct profile *profile, const char *text,
					const char **ret);

MUST_CHECK struct error *profile_add_pause(struct profile *profile,
					   const struct profile_pause *pause);
/* Copies the strings. */
MUST_CHECK struct error *profile_add_skipped(struct profile *profile, const char *module,
					     const char *reason);

/*
 * Copies *@module with its strings. Returns the index of the module that has
 * the same path and build id if there is one; its other fields stay.
 */
MUST_CHECK struct error *profile_add_module(struct profile *profile,
					    const struct profile_module *module, uint32_t *ret);

/* Finds or adds the location. @module: index or PROFILE_NONE. */
MUST_CHECK struct error *profile_add_location(struct profile *profile, uint32_t module,
					      uint64_t vaddr, uint32_t *ret);

/*
 * Say what @location is: @count frames, innermost first, the last one not
 * inlined; strings are copied. May come at any time, usually once at the end
 * for each of profile->location; a second call replaces the first.
 */
MUST_CHECK struct error *profile_resolve_location(struct profile *profile, uint32_t location,
						  const struct profile_frame *frames, size_t count);

/*
 * Finds or adds the site with these locations, innermost first, and flags.
 * Two stacks of the target that are the same code (a module that was loaded
 * twice) get one site: their sums are to be added up. At most
 * PROFILE_DEPTH_MAX locations.
 */
MUST_CHECK struct error *profile_add_site(struct profile *profile, const uint32_t *locations,
					  size_t count, uint32_t flags, uint32_t *ret);

/* Keep so many changes between snapshots at most, or PROFILE_CHANGES_KEPT. */
void profile_bound_changes(struct profile *profile, size_t count);

/*
 * A snapshot: begin, add the sums of every stack that has any (so far, since
 * the start; several for one site add up), end. The times must not decrease.
 * @head: its totals and changes are ignored. Sites may be added in between.
 * The first snapshot and the last one stay; of those in between some are
 * dropped evenly when there are more than PROFILE_SNAPSHOTS_MAX of them.
 */
MUST_CHECK struct error *profile_snapshot_begin(struct profile *profile,
						const struct profile_snapshot *head);
MUST_CHECK struct error *profile_snapshot_add(struct profile *profile, uint32_t site,
					      const struct profile_sums *sums);
MUST_CHECK struct error *profile_snapshot_end(struct profile *profile);

/*
 * Append a snapshot as it is stored: @count changes, sorted by site, each site
 * once, all known (else ERROR_FORMAT). Takes @changes, also on error. For
 * readers of recordings.
 */
MUST_CHECK struct error *profile_snapshot_append(struct profile *profile,
						 const struct profile_snapshot *head,
						 struct profile_change *changes, size_t count);

/* Add a bin; in any order, also to one that is there. profile_bins_end() is to follow. */
MUST_CHECK struct error *profile_add_bin(struct profile *profile, const struct profile_bin *bin);
void profile_bins_end(struct profile *profile);

/* The bins of @site of one kind: all PROFILE_BINS of them, 0 where there is none. */
struct profile_bins {
	uint64_t count[PROFILE_BINS];
	uint64_t bytes[PROFILE_BINS];
};
struct profile_bins profile_bins_of(const struct profile *profile, uint32_t site,
				    enum profile_bin_kind kind);

/* Sums of all sites as of the last snapshot. */
struct profile_sums profile_totals(const struct profile *profile);

/* Whether the sums are estimates. */
static inline bool profile_is_sampled(const struct profile *profile)
{
	return profile->sampling.interval_high > 1;
}

static inline void profile_sums_add(struct profile_sums *to, const struct profile_sums *from)
{
	to->alloc_bytes += from->alloc_bytes;
	to->alloc_count += from->alloc_count;
	to->freed_bytes += from->freed_bytes;
	to->freed_count += from->freed_count;
}

static inline void profile_variance_add(struct profile_variance *to,
					const struct profile_variance *from)
{
	to->alloc_bytes += from->alloc_bytes;
	to->alloc_count += from->alloc_count;
	to->inuse_bytes += from->inuse_bytes;
	to->inuse_count += from->inuse_count;
}

static inline uint64_t profile_inuse_bytes(const struct profile_sums *sums)
{
	return sums->alloc_bytes > sums->freed_bytes ? sums->alloc_bytes - sums->freed_bytes : 0;
}

static inline uint64_t profile_inuse_count(const struct profile_sums *sums)
{
	return sums->alloc_count > sums->freed_count ? sums->alloc_count - sums->freed_count : 0;
}

#endif
