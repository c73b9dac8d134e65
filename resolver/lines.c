// SPDX-License-Identifier: GPL-3.0-or-later
#include "resolver/lines.h"

#include "resolver/array.h"
#include "resolver/cleanup.h"
#include "resolver/intervals.h"
#include "resolver/linetable.h"

#include <dwarf.h>
#include <elf.h>
#include <elfutils/libdw.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

enum {
	/* Namespaces and classes in each other: deeper is a file made to exhaust the stack. */
	MAX_DEPTH = 64,
	MAX_ORIGINS = 16,
	MAX_SCOPE_BYTES = 4 << 10,
};

/* How much of a unit the index of its functions covers. */
enum extent {
	NOTHING,
	OUTER,	    /* functions in the unit and its namespaces: nearly all there are */
	EVERYWHERE, /* also those in classes, functions and blocks */
};

struct unit {
	Dwarf_Die die;		 /* has the line table; of a split unit this is the skeleton */
	Dwarf_Die body;		 /* has the functions */
	struct linetable *table; /* NULL: not read yet, or libdw has to */
	bool table_read;
	enum extent extent;
	struct intervals functions; /* value: index into function */
	Dwarf_Die *function;
	size_t function_count;
};

struct scope {
	const char *name;
	uint32_t outer;	 /* 1 + index of the scope around it; 0 none */
	char *qualified; /* made when it is first asked for */
};

/* Namespaces and classes of a unit by the offsets of their DIEs. */
struct scopes {
	const void *cu;
	struct intervals intervals; /* of DIE offsets; value: index into scope */
	struct scope *scope;
	size_t scope_count;
};

struct lines {
	Dwarf *dwarf, *alt;
	struct linetable_sections sections;
	struct intervals text; /* executable sections */
	struct unit *unit;
	size_t unit_count;
	struct intervals ranges; /* value: index into unit */
	struct scopes *scopes;
	size_t scopes_count;
	char directory[PATH_MAX]; /* of the file, as our root has it; "" unknown */
};

/*
 * A walk over DIEs. Each takes at least one byte of its unit, so that a walk of
 * more steps than bytes goes in a circle (through damaged sibling attributes).
 */
struct walk {
	uint64_t steps_left;
};

static struct walk walk_begin(Dwarf_Die *unit)
{
	Dwarf_Off next_unit = 0, header = 0;
	Dwarf *dwarf = dwarf_cu_getdwarf(unit->cu);

	header = dwarf_dieoffset(unit) - dwarf_cuoffset(unit);
	if (dwarf_next_unit(dwarf, header, &next_unit, NULL, NULL, NULL, NULL, NULL, NULL, NULL))
		return (struct walk){.steps_left = 1 << 20};
	return (struct walk){.steps_left = next_unit - header};
}

static bool walk_child(struct walk *walk, Dwarf_Die *parent, Dwarf_Die *ret)
{
	return walk->steps_left && walk->steps_left-- && dwarf_child(parent, ret) == 0;
}

static bool walk_sibling(struct walk *walk, Dwarf_Die *die)
{
	return walk->steps_left && walk->steps_left-- && dwarf_siblingof(die, die) == 0;
}

/* ---- units by address */

/*
 * Code that the linker threw away keeps its debug info with addresses near 0 or
 * -1 (a "tombstone"): what is not in an executable section is not there.
 */
static struct error *add_range(struct lines *lines, struct intervals *to, uint64_t low,
			       uint64_t high, uint32_t value)
{
	const struct interval *text = low ? intervals_find(&lines->text, low) : NULL;

	if (!text)
		return NULL;
	return intervals_add(to, low, high < text->high ? high : text->high, value);
}

static struct error *add_ranges(struct lines *lines, struct intervals *to, Dwarf_Die *die,
				uint32_t value)
{
	Dwarf_Addr base = 0, low = 0, high = 0;
	ptrdiff_t next = 0;

	while ((next = dwarf_ranges(die, next, &base, &low, &high)) > 0) {
		struct error *err = add_range(lines, to, low, high, value);

		if (err)
			return err;
	}
	return NULL;
}

