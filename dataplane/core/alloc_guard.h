/* SPDX-License-Identifier: Apache-2.0 */
/* Proves that a poll core allocates nothing once it runs. In a build with -Dalloc_abort=true every
 * malloc, calloc, realloc, aligned allocation and free of a thread between begin and end aborts the
 * process and says which call it was; other threads are untouched. In every other build the calls
 * are empty. A thread guards only itself. */
#ifndef MILL_DATAPLANE_ALLOC_GUARD_H
#define MILL_DATAPLANE_ALLOC_GUARD_H

#ifdef MILL_ALLOC_ABORT
/* This thread allocates no more. */
void mill_alloc_guard_begin(void);
/* It may again. */
void mill_alloc_guard_end(void);
#else
static inline void mill_alloc_guard_begin(void)
{
}
static inline void mill_alloc_guard_end(void)
{
}
#endif

#endif
