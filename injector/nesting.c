// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/nesting.h"

#include "injector/codereader.h"
#include "injector/functions.h"
#include "resolver/array.h"
#include "resolver/cleanup.h"

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
#define INSNS_C	       300u /* decoded for one function with all that it calls */
#define INSNS_OPERATOR 1000u
#define FUNCTION_BYTES 8192u /* a jump further than this from a function's start is a tail call */
#define PENDING_MAX    512u
#define VISITED_SLOTS  4096u /* a power of two, > 2 * INSNS_OPERATOR */
#define RECURSION_MAX  8

struct decision {
	uint64_t address;
	uint16_t function;
	uint8_t result; /* enum nesting */
	bool busy;	/* being decided further up: a cycle */
};

/* A word that a PLT stub or call jumps through, and whose name is a hooked function. */
struct named_slot {
	uint64_t address;
	uint64_t call;
	uint16_t function;
};

struct nesting_walker {
	const struct modules *modules;
	struct code_reader *code;
	struct named_slot *slot; /* sorted by address */
	size_t slot_count;
	bool sorted;
	const struct module **self_contained; /* owned */
	size_t self_contained_count;
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
	/* First in, first out: the function's own code before that of what it calls. */
	struct pending pending[PENDING_MAX];
	size_t pending_first, pending_count;
	uint64_t visited[VISITED_SLOTS]; /* hash set of addresses; 0 = empty */
	size_t insns, max_insns;
	uint8_t max_depth;
	bool inner, undecided, indirect;
	bool own;    /* a slot was reached through which the object calls itself */
	bool bypass; /* a path returned without any such call */
	bool cut;    /* not all of it was seen */
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

/* A "function" of the whole object: is it self-contained? INNER: yes. */
#define SELF_CONTAINED UINT16_MAX

static bool module_key(const struct module *module, size_t function, uint64_t address,
		       struct remembered *ret)
{
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

bool nesting_plt_slot(struct nesting_walker *walker, uint64_t address, uint64_t *slot_ret)
{
	return codereader_plt_slot(walker->code, address, slot_ret);
}

/* ---- named slots */

static int slot_compare(const void *a, const void *b)
{
	const struct named_slot *x = a, *y = b;

	return (x->address > y->address) - (x->address < y->address);
}

struct error *nesting_add_slot(struct nesting_walker *walker, uint64_t slot, size_t function,
			       uint64_t call)
{
	struct error *err = array_grow(&walker->slot, walker->slot_count, 1);

	if (err)
		return err;
	walker->slot[walker->slot_count++] = (struct named_slot){
		.address = slot,
		.call = call,
		.function = (uint16_t)function,
	};
	walker->sorted = false;
	return NULL;
}

static const struct named_slot *find_slot(struct nesting_walker *walker, uint64_t address)
{
	struct named_slot key = {.address = address};

	if (!walker->slot_count)
		return NULL;
	if (!walker->sorted)
		qsort(walker->slot, walker->slot_count, sizeof(walker->slot[0]), slot_compare);
	walker->sorted = true;
	return bsearch(&key, walker->slot, walker->slot_count, sizeof(key), slot_compare);
}

/* The object that both the slot and what it leads to lie in, or NULL. */
static const struct module *own_module(const struct nesting_walker *walker, uint64_t slot,
				       uint64_t call)
{
	const struct module *module = modules_find(walker->modules, slot);

	return module && modules_find(walker->modules, call) == module ? module : NULL;
}

bool nesting_is_internal(const struct nesting_walker *walker, uint64_t slot, uint64_t call)
{
	const struct module *module = own_module(walker, slot, call);

	for (size_t i = 0; module && i < walker->self_contained_count; i++) {
		if (walker->self_contained[i] == module)
			return true;
	}
	return false;
}

/* ---- the walk */

static bool visit(struct walk *walk, uint64_t address)
{
	size_t at = (address * HA_HASH_MULTIPLIER) >> 52;

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
	if (walk->pending_count == PENDING_MAX) { /* ever, not at once */
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

/* The code at @from calls through the word at @address; true if that settles its path. */
static bool reach_slot(struct walk *walk, uint64_t address)
{
	const struct named_slot *slot = find_slot(walk->walker, address);
	const struct function *inner = slot ? functions_get(slot->function) : NULL;
	enum nesting nesting = NESTING_HOOK;

	if (!inner || inner == walk->function || !is_same_event(walk->function, inner) ||
	    nesting_is_internal(walk->walker, slot->address, slot->call))
		return false;
	walk->err = nesting_decide(walk->walker, slot->function, slot->call, &nesting);
	if (nesting == NESTING_UNDECIDED) {
		walk->undecided = true;
		return false;
	}
	walk->inner = true;
	walk->own |= own_module(walk->walker, slot->address, slot->call) != NULL;
	return true;
}

static bool reach_call(struct walk *walk, const struct pending *from, uint64_t target)
{
	uint64_t slot;

	if (codereader_plt_slot(walk->walker->code, target, &slot))
		return reach_slot(walk, slot);
	if (from->depth < walk->max_depth)
		push(walk, target, target, from->depth + 1);
	return false;
}

/* A jump far from the function's start is a tail call: another function, same depth. */
static void reach_jump(struct walk *walk, const struct pending *from, uint64_t target)
{
	uint64_t slot;

	if (target - from->start < FUNCTION_BYTES)
		push(walk, target, from->start, from->depth);
	else if (!codereader_plt_slot(walk->walker->code, target, &slot))
		push(walk, target, target, from->depth);
	else if (!reach_slot(walk, slot))
		walk->bypass |= from->depth == 0;
}

/* What @insn does to the walk; false if the straight line ends here. */
static bool walk_insn(struct walk *walk, const struct pending *from, const struct insn *insn)
{
	switch (insn->kind) {
	case INSN_CALL:
		return !reach_call(walk, from, insn->target);
	case INSN_CALL_MEMORY:
		return !reach_slot(walk, insn->target);
	case INSN_CALL_INDIRECT:
		walk->indirect = true;
		return true;
	case INSN_BRANCH:
		reach_jump(walk, from, insn->target);
		return true;
	case INSN_JUMP:
		reach_jump(walk, from, insn->target);
		return false;
	case INSN_JUMP_MEMORY:
		if (!reach_slot(walk, insn->target))
			walk->bypass |= from->depth == 0;
		return false;
	case INSN_JUMP_INDIRECT:
		walk->indirect = true;
		return false;
	case INSN_RETURN:
		walk->bypass |= from->depth == 0;
		return false;
	case INSN_TRAP:
		return false;
	default:
		return true;
	}
}

/* Nothing that is still to be found would change the answer. */
static bool is_settled(const struct walk *walk)
{
	return walk->err || (walk->inner && (!walk->own || walk->bypass));
}

/* Decode from @from until the straight line ends. */
static void walk_line(struct walk *walk, struct pending from)
{
	struct insn insn;

	for (uint64_t at = from.address; !is_settled(walk); at += insn.size) {
		if (walk->insns == walk->max_insns)
			walk->cut = true;
		if (walk->cut || !visit(walk, at) ||
		    !codereader_decode(walk->walker->code, at, &insn))
			return;
		walk->insns++;
		if (!walk_insn(walk, &from, &insn))
			return;
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

static struct error *walk_create(struct nesting_walker *walker, const struct function *function,
				 uint64_t address, struct walk **ret)
{
	struct walk *walk = calloc(1, sizeof(*walk));
	struct error *err;

	if (!walk)
		return error_memory();
	walk->walker = walker;
	walk->function = function;
	walk->max_insns = function->family == FUNCTION_C ? INSNS_C : INSNS_OPERATOR;
	walk->max_depth = function->family == FUNCTION_C ? DEPTH_C : DEPTH_OPERATOR;
	push(walk, address, address, 0);
	while (walk->pending_first < walk->pending_count && !is_settled(walk))
		walk_line(walk, walk->pending[walk->pending_first++]);
	err = walk->err;
	if (err)
		free(walk);
	else
		*ret = walk;
	return err;
}

static struct error *walk_function(struct nesting_walker *walker, const struct function *function,
				   uint64_t address, enum nesting *ret)
{
	CLEANUP(freep) struct walk *walk = NULL;
	struct error *err = walk_create(walker, function, address, &walk);

	if (err)
		return err;
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
	known = module_key(modules_find_code(walker->modules, address), function, address, &key);
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

/* Only operators and jemalloc's API are wrappers with a fast path of their own. */
static struct error *has_own_path(struct nesting_walker *walker, const struct module *module,
				  bool *ret)
{
	for (size_t i = 0; i < functions_count() && !*ret; i++) {
		const struct function *function = functions_get(i);
		uint64_t address = module_symbol_or_0(module, function->name);
		CLEANUP(freep) struct walk *walk = NULL;
		struct error *err;

		if (function->family == FUNCTION_C || !address || !module_has_code(module, address))
			continue;
		err = walk_create(walker, function, address, &walk);
		if (err)
			return err;
		*ret = walk->own && walk->bypass;
	}
	return NULL;
}

/* True if some slot of @module leads to itself. */
static bool has_own_slot(const struct nesting_walker *walker, const struct module *module)
{
	for (size_t i = 0; i < walker->slot_count; i++) {
		const struct named_slot *slot = &walker->slot[i];

		if (own_module(walker, slot->address, slot->call) == module)
			return true;
	}
	return false;
}

struct error *nesting_find_self_contained(struct nesting_walker *walker)
{
	for (size_t i = 0; i < walker->modules->count; i++) {
		const struct module *module = walker->modules->module[i];
		enum nesting known;
		struct remembered key;
		bool found = false;
		struct error *err = NULL;

		if (!module->defines_malloc || module->is_libc || module->is_loader ||
		    !has_own_slot(walker, module))
			continue;
		if (!module_key(module, SELF_CONTAINED, module->bias, &key)) {
			err = has_own_path(walker, module, &found);
		} else if (recall(&key, &known)) {
			found = known == NESTING_INNER;
		} else {
			err = has_own_path(walker, module, &found);
			if (!err)
				remember(&key, found ? NESTING_INNER : NESTING_HOOK);
		}
		if (!err && found)
			err = array_grow(&walker->self_contained, walker->self_contained_count, 1);
		if (err)
			return err;
		if (found)
			walker->self_contained[walker->self_contained_count++] = module;
	}
	walker->decision_count = 0; /* made without knowing this */
	return NULL;
}

struct error *nesting_create(const struct memory_reader *memory, const struct modules *modules,
			     struct nesting_walker **ret)
{
	struct nesting_walker *walker = calloc(1, sizeof(*walker));
	struct error *err;

	if (!walker)
		return error_memory();
	walker->modules = modules;
	err = codereader_create(memory, &walker->code);
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
	codereader_free(walker->code);
	free(walker->slot);
	free(walker->self_contained);
	free(walker->decision);
	free(walker);
}