static struct error *add_unit(struct lines *lines, const Dwarf_Die *die)
{
	size_t before = lines->ranges.count;
	struct error *err = array_grow(&lines->unit, lines->unit_count, 1);
	struct unit *unit;

	if (err)
		return err;
	unit = &lines->unit[lines->unit_count];
	*unit = (struct unit){.die = *die, .body = *die};
	err = add_ranges(lines, &lines->ranges, &unit->die, (uint32_t)lines->unit_count);
	if (lines->ranges.count != before)
		lines->unit_count++;
	return err;
}

static struct error *index_units(struct lines *lines)
{
	Dwarf_CU *cu = NULL, *next;
	Dwarf_Half version;
	uint8_t type;
	Dwarf_Die die;

	/* No DIE of the split unit is asked for here: that would open every .dwo file. */
	while (dwarf_get_units(lines->dwarf, cu, &next, &version, &type, &die, NULL) == 0) {
		struct error *err = NULL;

		cu = next;
		if (type == DW_UT_compile || type == DW_UT_skeleton || type == DW_UT_partial)
			err = add_unit(lines, &die);
		if (err)
			return err;
	}
	intervals_seal(&lines->ranges);
	return NULL;
}

static struct error *index_text(struct lines *lines, const struct elffile *file)
{
	const struct elffile_section *section;
	size_t count = elffile_sections(file, &section);

	for (size_t i = 0; i < count; i++) {
		struct error *err;

		if (!(section[i].flags & SHF_EXECINSTR))
			continue;
		err = intervals_add(&lines->text, section[i].address,
				    section[i].address + section[i].size, 0);
		if (err)
			return err;
	}
	intervals_seal(&lines->text);
	return NULL;
}

/* ---- functions of a unit */

static bool is_regular_or_missing(const char *directory, const char *name)
{
	char path[PATH_MAX];
	struct stat info;

	if (snprintf(path, sizeof(path), "%s%s%s", directory, *directory ? "/" : "", name) >=
	    (int)sizeof(path))
		return true;
	return stat(path, &info) < 0 || S_ISREG(info.st_mode);
}

static const char *string_of(Dwarf_Die *die, unsigned int name)
{
	Dwarf_Attribute attribute;

	return dwarf_formstring(dwarf_attr(die, name, &attribute));
}

/*
 * libdw opens the .dwo file by the names in the unit, without a look at what it
 * is; a FIFO there would hold us for ever.
 */
static bool is_split_safe(const struct lines *lines, Dwarf_Die *skeleton)
{
	const char *name = string_of(skeleton, DW_AT_dwo_name);
	const char *directory = string_of(skeleton, DW_AT_comp_dir);

	if (!name)
		name = string_of(skeleton, DW_AT_GNU_dwo_name);
	if (!name)
		return false;
	if (name[0] == '/')
		return is_regular_or_missing("", name);
	return is_regular_or_missing(lines->directory, name) &&
	       (!directory || (directory[0] == '/' && is_regular_or_missing(directory, name)));
}

static void find_body(struct lines *lines, struct unit *unit)
{
	Dwarf_Half version;
	Dwarf_Die body;
	uint8_t type;

	if (dwarf_cu_info(unit->die.cu, &version, &type, NULL, NULL, NULL, NULL, NULL) != 0 ||
	    type != DW_UT_skeleton || !is_split_safe(lines, &unit->die))
		return;
	memset(&body, 0, sizeof(body));
	if (dwarf_cu_info(unit->die.cu, &version, &type, NULL, &body, NULL, NULL, NULL) == 0 &&
	    body.cu)
		unit->body = body;
}

static struct error *add_function(struct lines *lines, struct unit *unit, Dwarf_Die *die)
{
	size_t before = unit->functions.count;
	struct error *err = array_grow(&unit->function, unit->function_count, 1);

	if (err)
		return err;
	unit->function[unit->function_count] = *die;
	err = add_ranges(lines, &unit->functions, die, (uint32_t)unit->function_count);
	if (unit->functions.count != before)
		unit->function_count++;
	return err;
}

