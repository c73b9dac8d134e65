/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The main thread keeps known values in every register that a thread has (the
 * general ones, SSE, AVX, AVX-512 with its masks, AMX tiles as far as the
 * machine has them, the control words of x87 and SSE) and compares them without
 * end. Another thread talks.
 *
 *	check  "ok rounds=N kinds=LIST" or "failed REGISTER"
 *	stop   end
 */
#include "tests/targets/target.h"

#include <cpuid.h>
#include <immintrin.h>
#include <pthread.h>
#include <sys/syscall.h>

#define SPINS 2000

static uint64_t rounds;
static const char *broken;
static bool has_avx, has_avx512, has_amx;

static void fail(const char *what)
{
	const char *expected = NULL;

	__atomic_compare_exchange_n(&broken, &expected, what, false, __ATOMIC_RELAXED,
				    __ATOMIC_RELAXED);
}

/* ---- general registers: each holds its own number times a constant */

static NOINLINE void spin_general(void)
{
	uint64_t wrong = 0;

	__asm__ volatile("mov $0x1111111111, %%rax\n\tmov $0x2222222222, %%rbx\n\t"
			 "mov $0x3333333333, %%rdx\n\tmov $0x4444444444, %%rsi\n\t"
			 "mov $0x5555555555, %%rdi\n\tmov $0x6666666666, %%r8\n\t"
			 "mov $0x7777777777, %%r9\n\tmov $0x8888888888, %%r10\n\t"
			 "mov $0x9999999999, %%r11\n\tmov $0xaaaaaaaaaa, %%r12\n\t"
			 "mov $0xbbbbbbbbbb, %%r13\n\tmov $0xcccccccccc, %%r14\n\t"
			 "mov %[spins], %%ecx\n\t"
			 "1: dec %%ecx\n\tjnz 1b\n\t"
			 /* The sum of all and of their positions: an exchange shows too. */
			 "lea (%%rax,%%rbx,2), %%rax\n\tlea (%%rax,%%rdx,4), %%rax\n\t"
			 "lea (%%rax,%%rsi,8), %%rax\n\tlea (%%rax,%%rdi,2), %%rax\n\t"
			 "lea (%%rax,%%r8,4), %%rax\n\tlea (%%rax,%%r9,8), %%rax\n\t"
			 "lea (%%rax,%%r10,2), %%rax\n\tlea (%%rax,%%r11,4), %%rax\n\t"
			 "lea (%%rax,%%r12,8), %%rax\n\tlea (%%rax,%%r13,2), %%rax\n\t"
			 "lea (%%rax,%%r14,4), %%rax\n\tmov %%rax, %[wrong]\n\t"
			 : [wrong] "=m"(wrong)
			 : [spins] "i"(SPINS)
			 : "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11",
			   "r12", "r13", "r14", "cc", "memory");
	if (wrong != 0x1111111111u * (1 + 2 * 2 + 3 * 4 + 4 * 8 + 5 * 2 + 6 * 4 + 7 * 8 + 8 * 2 +
				      9 * 4 + 10 * 8 + 11 * 2 + 12 * 4))
		fail("a general register");
}

static NOINLINE void spin_control(void)
{
	uint32_t mxcsr = 0x7f80, mxcsr_old, mxcsr_now;
	uint16_t control = 0x0e7f, control_old, control_now;

	__asm__ volatile("stmxcsr %[mxcsr_old]\n\tfnstcw %[control_old]\n\t"
			 "ldmxcsr %[mxcsr]\n\tfldcw %[control]\n\tfldpi\n\t"
			 "mov %[spins], %%ecx\n\t"
			 "1: dec %%ecx\n\tjnz 1b\n\t"
			 "stmxcsr %[mxcsr_now]\n\tfnstcw %[control_now]\n\t"
			 "fldpi\n\tfucomip %%st(1), %%st\n\tfstp %%st(0)\n\tsetne %%cl\n\t"
			 "ldmxcsr %[mxcsr_old]\n\tfldcw %[control_old]\n\t"
			 : [mxcsr_now] "=m"(mxcsr_now), [control_now] "=m"(control_now),
			   [mxcsr_old] "=m"(mxcsr_old), [control_old] "=m"(control_old)
			 : [mxcsr] "m"(mxcsr), [control] "m"(control), [spins] "i"(SPINS)
			 : "rcx", "cc", "memory");
	if (mxcsr_now != mxcsr || control_now != control)
		fail("a control word of SSE or x87");
}

/* ---- vector registers: register n holds 0x01010101 * (n + 1) in every lane */

#define EACH_16(x) \
	x(0) x(1) x(2) x(3) x(4) x(5) x(6) x(7) x(8) x(9) x(10) x(11) x(12) x(13) x(14) x(15)
#define EACH_HIGH(x)                                                                              \
	x(16) x(17) x(18) x(19) x(20) x(21) x(22) x(23) x(24) x(25) x(26) x(27) x(28) x(29) x(30) \
		x(31)

#define LOAD_YMM(n)  "vbroadcastss 4*" #n "(%[table]), %%ymm" #n "\n\t"
#define STORE_YMM(n) "vmovups %%ymm" #n ", 32*" #n "(%[found])\n\t"
#define LOAD_ZMM(n)  "vbroadcastss 4*" #n "(%[table]), %%zmm" #n "\n\t"
#define STORE_ZMM(n) "vmovups %%zmm" #n ", 64*" #n "(%[found])\n\t"
#define CLOBBER(n)   "xmm" #n,

