/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * leak_chain [-t THREADS] [-r ROUNDS] [-p BLOCKS]
 *
 * Allocates known amounts from known lines at the end of a chain of 30 mixed
 * frames, frees part of them on other threads, and prints what it did as JSON.
 *
 *	go     each thread runs its rounds
 *	check  every block that lives still holds its pattern
 *	stop   print the table of sites, end
 *
 * -p: so many blocks are allocated before "ready" and freed in "go": frees of
 * blocks that a profiler cannot know. Half as many again are grown in "go".
 *
 * Between "ready" and "stop" the program makes no other allocation.
 */
#include "tests/targets/lib/chain.h"
#include "tests/targets/target.h"

#include <alloca.h>
#include <pthread.h>
#include <setjmp.h>
#include <sys/mman.h>

enum site {
	SITE_MALLOC,
	SITE_CALLOC,
	SITE_REALLOC_NEW,
	SITE_GROW,
	SITE_ALIGNED,
	SITE_POSIX,
	SITE_STRDUP,
	SITE_LIBRARY,
	SITE_INLINED,
	SITE_HOLD,
	SITE_ADOPT,
	SITES
};

/* What is known about one line that allocates. */
struct truth {
	const char *function; /* innermost function of ours, inlined ones included */
	const char *caller;   /* the function it is inlined into, or NULL */
	const char *file;
	int line;
	uint64_t alloc_bytes, alloc_count, freed_bytes, freed_count;
};

struct block {
	unsigned char *data;
	size_t size;
	enum site site;
};

/* One call down the chain. */
struct job {
	enum site site;
	size_t size;
	unsigned char *old; /* SITE_GROW and SITE_ADOPT: the block to grow */
	unsigned char *data;
	jmp_buf env;
};

#define MAILBOX 4096
struct mailbox {
	pthread_mutex_t lock;
	size_t count;
	struct block block[MAILBOX];
};

#define THREADS_MAX 64
#define LIVE_MAX    (1u << 22)
#define GROWN	    8

static struct truth truths[SITES];
static struct mailbox mailboxes[THREADS_MAX];
static struct block *live;
static size_t live_count;
static struct block grown[GROWN];
static pthread_mutex_t grown_lock[GROWN];
static struct block *old_blocks;
static int threads = 1, rounds = 100, preheld;
static pthread_barrier_t barrier;

static void count(uint64_t *counter, uint64_t value)
{
	__atomic_fetch_add(counter, value, __ATOMIC_RELAXED);
}

/* On the same line as the allocation. */
#define MARK(site, inlined_into) site_mark(site, __func__, inlined_into, __FILE__, __LINE__)

static void site_mark(enum site site, const char *function, const char *caller, const char *file,
		      int line)
{
	struct truth *truth = &truths[site];

	__atomic_store_n(&truth->function, function, __ATOMIC_RELAXED);
	__atomic_store_n(&truth->caller, caller, __ATOMIC_RELAXED);
	__atomic_store_n(&truth->file, file, __ATOMIC_RELAXED);
	__atomic_store_n(&truth->line, line, __ATOMIC_RELAXED);
}

/* ---- the lines that allocate ---- */
/* clang-format off */

static NOINLINE void leaf_malloc(struct job *job)
{
	MARK(SITE_MALLOC, NULL); job->data = malloc(job->size);
	KEEP(job);
}

static NOINLINE void leaf_calloc(struct job *job)
{
	MARK(SITE_CALLOC, NULL); job->data = calloc(2, job->size / 2);
	KEEP(job);
}

static NOINLINE void leaf_realloc_new(struct job *job)
{
	MARK(SITE_REALLOC_NEW, NULL); job->data = realloc(NULL, job->size);
	KEEP(job);
}

static NOINLINE void leaf_grow(struct job *job)
{
	MARK(SITE_GROW, NULL); job->data = realloc(job->old, job->size);
	KEEP(job);
}

static NOINLINE void leaf_adopt(struct job *job)
{
	MARK(SITE_ADOPT, NULL); job->data = realloc(job->old, job->size);
	KEEP(job);
}

