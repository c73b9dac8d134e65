// SPDX-License-Identifier: GPL-3.0-or-later
/* calls bound when first made, the default of most builds */
#include "tests/targets/slots_program.h"
