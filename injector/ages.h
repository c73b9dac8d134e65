/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Sizes, lifetimes and ages, at the end of a session: the payload's histograms,
 * and the live table, where each block in use has its time.
 *
 * The target is not trusted: what is read is checked against our own layout.
 * For one thread at a time.
 */
#ifndef INJECTOR_AGES_H
#define INJECTOR_AGES_H

#include "injector/fill.h"
#include "resolver/error.h"

/*
 * Add the bins of all sites that are in the profile, as of now; the reader has
 * scanned, the target runs no more in our code. ERROR_MEMORY.
 */
MUST_CHECK struct error *ages_fill(struct fill *fill);

#endif
