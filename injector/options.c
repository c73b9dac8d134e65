// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/options.h"

#include <string.h>

#include "injector/memlimit.h"
#include "payload/protocol.h"
#include "resolver/array.h"

#define PID_MAX_LIMIT	4194304u   /* include/linux/threads.h */
#define DURATION_MAX_S	315360000u /* ten years */
#define TOP_MAX		1000000u
#define MAX_MEMORY_MOST (1ull << 46)

/* Without a word on it: as much as a server in production can spare. */
#define OVERHEAD_DEFAULT_PERMILLE 20
#define OVERHEAD_MAX_PERCENT	  100u

enum option_id {
	OPTION_PID,
	OPTION_DURATION,
	OPTION_OUTPUT,
	OPTION_QUIET,
	OPTION_EXACT,
	OPTION_INTERVAL,
	OPTION_OVERHEAD,
	OPTION_MAX_MEMORY,
	OPTION_LOADER,
	OPTION_SELFCHECK,
	OPTION_FORMAT,
	OPTION_SORT,
	OPTION_TOP,
	OPTION_HELP,
	OPTION_VERSION,
};

#define OF_ATTACH (1u << OPTIONS_ATTACH)
#define OF_REPORT (1u << OPTIONS_REPORT)
#define OF_CHECK  (1u << OPTIONS_CHECK)
#define OF_STOP	  (1u << OPTIONS_STOP)
#define OF_ALL	  (OF_ATTACH | OF_REPORT | OF_CHECK | OF_STOP)

struct option_spec {
	enum option_id id;
	char letter; /* 0: none */
	const char *name;
	const char *value; /* what it wants, in words; NULL: nothing */
	unsigned int commands;
};

static const struct option_spec specs[] = {
	{OPTION_PID, 'p', "pid", "a process ID", OF_ATTACH | OF_CHECK | OF_STOP},
	{OPTION_DURATION, 'd', "duration", "a number of seconds", OF_ATTACH},
	{OPTION_OUTPUT, 'o', "output", "a file name", OF_ATTACH | OF_REPORT},
	{OPTION_QUIET, 'q', "quiet", NULL, OF_ATTACH},
	{OPTION_EXACT, 0, "exact", NULL, OF_ATTACH},
	{OPTION_INTERVAL, 0, "interval", "bytes between samples, like 512K", OF_ATTACH},
	{OPTION_OVERHEAD, 0, "overhead", "a percentage from 0.1 to 100", OF_ATTACH},
	{OPTION_MAX_MEMORY, 0, "max-memory", "bytes from 64M on, like 256M", OF_ATTACH},
	{OPTION_LOADER, 0, "loader", "dlopen or map", OF_ATTACH | OF_CHECK},
	{OPTION_SELFCHECK, 0, "selfcheck", NULL, OF_ATTACH},
	{OPTION_FORMAT, 0, "format", "text, json, folded or pprof", OF_REPORT},
	{OPTION_SORT, 0, "sort", "inuse, alloc or count", OF_REPORT},
	{OPTION_TOP, 0, "top", "a number of sites", OF_REPORT},
	{OPTION_HELP, 'h', "help", NULL, OF_ALL},
	{OPTION_VERSION, 'V', "version", NULL, OF_ALL},
};

static const char help[] =
	"heapattach shows who holds the memory of a process that is already running.\n"
	"\n"
	"  heapattach -p 4242                  attach; Ctrl-C ends it and reports\n"
	"  heapattach -p 4242 -d 60            the same, for 60 seconds\n"
	"  heapattach report FILE              report again from a recording\n"
	"  heapattach report FILE --format pprof -o heap.pb.gz\n"
	"\n"
	"heapattach -p PID [OPTIONS]\n"
	"  -p, --pid PID           the process; it is never restarted, and runs on after\n"
	"  -d, --duration SECONDS  how long (without: until Ctrl-C or the process's end)\n"
	"  -o, --output FILE       the recording (heapattach.COMM.PID.hap)\n"
	"  -q, --quiet             no line a second while it runs\n"
	"      --overhead PCT      sample as the target's CPU time allows (2)\n"
	"      --interval BYTES    one sample in so many (512K); --exact: all\n"
	"      --max-memory BYTES  that recording may hold (1G, less on small machines)\n"
	"      --loader HOW        how our code gets in: dlopen or map\n"
	"      --selfcheck         compare our stacks with libunwind's\n"
	"heapattach check -p PID   would it work, what would be seen? changes nothing\n"
	"heapattach stop -p PID    clean up after a heapattach that was killed\n"
	"heapattach report FILE [--format F] [--sort KEY] [--top N] [-o OUT]\n"
	"      --format F          text, json, folded or pprof\n"
	"      --sort KEY          inuse (bytes), alloc (bytes) or count (allocations)\n"
	"\n"
	"Exit: 0 recorded, 1 failed, 2 wrong usage. More: man heapattach\n";