static NOINLINE void leaf_aligned(struct job *job)
{
	MARK(SITE_ALIGNED, NULL); job->data = aligned_alloc(64, job->size);
	KEEP(job);
}

static NOINLINE void leaf_posix(struct job *job)
{
	void *data = NULL;

	MARK(SITE_POSIX, NULL); int failed = posix_memalign(&data, 128, job->size);
	job->data = failed ? NULL : data;
	KEEP(job);
}

static NOINLINE void leaf_strdup(struct job *job)
{
	static char text[4096];
	char copy[4096];

	memset(text, 'x', sizeof(text) - 1);
	memcpy(copy, text, job->size);
	copy[job->size - 1] = '\0';
	KEEP(copy);
	MARK(SITE_STRDUP, NULL); job->data = (unsigned char *)strdup(copy);
	KEEP(job);
}

static NOINLINE void leaf_library(struct job *job)
{
	job->data = chain_library_alloc(job->size);
	site_mark(SITE_LIBRARY, "chain_library_alloc", NULL, "tests/targets/lib/chain.c",
		  chain_library_line);
	KEEP(job);
}

INLINE unsigned char *inlined_inner(size_t size)
{
	MARK(SITE_INLINED, "leaf_inlined"); unsigned char *data = malloc(size);
	KEEP(data);
	return data;
}

INLINE unsigned char *inlined_outer(size_t size)
{
	return inlined_inner(size);
}

static NOINLINE void leaf_inlined(struct job *job)
{
	job->data = inlined_outer(job->size);
	KEEP(job);
}

static NOINLINE void leaf_hold(struct job *job)
{
	MARK(SITE_HOLD, NULL); job->data = malloc(job->size);
	KEEP(job);
}

/* clang-format on */

static void (*const leaves[SITES])(struct job *) = {
	[SITE_MALLOC] = leaf_malloc,   [SITE_CALLOC] = leaf_calloc,
	[SITE_GROW] = leaf_grow,       [SITE_REALLOC_NEW] = leaf_realloc_new,
	[SITE_ALIGNED] = leaf_aligned, [SITE_POSIX] = leaf_posix,
	[SITE_STRDUP] = leaf_strdup,   [SITE_LIBRARY] = leaf_library,
	[SITE_INLINED] = leaf_inlined, [SITE_HOLD] = leaf_hold,
	[SITE_ADOPT] = leaf_adopt,
};

static NOINLINE void chain_00(void *arg)
{
	struct job *job = arg;

	leaves[job->site](job);
	KEEP(job);
}

/* ---- frames of every kind, named by the function they call ---- */

#define FRAME_PLAIN(self, next, pad)         \
	static NOINLINE void self(void *arg) \
	{                                    \
		char frame[pad];             \
		KEEP(frame);                 \
		next(arg);                   \
		KEEP(frame);                 \
	}

#define FRAME_POINTER(self, next)                                                               \
	static NOINLINE __attribute__((optimize("no-omit-frame-pointer"))) void self(void *arg) \
	{                                                                                       \
		next(arg);                                                                      \
		KEEP(arg);                                                                      \
	}

/* The size is not known to the compiler: the frame is addressed by rbp. */
#define FRAME_ALLOCA(self, next)             \
	static NOINLINE void self(void *arg) \
	{                                    \
		volatile size_t size = 100;  \
		char *frame = alloca(size);  \
		KEEP(frame);                 \
		next(arg);                   \
		KEEP(frame);                 \
	}

/* The stack is realigned: the CFA comes from a saved register. */
#define FRAME_ALIGNED(self, next)                             \
	static NOINLINE void self(void *arg)                  \
	{                                                     \
		char frame[128] __attribute__((aligned(64))); \
		volatile size_t size = 50;                    \
		char *more = alloca(size);                    \
		KEEP(frame);                                  \
		KEEP(more);                                   \
		next(arg);                                    \
		KEEP(frame);                                  \
	}

#define FRAME_INLINED(self, next)             \
	INLINE void self##_inlined(void *arg) \
	{                                     \
		next(arg);                    \
		KEEP(arg);                    \
	}                                     \
	static NOINLINE void self(void *arg)  \
	{                                     \
		self##_inlined(arg);          \
		KEEP(arg);                    \
	}

