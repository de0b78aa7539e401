/* SPDX-License-Identifier: Apache-2.0 */
/* What the fuzz targets share: taking an input apart, and where cmocka's asserts end. */
#ifndef MILL_TESTS_FUZZ_FUZZ_H
#define MILL_TESTS_FUZZ_FUZZ_H

#include "tests/unit/test.h"

#include <stdlib.h>
#include <string.h>

#include "base/byteorder.h"
#include "base/compiler.h"

/* libFuzzer's entries; a failed assert is an exit, which it takes for a finding. */
int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
/* A target's own way to change an input, and libFuzzer's. ret: the new size. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);

struct fuzz_input {
    const uint8_t *at;
    size_t left;
};

/* 0 when nothing is left. */
static inline uint8_t fuzz_byte(struct fuzz_input *input)
{
    if (input->left == 0) {
        return 0;
    }
    input->left--;
    return *input->at++;
}

/* A run of bytes behind two bytes of length; what is left when it is longer. */
static inline size_t fuzz_run(struct fuzz_input *input, const uint8_t **ret_bytes)
{
    size_t size = (size_t)fuzz_byte(input) << 8;
    size = MILL_MIN(size | fuzz_byte(input), input->left);
    *ret_bytes = input->at;
    input->at += size;
    input->left -= size;
    return size;
}

#endif
