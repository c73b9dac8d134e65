// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/slots.h"

#include "injector/functions.h"
#include "injector/nesting.h"
#include "injector/scope.h"
#include "resolver/array.h"
#include "resolver/cleanup.h"

#include <string.h>
#include <sys/mman.h>

/* The entry object of an earlier attach: its stubs stand in some slots perhaps. */
struct registry {
	uint64_t base; /* 0 = there is none that we understand */
	uint32_t npairs;
	struct ha_pair pair[HA_PAIRS];
};

struct plan {
	const struct memory_reader *memory;
	const struct maps *maps;
	const struct modules *modules;
	struct nesting_walker *walker;
	struct registry registry;
	struct scope scope; /* of the object whose slots are looked at; read when first needed */
	struct slots *slots;
};

/* ---- the entry object */

static void read_registry(const struct memory_reader *memory, const struct modules *modules,
			  struct registry *ret)
{
	const struct module *entry = modules_entry(modules);
	struct {
		uint64_t magic;
		uint32_t abi;
	} head;
	uint64_t data;

	if (!entry)
		return;
	data = entry->low + HA_ENTRY_DATA;
	if (!memory_try(memory, data, &head, sizeof(head)) || head.abi != HA_ABI)
		return;
	if (!memory_try(memory, data + offsetof(struct ha_entry, npairs), &ret->npairs,
			sizeof(ret->npairs)) ||
	    ret->npairs > HA_PAIRS ||
	    !memory_try(memory, data + offsetof(struct ha_entry, pairs), ret->pair,
			sizeof(ret->pair)))
		return;
	for (uint32_t i = 0; i < ret->npairs; i++) {
		if (!functions_get(ret->pair[i].function)) /* not what we wrote */
			return;
	}
	ret->base = entry->low;
}

/* Index of the stub at @value in any entry object, or -1. */
static bool is_stub(const struct modules *modules, uint64_t value)
{
	const struct module *module = modules_find(modules, value);

	return module && module->is_entry;
}

static int registry_index(const struct registry *registry, uint64_t value)
{
	uint64_t first = registry->base + HA_ENTRY_STUBS;

	if (!registry->base || value < first || (value - first) % HA_STUB_SIZE != 0 ||
	    (value - first) / HA_STUB_SIZE >= registry->npairs)
		return -1;
	return (int)((value - first) / HA_STUB_SIZE);
}

/* ---- one slot */

static struct error *add_skip(struct plan *plan, const struct slot *slot,
			      enum slot_skip_reason reason)
{
	struct slots *slots = plan->slots;
	struct error *err;

	err = array_grow(&slots->skip, slots->skip_count, 1);
	if (err)
		return err;
	slots->skip[slots->skip_count++] = (struct slot_skip){
		.address = slot->address,
		.value = slot->found,
		.module = slot->module,
		.function = slot->function,
		.reason = (uint8_t)reason,
	};
	slots->skipped[reason]++;
	return NULL;
}

static struct error *add_slot(struct plan *plan, const struct slot *slot)
{
	struct slots *slots = plan->slots;
	struct error *err;

	err = array_grow(&slots->slot, slots->count, 1);
	if (err)
		return err;
	slots->slot[slots->count++] = *slot;
	return NULL;
}

static bool is_code(const struct plan *plan, uint64_t address)
{
	const struct map *map = maps_find(plan->maps, address);

	return map && map->exec;
}

/*
 * A lazy slot that was never called holds the address of its own PLT entry's
 * second half. It lies in the object's code, and is not the object's own function.
 */
static bool is_unbound(const struct module *module, const struct slot *slot)
{
	const char *name = functions_get(slot->function)->name;

	return slot->kind == REFERENCE_JUMP_SLOT && module_has_code(module, slot->found) &&
	       slot->found != module_symbol_or_0(module, name);
}

/* A pointer to an executable's PLT stub ("canonical PLT"), whose own slot is hooked. */
static bool is_through_plt(const struct plan *plan, const struct slot *slot)
{
	const struct module *owner = modules_find_code(plan->modules, slot->found);
	uint64_t target;

	if (!owner || slot->kind == REFERENCE_JUMP_SLOT ||
	    module_symbol_or_0(owner, functions_get(slot->function)->name) == slot->found ||
	    !nesting_plt_slot(plan->walker, slot->found, &target))
		return false;
	for (size_t i = 0; i < owner->reference_count; i++) {
		if (owner->reference[i].address == target &&
		    owner->reference[i].function == slot->function)
			return target != slot->address;
	}
	return false;
}

/*
 * A library's variable that begins with malloc and was then set to something of
 * the program's own, which sees to its memory through slots like everybody.
 */
