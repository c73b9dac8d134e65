// SPDX-License-Identifier: GPL-3.0-or-later
#include "resolver/linetable.h"

#include "resolver/array.h"
#include "resolver/cleanup.h"
#include "resolver/ehframe_reader.h"
#include "resolver/intervals.h"

#include <inttypes.h>
#include <stdio.h>

#define VERSION_MIN	    2u
#define VERSION_MAX	    5u
#define ROWS_PER_CHECKPOINT 64u

/* A file's or directory's description: path, directory and the rest. */
#define FORMATS_MAX 16u

/* DWARF 5, 7.22: opcodes of the program, */
enum {
	LNS_COPY = 0x01,
	LNS_ADVANCE_PC = 0x02,
	LNS_ADVANCE_LINE = 0x03,
	LNS_SET_FILE = 0x04,
	LNS_CONST_ADD_PC = 0x08,
	LNS_FIXED_ADVANCE_PC = 0x09,
};

/* its extended opcodes, */
enum {
	LNE_END_SEQUENCE = 0x01,
	LNE_SET_ADDRESS = 0x02,
	LNE_DEFINE_FILE = 0x03,
};

/* and what a field of an entry holds; */
enum {
	LNCT_PATH = 0x01,
	LNCT_DIRECTORY_INDEX = 0x02,
};

/* 7.5.6: in which form */
enum {
	FORM_DATA2 = 0x05,
	FORM_DATA4 = 0x06,
	FORM_DATA8 = 0x07,
	FORM_STRING = 0x08,
	FORM_BLOCK = 0x09,
	FORM_DATA1 = 0x0b,
	FORM_STRP = 0x0e,
	FORM_UDATA = 0x0f,
	FORM_DATA16 = 0x1e,
	FORM_LINE_STRP = 0x1f,
};

struct file {
	const char *name;
	uint64_t directory;
	char *path; /* made when it is first asked for */
};

/* What the header says about the program. */
struct header {
	uint16_t version;
	uint8_t offset_size, address_size;
	uint8_t instruction_length, line_range, opcode_base;
	int8_t line_base;
	uint8_t operands[256]; /* of each standard opcode: how many LEB128 numbers */
};

/* A row, and where the program goes on behind it. */
struct checkpoint {
	uint64_t address;
	uint32_t at; /* from the program's start */
	struct linetable_row row;
};

/* A run of rows with ascending addresses. */
struct sequence {
	size_t first, count; /* of its checkpoints */
};

struct linetable {
	struct header header;
	const uint8_t *program, *program_end;
	const char **directory;
	size_t directory_count;
	struct file *file;
	size_t file_count;
	struct checkpoint *checkpoint;
	size_t checkpoint_count;
	struct sequence *sequence;
	size_t sequence_count;
	struct intervals addresses; /* value: index into sequence */
};

static struct error *damaged(uint64_t offset, const char *what)
{
	return error_create(ERROR_FORMAT, "line table at 0x%" PRIx64 ": %s", offset, what);
}

static struct reader section_reader(const struct elffile_bytes *section)
{
	return (struct reader){.at = section->data, .end = section->data + section->size};
}

/* ---- the program */

/* The registers that rows are made of. */
struct machine {
	uint64_t address;
	struct linetable_row row;
};

enum event {
	EVENT_NONE,
	EVENT_ROW,
	EVENT_END, /* of the sequence */
};

static const struct machine machine_start = {.row = {.file = 1, .line = 1}};

static enum event run_extended(const struct header *header, struct machine *machine,
			       struct reader *reader)
{
	uint64_t size = reader_uleb(reader);
	struct reader operands = {.at = reader->at};
	uint8_t opcode;

	if (!reader_bytes(reader, size) || !size)
		return EVENT_NONE;
	operands.end = reader->at;
	opcode = reader_u8(&operands);
	if (opcode == LNE_END_SEQUENCE)
		return EVENT_END;
	if (opcode == LNE_SET_ADDRESS)
		machine->address =
			reader_left(&operands) >= 8 ? reader_u64(&operands) : reader_u32(&operands);
	/* It would add to the files. */
	if (opcode == LNE_DEFINE_FILE && header->version < 5)
		reader->bad = true;
	return EVENT_NONE;
}

