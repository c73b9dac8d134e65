// SPDX-License-Identifier: GPL-3.0-or-later
/*
 * The program: commands, exit status, and the one place that prints.
 *
 * Standard output gets the report and nothing else; all that is said on the
 * way goes to standard error.
 */
#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "injector/check.h"
#include "injector/options.h"
#include "injector/outfile.h"
#include "injector/record.h"
#include "injector/stop.h"
#include "resolver/cleanup.h"
#include "resolver/recording.h"
#include "resolver/report.h"
#include "resolver/text.h"

enum exit_status {
	EXIT_RECORDED = 0,
	EXIT_FAILED = 1,
	EXIT_USAGE = 2,
};

/* Lines may hold names that come from a target or a file. */
static void say(const char *line)
{
	text_print(stderr, line);
	fputc('\n', stderr);
}

static void warn(const char *line)
{
	fputs("heapattach: ", stderr);
	say(line);
}

/* Print the error, free it, and say with what status to exit. */
static int fail(struct error *err)
{
	int status = error_is(err, ERROR_USAGE) ? EXIT_USAGE : EXIT_FAILED;

	warn(error_message(err));
	if (error_hint_text(err)) {
		fputs("  ", stderr);
		say(error_hint_text(err));
	}
	error_free(err);
	return status;
}

static void report_options_fill(const struct options *options, struct report_options *ret)
{
	*ret = (struct report_options){
		.sort = options->sort,
		.top = options->top,
		.ascii = strcmp(nl_langinfo(CODESET), "UTF-8") != 0,
	};
}

static void end_say(const struct profile *profile, const char *path)
{
	int pid = (int)profile->target.pid;

	switch (profile->end) {
	case PROFILE_END_EXITED:
		fprintf(stderr, "stopped because process %d exited; ", pid);
		break;
	case PROFILE_END_KILLED:
		fprintf(stderr, "stopped because process %d was killed by signal %d; ", pid,
			profile->end_status);
		break;
	case PROFILE_END_EXEC:
		fprintf(stderr, "stopped because process %d started another program; ", pid);
		break;
	default:
		if (profile->coverage.not_restored_slots || profile->coverage.core_left)
			fprintf(stderr,
				"not all of heapattach could be taken out of process %d: run "
				"heapattach stop -p %d; ",
				pid, pid);
		else
			fprintf(stderr, "detached from process %d, which runs on; ", pid);
		break;
	}
	fprintf(stderr, "wrote %s\n", path);
}

/*
 * The output file is made first: a file in the way or a directory that cannot
 * be written must not cost a session. Without a process there is no name for
 * it, and the attach will say so.
 */
static struct error *output_create(const struct options *options, struct outfile **ret)
{
	CLEANUP(fclosep) FILE *stream = NULL;
	char path[32], comm[64] = "";

	if (options->output)
		return outfile_create(options->output, ret);
	snprintf(path, sizeof(path), "/proc/%d/comm", options->pid);
	stream = fopen(path, "re");
	if (!stream || !fgets(comm, sizeof(comm), stream))
		return NULL;
	comm[strcspn(comm, "\n")] = '\0';
	return outfile_create_default(comm, options->pid, ret);
}

static int attach_command(const struct options *options)
{
	const struct record_output output = {.say = say, .warn = warn};
	CLEANUP(profile_freep) struct profile *profile = NULL;
	CLEANUP(outfile_freep) struct outfile *file = NULL;
	struct report_options report;
	struct error *err = output_create(options, &file);

	if (!err)
		err = record_run(options, &output, &profile);
	if (!err && !file)
		err = outfile_create_default(profile->target.comm, (pid_t)profile->target.pid,
					     &file);
	if (!err)
		err = recording_write(profile, outfile_fd(file), outfile_path(file));
	if (!err)
		err = outfile_commit(file);
	if (profile) {
		struct error *report_err;

		report_options_fill(options, &report);
		report_err = report_text(stdout, profile, &report);
		if (err)
			error_free(report_err);
		else
			err = report_err;
	}
	if (err)
		return fail(err);
	if (!options->quiet)
		end_say(profile, outfile_path(file));
	/* What was recorded is there to be looked at, but not to be relied upon. */
	return profile->selfcheck.different ? EXIT_FAILED : EXIT_RECORDED;
}

static struct error *report_to_file(const struct options *options, const struct profile *profile,
				    const struct report_options *report)
{
	CLEANUP(outfile_freep) struct outfile *file = NULL;
	CLEANUP(fclosep) FILE *stream = NULL;
	struct error *err = outfile_create(options->output, &file);

	if (err)
		return err;
	stream = fdopen(dup(outfile_fd(file)), "w");
	if (!stream)
		return error_os(errno, "cannot write %s", options->output);
	err = report_write(stream, profile, options->format, report);
	return err ? err : outfile_commit(file);
}

static int report_command(const struct options *options)
{
	CLEANUP(profile_freep) struct profile *profile = NULL;
	struct report_options report;
	struct error *err;

	report_options_fill(options, &report);
	err = recording_read(options->recording, &profile);
	if (!err && options->output)
		err = report_to_file(options, profile, &report);
	else if (!err)
		err = report_write(stdout, profile, options->format, &report);
	return err ? fail(err) : EXIT_RECORDED;
}

/* Of a command whose output is all that it is for. */
static int output_end(int status)
{
	if (!fflush(stdout) && !ferror(stdout))
		return status;
	return fail(error_os(errno, "cannot write to the standard output"));
}

static int check_command(const struct options *options)
{
	struct error *err = check_run(options, stdout);

	if (!err)
		return output_end(EXIT_RECORDED);
	error_free(err);
	return output_end(EXIT_FAILED);
}

static int stop_command(const struct options *options)
{
	struct stop_result result;
	struct error *err = stop_run(options, &result);

	if (err)
		return fail(err);
	if (!result.slots && !result.mappings)
		printf("nothing of heapattach is in process %d\n", options->pid);
	else
		printf("process %d is clean: %zu slots put back, %zu mappings removed\n",
		       options->pid, result.slots, result.mappings);
	return output_end(EXIT_RECORDED);
}

/* Each module that is looked at keeps a few files open. */
static void files_allow(void)
{
	struct rlimit limit;

	if (!getrlimit(RLIMIT_NOFILE, &limit)) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
}

int main(int argc, char *argv[])
{
	struct options options;
	struct error *err;

	setlocale(LC_ALL, "");
	/* A reader of ours that went away, and a file-size limit, are errors of a write. */
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);
	files_allow();
	err = options_parse(argc, argv, &options);
	if (err)
		return fail(err);
	switch (options.command) {
	case OPTIONS_ATTACH:
		return attach_command(&options);
	case OPTIONS_REPORT:
		return report_command(&options);
	case OPTIONS_CHECK:
		return check_command(&options);
	case OPTIONS_STOP:
		return stop_command(&options);
	case OPTIONS_VERSION:
		printf("heapattach %s\n", HA_VERSION);
		return output_end(EXIT_RECORDED);
	case OPTIONS_HELP:
		break;
	}
	fputs(options_help(), stdout);
	return output_end(EXIT_RECORDED);
}