static bool may_hold_functions(int tag, enum extent extent)
{
	switch (tag) {
	case DW_TAG_namespace:
	case DW_TAG_module:
		return true;
	case DW_TAG_subprogram:
	case DW_TAG_lexical_block:
	case DW_TAG_class_type:
	case DW_TAG_structure_type:
	case DW_TAG_union_type:
	case DW_TAG_enumeration_type:
	case DW_TAG_interface_type:
	case DW_TAG_variant_part:
	case DW_TAG_variant:
		return extent == EVERYWHERE;
	default:
		return false;
	}
}

static struct error *index_children(struct lines *lines, struct unit *unit, Dwarf_Die *parent,
				    struct walk *walk, int depth)
{
	struct error *err = NULL;
	Dwarf_Die die;
	int tag;

	if (depth == MAX_DEPTH || !walk_child(walk, parent, &die))
		return NULL;
	do {
		tag = dwarf_tag(&die);
		if (tag == DW_TAG_subprogram)
			err = add_function(lines, unit, &die);
		if (!err && may_hold_functions(tag, unit->extent))
			err = index_children(lines, unit, &die, walk, depth + 1);
	} while (!err && walk_sibling(walk, &die));
	return err;
}

static struct error *index_functions(struct lines *lines, struct unit *unit, enum extent extent)
{
	struct walk walk;
	struct error *err;

	if (unit->extent == NOTHING)
		find_body(lines, unit);
	unit->extent = extent;
	unit->functions.count = 0;
	unit->function_count = 0;
	walk = walk_begin(&unit->body);
	err = index_children(lines, unit, &unit->body, &walk, 0);
	intervals_seal(&unit->functions);
	return err;
}

/*
 * Functions in classes (Rust) and in functions (Ada, GNU C) are rare and a walk
 * everywhere takes three times as long, so it waits for an address that is in no other.
 */
static Dwarf_Die *find_function(struct lines *lines, struct unit *unit, uint64_t vaddr)
{
	for (enum extent extent = OUTER; extent <= EVERYWHERE; extent++) {
		const struct interval *interval;

		if (unit->extent < extent) {
			struct error *err = index_functions(lines, unit, extent);

			/* What was indexed before memory ran out is right. */
			error_free(err);
		}
		interval = intervals_find(&unit->functions, vaddr);
		if (interval)
			return &unit->function[interval->value];
	}
	return NULL;
}

/* ---- names */

static bool has_scopes(Dwarf_Die *unit)
{
	switch (dwarf_srclang(unit)) {
	case DW_LANG_C89:
	case DW_LANG_C:
	case DW_LANG_C99:
	case DW_LANG_C11:
	case DW_LANG_Mips_Assembler:
	case DW_LANG_Go: /* its names are qualified already */
		return false;
	default:
		return true;
	}
}

static bool is_scope(int tag)
{
	switch (tag) {
	case DW_TAG_namespace:
	case DW_TAG_module:
	case DW_TAG_class_type:
	case DW_TAG_structure_type:
	case DW_TAG_union_type:
	case DW_TAG_enumeration_type:
	case DW_TAG_interface_type:
		return true;
	default:
		return false;
	}
}

static void scopes_deinit(struct scopes *scopes)
{
	for (size_t i = 0; i < scopes->scope_count; i++)
		free(scopes->scope[i].qualified);
	free(scopes->scope);
	intervals_deinit(&scopes->intervals);
}

static struct error *add_scope(struct scopes *scopes, Dwarf_Die *die, uint32_t outer)
{
	struct error *err = array_grow(&scopes->scope, scopes->scope_count, 1);
	const char *name = dwarf_diename(die);

	if (err)
		return err;
	if (!name)
		name = dwarf_tag(die) == DW_TAG_namespace ? "(anonymous namespace)" : "(anonymous)";
	scopes->scope[scopes->scope_count++] = (struct scope){.name = name, .outer = outer};
	return NULL;
}

/*
 * Record the scopes among @parent's children and further down; a scope covers
 * the offsets from its DIE to the last child's. Functions are not entered: what
 * is declared in one counts to the scope around it. *last_ret is the offset of
 * the last DIE seen.
 */