static enum event run_standard(const struct header *header, uint8_t opcode, struct machine *machine,
			       struct reader *reader)
{
	switch (opcode) {
	case LNS_COPY:
		return EVENT_ROW;
	case LNS_ADVANCE_PC:
		machine->address += reader_uleb(reader) * header->instruction_length;
		return EVENT_NONE;
	case LNS_ADVANCE_LINE:
		machine->row.line += (uint32_t)reader_sleb(reader);
		return EVENT_NONE;
	case LNS_SET_FILE:
		machine->row.file = (uint32_t)reader_uleb(reader);
		return EVENT_NONE;
	case LNS_CONST_ADD_PC:
		machine->address += (uint64_t)((255 - header->opcode_base) / header->line_range) *
				    header->instruction_length;
		return EVENT_NONE;
	case LNS_FIXED_ADVANCE_PC:
		machine->address += reader_u16(reader);
		return EVENT_NONE;
	default:
		for (unsigned int i = 0; i < header->operands[opcode]; i++)
			reader_uleb(reader);
		return EVENT_NONE;
	}
}

/* Run one opcode. */
static inline enum event run_one(const struct header *header, struct machine *machine,
				 struct reader *reader)
{
	uint8_t opcode = reader_u8(reader);
	unsigned int special;

	if (opcode == 0)
		return run_extended(header, machine, reader);
	if (opcode < header->opcode_base)
		return run_standard(header, opcode, machine, reader);
	special = (unsigned int)opcode - header->opcode_base;
	machine->address += (uint64_t)(special / header->line_range) * header->instruction_length;
	machine->row.line += (uint32_t)(header->line_base + (int)(special % header->line_range));
	return EVENT_ROW;
}

/* ---- its index */

/* The sequence that is being read. */
struct open {
	uint64_t low, last;
	size_t first, rows;
};

static struct error *add_row(struct linetable *table, struct open *open,
			     const struct machine *machine, const struct reader *reader)
{
	struct error *err;

	if (!open->rows) {
		open->low = machine->address;
		open->first = table->checkpoint_count;
	} else if (machine->address < open->last) {
		return error_create(ERROR_UNSUPPORTED, "rows of a line table are not in order");
	}
	open->last = machine->address;
	if (open->rows++ % ROWS_PER_CHECKPOINT)
		return NULL;
	err = array_grow(&table->checkpoint, table->checkpoint_count, 1);
	if (!err)
		table->checkpoint[table->checkpoint_count++] = (struct checkpoint){
			.address = machine->address,
			.at = (uint32_t)(reader->at - table->program),
			.row = machine->row,
		};
	return err;
}

static struct error *add_sequence(struct linetable *table, const struct open *open, uint64_t high)
{
	struct error *err;

	if (!open->rows)
		return NULL;
	err = array_grow(&table->sequence, table->sequence_count, 1);
	if (!err)
		err = intervals_add(&table->addresses, open->low, high,
				    (uint32_t)table->sequence_count);
	if (!err)
		table->sequence[table->sequence_count++] = (struct sequence){
			.first = open->first,
			.count = table->checkpoint_count - open->first,
		};
	return err;
}

static struct error *index_rows(struct linetable *table, uint64_t offset)
{
	struct reader reader = {.at = table->program, .end = table->program_end};
	struct machine machine = machine_start;
	struct open open = {0};
	struct error *err = NULL;

	while (!err && reader.at < reader.end) {
		enum event event = run_one(&table->header, &machine, &reader);

		if (reader.bad)
			return damaged(offset, "its program makes no sense");
		if (event == EVENT_ROW)
			err = add_row(table, &open, &machine, &reader);
		if (event == EVENT_END) {
			err = add_sequence(table, &open, machine.address);
			machine = machine_start;
			open = (struct open){0};
		}
	}
	intervals_seal(&table->addresses);
	return err;
}

/* ---- directories and files */

static struct error *add_directory(struct linetable *table, const char *name)
{
	struct error *err = array_grow(&table->directory, table->directory_count, 1);

	if (!err)
		table->directory[table->directory_count++] = name;
	return err;
}

static struct error *add_file(struct linetable *table, const char *name, uint64_t directory)
{
	struct error *err = array_grow(&table->file, table->file_count, 1);

	if (!err)
		table->file[table->file_count++] =
			(struct file){.name = name, .directory = directory};
	return err;
}

/* Both numbers begin with 1; the 0th directory is the compilation's. */
static struct error *read_names_4(struct linetable *table, struct reader *reader,
				  const char *directory)
{
	struct error *err = add_directory(table, directory);
	const char *name;

	if (!err)
		err = add_file(table, NULL, 0);
	while (!err && (name = reader_string(reader)) && *name)
		err = add_directory(table, name);
	while (!err && (name = reader_string(reader)) && *name) {
		err = add_file(table, name, reader_uleb(reader));
		reader_uleb(reader); /* time of modification */
		reader_uleb(reader); /* length */
	}
	return err;
}

