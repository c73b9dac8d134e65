// SPDX-License-Identifier: GPL-3.0-or-later
#include "resolver/ehframe.h"

#include <stdlib.h>

#include "resolver/cleanup.h"
#include "resolver/ehframe_cfi.h"
#include "resolver/ehframe_rows.h"

static const uint64_t TEXT_MAX = (uint64_t)1 << 32;

/* What the first pass over the section collects. */
struct scan {
	const struct ehframe_input *in;
	struct ehframe_stats *stats;
	struct cfi_cie *cie; /* in the order of the section */
	size_t cie_count, cie_capacity;
	struct cfi_fde *fde;
	size_t fde_count, fde_capacity;
};

/* One entry of the section. */
struct entry {
	size_t offset;	    /* of its length */
	size_t id_offset;   /* of its CIE id or pointer */
	uint32_t id;	    /* 0: a CIE; else distance back from id_offset to the CIE */
	struct reader body; /* behind the id, to the end of the entry */
};

enum entry_result { ENTRY_OK, ENTRY_TERMINATOR, ENTRY_DAMAGED };

static uint64_t vaddr_at(const struct scan *scan, const uint8_t *at)
{
	return scan->in->vaddr + (uint64_t)(at - scan->in->data);
}

static enum entry_result read_entry(const struct scan *scan, struct reader *reader,
				    struct entry *entry)
{
	const uint8_t *data = scan->in->data;
	uint64_t length;

	entry->offset = (size_t)(reader->at - data);
	length = reader_u32(reader);
	if (!reader->bad && length == 0)
		return ENTRY_TERMINATOR;
	if (length == UINT32_MAX)
		length = reader_u64(reader);
	entry->id_offset = (size_t)(reader->at - data);
	if (reader->bad || length < 4 || length > reader_left(reader))
		return ENTRY_DAMAGED;
	/* Unlike in .debug_frame the id has 4 bytes even if the length has 8. */
	entry->body = (struct reader){.at = reader->at, .end = reader->at + length};
	entry->id = reader_u32(&entry->body);
	reader->at += length;
	return ENTRY_OK;
}

static void skip_fde(struct scan *scan, size_t offset)
{
	if (scan->stats->skipped++ == 0)
		scan->stats->skipped_offset = offset;
}

static struct error *grow(void **array, size_t count, size_t *capacity, size_t element)
{
	size_t wanted = *capacity ? *capacity * 2 : 256;
	void *grown;

	if (count < *capacity)
		return NULL;
	grown = reallocarray(*array, wanted, element);
	if (!grown)
		return error_memory();
	*array = grown;
	*capacity = wanted;
	return NULL;
}

/* The letters behind 'z'; unknown ones may change what the rest means. */
static bool read_augmentation(const struct scan *scan, struct cfi_cie *cie, const char *letters,
			      struct reader *data)
{
	for (; *letters; letters++) {
		uint8_t encoding;

		switch (*letters) {
		case 'R':
			cie->encoding = reader_u8(data);
			break;
		case 'L':
			reader_u8(data);
			break;
		case 'P':
			/* Only its size matters; the base of a data-relative one does not. */
			encoding = reader_u8(data);
			reader_pointer(data, encoding, vaddr_at(scan, data->at), 1);
			break;
		case 'S':
			cie->signal = true;
			break;
		case 'B': /* aarch64: signed with the B key */
			break;
		default:
			return false;
		}
	}
	return !data->bad;
}

