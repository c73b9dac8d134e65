/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The sections of a recording's body, in the order in which they are written:
 * each refers to earlier ones only. Private to recording_encode.c and
 * recording_decode.c, which mirror each other function by function.
 */
#ifndef RESOLVER_RECORDING_SECTIONS_H
#define RESOLVER_RECORDING_SECTIONS_H

enum recording_section {
	RECORDING_STRINGS = 1,
	RECORDING_SESSION = 2, /* target, times, how it ended, pauses, memory, self-check */
	RECORDING_COVERAGE = 3,
	RECORDING_MODULES = 4,
	RECORDING_LOCATIONS = 5, /* with their frames */
	RECORDING_SITES = 6,
	RECORDING_SNAPSHOTS = 7,
	RECORDING_SAMPLING = 8,	  /* of samples only: intervals, variance of each site */
	RECORDING_LIMITS = 9,	  /* how much memory recording held, and might hold */
	RECORDING_AGES = 10,	  /* the peak; of each site: part in it, sizes, lifetimes, ages */
	RECORDING_INTERVALS = 11, /* of samples only: the interval of each snapshot */
	RECORDING_MEMORY = 12,	  /* of the target while it was recorded, ours in it */
	RECORDING_SECTIONS
};

/* Up to here every recording has all of them; of those behind any may be missing. */
#define RECORDING_LAST_REQUIRED RECORDING_SNAPSHOTS

/* The plain counters of struct profile_coverage, in file order. */
#define RECORDING_COUNTERS(X) \
	X(modules)            \
	X(slots)              \
	X(events)             \
	X(truncated_stacks)   \
	X(unknown_frees)      \
	X(missed_frees)       \
	X(untracked)          \
	X(untracked_bytes)    \
	X(adopted)            \
	X(adopted_bytes)      \
	X(nested_duplicates)  \
	X(saved_pointers)     \
	X(rebound_slots)      \
	X(not_restored_slots) \
	X(no_site)            \
	X(no_scratch)         \
	X(oversized)          \
	X(gave_up)

#endif