static bool is_replaced(const struct plan *plan, const struct slot *slot)
{
	const struct module *owner = modules_find_code(plan->modules, slot->found);

	return slot->kind == REFERENCE_ADDRESS && owner &&
	       module_symbol_or_0(owner, functions_get(slot->function)->name) != slot->found;
}

/* Settle @slot's call, or give a reason in *skip_ret (-1 = none). */
static struct error *settle_call(struct plan *plan, const struct module *module, struct slot *slot,
				 int *skip_ret)
{
	const char *name = functions_get(slot->function)->name;
	int index = registry_index(&plan->registry, slot->found);
	struct error *err;

	slot->restore = slot->call = slot->found;
	if (!slot->found) {
		*skip_ret = SLOT_SKIP_UNRESOLVED;
	} else if (index >= 0 && plan->registry.pair[index].function == slot->function) {
		slot->inherited = true;
		slot->restore = slot->call = plan->registry.pair[index].call;
	} else if (is_stub(plan->modules, slot->found)) {
		*skip_ret = SLOT_SKIP_REGISTRY;
	} else if (is_unbound(module, slot)) {
		slot->unbound = true;
		if (!plan->scope.modules)
			scope_read(plan->memory, plan->modules, module, &plan->scope);
		err = scope_find(&plan->scope, name, &slot->call);
		if (error_is(err, ERROR_MEMORY))
			return err;
		if (err)
			*skip_ret = error_is(err, ERROR_UNSUPPORTED) ? SLOT_SKIP_IFUNC
								     : SLOT_SKIP_NO_DEFINITION;
		error_free(err);
	} else if (is_through_plt(plan, slot)) {
		*skip_ret = SLOT_SKIP_THROUGH_PLT;
	} else if (is_replaced(plan, slot)) {
		*skip_ret = SLOT_SKIP_REPLACED;
	}
	/* An earlier attach may have gone wrong, or the object's owner is gone. */
	if (*skip_ret < 0 && (!is_code(plan, slot->call) || is_stub(plan->modules, slot->call)))
		*skip_ret = SLOT_SKIP_NO_CODE;
	return NULL;
}

/* First pass: where does the slot lead? Kept among the slots, or skipped. */
static struct error *plan_slot(struct plan *plan, const struct module *module,
			       const struct reference *reference)
{
	struct slot slot = {
		.address = reference->address,
		.module = module->id,
		.function = reference->function,
		.kind = reference->kind,
	};
	const struct map *map = maps_find(plan->maps, slot.address);
	int skip = -1;
	struct error *err;

	if (map)
		slot.protection =
			(uint8_t)((map->read ? PROT_READ : 0) | (map->write ? PROT_WRITE : 0) |
				  (map->exec ? PROT_EXEC : 0));
	if (!memory_try_u64(plan->memory, slot.address, &slot.found))
		return add_skip(plan, &slot, SLOT_SKIP_UNREADABLE);
	if (reference->ifunc)
		return add_skip(plan, &slot, SLOT_SKIP_IFUNC);
	err = settle_call(plan, module, &slot, &skip);
	if (err)
		return err;
	if (skip >= 0)
		return add_skip(plan, &slot, (enum slot_skip_reason)skip);
	err = nesting_add_slot(plan->walker, slot.address, slot.function, slot.call);
	if (err)
		return err;
	return add_slot(plan, &slot);
}

/* Second pass: drop those whose function reaches another hooked one. */
static struct error *drop_nested(struct plan *plan)
{
	struct slots *slots = plan->slots;
	size_t kept = 0;
	struct error *err;

	err = nesting_find_self_contained(plan->walker);
	for (size_t i = 0; !err && i < slots->count; i++) {
		struct slot *slot = &slots->slot[i];
		enum nesting nesting = NESTING_HOOK;

		if (nesting_is_internal(plan->walker, slot->address, slot->call)) {
			err = add_skip(plan, slot, SLOT_SKIP_INTERNAL);
			continue;
		}
		err = nesting_decide(plan->walker, slot->function, slot->call, &nesting);
		if (err)
			break;
		if (nesting == NESTING_HOOK)
			slots->slot[kept++] = *slot;
		else
			err = add_skip(plan, slot,
				       nesting == NESTING_INNER ? SLOT_SKIP_INNER
								: SLOT_SKIP_UNDECIDED);
	}
	slots->count = kept;
	return err;
}

/* ---- the loader's own pointers */

#define LOADER_FUNCTIONS 4
#define LOADER_WINDOW	 64u /* bytes that its four pointers lie within */
#define LOADER_DATA_MAX	 (1u << 20)

/*
 * glibc's loader calls the program's malloc through four private pointers
 * (__rtld_malloc and so on) that no relocation names. They are found by value:
 * the program's definitions, or a stub of ours, side by side in its data.
 */
