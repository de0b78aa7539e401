/* SPDX-License-Identifier: Apache-2.0 */
/* A configuration file and settings of the command line, whatever stands in them: no crash, every
 * fault with its reason, and a config that is usable answers for every key. An input: a run of
 * `key=value`, then the file. */
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <unistd.h>

#include "config/config.h"

enum {
    SET_BYTES = 256,
};

static char path[] = "/tmp/millrace-test-fuzz-XXXXXX";

static void path_remove(void)
{
    unlink(path);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    MILL_UNUSED(argc);
    MILL_UNUSED(argv);
    int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    atexit(path_remove);
    return 0;
}

static void check_faults(const struct mill_config *config, int r)
{
    const struct mill_config_fault *faults;
    uint32_t count = mill_config_faults(config, &faults);
    assert_true(r == 0 || count > 0);
    for (uint32_t i = 0; i < count; i++) {
        assert_true(strlen(faults[i].text) > 0 && strlen(faults[i].text) < sizeof(faults[i].text));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {.at = data, .left = size};
    char set[SET_BYTES];
    const uint8_t *run;
    size_t count = MILL_MIN(fuzz_run(&input, &run), sizeof(set) - 1);
    memcpy(set, run, count);
    set[count] = '\0';
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(input.at, 1, input.left, file), input.left);
    assert_int_equal(fclose(file), 0);
    const char *sets[] = {set};
    struct mill_config *config = NULL;
    int r = mill_config_load(path, sets, strchr(set, '=') ? 1 : 0, size % 2 == 0, &config);
    assert_non_null(config);
    check_faults(config, r);
    for (uint32_t key = 0; r == 0 && key < MILL_KEY_COUNT; key++) {
        const char *text = mill_config_text(config, (enum mill_key)key);
        struct mill_report report;
        assert_true(!text || mill_key_check((enum mill_key)key, text, &report) == 0);
    }
    mill_config_free(config);
    return 0;
}