const char *options_help(void)
{
	return help;
}

static struct error *usage(struct error *err)
{
	return error_hint(err, "heapattach --help shows how it is used");
}

static const struct option_spec *find_letter(char letter)
{
	for (size_t i = 0; i < ARRAY_SIZE(specs); i++)
		if (letter && specs[i].letter == letter)
			return &specs[i];
	return NULL;
}

static const struct option_spec *find_name(const char *name, size_t size)
{
	for (size_t i = 0; i < ARRAY_SIZE(specs); i++)
		if (strlen(specs[i].name) == size && !memcmp(specs[i].name, name, size))
			return &specs[i];
	return NULL;
}

static struct error *bad_value(const struct option_spec *spec, const char *value)
{
	return usage(error_create(ERROR_USAGE, "--%s needs %s, not '%s'", spec->name, spec->value,
				  value));
}

/* Decimal digits only; false if there are none, others, or more than @max. */
static bool parse_number(const char *text, size_t size, uint64_t max, uint64_t *ret)
{
	uint64_t value = 0;

	for (size_t i = 0; i < size; i++) {
		if (text[i] < '0' || text[i] > '9')
			return false;
		value = value * 10 + (uint64_t)(text[i] - '0');
		if (value > max)
			return false;
	}
	*ret = value;
	return size > 0;
}

static struct error *parse_pid(const char *value, pid_t *ret)
{
	struct error *err;
	uint64_t pid;

	if (parse_number(value, strlen(value), PID_MAX_LIMIT, &pid) && pid) {
		*ret = (pid_t)pid;
		return NULL;
	}
	err = error_create(ERROR_USAGE, "--pid needs a process ID, not '%s'", value);
	return error_hint(err, "pidof NAME or pgrep NAME shows the IDs of running programs");
}

/* Seconds, with at most three decimals that count. */
static struct error *parse_duration(const struct option_spec *spec, const char *value,
				    uint64_t *ret)
{
	size_t whole = strcspn(value, "."), decimals;
	uint64_t seconds = 0, ms = 0;
	const char *fraction = value + whole + (value[whole] == '.');
	char digits[] = "000";

	decimals = strlen(fraction);
	if ((whole && !parse_number(value, whole, DURATION_MAX_S, &seconds)) ||
	    strspn(fraction, "0123456789") != decimals || whole + decimals == 0)
		return bad_value(spec, value);
	memcpy(digits, fraction, decimals < 3 ? decimals : 3);
	if (!parse_number(digits, 3, 999, &ms) || !(seconds * 1000 + ms))
		return bad_value(spec, value);
	*ret = seconds * 1000 + ms;
	return NULL;
}

/* Bytes from @least to @most, with K, M or G for powers of 1024. */
static struct error *parse_bytes(const struct option_spec *spec, const char *value, uint64_t least,
				 uint64_t most, uint64_t *ret)
{
	static const char suffixes[] = "KMG";
	size_t size = strlen(value);
	const char *suffix = size ? strchr(suffixes, value[size - 1]) : NULL;
	unsigned int shift = suffix ? 10 * (unsigned int)(suffix - suffixes + 1) : 0;
	uint64_t number;

	if (!parse_number(value, size - !!suffix, most >> shift, &number) ||
	    number << shift < least)
		return bad_value(spec, value);
	*ret = number << shift;
	return NULL;
}

/* 1 is every allocation. */
static struct error *parse_interval(const struct option_spec *spec, const char *value,
				    struct options *options)
{
	uint64_t bytes = 0;
	struct error *err = parse_bytes(spec, value, 1, HA_INTERVAL_MAX, &bytes);

	if (err)
		return err;
	options->exact = bytes == 1;
	options->interval = bytes == 1 ? 0 : bytes;
	return NULL;
}

/* Percent, with at most one decimal that counts. */
static struct error *parse_overhead(const struct option_spec *spec, const char *value,
				    uint32_t *ret)
{
	size_t whole = strcspn(value, ".");
	const char *fraction = value + whole + (value[whole] == '.');
	size_t decimals = strlen(fraction);
	uint64_t percent, permille;

	if (!parse_number(value, whole, OVERHEAD_MAX_PERCENT, &percent) ||
	    strspn(fraction, "0123456789") != decimals)
		return bad_value(spec, value);
	permille = percent * 10 + (decimals ? (uint64_t)(fraction[0] - '0') : 0);
	if (!permille || permille > OVERHEAD_MAX_PERCENT * 10)
		return bad_value(spec, value);
	*ret = (uint32_t)permille;
	return NULL;
}