/* Fills @cie; returns whether its FDEs can be used. */
static bool read_cie(const struct scan *scan, struct reader body, struct cfi_cie *cie)
{
	uint8_t version = reader_u8(&body);
	const char *augmentation = reader_string(&body);
	uint64_t ra_register;

	if (body.bad || (version != 1 && version != 3 && version != 4))
		return false;
	if (strcmp(augmentation, "eh") == 0)
		reader_u64(&body);
	if (version == 4 && (reader_u8(&body) != 8 || reader_u8(&body) != 0))
		return false; /* size of addresses and of segment selectors */
	cie->code_align = reader_uleb(&body);
	cie->data_align = reader_sleb(&body);
	ra_register = version == 1 ? reader_u8(&body) : reader_uleb(&body);
	if (body.bad || ra_register != 16)
		return false;
	if (augmentation[0] == 'z') {
		uint64_t size = reader_uleb(&body);
		const uint8_t *bytes = reader_bytes(&body, size);
		struct reader data = {.at = bytes, .end = body.at};

		cie->augmented = true;
		if (!bytes || !read_augmentation(scan, cie, augmentation + 1, &data))
			return false;
	} else if (augmentation[0] != '\0' && strcmp(augmentation, "eh") != 0) {
		return false;
	}
	return cfi_run_initial(cie, body);
}

static struct error *add_cie(struct scan *scan, const struct entry *entry)
{
	struct error *err =
		grow((void **)&scan->cie, scan->cie_count, &scan->cie_capacity, sizeof(*scan->cie));
	struct cfi_cie *cie;

	if (err)
		return err;
	cie = &scan->cie[scan->cie_count++];
	*cie = (struct cfi_cie){.offset = entry->offset, .encoding = PE_ABSPTR};
	cie->usable = read_cie(scan, entry->body, cie);
	scan->stats->cies++;
	return NULL;
}

/* The CIE of an FDE: mostly the last one that was met. NULL: there is none. */
static const struct cfi_cie *find_cie(const struct scan *scan, const struct entry *entry)
{
	size_t low = 0, high = scan->cie_count;
	size_t offset = entry->id_offset - entry->id;

	if (entry->id > entry->id_offset)
		return NULL;
	if (high && scan->cie[high - 1].offset == offset)
		return &scan->cie[high - 1];
	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (scan->cie[middle].offset < offset)
			low = middle + 1;
		else
			high = middle;
	}
	return low < scan->cie_count && scan->cie[low].offset == offset ? &scan->cie[low] : NULL;
}

static bool read_fde(const struct scan *scan, const struct cfi_cie *cie, struct reader body,
		     struct cfi_fde *fde)
{
	uint64_t size;

	fde->start =
		reader_pointer(&body, cie->encoding, vaddr_at(scan, body.at), scan->in->got_vaddr);
	size = reader_format(&body, cie->encoding);
	if ((cie->encoding & PE_INDIRECT) || cie->encoding == PE_OMIT)
		return false;
	if (__builtin_add_overflow(fde->start, size, &fde->end))
		return false;
	if (cie->augmented)
		reader_bytes(&body, reader_uleb(&body));
	fde->code = body.at;
	fde->code_end = body.end;
	fde->cie = (uint32_t)(cie - scan->cie);
	return !body.bad;
}

static struct error *add_fde(struct scan *scan, const struct entry *entry)
{
	const struct cfi_cie *cie = find_cie(scan, entry);
	struct cfi_fde fde;
	struct error *err;

	if (!cie || !cie->usable || !read_fde(scan, cie, entry->body, &fde)) {
		skip_fde(scan, entry->offset);
		return NULL;
	}
	if (fde.start < scan->in->text_low || fde.end > scan->in->text_high) {
		scan->stats->outside++;
		return NULL;
	}
	if (fde.start == fde.end)
		return NULL;
	err = grow((void **)&scan->fde, scan->fde_count, &scan->fde_capacity, sizeof(fde));
	if (err)
		return err;
	scan->fde[scan->fde_count++] = fde;
	return NULL;
}

static struct error *scan_section(struct scan *scan)
{
	const struct ehframe_input *in = scan->in;
	struct reader reader = {.at = in->data, .end = in->data + in->size};
	struct error *err = NULL;