static struct error *index_scopes(struct scopes *scopes, Dwarf_Die *parent, uint32_t outer,
				  struct walk *walk, int depth, Dwarf_Off *last_ret)
{
	Dwarf_Die die;

	if (depth == MAX_DEPTH || !walk_child(walk, parent, &die))
		return NULL;
	do {
		uint32_t number = (uint32_t)scopes->scope_count;
		Dwarf_Off offset = dwarf_dieoffset(&die);
		struct error *err;

		*last_ret = offset;
		if (!is_scope(dwarf_tag(&die)))
			continue;
		err = add_scope(scopes, &die, outer);
		if (!err)
			err = index_scopes(scopes, &die, number + 1, walk, depth + 1, last_ret);
		if (!err)
			err = intervals_add(&scopes->intervals, offset + 1, *last_ret + 1, number);
		if (err)
			return err;
	} while (walk_sibling(walk, &die));
	return NULL;
}

static struct scopes *get_scopes(struct lines *lines, Dwarf_Die *unit)
{
	struct scopes *scopes;
	struct walk walk = walk_begin(unit);
	Dwarf_Off last = 0;
	struct error *err;

	for (size_t i = 0; i < lines->scopes_count; i++) {
		if (lines->scopes[i].cu == unit->cu)
			return &lines->scopes[i];
	}
	err = array_grow(&lines->scopes, lines->scopes_count, 1);
	if (err) {
		error_free(err);
		return NULL;
	}
	scopes = &lines->scopes[lines->scopes_count++];
	*scopes = (struct scopes){.cu = unit->cu};
	/* Without memory some names stay unqualified. */
	error_free(index_scopes(scopes, unit, 0, &walk, 0, &last));
	intervals_seal(&scopes->intervals);
	return scopes;
}

/* Outer scopes come before inner ones, so that this ends. */
static const char *qualify(struct scopes *scopes, uint32_t number)
{
	struct scope *scope = &scopes->scope[number];
	const char *outer = "";

	if (scope->qualified)
		return scope->qualified;
	if (scope->outer)
		outer = qualify(scopes, scope->outer - 1);
	if (!outer || strlen(outer) + strlen(scope->name) > MAX_SCOPE_BYTES)
		outer = "...";
	if (asprintf(&scope->qualified, "%s%s%s", outer, *outer ? "::" : "", scope->name) < 0)
		scope->qualified = NULL;
	return scope->qualified;
}

/* Where the function was first declared: its place there is its scope. */
static Dwarf_Die first_declaration(Dwarf_Die die)
{
	for (int i = 0; i < MAX_ORIGINS; i++) {
		Dwarf_Attribute attribute;
		Dwarf_Die origin;

		if (!dwarf_formref_die(dwarf_attr(&die, DW_AT_abstract_origin, &attribute),
				       &origin) &&
		    !dwarf_formref_die(dwarf_attr(&die, DW_AT_specification, &attribute), &origin))
			break;
		die = origin;
	}
	return die;
}

static const char *find_scope(struct lines *lines, const Dwarf_Die *function)
{
	Dwarf_Die declaration = first_declaration(*function);
	const struct interval *interval;
	struct scopes *scopes;
	Dwarf_Die unit;

	if (!dwarf_diecu(&declaration, &unit, NULL, NULL) || !has_scopes(&unit))
		return NULL;
	scopes = get_scopes(lines, &unit);
	if (!scopes)
		return NULL;
	interval = intervals_find(&scopes->intervals, dwarf_dieoffset(&declaration));
	return interval ? qualify(scopes, interval->value) : NULL;
}

static void fill_name(struct lines *lines, Dwarf_Die *function, struct lines_frame *frame)
{
	static const unsigned int linkage_names[] = {DW_AT_linkage_name, DW_AT_MIPS_linkage_name};

	for (size_t i = 0; i < 2 && !frame->linkage_name; i++) {
		Dwarf_Attribute attribute;

		frame->linkage_name = dwarf_formstring(
			dwarf_attr_integrate(function, linkage_names[i], &attribute));
	}
	frame->name = dwarf_diename(function);
	if (!frame->linkage_name && frame->name)
		frame->scope = find_scope(lines, function);
}

