// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/nesting.h"

#include "injector/functions.h"
#include "resolver/array.h"
#include "resolver/cleanup.h"
#include "resolver/insn.h"

#include <pthread.h>
#include <string.h>

/*
 * Bounds of one walk. Direct calls are followed one level deep from C
 * functions: two levels down from glibc's malloc lie assert and abort, whose
 * own mallocs are no part of an allocation. Operators are thin, their inner
 * call may be in a helper of a helper.
 */
#define DEPTH_C	       1
#define DEPTH_OPERATOR 2
#define INSNS_MAX      4000u /* decoded for one function with all that it calls */
#define FUNCTION_BYTES 8192u /* a jump further than this from a function's start is a tail call */
#define PENDING_MAX    512u
#define VISITED_SLOTS  16384u /* a power of two, > 2 * INSNS_MAX */
#define CACHED_PAGES   32u
#define RECURSION_MAX  8

struct page {
	uint64_t address; /* 1 = empty */
	uint8_t bytes[HA_PAGE];
};

struct decision {
	uint64_t address;
	uint16_t function;
	uint8_t result; /* enum nesting */
	bool busy;	/* being decided further up: a cycle */
};

/* A word that a PLT stub or call jumps through, and whose name is a hooked function. */
struct named_slot {
	uint64_t address;
	uint16_t function;
};

struct nesting_walker {
	const struct memory_reader *memory;
	const struct modules *modules;
	struct insn_decoder *decoder;
	struct page page[CACHED_PAGES];
	size_t next_page;
	struct named_slot *slot; /* sorted by address */
	size_t slot_count;
	struct decision *decision;
	size_t decision_count;
	int recursion;
};

/* One place still to be decoded. */
struct pending {
	uint64_t address;
	uint64_t start; /* of the function that it belongs to */
	uint8_t depth;
};

struct walk {
	struct nesting_walker *walker;
	const struct function *function;
	struct pending pending[PENDING_MAX];
	size_t pending_count;
	uint64_t visited[VISITED_SLOTS]; /* hash set of addresses; 0 = empty */
	size_t insns;
	bool inner, undecided, indirect;
	bool cut; /* not all of it was seen */
	struct error *err;
};

/* ---- decisions kept for the life of the program, by build id */

struct remembered {
	uint8_t build_id[MODULE_BUILD_ID];
	uint64_t offset; /* of the code from the object's bias */
	uint16_t function;
	uint8_t result;
	uint8_t build_id_size;
};

#define REMEMBERED_MAX 256u

static struct {
	pthread_mutex_t lock;
	struct remembered item[REMEMBERED_MAX];
	size_t count; /* ever stored; the oldest are overwritten */
} memory_of_decisions = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool remembered_key(const struct nesting_walker *walker, size_t function, uint64_t address,
			   struct remembered *ret)
{
	const struct module *module = modules_find_code(walker->modules, address);

	if (!module || !module->build_id_size)
		return false;
	*ret = (struct remembered){
		.offset = address - module->bias,
		.function = (uint16_t)function,
		.build_id_size = (uint8_t)module->build_id_size,
	};
	memcpy(ret->build_id, module->build_id, module->build_id_size);
	return true;
}

static bool recall(const struct remembered *key, enum nesting *ret)
{
	bool found = false;

	pthread_mutex_lock(&memory_of_decisions.lock);
	for (size_t i = 0; !found && i < REMEMBERED_MAX && i < memory_of_decisions.count; i++) {
		const struct remembered *item = &memory_of_decisions.item[i];

		found = item->offset == key->offset && item->function == key->function &&
			item->build_id_size == key->build_id_size &&
			memcmp(item->build_id, key->build_id, key->build_id_size) == 0;
		if (found)
			*ret = (enum nesting)item->result;
	}
	pthread_mutex_unlock(&memory_of_decisions.lock);
	return found;
}

static void remember(const struct remembered *key, enum nesting result)
{
	struct remembered *item;

	pthread_mutex_lock(&memory_of_decisions.lock);
	item = &memory_of_decisions.item[memory_of_decisions.count++ % REMEMBERED_MAX];
	*item = *key;
	item->result = (uint8_t)result;
	pthread_mutex_unlock(&memory_of_decisions.lock);
}

/* ---- reading code */

/* The page of @address, or NULL if it cannot be read. */
static const uint8_t *page_get(struct nesting_walker *walker, uint64_t address)
{
	uint64_t start = address & ~((uint64_t)HA_PAGE - 1);
	struct page *page;

	for (size_t i = 0; i < CACHED_PAGES; i++) {
		if (walker->page[i].address == start)
			return walker->page[i].bytes;
	}
	page = &walker->page[walker->next_page];
	walker->next_page = (walker->next_page + 1) % CACHED_PAGES;
	page->address = 1;
	if (!memory_try(walker->memory, start, page->bytes, HA_PAGE))
		return NULL;
	page->address = start;
	return page->bytes;
}

#define INSN_BYTES 16

