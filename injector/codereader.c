// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/codereader.h"

#include "payload/protocol.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK_BYTES   16384u /* read and kept at once; a power of two */
#define CACHED_BLOCKS 32u
#define INSN_BYTES    16u /* longest instruction, rounded up */

struct block {
	uint64_t address;  /* 1 = empty */
	size_t first, end; /* the bytes that could be read */
	uint8_t bytes[BLOCK_BYTES];
};

struct code_reader {
	const struct memory_reader *memory;
	struct insn_decoder *decoder;
	struct block block[CACHED_BLOCKS];
	size_t next_block;
};

struct error *codereader_create(const struct memory_reader *memory, struct code_reader **ret)
{
	struct code_reader *reader = calloc(1, sizeof(*reader));
	struct error *err;

	if (!reader)
		return error_memory();
	reader->memory = memory;
	for (size_t i = 0; i < CACHED_BLOCKS; i++)
		reader->block[i].address = 1;
	err = insn_decoder_create(&reader->decoder);
	if (err) {
		free(reader);
		return err;
	}
	*ret = reader;
	return NULL;
}

void codereader_free(struct code_reader *reader)
{
	if (!reader)
		return;
	insn_decoder_free(reader->decoder);
	free(reader);
}

/* An object's code need not fill the block: then it is read page by page. */
static void block_fill(const struct memory_reader *memory, uint64_t address, struct block *block)
{
	block->first = 0;
	block->end = BLOCK_BYTES;
	if (memory_try(memory, block->address, block->bytes, BLOCK_BYTES))
		return;
	block->first = block->end = (address - block->address) & ~(size_t)(HA_PAGE - 1);
	while (block->end < BLOCK_BYTES &&
	       memory_try(memory, block->address + block->end, block->bytes + block->end, HA_PAGE))
		block->end += HA_PAGE;
}

/* The block with @address, or NULL if it cannot be read. */
static const struct block *block_get(struct code_reader *reader, uint64_t address)
{
	uint64_t start = address & ~((uint64_t)BLOCK_BYTES - 1);
	struct block *block;

	for (size_t i = 0; i < CACHED_BLOCKS; i++) {
		block = &reader->block[i];
		if (block->address == start && address - start >= block->first &&
		    address - start < block->end)
			return block;
	}
	block = &reader->block[reader->next_block];
	reader->next_block = (reader->next_block + 1) % CACHED_BLOCKS;
	block->address = start;
	block_fill(reader->memory, address, block);
	return address - start < block->end ? block : NULL;
}

/* Up to 16 bytes of code at @address; returns how many. */
static size_t code_read(struct code_reader *reader, uint64_t address, uint8_t *buf)
{
	size_t done = 0;

	while (done < INSN_BYTES) {
		const struct block *block = block_get(reader, address + done);
		size_t at, piece;

		if (!block)
			break;
		at = (size_t)(address + done - block->address);
		piece = block->end - at < INSN_BYTES - done ? block->end - at : INSN_BYTES - done;
		memcpy(buf + done, block->bytes + at, piece);
		done += piece;
	}
	return done;
}

bool codereader_decode(struct code_reader *reader, uint64_t address, struct insn *ret)
{
	uint8_t bytes[INSN_BYTES];
	size_t size = code_read(reader, address, bytes);

	return size && insn_decode(reader->decoder, bytes, size, address, ret);
}

bool codereader_plt_slot(struct code_reader *reader, uint64_t address, uint64_t *slot_ret)
{
	struct insn insn;

	/* [endbr64;] [bnd] jmp *slot(%rip) */
	for (int i = 0; i < 2; i++) {
		if (!codereader_decode(reader, address, &insn))
			return false;
		if (insn.kind == INSN_JUMP_MEMORY) {
			*slot_ret = insn.target;
			return true;
		}
		if (insn.kind != INSN_OTHER || insn.size != 4)
			return false;
		address += insn.size;
	}
	return false;
}
