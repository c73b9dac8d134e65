// SPDX-License-Identifier: GPL-3.0-or-later
#include "tests/borrow_code.h"

#include <elf.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/rseq.h>
#include <unistd.h>

#define NAKED	       __attribute__((naked, noinline))
#define BASE_REGISTERS "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15"
#define ALL_REGISTERS  BASE_REGISTERS ",16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31"

bool code_has_vector(enum code_vector kind)
{
	switch (kind) {
	case CODE_BASE:
		return true;
	case CODE_AVX:
		return __builtin_cpu_supports("avx2");
	case CODE_AVX512:
		return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
	default:
		return false;
	}
}

/* ---- victims that hold their registers */

/*
 * rcx is scratch, rdi the counters; the red zone holds two words, below what
 * pushf uses. The direction flag is set all the time, carry for some of it.
 */
NAKED static void hold_general(volatile uint64_t *counters)
{
	__asm__("mov $0x1101, %eax\n"
		"mov $0x2202, %ebx\n"
		"mov $0x3303, %edx\n"
		"mov $0x4404, %esi\n"
		"mov $0x5505, %ebp\n"
		"mov $0x6606, %r8d\n"
		"mov $0x7707, %r9d\n"
		"mov $0x1808, %r10d\n"
		"mov $0x2909, %r11d\n"
		"mov $0x3a0a, %r12d\n"
		"mov $0x4b0b, %r13d\n"
		"mov $0x5c0c, %r14d\n"
		"mov $0x6d0d, %r15d\n"
		"movq $0x7e0e, -16(%rsp)\n"
		"movq $0x7f0f, -128(%rsp)\n"
		"std\n"
		"1: incq (%rdi)\n"
		"cmp $0x1101, %rax; jne 9f\n"
		"cmp $0x2202, %rbx; jne 9f\n"
		"cmp $0x3303, %rdx; jne 9f\n"
		"cmp $0x4404, %rsi; jne 9f\n"
		"cmp $0x5505, %rbp; jne 9f\n"
		"cmp $0x6606, %r8; jne 9f\n"
		"cmp $0x7707, %r9; jne 9f\n"
		"cmp $0x1808, %r10; jne 9f\n"
		"cmp $0x2909, %r11; jne 9f\n"
		"cmp $0x3a0a, %r12; jne 9f\n"
		"cmp $0x4b0b, %r13; jne 9f\n"
		"cmp $0x5c0c, %r14; jne 9f\n"
		"cmp $0x6d0d, %r15; jne 9f\n"
		"cmpq $0x7e0e, -16(%rsp); jne 9f\n"
		"cmpq $0x7f0f, -128(%rsp); jne 9f\n"
		"stc\n"
		"mov $200, %ecx\n"
		"2: dec %ecx; jnz 2b\n"
		"jnc 9f\n"
		"pushf; pop %rcx\n"
		"test $0x400, %ecx; jz 9f\n"
		"jmp 1b\n"
		"9: movq $1, 8(%rdi)\n"
		"jmp .\n");
}

/* rsi: a table of what xmm1..15 hold; x87 and SSE round in unusual ways. */
NAKED static void hold_base(volatile uint64_t *counters, const void *table)
{
	__asm__("mov $0x7f80, %eax; mov %eax, -16(%rsp); ldmxcsr -16(%rsp)\n"
		"fninit; mov $0xf7f, %eax; mov %ax, -16(%rsp); fldcw -16(%rsp); fldpi\n"
		".irp n," BASE_REGISTERS "\n movdqu \\n*64(%rsi), %xmm\\n\n .endr\n"
		"1: incq (%rdi)\n"
		".irp n,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n"
		"movdqu \\n*64(%rsi), %xmm0; pcmpeqb %xmm\\n, %xmm0; pmovmskb %xmm0, %ecx\n"
		"cmp $0xffff, %ecx; jne 9f\n .endr\n"
		"stmxcsr -24(%rsp); mov -24(%rsp), %eax; and $0xffc0, %eax; cmp $0x7f80, %eax; jne "
		"9f\n"
		"fnstcw -24(%rsp); cmpw $0xf7f, -24(%rsp); jne 9f\n"
		"fldpi; fucomip %st(1), %st; jne 9f\n"
		"jmp 1b\n"
		"9: movq $1, 8(%rdi)\n"
		"jmp .\n");
}

