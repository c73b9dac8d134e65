/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Where an rt signal frame holds the registers of the code that it interrupted.
 * While the handler's caller (the rt_sigreturn trampoline) is the current
 * frame, sp is the address of the kernel's struct ucontext.
 */
#ifndef PAYLOAD_ARCH_SIGCONTEXT_H
#define PAYLOAD_ARCH_SIGCONTEXT_H

#include "payload/protocol.h"

#include <stdint.h>

/* Kernel ABI: struct ucontext { flags, link, stack, struct sigcontext { r8, r9, ... } } */
#define SIGCONTEXT_R8	0x28
#define SIGCONTEXT_RDI	0x68
#define SIGCONTEXT_RSI	0x70
#define SIGCONTEXT_RBP	0x78
#define SIGCONTEXT_RBX	0x80
#define SIGCONTEXT_RDX	0x88
#define SIGCONTEXT_RAX	0x90
#define SIGCONTEXT_RCX	0x98
#define SIGCONTEXT_RSP	0xa0
#define SIGCONTEXT_RIP	0xa8
#define SIGCONTEXT_SIZE 0xb0 /* bytes from ucontext to the end of what is read here */

/* psABI: bytes below the stack pointer that the kernel leaves as the interrupted code had them. */
#define RED_ZONE 128u

/* Offset of a register from the ucontext. */
static inline uint32_t sigcontext_offset(enum ha_ext_base reg)
{
	switch (reg) {
	case HA_EXT_RAX:
		return SIGCONTEXT_RAX;
	case HA_EXT_RDX:
		return SIGCONTEXT_RDX;
	case HA_EXT_RCX:
		return SIGCONTEXT_RCX;
	case HA_EXT_RBX:
		return SIGCONTEXT_RBX;
	case HA_EXT_RSI:
		return SIGCONTEXT_RSI;
	case HA_EXT_RDI:
		return SIGCONTEXT_RDI;
	case HA_EXT_RBP:
		return SIGCONTEXT_RBP;
	case HA_EXT_RSP:
		return SIGCONTEXT_RSP;
	default:
		return SIGCONTEXT_R8 + ((uint32_t)reg - HA_EXT_R8) * 8;
	}
}

#endif