/* Since version 5 a table says of what its entries consist. */
struct formats {
	struct {
		uint64_t content, form;
	} entry[FORMATS_MAX];
	uint8_t count;
};

static void read_formats(struct reader *reader, struct formats *ret)
{
	ret->count = reader_u8(reader);
	if (ret->count > FORMATS_MAX)
		reader->bad = true;
	for (uint8_t i = 0; i < ret->count && !reader->bad; i++) {
		ret->entry[i].content = reader_uleb(reader);
		ret->entry[i].form = reader_uleb(reader);
	}
}

static const char *string_at(const struct elffile_bytes *section, uint64_t offset,
			     struct reader *reader)
{
	struct reader text = section_reader(section);
	const char *string;

	reader_bytes(&text, offset);
	string = reader_string(&text);
	reader->bad |= text.bad;
	return string;
}

struct value {
	const char *string;
	uint64_t number;
};

static struct value read_form(const struct linetable *table,
			      const struct linetable_sections *sections, uint64_t form,
			      struct reader *reader)
{
	bool wide = table->header.offset_size == 8;
	struct value value = {0};

	switch (form) {
	case FORM_STRING:
		value.string = reader_string(reader);
		break;
	case FORM_LINE_STRP:
	case FORM_STRP:
		value.number = wide ? reader_u64(reader) : reader_u32(reader);
		value.string = string_at(form == FORM_STRP ? &sections->str : &sections->line_str,
					 value.number, reader);
		break;
	case FORM_UDATA:
		value.number = reader_uleb(reader);
		break;
	case FORM_DATA1:
		value.number = reader_u8(reader);
		break;
	case FORM_DATA2:
		value.number = reader_u16(reader);
		break;
	case FORM_DATA4:
		value.number = reader_u32(reader);
		break;
	case FORM_DATA8:
		value.number = reader_u64(reader);
		break;
	case FORM_DATA16:
		reader_bytes(reader, 16);
		break;
	case FORM_BLOCK:
		reader_bytes(reader, reader_uleb(reader));
		break;
	default:
		reader->bad = true;
	}
	return value;
}

/* The entries of one of the two tables. */
static struct error *read_table_5(struct linetable *table,
				  const struct linetable_sections *sections, bool files,
				  struct reader *reader)
{
	struct formats formats = {0};
	struct error *err = NULL;
	uint64_t count;

	read_formats(reader, &formats);
	count = reader_uleb(reader);
	/* An entry takes a byte at least. */
	if (count > reader_left(reader))
		reader->bad = true;
	for (uint64_t i = 0; i < count && !err && !reader->bad; i++) {
		const char *name = NULL;
		uint64_t directory = 0;

		for (uint8_t k = 0; k < formats.count; k++) {
			struct value value =
				read_form(table, sections, formats.entry[k].form, reader);

			if (formats.entry[k].content == LNCT_PATH)
				name = value.string;
			if (formats.entry[k].content == LNCT_DIRECTORY_INDEX)
				directory = value.number;
		}
		err = files ? add_file(table, name, directory) : add_directory(table, name);
	}
	return err;
}

/* ---- reading */

static void read_header(struct header *header, struct reader *reader, struct reader *unit_ret)
{
	uint64_t size = reader_u32(reader);

	header->offset_size = 4;
	if (size == UINT32_MAX) {
		header->offset_size = 8;
		size = reader_u64(reader);
	}
	unit_ret->at = reader->at;
	if (!reader_bytes(reader, size))
		return;
	unit_ret->end = reader->at;
	header->version = reader_u16(unit_ret);
	header->address_size = 8;
	if (header->version >= 5) {
		header->address_size = reader_u8(unit_ret);
		reader_u8(unit_ret); /* size of a segment selector */
	}
}

/* What describes the opcodes; @unit is behind the header's length. */
static bool read_opcodes(struct header *header, struct reader *unit)
{
	uint8_t operations = 1;

	header->instruction_length = reader_u8(unit);
	if (header->version >= 4)
		operations = reader_u8(unit);
	reader_u8(unit); /* whether rows are statements at first */
	header->line_base = (int8_t)reader_u8(unit);
	header->line_range = reader_u8(unit);
	header->opcode_base = reader_u8(unit);
	for (unsigned int i = 1; i < header->opcode_base; i++)
		header->operands[i] = reader_u8(unit);
	return operations == 1 && header->line_range && header->opcode_base;
}