NAKED static void hold_avx(volatile uint64_t *counters, const void *table)
{
	__asm__(".irp n," BASE_REGISTERS "\n vmovdqu \\n*64(%rsi), %ymm\\n\n .endr\n"
		"1: incq (%rdi)\n"
		".irp n,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n"
		"vpcmpeqb \\n*64(%rsi), %ymm\\n, %ymm0; vpmovmskb %ymm0, %ecx\n"
		"cmp $-1, %ecx; jne 9f\n .endr\n"
		"jmp 1b\n"
		"9: movq $1, 8(%rdi)\n"
		"jmp .\n");
}

NAKED static void hold_avx512(volatile uint64_t *counters, const void *table)
{
	__asm__(".irp n," ALL_REGISTERS "\n vmovdqu64 \\n*64(%rsi), %zmm\\n\n .endr\n"
		".irp n,2,3,4,5,6,7\n kmovq \\n*64(%rsi), %k\\n\n .endr\n"
		"1: incq (%rdi)\n"
		".irp n," ALL_REGISTERS "\n"
		"vpcmpeqb \\n*64(%rsi), %zmm\\n, %k1; kmovq %k1, %rcx; cmp $-1, %rcx; jne 9f\n "
		".endr\n"
		".irp n,2,3,4,5,6,7\n kmovq %k\\n, %rcx; cmp \\n*64(%rsi), %rcx; jne 9f\n .endr\n"
		"jmp 1b\n"
		"9: movq $1, 8(%rdi)\n"
		"jmp .\n");
}

void code_hold_general(volatile uint64_t *counters)
{
	hold_general(counters);
}

void code_hold_vector(enum code_vector kind, volatile uint64_t *counters)
{
	static uint8_t table[32 * 64];

	for (size_t i = 0; i < sizeof(table); i++)
		table[i] = (uint8_t)(i * 37 + i / 64 * 11 + 5);
	if (kind == CODE_BASE)
		hold_base(counters, table);
	else if (kind == CODE_AVX)
		hold_avx(counters, table);
	else
		hold_avx512(counters, table);
}

/* ---- code that is run on T */

#define RUIN_GENERAL                                                                      \
	"mov $-1, %rax; mov %rax, %rbx; mov %rax, %rcx; mov %rax, %rdx; mov %rax, %rsi\n" \
	"mov %rax, %rbp; mov %rax, %r8; mov %rax, %r9; mov %rax, %r10; mov %rax, %r11\n"  \
	"mov %rax, %r12; mov %rax, %r13; mov %rax, %r14; mov %rax, %r15; stc\n"
#define RUIN_BASE                                                    \
	"fninit; fldz; movl $0x1f80, -16(%rsp); ldmxcsr -16(%rsp)\n" \
	".irp n," BASE_REGISTERS "\n pcmpeqb %xmm\\n, %xmm\\n\n .endr\n"
#define RUIN_AVX ".irp n," BASE_REGISTERS "\n vpcmpeqb %ymm\\n, %ymm\\n, %ymm\\n\n .endr\n"
#define RUIN_AVX512                                                                       \
	".irp n," ALL_REGISTERS "\n vpternlogd $255, %zmm\\n, %zmm\\n, %zmm\\n\n .endr\n" \
	".irp n,0,1,2,3,4,5,6,7\n kxnorq %k\\n, %k\\n, %k\\n\n .endr\n"
#define TELL_AND_SPIN "movq $1, (%rdi)\n 1: pause; jmp 1b\n"

/* Waits some 2 ms; then who restores is settled by compare-and-swap. */
#define WAIT_AND_RESTORE                               \
	"movq $1, (%rdi)\n"                            \
	"mov $2000000, %ecx\n"                         \
	"1: cmpq $0, 8(%rdi); jne 3f\n"                \
	"dec %ecx; jnz 1b\n"                           \
	"xor %eax, %eax; mov $2, %ecx\n"               \
	"lock cmpxchg %rcx, 8(%rdi); jne 3f\n"         \
	"mov 16(%rdi), %rsp; mov $15, %eax; syscall\n" \
	"3: pause; jmp 3b\n"

#define RUNNABLE(name, text)         \
	NAKED static void name(void) \
	{                            \
		__asm__(text);       \
	}

