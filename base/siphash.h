/* SPDX-License-Identifier: Apache-2.0 */
/* SipHash-2-4 (Aumasson and Bernstein, 2012): keyed hash for initial sequence numbers (RFC 6528)
 * and tables that a stranger can aim at. Pure; any thread. */
#ifndef MILL_BASE_SIPHASH_H
#define MILL_BASE_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

/* 64-bit hash of size_bytes at data under the 128-bit key. */
uint64_t mill_siphash(const uint64_t key[2], const void *data, size_t size_bytes);

#endif
