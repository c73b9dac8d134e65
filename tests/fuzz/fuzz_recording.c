// SPDX-License-Identifier: GPL-3.0-or-later
/*
 * A recording's body from anywhere: decoded, and if that works, encoded again
 * and reported in each format. The envelope (checksum, Zstandard) is left out,
 * since no fuzzer gets through it.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "resolver/cleanup.h"
#include "resolver/profile.h"
#include "resolver/recording.h"
#include "resolver/report.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(struct error *err)
{
	if (!err)
		return;
	fprintf(stderr, "%s\n", error_message(err));
	abort();
}

static void report_all(const struct profile *profile)
{
	const struct report_options options = {.sort = REPORT_SORT_ALLOC, .top = 5};

	for (int format = REPORT_TEXT; format <= REPORT_PPROF; format++) {
		CLEANUP(fclosep) FILE *out = fopen("/dev/null", "w");

		if (!out)
			abort();
		must(report_write(out, profile, format, &options));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	CLEANUP(profile_freep) struct profile *profile = NULL;
	CLEANUP(profile_freep) struct profile *again = NULL;
	CLEANUP(freep) uint8_t *body = NULL;
	struct error *err = recording_decode(data, size, &profile);
	size_t body_size;

	if (err) {
		error_free(err);
		return 0;
	}
	must(recording_encode(profile, &body, &body_size));
	must(recording_decode(body, body_size, &again));
	report_all(profile);
	return 0;
}
