/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The command line: a pure parser. It prints nothing, reads nothing but its
 * arguments and keeps nothing.
 */
#ifndef INJECTOR_OPTIONS_H
#define INJECTOR_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "resolver/error.h"
#include "resolver/report.h"

enum options_command {
	OPTIONS_ATTACH,
	OPTIONS_REPORT,
	OPTIONS_CHECK,
	OPTIONS_STOP,
	OPTIONS_HELP,
	OPTIONS_VERSION,
};

enum options_loader {
	OPTIONS_LOADER_ANY, /* dlopen, and map where that is not possible */
	OPTIONS_LOADER_DLOPEN,
	OPTIONS_LOADER_MAP,
};

/* Strings point into argv. */
struct options {
	enum options_command command;
	const char *output; /* NULL: the default name (attach), standard output (report) */

	/* attach */
	pid_t pid;
	uint64_t duration_ms; /* 0: until Ctrl-C or the target's end */
	enum options_loader loader;
	bool quiet;
	/* At most one of these three is set. */
	bool exact;
	uint64_t interval;	    /* mean bytes between samples, from 2 on */
	uint32_t overhead_permille; /* of the target's CPU time: the interval follows it */
	uint64_t max_memory; /* bytes that recording may hold, here and in the target; 0: default */
	bool selfcheck;

	/* report */
	const char *recording;
	enum report_format format;
	enum report_sort sort;
	uint32_t top; /* 0: the format's default */
};

/*
 * Returns ERROR_USAGE, with a hint, if @argv is not a command line of ours. A
 * --help or --version anywhere among valid options makes that the command.
 */
MUST_CHECK struct error *options_parse(int argc, char *const argv[], struct options *ret);

/* What --help prints; fits a screen of 80 by 24. */
const char *options_help(void);

#endif