/* ---- frames of an address */

static bool may_hold_inlined(int tag)
{
	return tag == DW_TAG_inlined_subroutine || tag == DW_TAG_lexical_block ||
	       tag == DW_TAG_try_block || tag == DW_TAG_catch_block;
}

/*
 * Collect the inlined calls around @vaddr, outermost first. Only blocks that
 * have the address are entered, so that there is one way down.
 */
static size_t find_inlined(Dwarf_Die *function, struct walk *walk, uint64_t vaddr, Dwarf_Die ret[],
			   size_t room)
{
	Dwarf_Die die, parent = *function;
	size_t count = 0;

	while (count < room && walk_child(walk, &parent, &die)) {
		bool found = false;

		do {
			int tag = dwarf_tag(&die);

			found = may_hold_inlined(tag) && dwarf_haspc(&die, vaddr) > 0;
			if (found && tag == DW_TAG_inlined_subroutine)
				ret[count++] = die;
		} while (!found && walk_sibling(walk, &die));
		if (!found)
			break;
		parent = die;
	}
	return count;
}

/*
 * libdw puts the compilation directory before names in that directory, but not
 * before names in directories relative to it.
 */
static void fill_file(const char *file, Dwarf_Die *unit, struct lines_frame *frame)
{
	const char *directory = string_of(unit, DW_AT_comp_dir);
	size_t length = directory ? strlen(directory) : 0;

	frame->file = file;
	frame->directory = NULL;
	if (file && file[0] != '/' && length &&
	    (strncmp(file, directory, length) != 0 || file[length] != '/'))
		frame->directory = directory;
}

static bool number_of(Dwarf_Die *die, unsigned int name, Dwarf_Word *ret)
{
	Dwarf_Attribute attribute;

	return dwarf_formudata(dwarf_attr(die, name, &attribute), ret) == 0;
}

static struct linetable *table_of(struct lines *lines, struct unit *unit)
{
	Dwarf_Word offset;

	if (!unit->table_read && number_of(&unit->die, DW_AT_stmt_list, &offset))
		error_free(linetable_read(&lines->sections, offset,
					  string_of(&unit->die, DW_AT_comp_dir), &unit->table));
	unit->table_read = true;
	return unit->table;
}

/* For a table that is none of ours. */
static void fill_row_slowly(struct unit *unit, uint64_t vaddr, struct lines_frame *frame)
{
	Dwarf_Line *row = dwarf_getsrc_die(&unit->die, vaddr);
	int line;

	if (!row)
		return;
	fill_file(dwarf_linesrc(row, NULL, NULL), &unit->die, frame);
	if (dwarf_lineno(row, &line) == 0 && line > 0)
		frame->line = (uint32_t)line;
}

static void fill_row(struct lines *lines, struct unit *unit, uint64_t vaddr,
		     struct lines_frame *frame)
{
	struct linetable *table = table_of(lines, unit);
	struct linetable_row row;

	if (!table) {
		fill_row_slowly(unit, vaddr, frame);
	} else if (linetable_find(table, vaddr, &row)) {
		fill_file(linetable_file(table, row.file), &unit->die, frame);
		frame->line = row.line;
	}
}

/* A file's name by libdw, which reads all of the unit's rows for it. */
static const char *file_of(Dwarf_Die *unit, Dwarf_Word file)
{
	Dwarf_Files *files;
	const char *name;
	size_t count;

	if (dwarf_getsrcfiles(unit, &files, &count) != 0 || file >= count)
		return NULL;
	name = dwarf_filesrc(files, file, NULL, NULL);
	/* libdw's name for file 0 of DWARF 2 to 4, where 0 means none. */
	return name && strcmp(name, "???") != 0 ? name : NULL;
}

/* Where an inlined call was made: that is the place in the frame around it. */
static void fill_call(struct lines *lines, struct unit *unit, Dwarf_Die *inlined,
		      struct lines_frame *frame)
{
	struct linetable *table = table_of(lines, unit);
	Dwarf_Word file, line;
	const char *name;
	Dwarf_Die cu;