static uint32_t table[32];
static uint32_t found[32 * 16] __attribute__((aligned(64)));

static void lanes_compare(unsigned int registers, unsigned int lanes, const char *what)
{
	for (unsigned int i = 0; i < registers * lanes; i++) {
		if (found[i] != table[i / lanes])
			fail(what);
	}
}

__attribute__((target("avx"))) static NOINLINE void spin_avx(void)
{
	__asm__ volatile(
		EACH_16(LOAD_YMM) "mov %[spins], %%ecx\n\t1: dec %%ecx\n\tjnz 1b\n\t" EACH_16(
			STORE_YMM) "vzeroupper"
		:
		: [table] "r"(table), [found] "r"(found), [spins] "i"(SPINS)
		: EACH_16(CLOBBER) "rcx", "cc", "memory");
	lanes_compare(16, 8, "an AVX register");
}

__attribute__((target("avx512f,avx512bw"))) static NOINLINE void spin_avx512(void)
{
	uint64_t mask = 0;

	__asm__ volatile(
		EACH_16(LOAD_ZMM) EACH_HIGH(
			LOAD_ZMM) "mov $0x123456789abcdef, %%rax\n\tkmovq %%rax, %%k1\n\tkmovq "
				  "%%rax, %%k7\n\t"
				  "mov %[spins], %%ecx\n\t1: dec %%ecx\n\tjnz 1b\n\t" EACH_16(
					  STORE_ZMM)
					  EACH_HIGH(STORE_ZMM) "kxorq %%k1, %%k7, %%k2\n\tkmovq "
							       "%%k2, %%rdx\n\tkmovq %%k1, "
							       "%[mask]\n\t"
							       "add %%rdx, %[mask]\n\tvzeroupper"
		: [mask] "=&r"(mask)
		: [table] "r"(table), [found] "r"(found), [spins] "i"(SPINS)
		: EACH_16(CLOBBER) EACH_HIGH(CLOBBER) "rax", "rcx", "rdx", "k1", "k2", "k7", "cc",
		  "memory");
	lanes_compare(32, 16, "an AVX-512 register");
	if (mask != 0x123456789abcdefu)
		fail("an AVX-512 mask register");
}

/* ---- AMX: 8 tiles of 16 rows of 64 bytes */

#define XFEATURE_XTILEDATA  18
#define ARCH_REQ_XCOMP_PERM 0x1023
#define CPUID7_EDX_AMX_TILE (1u << 24)
#define TILE_BYTES	    1024

struct tile_config {
	uint8_t palette, start_row, reserved[14];
	uint16_t row_bytes[16];
	uint8_t rows[16];
};

static uint8_t tiles[8][TILE_BYTES] __attribute__((aligned(64)));
static uint8_t tiles_found[8][TILE_BYTES] __attribute__((aligned(64)));

#define EACH_8(x)     x(0) x(1) x(2) x(3) x(4) x(5) x(6) x(7)
#define LOAD_TILE(n)  _tile_loadd(n, tiles[n], 64);
#define STORE_TILE(n) _tile_stored(n, tiles_found[n], 64);

__attribute__((target("amx-tile"))) static NOINLINE void spin_amx(void)
{
	struct tile_config config = {.palette = 1};

	for (int i = 0; i < 8; i++) {
		config.row_bytes[i] = 64;
		config.rows[i] = 16;
	}
	_tile_loadconfig(&config);
	EACH_8(LOAD_TILE)
	for (int i = 0; i < SPINS; i++)
		__asm__ volatile("" : : : "memory");
	EACH_8(STORE_TILE)
	_tile_release();
	if (memcmp(tiles, tiles_found, sizeof(tiles)) != 0)
		fail("an AMX tile");
}

static bool amx_request(void)
{
	unsigned int a, b, c, d;

	if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & CPUID7_EDX_AMX_TILE))
		return false;
	return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

/* ---- */

static void *talker_main(void *arg)
{
	char line[64];

	target_say("ready");
	while (target_command(line, sizeof(line)) && strcmp(line, "stop") != 0) {
		const char *what = __atomic_load_n(&broken, __ATOMIC_RELAXED);

		if (what)
			target_say("failed %s", what);
		else
			target_say("ok rounds=%lu kinds=general%s%s%s",
				   __atomic_load_n(&rounds, __ATOMIC_RELAXED),
				   has_avx ? ",avx" : "", has_avx512 ? ",avx512" : "",
				   has_amx ? ",amx" : "");
	}
	target_say("ended");
	fflush(stdout);
	_exit(broken ? 1 : 0);
	return arg;
}

int main(void)
{
	pthread_t thread;

	target_begin();
	has_avx = __builtin_cpu_supports("avx");
	has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
	has_amx = amx_request();
	for (unsigned int i = 0; i < 32; i++)
		table[i] = 0x01010101u * (i + 1);
	for (unsigned int i = 0; i < sizeof(tiles); i++)
		((uint8_t *)tiles)[i] = (uint8_t)(i * 31 >> 3);
	if (pthread_create(&thread, NULL, talker_main, NULL))
		target_fail("pthread_create");
	for (;;) {
		spin_general();
		spin_control();
		if (has_avx)
			spin_avx();
		if (has_avx512)
			spin_avx512();
		if (has_amx)
			spin_amx();
		__atomic_fetch_add(&rounds, 1, __ATOMIC_RELAXED);
	}
}
