/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Doubles as whole numbers, clipped to what these can hold. Not a number is 0. */
#ifndef RESOLVER_WHOLE_H
#define RESOLVER_WHOLE_H

#include <stdint.h>

static inline uint64_t whole_unsigned(double value)
{
	return value >= 0x1p64 ? UINT64_MAX : value > 0 ? (uint64_t)value : 0;
}

static inline int64_t whole_signed(double value)
{
	if (value >= 0x1p63)
		return INT64_MAX;
	if (value <= -0x1p63)
		return INT64_MIN;
	return value == value ? (int64_t)value : 0;
}

#endif