	if (number_of(inlined, DW_AT_call_line, &line) && line <= UINT32_MAX)
		frame->line = (uint32_t)line;
	if (!number_of(inlined, DW_AT_call_file, &file) || !dwarf_diecu(inlined, &cu, NULL, NULL))
		return;
	/* A split unit has a table of its own for this. */
	if (table && cu.cu == unit->die.cu)
		name = linetable_file(table, file);
	else
		name = file_of(&cu, file);
	if (name)
		fill_file(name, &cu, frame);
}

size_t lines_find(struct lines *lines, uint64_t vaddr, struct lines_frame ret[LINES_MAX_FRAMES])
{
	const struct interval *range = intervals_find(&lines->ranges, vaddr);
	Dwarf_Die inlined[LINES_MAX_FRAMES - 1], *function;
	struct lines_frame *frame = ret;
	struct walk walk;
	struct unit *unit;
	size_t depth = 0;

	if (!range)
		return 0;
	unit = &lines->unit[range->value];
	function = find_function(lines, unit, vaddr);
	if (function) {
		walk = walk_begin(&unit->body);
		depth = find_inlined(function, &walk, vaddr, inlined, LINES_MAX_FRAMES - 1);
	}
	memset(ret, 0, (depth + 1) * sizeof(*ret));
	fill_row(lines, unit, vaddr, frame);
	while (depth--) {
		frame->inlined = true;
		fill_name(lines, &inlined[depth], frame);
		fill_call(lines, unit, &inlined[depth], ++frame);
	}
	if (function)
		fill_name(lines, function, frame);
	return (size_t)(frame - ret) + 1;
}

/* ---- opening */

static void find_directory(struct lines *lines, const struct elffile *file)
{
	char link[sizeof("/proc/self/fd/") + 12];
	ssize_t length;
	char *slash;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", elffile_fd(file));
	length = readlink(link, lines->directory, sizeof(lines->directory) - 1);
	lines->directory[length > 0 ? length : 0] = '\0';
	slash = strrchr(lines->directory, '/');
	if (slash)
		*slash = '\0';
}

static void linesp_free(struct lines **lines)
{
	lines_free(*lines);
}

struct error *lines_create(struct elffile *file, struct elffile *alt, struct lines **ret)
{
	CLEANUP(linesp_free) struct lines *lines = calloc(1, sizeof(*lines));
	struct error *err;

	if (!lines)
		return error_memory();
	lines->dwarf = dwarf_begin_elf(elffile_libelf(file), DWARF_C_READ, NULL);
	if (!lines->dwarf)
		return error_create(ERROR_NOT_FOUND, "%s: no debug info: %s", elffile_name(file),
				    dwarf_errmsg(-1));
	if (alt) {
		lines->alt = dwarf_begin_elf(elffile_libelf(alt), DWARF_C_READ, NULL);
		if (!lines->alt)
			return error_create(ERROR_FORMAT, "%s: bad dwz file: %s", elffile_name(alt),
					    dwarf_errmsg(-1));
		dwarf_setalt(lines->dwarf, lines->alt);
	}
	find_directory(lines, file);
	linetable_sections(file, &lines->sections);
	err = index_text(lines, file);
	if (!err)
		err = index_units(lines);
	if (err)
		return err;
	if (!lines->unit_count)
		return error_create(ERROR_NOT_FOUND, "%s: its debug info covers no code",
				    elffile_name(file));
	*ret = take(lines);
	return NULL;
}

void lines_free(struct lines *lines)
{
	if (!lines)
		return;
	for (size_t i = 0; i < lines->unit_count; i++) {
		intervals_deinit(&lines->unit[i].functions);
		free(lines->unit[i].function);
		linetable_free(lines->unit[i].table);
	}
	for (size_t i = 0; i < lines->scopes_count; i++)
		scopes_deinit(&lines->scopes[i]);
	free(lines->scopes);
	free(lines->unit);
	intervals_deinit(&lines->ranges);
	intervals_deinit(&lines->text);
	dwarf_end(lines->dwarf);
	dwarf_end(lines->alt);
	free(lines);
}
