/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The payload's two files as data; make passes their names. */
	.section .rodata, "a"

	.macro image name, file
	.balign	4096
	.globl	\name
	.type	\name, %object
\name:
	.incbin	"\file"
.Lend_\name:
	.size	\name, . - \name
	.balign	8
	.globl	\name\()_size
	.type	\name\()_size, %object
\name\()_size:
	.quad	.Lend_\name - \name
	.size	\name\()_size, 8
	.endm

	image	payload_entry, ENTRY_FILE
	image	payload_core, CORE_FILE

	.section .note.GNU-stack, "", %progbits
