// SPDX-License-Identifier: GPL-3.0-or-later
#include "resolver/human.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "resolver/whole.h"

#define NS_PER_S 1000000000ull

struct human human_bytes(uint64_t bytes)
{
	static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	double value = (double)bytes / 1024;
	struct human ret;
	size_t unit = 0;

	if (bytes < 1024) {
		snprintf(ret.text, sizeof(ret.text), "%" PRIu64 " B", bytes);
		return ret;
	}
	/* 1023.95 would print as 1024.0. */
	for (; value >= 1023.95 && unit < 5; unit++)
		value /= 1024;
	snprintf(ret.text, sizeof(ret.text), "%.*f %s",
		 value < 9.995	 ? 2
		 : value < 99.95 ? 1
				 : 0,
		 value, units[unit]);
	return ret;
}

struct human human_signed_bytes(int64_t bytes)
{
	uint64_t size = bytes < 0 ? -(uint64_t)bytes : (uint64_t)bytes;
	struct human ret = {"+"};

	if (bytes < 0)
		ret.text[0] = '-';
	snprintf(ret.text + 1, sizeof(ret.text) - 1, "%.30s", human_bytes(size).text);
	return ret;
}

struct human human_count(uint64_t count)
{
	static const char units[] = "MGTPE";
	double value = (double)count / 1e6;
	struct human ret;
	size_t unit = 0;

	if (count < 1000) {
		snprintf(ret.text, sizeof(ret.text), "%" PRIu64, count);
	} else if (count < 1000000) {
		snprintf(ret.text, sizeof(ret.text), "%" PRIu64 ",%03" PRIu64, count / 1000,
			 count % 1000);
	} else if (count < 10000000) {
		snprintf(ret.text, sizeof(ret.text), "%" PRIu64 ",%03" PRIu64 ",%03" PRIu64,
			 count / 1000000, count / 1000 % 1000, count % 1000);
	} else {
		for (; value >= 999.95 && unit < 4; unit++)
			value /= 1000;
		snprintf(ret.text, sizeof(ret.text), "%.1f %c", value, units[unit]);
	}
	return ret;
}

struct human human_counted(uint64_t count, const char *noun)
{
	struct human ret = human_count(count);
	size_t size = strlen(ret.text);

	snprintf(ret.text + size, sizeof(ret.text) - size, " %.12s%s", noun, count == 1 ? "" : "s");
	return ret;
}

static struct human joined(const char *low, size_t low_size, const char *high)
{
	struct human ret;

	snprintf(ret.text, sizeof(ret.text), "%.*s to %.14s", (int)(low_size < 12 ? low_size : 12),
		 low, high);
	return ret;
}

struct human human_bytes_range(uint64_t low, uint64_t high)
{
	struct human from = human_bytes(low), to = human_bytes(high);
	size_t number = strcspn(from.text, " ");

	if (!strcmp(from.text, to.text))
		return to;
	if (strcmp(from.text + number, to.text + strcspn(to.text, " ")) != 0)
		number = strlen(from.text);
	return joined(from.text, number, to.text);
}

struct human human_count_range(uint64_t low, uint64_t high)
{
	struct human from = human_count(low), to = human_count(high);

	return strcmp(from.text, to.text) ? joined(from.text, strlen(from.text), to.text) : to;
}

/* "2 h 10 min"; "2 h" if there is nothing of the smaller unit. */
static struct human two_units(uint64_t big, const char *big_unit, uint64_t small,
			      const char *small_unit)
{
	struct human ret;
	int size = snprintf(ret.text, sizeof(ret.text), "%" PRIu64 " %s", big, big_unit);

	if (small)
		snprintf(ret.text + size, sizeof(ret.text) - (size_t)size, " %" PRIu64 " %s", small,
			 small_unit);
	return ret;
}

struct human human_duration(uint64_t ns)
{
	uint64_t s = ns / NS_PER_S + (ns % NS_PER_S >= NS_PER_S / 2);
	struct human ret;

	if (ns < 10 * NS_PER_S)
		snprintf(ret.text, sizeof(ret.text), "%.*f s", ns < NS_PER_S ? 2 : 1,
			 (double)ns / 1e9);
	else if (s < 60)
		snprintf(ret.text, sizeof(ret.text), "%" PRIu64 " s", s);
	else if (s < 3600)
		return two_units(s / 60, "min", s % 60, "s");
	else if (s < 86400)
		return two_units(s / 3600, "h", s % 3600 / 60, "min");
	else
		return two_units(s / 86400, s < 172800 ? "day" : "days", s % 86400 / 3600, "h");
	return ret;
}

struct human human_us(uint64_t us)
{
	struct human ret;

	if (us < 1000)
		snprintf(ret.text, sizeof(ret.text), "%" PRIu64 " us", us);
	else
		snprintf(ret.text, sizeof(ret.text), "%.2f ms", (double)us / 1e3);
	return ret;
}

static struct human signed_range(double low, double high)
{
	struct human from = human_signed_bytes(whole_signed(low));

	return joined(from.text, strlen(from.text), human_signed_bytes(whole_signed(high)).text);
}

/* What a rate is told by: hours if it is slow. */
static bool is_slow(double bytes_per_second)
{
	return bytes_per_second * 60 < 10 * 1024;
}

struct human human_rate(double bytes_per_second)
{
	bool slow = is_slow(bytes_per_second);
	struct human ret;

	snprintf(ret.text, sizeof(ret.text), "%.20s/%s",
		 human_bytes(whole_unsigned(bytes_per_second * (slow ? 3600 : 60))).text,
		 slow ? "h" : "min");
	return ret;
}

struct human human_rate_range(double low, double high)
{
	bool slow = is_slow(high > -low ? high : -low);
	double seconds = slow ? 3600 : 60;
	struct human range, ret;

	if (low >= 0)
		range = human_bytes_range(whole_unsigned(low * seconds),
					  whole_unsigned(high * seconds));
	else
		range = signed_range(low * seconds, high * seconds);
	snprintf(ret.text, sizeof(ret.text), "%.27s/%s", range.text, slow ? "h" : "min");
	return ret;
}

struct human human_share(uint64_t part, uint64_t all)
{
	struct human ret;

	snprintf(ret.text, sizeof(ret.text), "%.1f %%",
		 all ? (double)part * 100 / (double)all : 0.0);
	return ret;
}

struct human human_time(int64_t unix_ns)
{
	time_t seconds = unix_ns / (int64_t)NS_PER_S;
	struct human ret = {"?"};
	struct tm tm;

	if (gmtime_r(&seconds, &tm) && tm.tm_year < 8000)
		strftime(ret.text, sizeof(ret.text), "%Y-%m-%d %H:%M:%S", &tm);
	return ret;
}
