// SPDX-License-Identifier: GPL-3.0-or-later
/*
 * Folded stacks, as flamegraph.pl and its relatives read them: one line a site,
 * outermost frame first, then a space and one value.
 */
#include <inttypes.h>
#include <string.h>

#include "resolver/cleanup.h"
#include "resolver/report_sites.h"
#include "resolver/text.h"

/* ';' separates frames and must not occur in one. */
static struct error *put_name(FILE *out, const char *name)
{
	CLEANUP(freep) char *clean = text_printable(name);

	if (!clean)
		return error_memory();
	for (char *c = clean; *c; c++)
		fputc(*c == ';' ? ':' : *c, out);
	return NULL;
}

static struct error *put_frame(FILE *out, const struct profile *profile,
			       const struct report_frame *frame)
{
	struct error *err;

	if (frame->function)
		err = put_name(out, frame->function);
	else if (frame->module != PROFILE_NONE)
		err = put_name(out, report_basename(profile->module[frame->module].path));
	else
		err = NULL;
	if (err)
		return err;
	if (!frame->function)
		fprintf(out, "%s0x%" PRIx64, frame->module != PROFILE_NONE ? "+" : "",
			frame->vaddr);
	if (frame->inlined)
		fputs("_[i]", out);
	return NULL;
}

static struct error *put_site(FILE *out, const struct profile *profile,
			      const struct report_site *site, uint64_t value)
{
	CLEANUP(freep) struct report_frame *frames = NULL;
	size_t count, own;
	struct error *err = report_frames(profile, site->site, &frames, &count, &own);

	if (err)
		return err;
	if (!count)
		fputs("[stack not kept]", out);
	else if (site->flags & (PROFILE_SITE_TRUNCATED | PROFILE_SITE_DEEP))
		fputs("[cut short];", out);
	for (size_t i = count; i-- > 0;) {
		err = put_frame(out, profile, &frames[i]);
		if (err)
			return err;
		if (i)
			fputc(';', out);
	}
	fprintf(out, " %" PRIu64 "\n", value);
	return NULL;
}

struct error *report_folded(FILE *out, const struct profile *profile,
			    const struct report_options *options)
{
	CLEANUP(report_sites_deinit) struct report_sites sites = {0};
	struct error *err = report_sites_init(profile, options->sort, &sites);
	struct profile_sums rest;
	size_t shown;

	if (err)
		return err;
	shown = report_sites_shown(&sites, options, sites.count);
	for (size_t i = 0; i < shown; i++) {
		uint64_t value = report_sort_value(options->sort, &sites.site[i].sums);

		err = value ? put_site(out, profile, &sites.site[i], value) : NULL;
		if (err)
			return err;
	}
	rest = report_sites_rest(&sites, shown);
	if (report_sort_value(options->sort, &rest))
		fprintf(out, "[other] %" PRIu64 "\n", report_sort_value(options->sort, &rest));
	return report_flush(out);
}
