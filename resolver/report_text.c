// SPDX-License-Identifier: GPL-3.0-or-later
#include "resolver/report_text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "resolver/array.h"
#include "resolver/cleanup.h"
#include "resolver/funcname.h"
#include "resolver/human.h"
#include "resolver/report_ages.h"
#include "resolver/text.h"

#define LOCATION_COLUMN	    46u /* where file:line stands if the name leaves room */
#define LABEL_WIDTH	    10
#define GROWTH_WORTH_SAYING 1024 /* bytes an hour */
#define MISSING_SHOWN	    5u	 /* modules without names or lines that are listed */

/* ---- lines ---- */

static size_t columns(const char *text, size_t size)
{
	size_t count = 0;

	for (size_t i = 0; i < size; i++)
		count += (text[i] & 0xc0) != 0x80; /* not a continuation byte of UTF-8 */
	return count;
}

/* The cursor is at column @at; further lines are indented by @next. */
static void say_wrapped(FILE *out, size_t at, unsigned int next, const char *text)
{
	bool begun = false;

	while (*text) {
		size_t size = strcspn(text, " "), width = columns(text, size);

		if (begun && at + 1 + width > TEXT_WIDTH) {
			fprintf(out, "\n%*s", (int)next, "");
			at = next;
		} else if (begun) {
			fputc(' ', out);
			at++;
		}
		fwrite(text, 1, size, out);
		at += width;
		begun = true;
		text += size;
		text += strspn(text, " ");
	}
	fputc('\n', out);
}

static void say_formatted(const struct text_report *text, size_t at, unsigned int next,
			  const char *format, va_list args)
{
	CLEANUP(freep) char *raw = NULL;
	CLEANUP(freep) char *clean = NULL;

	if (vasprintf(&raw, format, args) < 0)
		raw = NULL;
	clean = raw ? text_printable(raw) : NULL;
	say_wrapped(text->out, at, next, clean ? clean : "(no memory to say this)");
}

void text_say(const struct text_report *text, unsigned int first, unsigned int next,
	      const char *format, ...)
{
	va_list args;

	fprintf(text->out, "%*s", (int)first, "");
	va_start(args, format);
	say_formatted(text, first, next, format, args);
	va_end(args);
}

void text_say_labelled(const struct text_report *text, const char *label, const char *format, ...)
{
	va_list args;

	fprintf(text->out, "%-*s", LABEL_WIDTH, label ? label : "");
	va_start(args, format);
	say_formatted(text, LABEL_WIDTH, LABEL_WIDTH, format, args);
	va_end(args);
}

/* ---- frames ---- */

/* "file:line", "module+0x123" or "0x7f00...": malloc'ed, NULL without memory. */
static char *frame_place(const struct profile *profile, const struct report_frame *frame)
{
	char *place;
	int made;

	if (frame->file && frame->line)
		made = asprintf(&place, "%s:%u", frame->file, frame->line);
	else if (frame->module != PROFILE_NONE)
		made = asprintf(&place, "%s+0x%" PRIx64,
				report_basename(profile->module[frame->module].path), frame->vaddr);
	else
		made = asprintf(&place, "0x%" PRIx64, frame->vaddr);
	return made < 0 ? NULL : place;
}

struct error *text_site_name(const struct text_report *text, uint32_t place, char **ret)
{
	CLEANUP(freep) struct report_frame *frames = NULL;
	CLEANUP(freep) char *where = NULL;
	size_t count, own;
	struct error *err =
		report_frames(text->profile, text->sites.site[place].site, &frames, &count, &own);
	CLEANUP(freep) char *function = NULL;
	int made;

	if (err)
		return err;
	if (!count) {
		*ret = strdup("(stack not kept)");
		return *ret ? NULL : error_memory();
	}
	where = frame_place(text->profile, &frames[own]);
	if (!where)
		return error_memory();
	if (frames[own].function) {
		function = funcname_shorten(frames[own].function);
		if (!function)
			return error_memory();
	}
	made = asprintf(ret, "%s%s%s", function ? function : "", function ? " at " : "",
			report_basename(where));
	return made < 0 ? error_memory() : NULL;
}