RUNNABLE(ruin_base, RUIN_GENERAL RUIN_BASE TELL_AND_SPIN)
RUNNABLE(ruin_avx, RUIN_GENERAL RUIN_BASE RUIN_AVX TELL_AND_SPIN)
RUNNABLE(ruin_avx512, RUIN_GENERAL RUIN_BASE RUIN_AVX512 TELL_AND_SPIN)
RUNNABLE(restore_base, RUIN_GENERAL RUIN_BASE WAIT_AND_RESTORE)
RUNNABLE(restore_avx, RUIN_GENERAL RUIN_BASE RUIN_AVX WAIT_AND_RESTORE)
RUNNABLE(restore_avx512, RUIN_GENERAL RUIN_BASE RUIN_AVX512 WAIT_AND_RESTORE)
RUNNABLE(count, "1: incq (%rdi); pause; jmp 1b\n")
RUNNABLE(return_at_once, "ret\n")
RUNNABLE(change_word, "lock cmpxchg %rdx, (%rdi); mov %r8d, %eax; syscall; ret\n")
RUNNABLE(raise_segv, "xor %eax, %eax; movl $1, 64(%rax); jmp .\n")
RUNNABLE(raise_bus, "movl $1, (%rdi); jmp .\n")
RUNNABLE(raise_ill, "ud2\n")
RUNNABLE(raise_fpe, "xor %ecx, %ecx; xor %edx, %edx; mov $1, %eax; div %ecx; jmp .\n")
RUNNABLE(raise_trap, "int3; jmp .\n")

uint64_t code_ruin(enum code_vector kind)
{
	static void (*const code[])(void) = {ruin_base, ruin_avx, ruin_avx512};

	return (uint64_t)code[kind];
}

uint64_t code_self_restore(enum code_vector kind)
{
	static void (*const code[])(void) = {restore_base, restore_avx, restore_avx512};

	return (uint64_t)code[kind];
}

uint64_t code_fault(enum code_fault kind)
{
	static void (*const code[])(void) = {
		raise_segv, raise_bus, raise_ill, raise_fpe, raise_trap,
	};

	return (uint64_t)code[kind];
}

uint64_t code_count(void)
{
	return (uint64_t)count;
}

uint64_t code_return(void)
{
	return (uint64_t)return_at_once;
}

uint64_t code_change(void)
{
	return (uint64_t)change_word;
}

/* ---- restartable sequences */

/* 0x53053053 in an undefined instruction: the signature that glibc registers. */
NAKED static void hold_sequence(volatile uint64_t *counters, struct rseq *area)
{
	__asm__(".pushsection __rseq_cs, \"aw\"\n .balign 32\n"
		"7: .long 0, 0\n .quad 1f, 2f - 1f, 4f\n .popsection\n"
		"0: incq (%rdi)\n"
		"lea 7b(%rip), %rax\n mov %rax, 8(%rsi)\n"
		"1: mov $20000000, %ecx\n"
		"3: dec %ecx; jnz 3b\n"
		"2: jmp 0b\n"
		".byte 0x0f, 0xb9, 0x3d\n .long 0x53053053\n"
		"4: incq 16(%rdi); jmp 0b\n");
}

bool code_hold_sequence(volatile uint64_t *counters)
{
	if (!__rseq_size)
		return false;
	hold_sequence(counters,
		      (struct rseq *)((char *)__builtin_thread_pointer() + __rseq_offset));
	return true;
}

/* ---- another ABI */

/* ELF header, one program header, and `jmp .` behind them. */
int code_other_abi(void)
{
	const struct {
		Elf32_Ehdr header;
		Elf32_Phdr segment;
		uint8_t code[2];
	} file = {
		.header =
			{
				.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS32,
					    ELFDATA2LSB, EV_CURRENT},
				.e_type = ET_EXEC,
				.e_machine = EM_386,
				.e_version = EV_CURRENT,
				.e_entry = 0x10000 + sizeof(Elf32_Ehdr) + sizeof(Elf32_Phdr),
				.e_phoff = sizeof(Elf32_Ehdr),
				.e_ehsize = sizeof(Elf32_Ehdr),
				.e_phentsize = sizeof(Elf32_Phdr),
				.e_phnum = 1,
			},
		.segment =
			{
				.p_type = PT_LOAD,
				.p_vaddr = 0x10000,
				.p_filesz = sizeof(file),
				.p_memsz = sizeof(file),
				.p_flags = PF_R | PF_X,
				.p_align = 0x1000,
			},
		.code = {0xeb, 0xfe},
	};
	int fd = memfd_create("other-abi", MFD_CLOEXEC);

	if (fd >= 0 && write(fd, &file, sizeof(file)) != sizeof(file)) {
		close(fd);
		fd = -1;
	}
	return fd;
}
