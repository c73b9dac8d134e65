// SPDX-License-Identifier: GPL-3.0-or-later
/* bound at start, its slots read-only */
#include "tests/targets/slots_program.h"