/*
 * The longest end of @place, from a slash on, that fits into @room columns
 * behind dots; @place itself if it fits, NULL if nothing does.
 */
static const char *place_end(const char *place, size_t room)
{
	const char *slash = place;

	if (columns(place, strlen(place)) <= room)
		return place;
	while ((slash = strchr(slash + 1, '/')))
		if (columns(slash, strlen(slash)) + 3 <= room)
			return slash;
	return NULL;
}

/* @place behind a name that ends at column @at: in its column where possible. */
static void print_place(FILE *out, size_t at, const char *place, bool inlined)
{
	const char *tail = inlined ? " (inlined)" : "";
	size_t room = TEXT_WIDTH - strlen(tail), width = columns(place, strlen(place));
	const char *end = at + 2 < room ? place_end(place, room - at - 2) : NULL;
	size_t column = LOCATION_COLUMN;

	if (!end) {
		at = 0;
		column = 8;
		fputc('\n', out);
		end = place_end(place, room - column);
		end = end ? end : place;
	}
	if (end != place)
		width = columns(end, strlen(end)) + 3;
	if (column + width > room)
		column = width < room ? room - width : at;
	if (column < at + 2)
		column = at + 2;
	fprintf(out, "%*s%s%s%s\n", (int)(column - at), "", end == place ? "" : "...", end, tail);
}

/* The function's name, shortened if it would not fit before its place. malloc'ed. */
static char *printable_name(const char *function)
{
	CLEANUP(freep) char *name = text_printable(function);

	if (!name || columns(name, strlen(name)) + 6 <= LOCATION_COLUMN)
		return take(name);
	return funcname_shorten(name);
}

static struct error *print_frame(const struct text_report *text, const struct report_frame *frame,
				 bool own)
{
	CLEANUP(freep) char *raw = frame_place(text->profile, frame);
	CLEANUP(freep) char *place = raw ? text_printable(raw) : NULL;
	CLEANUP(freep) char *name = frame->function ? printable_name(frame->function) : NULL;

	if (!place || (frame->function && !name))
		return error_memory();
	fprintf(text->out, "  %s %s", own ? ">" : " ", name ? name : place);
	if (name)
		print_place(text->out, 4 + columns(name, strlen(name)), place, frame->inlined);
	else
		fputc('\n', text->out);
	return NULL;
}

/* ---- one site ---- */

/* One character for each of the site's values over time; nothing if they are all 0. */
static void spark(const struct text_report *text, const uint64_t *value, char *ret)
{
	static const char *const blocks[] = {"\u2581", "\u2582", "\u2583", "\u2584",
					     "\u2585", "\u2586", "\u2587", "\u2588"};
	static const char *const ascii[] = {"_", ".", "-", "=", "+", "*", "%", "#"};
	const char *const *glyph = text->options->ascii ? ascii : blocks;
	uint64_t most = 0;

	*ret = '\0';
	for (unsigned int i = 0; i < VERDICT_POINTS; i++)
		if (value[i] > most)
			most = value[i];
	for (unsigned int i = 0; most && i < VERDICT_POINTS; i++)
		strcat(ret, glyph[(unsigned int)((double)value[i] / (double)most * 7)]);
}

/* Between which figures the truth lies; nothing where all is known. */
static void say_intervals(const struct text_report *text, unsigned int indent,
			  const struct profile_sums *sums, const struct profile_variance *variance)
{
	struct report_intervals at = report_intervals(text->profile, sums, variance);

	if (!profile_is_sampled(text->profile))
		return;
	text_say(text, indent, indent + 2,
		 "95 %% sure: %s still live in %s; %s allocated in %s, %s freed in %s",
		 human_bytes_range(at.inuse_bytes.low, at.inuse_bytes.high).text,
		 human_count_range(at.inuse_count.low, at.inuse_count.high).text,
		 human_bytes_range(at.alloc_bytes.low, at.alloc_bytes.high).text,
		 human_count_range(at.alloc_count.low, at.alloc_count.high).text,
		 human_bytes_range(at.freed_bytes.low, at.freed_bytes.high).text,
		 human_count_range(at.freed_count.low, at.freed_count.high).text);
}