static struct error *parse_top(const struct option_spec *spec, const char *value, uint32_t *ret)
{
	uint64_t top;

	if (!parse_number(value, strlen(value), TOP_MAX, &top) || !top)
		return bad_value(spec, value);
	*ret = (uint32_t)top;
	return NULL;
}

/* The place of @value among @count words. */
static struct error *parse_word(const struct option_spec *spec, const char *value,
				const char *const words[], size_t count, size_t *ret)
{
	for (size_t i = 0; i < count; i++) {
		if (!strcmp(words[i], value)) {
			*ret = i;
			return NULL;
		}
	}
	return bad_value(spec, value);
}

static struct error *set_word(struct options *options, const struct option_spec *spec,
			      const char *value)
{
	static const char *const loaders[] = {"dlopen", "map"};
	static const char *const formats[] = {"text", "json", "folded", "pprof"};
	static const char *const sorts[] = {"inuse", "alloc", "count"};
	struct error *err;
	size_t at = 0;

	if (spec->id == OPTION_LOADER) {
		err = parse_word(spec, value, loaders, ARRAY_SIZE(loaders), &at);
		options->loader = OPTIONS_LOADER_DLOPEN + at;
	} else if (spec->id == OPTION_FORMAT) {
		err = parse_word(spec, value, formats, ARRAY_SIZE(formats), &at);
		options->format = REPORT_TEXT + at;
	} else {
		err = parse_word(spec, value, sorts, ARRAY_SIZE(sorts), &at);
		options->sort = REPORT_SORT_INUSE + at;
	}
	return err;
}

static struct error *set_option(struct options *options, const struct option_spec *spec,
				const char *value)
{
	switch (spec->id) {
	case OPTION_PID:
		return parse_pid(value, &options->pid);
	case OPTION_DURATION:
		return parse_duration(spec, value, &options->duration_ms);
	case OPTION_INTERVAL:
		return parse_interval(spec, value, options);
	case OPTION_OVERHEAD:
		return parse_overhead(spec, value, &options->overhead_permille);
	case OPTION_MAX_MEMORY:
		return parse_bytes(spec, value, MEMLIMIT_LEAST, MAX_MEMORY_MOST,
				   &options->max_memory);
	case OPTION_TOP:
		return parse_top(spec, value, &options->top);
	case OPTION_LOADER:
	case OPTION_FORMAT:
	case OPTION_SORT:
		return set_word(options, spec, value);
	case OPTION_OUTPUT:
		if (!*value)
			return bad_value(spec, value);
		options->output = value;
		break;
	case OPTION_QUIET:
		options->quiet = true;
		break;
	case OPTION_EXACT:
		options->exact = true;
		break;
	case OPTION_SELFCHECK:
		options->selfcheck = true;
		break;
	case OPTION_HELP:
		options->command = OPTIONS_HELP;
		break;
	case OPTION_VERSION:
		options->command = OPTIONS_VERSION;
		break;
	}
	return NULL;
}

struct parser {
	int argc;
	char *const *argv;
	int at;						    /* the argument that is looked at */
	const struct option_spec *given[ARRAY_SIZE(specs)]; /* by option_id */
	struct options options;
};

static struct error *take_option(struct parser *parser, const struct option_spec *spec,
				 const char *value)
{
	if (spec->value && !value) {
		if (parser->at + 1 >= parser->argc)
			return usage(error_create(ERROR_USAGE, "--%s needs %s", spec->name,
						  spec->value));
		value = parser->argv[++parser->at];
	}
	if (parser->given[spec->id] && spec->value)
		return usage(error_create(ERROR_USAGE, "--%s is given twice", spec->name));
	parser->given[spec->id] = spec;
	return set_option(&parser->options, spec, value);
}

/* "--name", "--name=value" or "--name value". */
static struct error *parse_long(struct parser *parser, const char *name)
{
	size_t size = strcspn(name, "=");
	const struct option_spec *spec = find_name(name, size);
	const char *value = name[size] ? name + size + 1 : NULL;

	if (!spec)
		return usage(
			error_create(ERROR_USAGE, "there is no option --%.*s", (int)size, name));
	if (value && !spec->value)
		return usage(error_create(ERROR_USAGE, "--%s takes no value", spec->name));
	return take_option(parser, spec, value);
}