	while (!err && reader.at < reader.end) {
		enum entry_result result;
		struct entry entry;

		scan->stats->end = (size_t)(reader.at - in->data);
		if (in->last_fde && vaddr_at(scan, reader.at) > in->last_fde)
			return NULL;
		result = read_entry(scan, &reader, &entry);
		scan->stats->terminated = result == ENTRY_TERMINATOR;
		scan->stats->damaged = result == ENTRY_DAMAGED;
		if (result != ENTRY_OK)
			return NULL;
		err = entry.id ? add_fde(scan, &entry) : add_cie(scan, &entry);
	}
	scan->stats->end = (size_t)(reader.at - in->data);
	return err;
}

/* By address; of several at one address the first of the section wins. */
static int fde_compare(const void *left, const void *right)
{
	const struct cfi_fde *a = left, *b = right;

	if (a->start != b->start)
		return a->start < b->start ? -1 : 1;
	return a->code < b->code ? -1 : a->code > b->code;
}

static void sort_fdes(struct scan *scan)
{
	for (size_t i = 1; i < scan->fde_count; i++) {
		if (scan->fde[i].start <= scan->fde[i - 1].start) {
			qsort(scan->fde, scan->fde_count, sizeof(*scan->fde), fde_compare);
			return;
		}
	}
}

/* Leave each address to the FDE that starts last at or below it. */
static void resolve_overlaps(struct scan *scan)
{
	struct cfi_fde *fde = scan->fde;
	size_t kept = 0;

	for (size_t i = 0; i < scan->fde_count; i++) {
		if (kept && fde[kept - 1].end > fde[i].start) {
			scan->stats->overlaps++;
			if (fde[kept - 1].start == fde[i].start)
				continue;
			fde[kept - 1].end = fde[i].start;
		}
		fde[kept++] = fde[i];
	}
	scan->fde_count = kept;
}

struct row_sink {
	struct rows *rows;
	bool signal;
};

static void sink_row(void *data, uint64_t address, const struct cfi_state *state)
{
	struct row_sink *sink = data;

	rows_add_state(sink->rows, address, state, sink->signal);
}

static void compile_fde(struct scan *scan, const struct cfi_fde *fde, struct rows *rows)
{
	const struct cfi_cie *cie = &scan->cie[fde->cie];
	struct row_sink sink = {.rows = rows, .signal = cie->signal};
	uint32_t before = rows->count;

	if (cfi_run(cie, fde, scan->in->data, scan->in->vaddr, sink_row, &sink)) {
		scan->stats->fdes++;
		return;
	}
	rows_truncate(rows, before);
	rows_add_escape(rows, fde->start, HA_ESCAPE_UNKNOWN);
	skip_fde(scan, (size_t)(fde->code - scan->in->data));
}

/* No instruction at all: a function that moves no sp, so that it calls nothing. */
static bool is_leaf(const struct cfi_fde *fde)
{
	for (const uint8_t *at = fde->code; at < fde->code_end; at++) {
		if (*at != 0)
			return false;
	}
	return true;
}

/*
 * What lies between two functions. Padding gets no row of its own: nothing
 * there is run, and a return address there cannot be, but for one: the first
 * byte of a function that calls nothing was made a return address by hand
 * (makecontext does that with __start_context, whose CFI then is a lie). It is
 * looked up one byte before.
 */
static void add_gap(struct rows *rows, uint64_t end, const struct cfi_fde *next)
{
	if (next->start - end > EHFRAME_GAP_MAX)
		rows_add_escape(rows, end, HA_ESCAPE_UNKNOWN);
	else if (next->start > end && is_leaf(next))
		rows_add_escape(rows, next->start - 1, HA_ESCAPE_UNKNOWN);
}

static struct error *compile_fdes(struct scan *scan, struct rows *rows)
{
	uint64_t end = 0;