/* Grows by how much, and how long its blocks live: only what is known, and not nothing. */
static void say_ages(const struct text_report *text, size_t place)
{
	const struct profile *profile = text->profile;
	const struct report_site *site = &text->sites.site[place];
	const uint64_t *series = &text->series[place * VERDICT_POINTS];
	struct profile_bins ages = report_bins(profile, &text->sites, place, PROFILE_AGES);
	struct profile_bins lives = report_bins(profile, &text->sites, place, PROFILE_LIFETIMES);
	uint64_t older_ns = report_half_above(PROFILE_AGES, ages.bytes);
	uint64_t within_ns = report_half_below(PROFILE_LIFETIMES, lives.count);
	struct report_growth growth = report_growth(profile, &text->sites, &text->middle, place);
	char part[3][96] = {"", "", ""};
	char line[320] = "";

	/* Not what may be chance. */
	if (growth.bytes * 3600 >= GROWTH_WORTH_SAYING && growth.low > 0 &&
	    site_trend(series) != TREND_YOUNG)
		snprintf(part[0], sizeof(part[0]), "grows by %s%s%s%s",
			 human_rate(growth.bytes).text,
			 profile_is_sampled(profile) ? " (95 % sure: " : "",
			 profile_is_sampled(profile)
				 ? human_rate_range(growth.low, growth.high).text
				 : "",
			 profile_is_sampled(profile) ? ")" : "");
	if (older_ns)
		snprintf(part[1], sizeof(part[1]), "half of it is older than %s",
			 human_duration(older_ns).text);
	if (within_ns && within_ns != UINT64_MAX)
		snprintf(part[2], sizeof(part[2]), "half of what was freed lived less than %s",
			 human_duration(within_ns).text);
	for (size_t i = 0; i < ARRAY_SIZE(part); i++) {
		if (*part[i] && *line)
			strcat(line, "; ");
		strcat(line, part[i]);
	}
	if (*line)
		text_say(text, 5, 5, "%s", line);
	if (site->temporary * 10 > site->sums.freed_count && !profile_is_sampled(profile))
		text_say(text, 5, 5,
			 "%s of %s freed were temporary: the next allocation came after",
			 human_count(site->temporary).text,
			 human_counted(site->sums.freed_count, "block").text);
}

static void print_figures(const struct text_report *text, size_t place)
{
	const struct report_site *site = &text->sites.site[place];
	const struct profile_sums *sums = &site->sums, *totals = &text->sites.totals;
	const uint64_t *value = &text->series[place * VERDICT_POINTS];
	char glyphs[VERDICT_POINTS * 4 + 1], head[128];
	int width;

	switch (text->options->sort) {
	case REPORT_SORT_ALLOC:
		width = snprintf(head, sizeof(head), "%s allocated, %s",
				 human_bytes(sums->alloc_bytes).text,
				 human_share(sums->alloc_bytes, totals->alloc_bytes).text);
		break;
	case REPORT_SORT_COUNT:
		width = snprintf(head, sizeof(head), "%s, %s",
				 human_counted(sums->alloc_count, "allocation").text,
				 human_share(sums->alloc_count, totals->alloc_count).text);
		break;
	default:
		width = snprintf(
			head, sizeof(head), "%s still live, %s, in %s",
			human_bytes(profile_inuse_bytes(sums)).text,
			human_share(profile_inuse_bytes(sums), profile_inuse_bytes(totals)).text,
			human_counted(profile_inuse_count(sums), "block").text);
	}
	spark(text, value, glyphs);
	fprintf(text->out, "%3zu. %s%*s%s%s%s\n", place + 1, head, width < 54 ? 54 - width : 2, "",
		glyphs, *glyphs ? " " : "", site_trend_name(site_trend(value)));
	if (text->options->sort == REPORT_SORT_INUSE)
		text_say(text, 5, 5, "allocated %s in %s, freed %s in %s",
			 human_bytes(sums->alloc_bytes).text,
			 human_counted(sums->alloc_count, "call").text,
			 human_bytes(sums->freed_bytes).text, human_count(sums->freed_count).text);
	else
		text_say(text, 5, 5, "%s in %s; still live %s in %s",
			 human_bytes(sums->alloc_bytes).text,
			 human_counted(sums->alloc_count, "call").text,
			 human_bytes(profile_inuse_bytes(sums)).text,
			 human_counted(profile_inuse_count(sums), "block").text);
	say_intervals(text, 5, sums, &site->variance);
	say_ages(text, place);
}