struct loader_pointers {
	int function[LOADER_FUNCTIONS];
	uint64_t definition[LOADER_FUNCTIONS];
	uint64_t address[LOADER_FUNCTIONS];
	size_t found[LOADER_FUNCTIONS];
};

static void loader_match(const struct plan *plan, uint64_t address, uint64_t value,
			 struct loader_pointers *pointers)
{
	int index = registry_index(&plan->registry, value);

	for (int i = 0; i < LOADER_FUNCTIONS; i++) {
		if (value == pointers->definition[i] ||
		    (index >= 0 &&
		     plan->registry.pair[index].function == (uint32_t)pointers->function[i])) {
			pointers->address[i] = address;
			pointers->found[i]++;
		}
	}
}

static void loader_scan(const struct plan *plan, const struct module_range *range,
			struct loader_pointers *pointers)
{
	uint64_t size = range->end - range->start;
	CLEANUP(freep) uint64_t *words = NULL;

	if (size > LOADER_DATA_MAX)
		size = LOADER_DATA_MAX;
	words = malloc(size);
	if (!words || !memory_try(plan->memory, range->start, words, size))
		return;
	for (size_t i = 0; i < size / 8; i++) {
		if (words[i])
			loader_match(plan, range->start + i * 8, words[i], pointers);
	}
}

static bool loader_is_whole(const struct loader_pointers *pointers)
{
	uint64_t low = UINT64_MAX, high = 0;

	for (int i = 0; i < LOADER_FUNCTIONS; i++) {
		if (pointers->found[i] != 1)
			return false;
		low = pointers->address[i] < low ? pointers->address[i] : low;
		high = pointers->address[i] > high ? pointers->address[i] : high;
	}
	return high - low < LOADER_WINDOW;
}

static struct error *plan_loader(struct plan *plan)
{
	static const char *const names[LOADER_FUNCTIONS] = {"malloc", "calloc", "realloc", "free"};
	const struct module *loader = modules_loader(plan->modules);
	const struct module *program = modules_executable(plan->modules);
	CLEANUP(scope_deinit) struct scope scope = {0};
	struct loader_pointers pointers = {0};
	struct error *err = NULL;

	if (!loader || loader->is_libc || !program)
		return NULL;
	scope_read(plan->memory, plan->modules, program, &scope);
	for (int i = 0; i < LOADER_FUNCTIONS; i++) {
		pointers.function[i] = functions_find(names[i]);
		err = scope_find(&scope, names[i], &pointers.definition[i]);
		if (err) {
			error_free(err);
			return NULL;
		}
	}
	for (size_t i = 0; i < loader->data_count; i++)
		loader_scan(plan, &loader->data[i], &pointers);
	if (!loader_is_whole(&pointers))
		return NULL;
	for (int i = 0; !err && i < LOADER_FUNCTIONS; i++) {
		struct reference reference = {
			.address = pointers.address[i],
			.function = (uint16_t)pointers.function[i],
			.kind = REFERENCE_LOADER,
		};

		err = plan_slot(plan, loader, &reference);
	}
	return err;
}

/* ---- pairs */

static int find_pair(const struct slots *slots, uint16_t function, uint64_t call)
{
	for (size_t i = 0; i < slots->pair_count; i++) {
		if (slots->pair[i].function == function && slots->pair[i].call == call)
			return (int)i;
	}
	return -1;
}

static int by_address(const void *a, const void *b)
{
	const struct slot *x = a, *y = b;

	return (x->address > y->address) - (x->address < y->address);
}

static int slot_order(const void *a, const void *b)
{
	const struct slot *x = a, *y = b;
	int rank_x = functions_get(x->function)->rank, rank_y = functions_get(y->function)->rank;

	return rank_x != rank_y ? rank_x - rank_y : by_address(x, y);
}

/* In order of writing, so that releases get their pairs before allocations. */
static struct error *assign_pairs(struct plan *plan)
{
	struct slots *slots = plan->slots;
	size_t kept = 0;
	struct error *err;

	for (uint32_t i = 0; plan->registry.base && i < plan->registry.npairs; i++) {
		slots->pair[i] = (struct slot_pair){
			.call = plan->registry.pair[i].call,
			.function = (uint16_t)plan->registry.pair[i].function,
			.existing = true,
		};
		slots->pair_count++;
	}
	if (slots->count)
		qsort(slots->slot, slots->count, sizeof(slots->slot[0]), slot_order);
	for (size_t i = 0; i < slots->count; i++) {
		struct slot *slot = &slots->slot[i];
		int pair = find_pair(slots, slot->function, slot->call);

		if (pair < 0 && slots->pair_count == HA_PAIRS) {
			err = add_skip(plan, slot, SLOT_SKIP_NO_PAIR);
			if (err)
				return err;
			continue;
		}
		if (pair < 0) {
			pair = (int)slots->pair_count++;
			slots->pair[pair].call = slot->call;
			slots->pair[pair].function = slot->function;
		}
		slot->pair = (uint16_t)pair;
		slots->slot[kept++] = *slot;
	}
	slots->count = kept;
	return NULL;
}