/* Up to 16 bytes of code at @address; returns how many. */
static size_t code_read(struct nesting_walker *walker, uint64_t address, uint8_t *buf)
{
	size_t done = 0;

	while (done < INSN_BYTES) {
		uint64_t at = address + done;
		size_t in_page = at % HA_PAGE, piece = HA_PAGE - in_page;
		const uint8_t *page = page_get(walker, at);

		if (!page)
			break;
		if (piece > INSN_BYTES - done)
			piece = INSN_BYTES - done;
		memcpy(buf + done, page + in_page, piece);
		done += piece;
	}
	return done;
}

static bool decode_at(struct nesting_walker *walker, uint64_t address, struct insn *ret)
{
	uint8_t bytes[INSN_BYTES];
	size_t size = code_read(walker, address, bytes);

	return size && insn_decode(walker->decoder, bytes, size, address, ret);
}

bool nesting_plt_slot(struct nesting_walker *walker, uint64_t address, uint64_t *slot_ret)
{
	struct insn insn;

	/* [endbr64;] [bnd] jmp *slot(%rip) */
	for (int i = 0; i < 2; i++) {
		if (!decode_at(walker, address, &insn))
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

/* ---- named slots */

static int slot_compare(const void *a, const void *b)
{
	const struct named_slot *x = a, *y = b;

	return (x->address > y->address) - (x->address < y->address);
}

static struct error *collect_slots(struct nesting_walker *walker)
{
	const struct modules *modules = walker->modules;
	struct error *err;

	for (size_t i = 0; i < modules->count; i++) {
		const struct module *module = modules->module[i];

		err = array_grow(&walker->slot, walker->slot_count, module->reference_count);
		if (err)
			return err;
		for (size_t k = 0; k < module->reference_count; k++)
			walker->slot[walker->slot_count++] = (struct named_slot){
				.address = module->reference[k].address,
				.function = module->reference[k].function,
			};
	}
	if (walker->slot_count)
		qsort(walker->slot, walker->slot_count, sizeof(walker->slot[0]), slot_compare);
	return NULL;
}

/* Index of the hooked function that the word at @address names, or -1. */
static int slot_function(const struct nesting_walker *walker, uint64_t address)
{
	struct named_slot key = {.address = address};
	const struct named_slot *found;

	if (!walker->slot_count)
		return -1;
	found = bsearch(&key, walker->slot, walker->slot_count, sizeof(key), slot_compare);
	return found ? found->function : -1;
}

/* ---- the walk */

static bool visit(struct walk *walk, uint64_t address)
{
	size_t at = (address * HA_HASH_MULTIPLIER) >> 50;

	for (;; at = (at + 1) % VISITED_SLOTS) {
		if (walk->visited[at] == address)
			return false;
		if (!walk->visited[at]) {
			walk->visited[at] = address;
			return true;
		}
	}
}

static void push(struct walk *walk, uint64_t address, uint64_t start, uint8_t depth)
{
	if (!address)
		return;
	if (walk->pending_count == PENDING_MAX) {
		walk->cut = true;
		return;
	}
	walk->pending[walk->pending_count++] = (struct pending){address, start, depth};
}

/*
 * Would a call of @inner within the outer function record the same event? A
 * release inside an allocation (or the reverse) is an event of its own. A
 * realloc that only frees through a slot still has to be seen itself.
 */
static bool is_same_event(const struct function *outer, const struct function *inner)
{
	if (outer->class == HA_CLASS_FREE)
		return inner->class == HA_CLASS_FREE;
	return function_allocates(inner);
}

/* The function calls through the word at @slot. */
static void reach_slot(struct walk *walk, uint64_t slot)
{
	int index = slot_function(walk->walker, slot);
	const struct function *inner = index < 0 ? NULL : functions_get((size_t)index);
	enum nesting nesting = NESTING_HOOK;
	uint64_t code;

	if (!inner || inner == walk->function || !is_same_event(walk->function, inner))
		return;
	/* Unbound or not: what stands behind that name is or contains a hooked function. */
	if (memory_try_u64(walk->walker->memory, slot, &code) && code)
		walk->err = nesting_decide(walk->walker, (size_t)index, code, &nesting);
	if (nesting == NESTING_UNDECIDED)
		walk->undecided = true;
	else
		walk->inner = true;
}

static void reach_call(struct walk *walk, const struct pending *from, uint64_t target,
		       uint8_t max_depth)
{
	uint64_t slot;

	if (nesting_plt_slot(walk->walker, target, &slot))
		reach_slot(walk, slot);
	else if (from->depth < max_depth)
		push(walk, target, target, from->depth + 1);
}

/* A jump far from the function's start is a tail call: another function, same depth. */
static void reach_jump(struct walk *walk, const struct pending *from, uint64_t target)
{
	uint64_t slot;

	if (target - from->start < FUNCTION_BYTES) {
		push(walk, target, from->start, from->depth);
		return;
	}
	if (nesting_plt_slot(walk->walker, target, &slot))
		reach_slot(walk, slot);
	else
		push(walk, target, target, from->depth);
}

/* Decode from @from until the straight line ends. */
static void walk_line(struct walk *walk, struct pending from, uint8_t max_depth)
{
	struct insn insn;

	for (uint64_t at = from.address; !walk->err && !walk->inner; at += insn.size) {
		if (walk->insns == INSNS_MAX)
			walk->cut = true;
		if (walk->cut || !visit(walk, at) || !decode_at(walk->walker, at, &insn))
			return;
		walk->insns++;
		switch (insn.kind) {
		case INSN_CALL:
			reach_call(walk, &from, insn.target, max_depth);
			break;
		case INSN_CALL_MEMORY:
			reach_slot(walk, insn.target);
			break;
		case INSN_CALL_INDIRECT:
			walk->indirect = true;
			break;
		case INSN_BRANCH:
			reach_jump(walk, &from, insn.target);
			break;
		case INSN_JUMP:
			reach_jump(walk, &from, insn.target);
			return;
		case INSN_JUMP_MEMORY:
			reach_slot(walk, insn.target);
			return;
		case INSN_JUMP_INDIRECT:
			walk->indirect = true;
			return;
		case INSN_RETURN:
		case INSN_TRAP:
			return;
		default:
			break;
		}
	}
}

/*
 * An indirect call makes only those functions doubtful that are thin by
 * nature, in objects that have no allocator of their own to call directly:
 * jemalloc's operator new calls a new-handler, never another malloc.
 */
static bool indirect_matters(const struct walk *walk, uint64_t address)
{
	const struct module *module = modules_find_code(walk->walker->modules, address);

	return (walk->indirect || walk->cut) && walk->function->family != FUNCTION_C &&
	       !(module && module->defines_malloc);
}

static struct error *walk_function(struct nesting_walker *walker, const struct function *function,
				   uint64_t address, enum nesting *ret)
{
	uint8_t max_depth = function->family == FUNCTION_C ? DEPTH_C : DEPTH_OPERATOR;
	CLEANUP(freep) struct walk *walk = calloc(1, sizeof(*walk));

	if (!walk)
		return error_memory();
	walk->walker = walker;
	walk->function = function;
	push(walk, address, address, 0);
	while (walk->pending_count && !walk->inner && !walk->err)
		walk_line(walk, walk->pending[--walk->pending_count], max_depth);
	if (walk->err)
		return walk->err;
	if (walk->inner)
		*ret = NESTING_INNER;
	else if (walk->undecided || indirect_matters(walk, address))
		*ret = NESTING_UNDECIDED;
	else
		*ret = NESTING_HOOK;
	return NULL;
}

/* ---- deciding */

static struct decision *find_decision(const struct nesting_walker *walker, size_t function,
				      uint64_t address)
{
	for (size_t i = 0; i < walker->decision_count; i++) {
		struct decision *decision = &walker->decision[i];

		if (decision->address == address && decision->function == function)
			return decision;
	}
	return NULL;
}

struct error *nesting_decide(struct nesting_walker *walker, size_t function, uint64_t address,
			     enum nesting *ret)
{
	const struct function *what = functions_get(function);
	struct decision *decision = find_decision(walker, function, address);
	enum nesting result = NESTING_HOOK;
	struct remembered key;
	bool known;
	size_t index;
	struct error *err;

	if (!what)
		return error_create(ERROR_NOT_FOUND, "there is no function %zu", function);
	if (decision) { /* a cycle counts as reaching nothing new */
		*ret = decision->busy ? NESTING_HOOK : (enum nesting)decision->result;
		return NULL;
	}
	err = array_grow(&walker->decision, walker->decision_count, 1);
	if (err)
		return err;
	index = walker->decision_count++;
	walker->decision[index] = (struct decision){
		.address = address,
		.function = (uint16_t)function,
		.busy = true,
	};
	known = remembered_key(walker, function, address, &key);
	if ((!known || !recall(&key, &result)) && walker->recursion < RECURSION_MAX) {
		walker->recursion++;
		err = walk_function(walker, what, address, &result);
		walker->recursion--;
		/* A result under a cycle holds for this walk alone. */
		if (!err && known && walker->recursion == 0)
			remember(&key, result);
	}
	walker->decision[index].result = (uint8_t)result;
	walker->decision[index].busy = false;
	if (err)
		return err;
	*ret = result;
	return NULL;
}

struct error *nesting_create(const struct memory_reader *memory, const struct modules *modules,
			     struct nesting_walker **ret)
{
	struct nesting_walker *walker = calloc(1, sizeof(*walker));
	struct error *err;

	if (!walker)
		return error_memory();
	walker->memory = memory;
	walker->modules = modules;
	for (size_t i = 0; i < CACHED_PAGES; i++)
		walker->page[i].address = 1;
	err = insn_decoder_create(&walker->decoder);
	if (!err)
		err = collect_slots(walker);
	if (err) {
		nesting_free(walker);
		return err;
	}
	*ret = walker;
	return NULL;
}

void nesting_free(struct nesting_walker *walker)
{
	if (!walker)
		return;
	insn_decoder_free(walker->decoder);
	free(walker->slot);
	free(walker->decision);
	free(walker);
}