static struct error *read_all(struct linetable *table, const struct linetable_sections *sections,
			      uint64_t offset, const char *directory)
{
	struct reader reader = section_reader(&sections->line);
	struct reader unit = {0}, program;
	struct header *header = &table->header;
	struct error *err;
	uint64_t size;

	reader_bytes(&reader, offset);
	read_header(header, &reader, &unit);
	if (reader.bad || unit.bad)
		return damaged(offset, "it ends in its header");
	if (header->version < VERSION_MIN || header->version > VERSION_MAX ||
	    header->address_size != 8)
		return error_create(ERROR_UNSUPPORTED, "line table of version %u", header->version);
	size = header->offset_size == 8 ? reader_u64(&unit) : reader_u32(&unit);
	program = unit;
	reader_bytes(&program, size);
	if (!read_opcodes(header, &unit) || program.bad || reader_left(&program) > UINT32_MAX)
		return damaged(offset, "its header makes no sense");
	if (header->version < 5) {
		err = read_names_4(table, &unit, directory);
	} else {
		err = read_table_5(table, sections, false, &unit);
		if (!err)
			err = read_table_5(table, sections, true, &unit);
	}
	if (!err && unit.bad)
		err = damaged(offset, "its files cannot be read");
	if (err)
		return err;
	table->program = program.at;
	table->program_end = program.end;
	return index_rows(table, offset);
}

void linetable_free(struct linetable *table)
{
	if (!table)
		return;
	for (size_t i = 0; i < table->file_count; i++)
		free(table->file[i].path);
	free(table->file);
	free(table->directory);
	free(table->checkpoint);
	free(table->sequence);
	intervals_deinit(&table->addresses);
	free(table);
}

struct error *linetable_read(const struct linetable_sections *sections, uint64_t offset,
			     const char *directory, struct linetable **ret)
{
	struct linetable *table = calloc(1, sizeof(*table));
	struct error *err;

	if (!table)
		return error_memory();
	err = read_all(table, sections, offset, directory);
	if (err) {
		linetable_free(table);
		return err;
	}
	*ret = table;
	return NULL;
}

void linetable_sections(struct elffile *file, struct linetable_sections *ret)
{
	elffile_optional_bytes(file, elffile_section(file, ".debug_line"), &ret->line);
	elffile_optional_bytes(file, elffile_section(file, ".debug_line_str"), &ret->line_str);
	elffile_optional_bytes(file, elffile_section(file, ".debug_str"), &ret->str);
}

/* ---- questions */

/* The last checkpoint of the sequence at or before @address; the first one is. */
static const struct checkpoint *checkpoint_find(const struct linetable *table,
						const struct sequence *sequence, uint64_t address)
{
	const struct checkpoint *first = &table->checkpoint[sequence->first];
	size_t low = 0, high = sequence->count;

	while (high - low > 1) {
		size_t middle = low + (high - low) / 2;

		if (first[middle].address <= address)
			low = middle;
		else
			high = middle;
	}
	return &first[low];
}

bool linetable_find(const struct linetable *table, uint64_t address, struct linetable_row *ret)
{
	const struct interval *interval = intervals_find(&table->addresses, address);
	const struct checkpoint *checkpoint;
	struct machine machine;
	struct reader reader;

	if (!interval)
		return false;
	checkpoint = checkpoint_find(table, &table->sequence[interval->value], address);
	machine = (struct machine){checkpoint->address, checkpoint->row};
	reader = (struct reader){
		.at = table->program + checkpoint->at,
		.end = table->program_end,
	};
	*ret = checkpoint->row;
	for (;;) {
		enum event event = run_one(&table->header, &machine, &reader);

		if (event == EVENT_END || machine.address > address)
			return true;
		if (event == EVENT_ROW)
			*ret = machine.row;
	}
}

const char *linetable_file(struct linetable *table, uint64_t number)
{
	struct file *file = number < table->file_count ? &table->file[number] : NULL;
	const char *directory;

	if (!file || !file->name)
		return NULL;
	directory =
		file->directory < table->directory_count ? table->directory[file->directory] : NULL;
	if (file->name[0] == '/' || !directory)
		return file->name;
	if (!file->path && asprintf(&file->path, "%s/%s", directory, file->name) < 0)
		file->path = NULL;
	return file->path;
}