/* Once it is certain which slots there are; they stay in order of writing. */
static void number_words(struct slots *slots)
{
	if (!slots->count)
		return;
	qsort(slots->slot, slots->count, sizeof(slots->slot[0]), by_address);
	for (size_t i = 0; i < slots->count; i++)
		slots->slot[i].word = (uint32_t)i;
	qsort(slots->slot, slots->count, sizeof(slots->slot[0]), slot_order);
}

/* ---- objects whose own calls do not go through a slot */

static bool calls_through_slot(const struct module *module, int function)
{
	for (size_t i = 0; i < module->reference_count; i++) {
		if (module->reference[i].function == function)
			return true;
	}
	return false;
}

static struct error *list_direct(struct plan *plan)
{
	struct slots *slots = plan->slots;
	int function = functions_find("malloc");
	struct error *err;

	for (size_t i = 0; i < plan->modules->count; i++) {
		const struct module *module = plan->modules->module[i];

		if (!module->defines_malloc || calls_through_slot(module, function))
			continue;
		err = array_grow(&slots->direct, slots->direct_count, 1);
		if (err)
			return err;
		slots->direct[slots->direct_count++] = module->id;
	}
	return NULL;
}

/* ---- all together */

static struct error *plan_all(struct plan *plan)
{
	struct error *err = NULL;

	read_registry(plan->memory, plan->modules, &plan->registry);
	for (size_t i = 0; !err && i < plan->modules->count; i++) {
		const struct module *module = plan->modules->module[i];

		if (module->is_vdso || module->is_entry)
			continue;
		for (size_t k = 0; !err && k < module->reference_count; k++)
			err = plan_slot(plan, module, &module->reference[k]);
		scope_deinit(&plan->scope);
	}
	if (!err)
		err = plan_loader(plan);
	if (!err)
		err = drop_nested(plan);
	if (!err)
		err = assign_pairs(plan);
	number_words(plan->slots);
	if (!err)
		err = list_direct(plan);
	if (!err && !plan->slots->count)
		err = error_create(ERROR_NOT_FOUND,
				   "the target has no slot that holds an allocation function");
	if (!err && plan->registry.base)
		slots_place(plan->slots, plan->registry.base);
	return err;
}

struct error *slots_plan(const struct memory_reader *memory, const struct maps *maps,
			 const struct modules *modules, struct slots *ret)
{
	struct slots slots = {0};
	struct plan plan = {
		.memory = memory,
		.maps = maps,
		.modules = modules,
		.slots = &slots,
	};
	struct error *err;

	err = nesting_create(memory, modules, &plan.walker);
	if (!err)
		err = plan_all(&plan);
	nesting_free(plan.walker);
	if (err) {
		slots_deinit(&slots);
		return err;
	}
	*ret = slots;
	return NULL;
}

void slots_deinit(struct slots *slots)
{
	free(slots->slot);
	free(slots->skip);
	free(slots->direct);
	*slots = (struct slots){0};
}

bool slot_skip_is_loss(enum slot_skip_reason reason)
{
	return reason >= SLOT_SKIP_UNDECIDED;
}

const char *slot_skip_text(enum slot_skip_reason reason)
{
	static const char *const text[SLOT_SKIP_REASONS] = {
		[SLOT_SKIP_UNRESOLVED] = "a weak reference that nobody defines",
		[SLOT_SKIP_INNER] = "calls another hooked function, recorded there",
		[SLOT_SKIP_THROUGH_PLT] = "goes through a PLT whose slot is hooked",
		[SLOT_SKIP_INTERNAL] = "an allocator calling itself, recorded at its entry points",
		[SLOT_SKIP_REPLACED] = "the program has put another function there",
		[SLOT_SKIP_UNDECIDED] = "makes an indirect call that might reach a hooked function",
		[SLOT_SKIP_NO_CODE] = "points to no executable memory",
		[SLOT_SKIP_IFUNC] = "is an indirect function (IFUNC)",
		[SLOT_SKIP_NO_DEFINITION] = "not yet bound, and its definition is not certain",
		[SLOT_SKIP_NO_PAIR] = "more allocators than there are stubs",
		[SLOT_SKIP_REGISTRY] = "holds a stub that the entry object does not know",
		[SLOT_SKIP_UNREADABLE] = "cannot be read",
	};

	return reason < SLOT_SKIP_REASONS ? text[reason] : "unknown";
}