/* Many callee-saved registers live across the call. */
#define FRAME_REGISTERS(self, next)                                              \
	static NOINLINE void self(void *arg)                                     \
	{                                                                        \
		long a, b, c, d, e;                                              \
		__asm__ volatile(""                                              \
				 : "=r"(a), "=r"(b), "=r"(c), "=r"(d), "=r"(e)   \
				 : "0"(1l), "1"(2l), "2"(3l), "3"(4l), "4"(5l)); \
		next(arg);                                                       \
		if (a + b + c + d + e != 15)                                     \
			target_fail("a callee-saved register changed");          \
	}

#define FRAME_LIBRARY(self, next)              \
	static NOINLINE void self(void *arg)   \
	{                                      \
		chain_library_call(next, arg); \
		KEEP(arg);                     \
	}

/*
 * The last instruction of self##_last is a call that never returns: its return
 * address lies in the next function. The callee jumps out.
 */
#define FRAME_NORETURN(self, next)                                                   \
	static NOINLINE __attribute__((noreturn)) void self##_never(struct job *job) \
	{                                                                            \
		next(job);                                                           \
		longjmp(job->env, 1);                                                \
	}                                                                            \
	static NOINLINE void self##_last(struct job *job)                            \
	{                                                                            \
		KEEP(job);                                                           \
		self##_never(job);                                                   \
	}                                                                            \
	static NOINLINE void self(void *arg)                                         \
	{                                                                            \
		struct job *job = arg;                                               \
		if (!setjmp(job->env))                                               \
			self##_last(job);                                            \
		KEEP(job);                                                           \
	}

static _Thread_local struct job *sorted_job;