/* "-q", "-p123", "-p 123", and several in one: "-qp 123". */
static struct error *parse_short(struct parser *parser, const char *letters)
{
	for (; *letters; letters++) {
		const struct option_spec *spec = find_letter(*letters);
		struct error *err;

		if (!spec)
			return usage(error_create(ERROR_USAGE, "there is no option -%c", *letters));
		err = take_option(parser, spec, spec->value && letters[1] ? letters + 1 : NULL);
		if (err || spec->value)
			return err;
	}
	return NULL;
}

/* The words that the first argument may be; without one it is an attach. */
static const struct command_spec {
	const char *word;
	enum options_command command;
} commands[] = {
	{"report", OPTIONS_REPORT},
	{"check", OPTIONS_CHECK},
	{"stop", OPTIONS_STOP},
};

static const struct command_spec *find_command(const struct parser *parser)
{
	for (size_t i = 0; parser->argc > 1 && i < ARRAY_SIZE(commands); i++)
		if (!strcmp(parser->argv[1], commands[i].word))
			return &commands[i];
	return NULL;
}

static struct error *take_argument(struct parser *parser, const char *argument)
{
	const struct command_spec *command = find_command(parser);
	struct error *err;

	if (command && command->command == OPTIONS_REPORT) {
		if (parser->options.recording)
			return usage(error_create(
				ERROR_USAGE, "report takes one recording, and '%s' is a second",
				argument));
		parser->options.recording = argument;
		return NULL;
	}
	if (command)
		return usage(error_create(ERROR_USAGE, "%s takes no argument like '%s'",
					  command->word, argument));
	err = error_create(ERROR_USAGE, "'%s' is neither an option nor a command", argument);
	return error_hint(err, "attach with heapattach -p PID, or run heapattach report FILE");
}

static struct error *parse_arguments(struct parser *parser)
{
	bool only_arguments = false;

	for (; parser->at < parser->argc; parser->at++) {
		const char *argument = parser->argv[parser->at];
		struct error *err = NULL;

		if (only_arguments || argument[0] != '-' || !argument[1])
			err = take_argument(parser, argument);
		else if (argument[1] != '-')
			err = parse_short(parser, argument + 1);
		else if (argument[2])
			err = parse_long(parser, argument + 2);
		else
			only_arguments = true;
		if (err)
			return err;
	}
	return NULL;
}

/* How often samples are taken can be said in one way only. */
static struct error *check_sampling(const struct parser *parser)
{
	static const enum option_id ways[] = {OPTION_EXACT, OPTION_INTERVAL, OPTION_OVERHEAD};
	const struct option_spec *first = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(ways); i++) {
		const struct option_spec *spec = parser->given[ways[i]];

		if (first && spec)
			return usage(error_create(ERROR_USAGE, "--%s and --%s exclude each other",
						  first->name, spec->name));
		first = spec ? spec : first;
	}
	return NULL;
}

/* What fits together, and is there. */
static struct error *check(const struct parser *parser)
{
	const struct command_spec *command = find_command(parser);
	const struct options *options = &parser->options;

	if (options->command == OPTIONS_HELP || options->command == OPTIONS_VERSION)
		return NULL;
	for (size_t i = 0; i < ARRAY_SIZE(specs); i++) {
		const struct option_spec *spec = parser->given[i];

		if (spec && !(spec->commands & (1u << options->command)))
			return usage(error_create(ERROR_USAGE, "--%s is no option of %s%s",
						  spec->name, command ? "heapattach " : "an attach",
						  command ? command->word : ""));
	}
	if (options->command == OPTIONS_REPORT && !options->recording)
		return usage(error_create(ERROR_USAGE, "report needs the name of a recording"));
	if (options->command != OPTIONS_REPORT && !options->pid)
		return usage(error_create(ERROR_USAGE, "-p PID is missing: which process?"));
	return check_sampling(parser);
}

struct error *options_parse(int argc, char *const argv[], struct options *ret)
{
	struct parser parser = {.argc = argc, .argv = argv, .at = 1};
	const struct command_spec *command = find_command(&parser);
	struct error *err;

	if (command) {
		parser.options.command = command->command;
		parser.at = 2;
	}
	err = parse_arguments(&parser);
	if (err)
		return err;
	err = check(&parser);
	if (err)
		return err;
	if (!parser.options.exact && !parser.options.interval && !parser.options.overhead_permille)
		parser.options.overhead_permille = OVERHEAD_DEFAULT_PERMILLE;
	*ret = parser.options;
	return NULL;
}
