// SPDX-License-Identifier: GPL-3.0-or-later
#include "resolver/report.h"

#include <errno.h>

struct error *report_flush(FILE *out)
{
	errno = 0;
	if (!fflush(out) && !ferror(out))
		return NULL;
	return error_os(errno ? errno : EIO, "cannot write the report");
}

struct error *report_write(FILE *out, const struct profile *profile, enum report_format format,
			   const struct report_options *options)
{
	switch (format) {
	case REPORT_JSON:
		return report_json(out, profile, options);
	case REPORT_FOLDED:
		return report_folded(out, profile, options);
	case REPORT_PPROF:
		return report_pprof(out, profile, options);
	default:
		return report_text(out, profile, options);
	}
}
