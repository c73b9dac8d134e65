/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The list of test suites, one a line, for whoever includes this with the
 * macros defined. SUITE(maps) stands for `Suite *maps_suite(void)`, in
 * tests/test_maps.c.
 *
 *	SUITE         of one module; runs under the sanitizers too
 *	SYSTEM_SUITE  runs whole programs: ours on real processes, or the scripts
 */
SUITE(error)
SUITE(text)
SUITE(pathname)
SUITE(intervals)
SUITE(demangle)
SUITE(elffile)
SUITE(symbols)
SUITE(lines)
SUITE(debugfile)
SUITE(symbolizer)
SUITE(boot)
SUITE(entry)
SUITE(entry_threads)
SYSTEM_SUITE(attach_exact)
SYSTEM_SUITE(attach_stress)
SYSTEM_SUITE(attach_bad)
SYSTEM_SUITE(attach_servers)
SUITE(borrow)
SUITE(core_live)
SUITE(core_sites)
SUITE(borrow_restart)
SUITE(borrow_signals)
SUITE(core_walk)
SUITE(core_record)
SYSTEM_SUITE(scripts)
SUITE(borrow_state)
SUITE(shm)
SUITE(reader)
SUITE(session_parts)
SUITE(profile)
SUITE(recording)
SUITE(options)
SUITE(outfile)
SUITE(core_real)
SUITE(target)
SUITE(report)
SUITE(threads)
SUITE(ehframe_oracle)
SUITE(stackwalk_oracle)
