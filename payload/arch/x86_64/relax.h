/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Waiting without a system call.
 */
#ifndef PAYLOAD_ARCH_RELAX_H
#define PAYLOAD_ARCH_RELAX_H

/* Between two looks at a word that another CPU will change. */
static inline void cpu_relax(void)
{
	__asm__ volatile("pause" : : : "memory");
}

#endif
