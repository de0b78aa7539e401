/* SPDX-License-Identifier: Apache-2.0 */
/* cmocka in the order it wants its headers. */
#ifndef MILL_TESTS_UNIT_TEST_H
#define MILL_TESTS_UNIT_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