static void print_flags(const struct text_report *text, const struct report_site *site)
{
	if (site->flags & PROFILE_SITE_UNKNOWN)
		text_say(text, 4, 4, "(blocks whose stack could not be kept)");
	if (site->flags & PROFILE_SITE_TRUNCATED)
		text_say(text, 4, 4, "(cut short: the stack could not be followed further)");
	if (site->flags & PROFILE_SITE_DEEP)
		text_say(text, 4, 4, "(the outermost frames are missing: too many)");
	if (site->flags & PROFILE_SITE_GUESSED)
		text_say(text, 4, 4,
			 "(partly guessed, by frame pointers: code without unwind "
			 "tables)");
	if (site->flags & PROFILE_SITE_STALE)
		text_say(text, 4, 4,
			 "(a frame is in a module that was loaded meanwhile: its name "
			 "may be wrong)");
	if (site->missed_frees)
		text_say(text, 4, 4, "(%s of this site freed unseen)",
			 human_counted(site->missed_frees, "block").text);
}

static struct error *print_site(const struct text_report *text, size_t place)
{
	const struct report_site *site = &text->sites.site[place];
	CLEANUP(freep) struct report_frame *frames = NULL;
	size_t count, own;
	struct error *err = report_frames(text->profile, site->site, &frames, &count, &own);

	if (err)
		return err;
	fputc('\n', text->out);
	print_figures(text, place);
	for (size_t i = 0; i < count; i++) {
		err = print_frame(text, &frames[i], i == own);
		if (err)
			return err;
	}
	print_flags(text, site);
	return NULL;
}

/* ---- all sites ---- */

static void print_totals(const struct text_report *text)
{
	const struct profile_sums *totals = &text->sites.totals;
	double seconds = (double)text->profile->duration_ns / 1e9;
	double rate = seconds > 0 ? (double)totals->alloc_count / seconds : 0;

	fputc('\n', text->out);
	text_say(text, 0, 0, "%s still live in %s; %s (%s/s) of %s in all, %s.",
		 human_bytes(profile_inuse_bytes(totals)).text,
		 human_counted(profile_inuse_count(totals), "block").text,
		 human_counted(totals->alloc_count, "allocation").text,
		 human_count(rate < 1e18 ? (uint64_t)(rate + 0.5) : 0).text,
		 human_bytes(totals->alloc_bytes).text,
		 human_counted(totals->freed_count, "free").text);
	say_intervals(text, 2, totals, &text->sites.variance);
}

static void print_rest(const struct text_report *text, size_t shown)
{
	struct profile_sums rest = report_sites_rest(&text->sites, shown);
	struct profile_variance variance = report_variance_rest(&text->sites, shown);

	if (shown == text->sites.count)
		return;
	fputc('\n', text->out);
	text_say(text, 0, 0, "%s: %s still live in %s, %s allocated in %s.",
		 human_counted(text->sites.count - shown, "more site").text,
		 human_bytes(profile_inuse_bytes(&rest)).text,
		 human_counted(profile_inuse_count(&rest), "block").text,
		 human_bytes(rest.alloc_bytes).text, human_counted(rest.alloc_count, "call").text);
	say_intervals(text, 2, &rest, &variance);
}