	for (size_t i = 0; i < scan->fde_count; i++) {
		const struct cfi_fde *fde = &scan->fde[i];

		if (i > 0)
			add_gap(rows, end, fde);
		compile_fde(scan, fde, rows);
		end = fde->end;
	}
	if (rows->no_memory)
		return error_memory();
	if (scan->fde_count == 0 && scan->stats->skipped == 0 && !scan->stats->damaged)
		return error_create(ERROR_NOT_FOUND, ".eh_frame at %#lx: no FDE for the code",
				    scan->in->vaddr);
	if (scan->stats->fdes == 0)
		return error_create(ERROR_FORMAT,
				    ".eh_frame at %#lx: no usable FDE (%u malformed, the first at "
				    "offset %#zx; %u outside of the code; reading ended at "
				    "offset %#zx of %#zx)",
				    scan->in->vaddr, scan->stats->skipped,
				    scan->stats->skipped_offset, scan->stats->outside,
				    scan->stats->end, scan->in->size);
	/* An end at 4 GiB has no offset; the last row then reaches to the end. */
	if (end - rows->low < TEXT_MAX)
		rows_add_escape(rows, end, HA_ESCAPE_UNKNOWN);
	return rows->no_memory ? error_memory() : NULL;
}

struct error *ehframe_compile(const struct ehframe_input *in, struct ehframe_table *ret)
{
	struct ehframe_table table = {0};
	struct scan scan = {.in = in, .stats = &table.stats};
	struct rows rows = {.low = in->text_low, .full = in->full};
	struct error *err;

	if (in->text_low >= in->text_high || in->text_high - in->text_low > TEXT_MAX)
		return error_create(ERROR_UNSUPPORTED, "code at %#lx to %#lx: empty, or over 4 GiB",
				    in->text_low, in->text_high);
	err = scan_section(&scan);
	if (!err) {
		sort_fdes(&scan);
		resolve_overlaps(&scan);
		err = compile_fdes(&scan, &rows);
	}
	if (!err)
		err = rows_build(&rows, &table);
	rows_deinit(&rows);
	free(scan.cie);
	free(scan.fde);
	if (err)
		return err;
	*ret = table;
	return NULL;
}

void ehframe_table_deinit(struct ehframe_table *table)
{
	free(table->table);
	*table = (struct ehframe_table){0};
}

/* The highest FDE address in a search table of (code, FDE) pairs. */
static uint64_t last_of_search_table(struct reader reader, uint8_t encoding, uint64_t count,
				     const uint8_t *hdr, uint64_t vaddr)
{
	uint64_t last = 0;

	for (uint64_t i = 0; i < count && !reader.bad; i++) {
		uint64_t fde;

		reader_format(&reader, encoding);
		fde = reader_pointer(&reader, encoding, vaddr + (uint64_t)(reader.at - hdr), vaddr);
		if (fde > last)
			last = fde;
	}
	return reader.bad ? 0 : last;
}

struct error *ehframe_find(const uint8_t *hdr, size_t size, uint64_t vaddr,
			   struct ehframe_location *ret)
{
	struct reader reader = {.at = hdr, .end = hdr + size};
	uint8_t version = reader_u8(&reader);
	uint8_t pointer = reader_u8(&reader);
	uint8_t count = reader_u8(&reader);
	uint8_t table = reader_u8(&reader);
	struct ehframe_location location = {0};

	location.vaddr = reader_pointer(&reader, pointer, vaddr + 4, vaddr);
	if (reader.bad || version != 1 || location.vaddr == 0 || (pointer & PE_INDIRECT))
		return error_create(ERROR_FORMAT,
				    ".eh_frame_hdr at %#lx: malformed, or of an unknown kind "
				    "(version %u, pointer encoding %#x)",
				    vaddr, version, pointer);
	if (count != PE_OMIT && table != PE_OMIT && !((count | table) & PE_INDIRECT)) {
		location.fdes =
			reader_pointer(&reader, count, vaddr + (uint64_t)(reader.at - hdr), vaddr);
		location.last_fde = last_of_search_table(reader, table, location.fdes, hdr, vaddr);
		if (location.last_fde < location.vaddr)
			location.last_fde = 0;
	}
	*ret = location;
	return NULL;
}