/* qsort() of two elements compares once. */
#define FRAME_QSORT(self, next)                                  \
	static int self##_compare(const void *a, const void *b)  \
	{                                                        \
		next(sorted_job);                                \
		return *(const int *)a - *(const int *)b;        \
	}                                                        \
	static NOINLINE void self(void *arg)                     \
	{                                                        \
		int pair[2] = {2, 1};                            \
		sorted_job = arg;                                \
		qsort(pair, 2, sizeof(pair[0]), self##_compare); \
		KEEP(pair);                                      \
	}

FRAME_PLAIN(chain_01, chain_00, 24)
FRAME_POINTER(chain_02, chain_01)
FRAME_INLINED(chain_03, chain_02)
FRAME_ALLOCA(chain_04, chain_03)
FRAME_PLAIN(chain_05, chain_04, 104)
FRAME_NORETURN(chain_06, chain_05)
FRAME_REGISTERS(chain_07, chain_06)
FRAME_LIBRARY(chain_08, chain_07)
FRAME_ALIGNED(chain_09, chain_08)
FRAME_PLAIN(chain_10, chain_09, 8)
FRAME_QSORT(chain_11, chain_10)
FRAME_POINTER(chain_12, chain_11)
FRAME_POINTER(chain_13, chain_12)
FRAME_PLAIN(chain_14, chain_13, 3000)
FRAME_INLINED(chain_15, chain_14)
FRAME_REGISTERS(chain_16, chain_15)
FRAME_ALLOCA(chain_17, chain_16)
FRAME_ALIGNED(chain_18, chain_17)
FRAME_PLAIN(chain_19, chain_18, 40)
FRAME_LIBRARY(chain_20, chain_19)
FRAME_REGISTERS(chain_21, chain_20)
FRAME_POINTER(chain_22, chain_21)
FRAME_PLAIN(chain_23, chain_22, 64)
FRAME_ALIGNED(chain_24, chain_23)
FRAME_REGISTERS(chain_25, chain_24)
FRAME_INLINED(chain_26, chain_25)
FRAME_PLAIN(chain_27, chain_26, 200)
FRAME_ALLOCA(chain_28, chain_27)
FRAME_PLAIN(chain_29, chain_28, 16)

/* ---- blocks ---- */

static unsigned char pattern_of(const unsigned char *data, size_t size)
{
	return (unsigned char)(((uintptr_t)data >> 4) * 31 + size);
}

static void block_fill(struct block *block)
{
	memset(block->data, pattern_of(block->data, block->size), block->size);
}

static bool block_is_whole(const struct block *block)
{
	unsigned char pattern = pattern_of(block->data, block->size);

	for (size_t i = 0; i < block->size; i++) {
		if (block->data[i] != pattern)
			return false;
	}
	return true;
}

/* strdup() copies up to the NUL, so its sizes are what is asked for. */
static struct block block_allocate(enum site site, size_t size, unsigned char *old)
{
	struct job job = {.site = site, .size = size, .old = old};
	struct block block;

	chain_29(&job);
	if (!job.data)
		target_fail("out of memory");
	block = (struct block){job.data, size, site};
	count(&truths[site].alloc_bytes, size);
	count(&truths[site].alloc_count, 1);
	block_fill(&block);
	return block;
}

static void block_forget(const struct block *block)
{
	count(&truths[block->site].freed_bytes, block->size);
	count(&truths[block->site].freed_count, 1);
}

static void block_free(struct block *block)
{
	if (!block_is_whole(block))
		target_fail("a block was overwritten");
	block_forget(block);
	free(block->data);
	block->data = NULL;
}

static void block_keep(struct block block)
{
	size_t index = __atomic_fetch_add(&live_count, 1, __ATOMIC_RELAXED);

	if (index >= LIVE_MAX)
		target_fail("too many blocks");
	live[index] = block;
}

/* For another thread to free; freed here if its box is full. */
static void block_send(int receiver, struct block block)
{
	struct mailbox *box = &mailboxes[receiver];

	pthread_mutex_lock(&box->lock);
	if (box->count < MAILBOX) {
		box->block[box->count++] = block;
		block.data = NULL;
	}
	pthread_mutex_unlock(&box->lock);
	if (block.data)
		block_free(&block);
}

static void mailbox_empty(struct mailbox *box)
{
	struct block block;

	for (;;) {
		pthread_mutex_lock(&box->lock);
		if (!box->count) {
			pthread_mutex_unlock(&box->lock);
			return;
		}
		block = box->block[--box->count];
		pthread_mutex_unlock(&box->lock);
		block_free(&block);
	}
}

/* Blocks that all threads grow by turns; at 64 KiB one starts anew. */
static void grow_one(uint64_t random)
{
	unsigned int index = (unsigned int)(random % GROWN);
	struct block *block = &grown[index];
	struct block old;

	pthread_mutex_lock(&grown_lock[index]);
	if (block->size > 65536)
		block_free(block);
	old = *block;
	if (!old.data)
		old.size = 0;
	if (old.data && !block_is_whole(&old))
		target_fail("a grown block was overwritten");
	*block = block_allocate(SITE_GROW, old.size + 16 + random / GROWN % 2000, old.data);
	if (old.data)
		block_forget(&old);
	pthread_mutex_unlock(&grown_lock[index]);
}

/* ---- work ---- */

static void round_run(int thread, int round, uint64_t *state)
{
	static const enum site leaking[] = {SITE_MALLOC,  SITE_CALLOC, SITE_REALLOC_NEW,
					    SITE_ALIGNED, SITE_POSIX,  SITE_STRDUP,
					    SITE_LIBRARY, SITE_INLINED};
	struct block block;

	for (unsigned int i = 0; i < sizeof(leaking) / sizeof(leaking[0]); i++) {
		size_t size = 64 * (1 + target_random(state) % 40);

		/* Two of three go again, one of these on another thread. */
		block_keep(block_allocate(leaking[i], 64 * (1 + i), NULL));
		block = block_allocate(leaking[i], size, NULL);
		block_send((thread + 1) % threads, block);
		block = block_allocate(leaking[i], size + 64, NULL);
		block_free(&block);
	}
	if (round % 10 == 0)
		block_keep(block_allocate(SITE_HOLD, 1000, NULL));
	for (int i = 0; i < 4; i++)
		grow_one(target_random(state));
	mailbox_empty(&mailboxes[thread]);
}

/* Thread 0 also gives back the blocks from before "ready": two of three freed, one grown. */
static void old_blocks_leave(void)
{
	for (int i = 0; i < preheld; i++)
		free(old_blocks[i].data);
	for (int i = preheld; i < preheld + preheld / 2; i++)
		block_keep(block_allocate(SITE_ADOPT, 640, old_blocks[i].data));
}

static void *worker(void *arg)
{
	int thread = (int)(intptr_t)arg;
	uint64_t state = 0x9e3779b97f4a7c15u * (uint64_t)(thread + 1);

	pthread_barrier_wait(&barrier);
	if (thread == 0)
		old_blocks_leave();
	for (int round = 0; round < rounds; round++)
		round_run(thread, round, &state);
	pthread_barrier_wait(&barrier);
	mailbox_empty(&mailboxes[thread]);
	pthread_barrier_wait(&barrier);
	/* The threads stay: ending would free what the threads' starter allocated. */
	for (;;)
		pause();
	return NULL;
}

static void *map_table(size_t size)
{
	void *table = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (table == MAP_FAILED)
		target_fail("mmap");
	return table;
}

static void prepare(void)
{
	pthread_t thread;

	live = map_table(LIVE_MAX * sizeof(live[0]));
	old_blocks = map_table((size_t)(preheld + preheld / 2 + 1) * sizeof(old_blocks[0]));
	for (int i = 0; i < preheld + preheld / 2; i++)
		old_blocks[i].data = malloc(300);
	pthread_barrier_init(&barrier, NULL, (unsigned int)threads + 1);
	for (int i = 0; i < GROWN; i++)
		pthread_mutex_init(&grown_lock[i], NULL);
	for (int i = 0; i < threads; i++) {
		pthread_mutex_init(&mailboxes[i].lock, NULL);
		if (pthread_create(&thread, NULL, worker, (void *)(intptr_t)i))
			target_fail("pthread_create");
	}
}

static bool all_whole(void)
{
	for (size_t i = 0; i < live_count; i++) {
		if (!block_is_whole(&live[i]))
			return false;
	}
	for (int i = 0; i < GROWN; i++) {
		if (grown[i].data && !block_is_whole(&grown[i]))
			return false;
	}
	return true;
}

static void truths_print(void)
{
	const char *separator = "";

	printf("{\"preheld_freed\": %d, \"adopted_bytes\": %d, \"sites\": [", preheld,
	       preheld / 2 * 640);
	for (int i = 0; i < SITES; i++) {
		const struct truth *truth = &truths[i];

		if (!truth->alloc_count)
			continue;
		printf("%s{\"function\": \"%s\", \"file\": \"%s\", \"line\": %d, "
		       "\"alloc_bytes\": %lu, \"alloc_count\": %lu, \"freed_bytes\": %lu, "
		       "\"freed_count\": %lu, \"inlined_into\": \"%s\"}",
		       separator, truth->function, truth->file, truth->line, truth->alloc_bytes,
		       truth->alloc_count, truth->freed_bytes, truth->freed_count,
		       truth->caller ? truth->caller : "");
		separator = ", ";
	}
	target_say("]}");
}

int main(int argc, char **argv)
{
	char line[64];
	int option;

	target_begin();
	while ((option = getopt(argc, argv, "t:r:p:")) != -1) {
		int value = atoi(optarg ? optarg : "0");

		if (option == 't' && value > 0 && value <= THREADS_MAX)
			threads = value;
		else if (option == 'r' && value > 0)
			rounds = value;
		else if (option == 'p' && value >= 0)
			preheld = value;
		else
			return 2;
	}
	prepare();
	target_say("ready");
	while (target_command(line, sizeof(line)) && strcmp(line, "stop") != 0) {
		if (strcmp(line, "go") == 0) {
			for (int i = 0; i < 3; i++)
				pthread_barrier_wait(&barrier);
			target_say("done");
		} else {
			target_say(all_whole() ? "ok" : "bad");
		}
	}
	truths_print();
	return 0;
}