/* The modules of the shown stacks that have no names or no lines, and why. */
static struct error *print_missing(const struct text_report *text, size_t shown)
{
	const struct profile *profile = text->profile;
	CLEANUP(freep) bool *said = calloc(profile->module_count + 1, sizeof(*said));
	struct report_frame frame;
	size_t lines = 0;

	if (!said)
		return error_memory();
	for (size_t i = 0; i < shown; i++) {
		struct report_walk walk = report_walk_begin(profile, text->sites.site[i].site);

		while (report_walk_next(&walk, &frame) && lines < MISSING_SHOWN) {
			const struct profile_module *module;

			if (frame.module == PROFILE_NONE || said[frame.module])
				continue;
			said[frame.module] = true;
			module = &profile->module[frame.module];
			if (!module->no_symbols)
				continue;
			if (!lines++)
				fputs("\nNames or lines are missing:\n", text->out);
			text_say(text, 2, 4, "%s: %s", report_basename(module->path),
				 module->no_symbols);
		}
	}
	return NULL;
}

/*
 * How many sites to show: as many as asked for. Else few enough to read: those
 * that make up 99 % together, at least 3 and at most REPORT_TEXT_TOP.
 */
static size_t sites_to_show(const struct text_report *text)
{
	size_t most = report_sites_shown(&text->sites, text->options, REPORT_TEXT_TOP), count = 0;
	enum report_sort sort = text->options->sort;
	double all = (double)report_sort_value(sort, &text->sites.totals), sum = 0;

	if (text->options->top)
		return most;
	while (count < most && (count < 3 || sum < 0.99 * all))
		sum += (double)report_sort_value(sort, &text->sites.site[count++].sums);
	return count;
}

static struct error *print_sites(const struct text_report *text)
{
	static const char *const orders[] = {
		[REPORT_SORT_INUSE] = "bytes still live",
		[REPORT_SORT_ALLOC] = "bytes allocated",
		[REPORT_SORT_COUNT] = "allocations",
	};
	size_t shown = sites_to_show(text);

	if (!text->sites.totals.alloc_count)
		return NULL;
	print_totals(text);
	if (shown < text->sites.count)
		text_say(text, 0, 0, "%zu of %s sites, by %s:", shown,
			 human_count(text->sites.count).text, orders[text->options->sort]);
	else
		text_say(text, 0, 0, "%zu %s, by %s:", shown, shown == 1 ? "site" : "sites",
			 orders[text->options->sort]);
	for (size_t i = 0; i < shown; i++) {
		struct error *err = print_site(text, i);

		if (err)
			return err;
	}
	print_rest(text, shown);
	return print_missing(text, shown);
}

static void text_deinit(struct text_report *text)
{
	report_sites_deinit(&text->sites);
	report_middle_deinit(&text->middle);
	free(text->series);
}

struct error *report_text(FILE *out, const struct profile *profile,
			  const struct report_options *options)
{
	CLEANUP(text_deinit)
	struct text_report text = {.out = out, .profile = profile, .options = options};
	struct error *err = report_sites_init(profile, options->sort, &text.sites);

	if (err)
		return err;
	err = report_series(profile, &text.sites, VERDICT_POINTS, &text.series);
	if (err)
		return err;
	err = report_middle_init(profile, &text.sites, &text.middle);
	if (err)
		return err;
	text.verdict = report_verdict(profile, &text.sites, text.series);
	text_verdict(&text);
	text_account(&text);
	text_header(&text);
	err = print_sites(&text);
	if (err)
		return err;
	return report_flush(out);
}
