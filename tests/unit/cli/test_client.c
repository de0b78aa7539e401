/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: produce and consume move records unchanged and end as asked. Method: the client library's
 * mock cluster inside this process, standard input and output put on files. */
#include "tests/unit/test.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>

#include "base/clock.h"
#include "cli/command.h"
#include "protocol/messages.h"

enum {
    TEXT_BYTES = 800,
    WORDS_MAX = 24,
};

struct rig {
    rd_kafka_t *client;
    rd_kafka_mock_cluster_t *cluster;
    const char *brokers;
};

static int setup(void **state)
{
    static struct rig rig;
    char reason[256];
    rig.client = rd_kafka_new(RD_KAFKA_PRODUCER, rd_kafka_conf_new(), reason, sizeof(reason));
    rig.cluster = rd_kafka_mock_cluster_new(rig.client, 1);
    rig.brokers = rd_kafka_mock_cluster_bootstraps(rig.cluster);
    *state = &rig;
    return 0;
}

static int teardown(void **state)
{
    struct rig *rig = *state;
    rd_kafka_mock_cluster_destroy(rig->cluster);
    rd_kafka_destroy(rig->client);
    return 0;
}

/* Runs a command with input as standard input; its output comes back. */
static int run_at(const char *brokers, const char *line, const char *input, char output[TEXT_BYTES])
{
    char words[TEXT_BYTES];
    char message[TEXT_BYTES];
    char *argv[WORDS_MAX];
    char *rest = NULL;
    int argc = 0;
    static struct cli_call call; /* large for a frame */
    memset(&call, 0, sizeof(call));
    snprintf(words, sizeof(words), "millrace %s -b %s", line, brokers);
    for (char *word = strtok_r(words, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        argv[argc++] = word;
    }
    assert_int_equal(cli_parse(argc, argv, &call, message, sizeof(message)), 0);
    FILE *in = tmpfile();
    FILE *out = tmpfile();
    fputs(input, in);
    rewind(in);
    fflush(stdout);
    int saved_in = dup(STDIN_FILENO);
    int saved_out = dup(STDOUT_FILENO);
    dup2(fileno(in), STDIN_FILENO);
    dup2(fileno(out), STDOUT_FILENO);
    clearerr(stdin);
    int code = call.command->run(&call);
    fflush(stdout);
    dup2(saved_in, STDIN_FILENO);
    dup2(saved_out, STDOUT_FILENO);
    close(saved_in);
    close(saved_out);
    rewind(out);
    output[fread(output, 1, TEXT_BYTES - 1, out)] = '\0';
    fclose(in);
    fclose(out);
    return code;
}

static int run(const struct rig *rig, const char *line, const char *input, char output[TEXT_BYTES])
{
    return run_at(rig->brokers, line, input, output);
}

static void test_consume_gives_what_was_produced(void **state)
{
    const struct rig *rig = *state;
    char output[TEXT_BYTES];
    rd_kafka_mock_topic_create(rig->cluster, "lines", 1, 1);
    assert_int_equal(run(rig, "produce -t lines", "one\n\nthree", output), 0);
    assert_int_equal(run(rig, "consume -t lines -e", "", output), 0);
    assert_string_equal(output, "one\n\nthree\n");
    assert_int_equal(run(rig, "consume -t lines -p 0 -o 1 -c 1 -f %o:%S:%s|", "", output), 0);
    assert_string_equal(output, "1:0:|");
    assert_int_equal(run(rig, "consume -t lines -o -1 -e", "", output), 0);
    assert_string_equal(output, "three\n");
}

static void test_keys_are_split_and_shown(void **state)
{
    const struct rig *rig = *state;
    char output[TEXT_BYTES];
    rd_kafka_mock_topic_create(rig->cluster, "keyed", 1, 1);
    assert_int_equal(run(rig, "produce -t keyed -K : -z zstd -o json", "a:b\nnone\n", output), 0);
    assert_non_null(strstr(output, "\"records\": 2"));
    assert_non_null(strstr(output, "\"failed\": 0"));
    assert_int_equal(run(rig, "consume -t keyed -e -f %k=%s(%K)%%\\n", "", output), 0);
    assert_string_equal(output, "a=b(1)%\n=none(-1)%\n");
    assert_int_equal(run(rig, "consume -t keyed -c 1 -J", "", output), 0);
    assert_non_null(strstr(output, "\"key\":\"a\",\"value\":\"b\""));
}

/* What consume wrote, produce reads: keys and values of any bytes, null and empty ones, headers. */
static void test_format_round_trip(void **state)
{
    const struct rig *rig = *state;
    char first[TEXT_BYTES];
    char second[TEXT_BYTES];
    static const char records[] = "0,4:k\ney|3:a\nb\n0,-1:|0:\n0,0:|-1:\n";
    rd_kafka_mock_topic_create(rig->cluster, "trip", 1, 1);
    rd_kafka_mock_topic_create(rig->cluster, "back", 1, 1);
    assert_int_equal(run(rig, "produce -t trip -f %p,%K:%k|%S:%s", records, first), 0);
    assert_int_equal(run(rig, "consume -t trip -e -f %p,%K:%k|%S:%s\\n", "", first), 0);
    assert_int_equal(run(rig, "produce -t back -f %p,%K:%k|%S:%s\\n", first, second), 0);
    assert_int_equal(run(rig, "consume -t back -e -f %p,%K:%k|%S:%s\\n", "", second), 0);
    assert_string_equal(first, second);
    assert_string_equal(first, records);
}

static void test_headers_keys_and_nulls_of_every_record(void **state)
{
    const struct rig *rig = *state;
    char output[TEXT_BYTES];
    rd_kafka_mock_topic_create(rig->cluster, "all", 1, 1);
    assert_int_equal(run(rig, "produce -t all -H a=1 -H b=x=y -k key -Z", "one\n\n", output), 0);
    assert_int_equal(run(rig, "consume -t all -e -f %h|%k|%S\\n", "", output), 0);
    assert_string_equal(output, "a=1,b=x=y|key|3\na=1,b=x=y|key|-1\n");
    assert_int_equal(run(rig, "produce -t all -f %h;%s\\n -H a=1", "c=2;two\n", output), 0);
    assert_int_equal(run(rig, "consume -t all -o 2 -c 1 -J", "", output), 0);
    assert_non_null(strstr(output, "\"headers\":[{\"name\":\"a\",\"value\":\"1\"},"
                                   "{\"name\":\"c\",\"value\":\"2\"}]"));
}

/* ret: exit code; what was said on standard error. */
static int produce_to_nobody(char said[TEXT_BYTES])
{
    char output[TEXT_BYTES];
    FILE *err = tmpfile();
    fflush(stderr);
    int saved = dup(STDERR_FILENO);
    dup2(fileno(err), STDERR_FILENO);
    int code = run_at("127.0.0.1:1", "produce -t dead --timeout 3", "x\n", output);
    fflush(stderr);
    dup2(saved, STDERR_FILENO);
    close(saved);
    rewind(err);
    said[fread(said, 1, TEXT_BYTES - 1, err)] = '\0';
    fclose(err);
    return code;
}

/* Said after a second, ended by --timeout. A machine that stands still for three seconds hides the
 * first line, so that is tried again. */
static void test_produce_dead_broker_says_so_and_ends(void **state)
{
    char said[TEXT_BYTES] = "";
    MILL_UNUSED(state);
    for (int tries = 0; tries < 3 && !strstr(said, "no answer from 127.0.0.1:1 yet"); tries++) {
        uint64_t begin_ns = mill_now_read().mono_ns;
        assert_int_equal(produce_to_nobody(said), CLI_FAILED);
        assert_true(mill_now_read().mono_ns - begin_ns >= 2 * MILL_NS_PER_S);
        assert_non_null(strstr(said, "no answer from 127.0.0.1:1 within 3 s"));
    }
    assert_non_null(strstr(said, "no answer from 127.0.0.1:1 yet"));
}

static void test_wrong_use_and_wrong_partition(void **state)
{
    const struct rig *rig = *state;
    char output[TEXT_BYTES];
    rd_kafka_mock_topic_create(rig->cluster, "wrong", 2, 1);
    assert_int_equal(run(rig, "consume", "", output), CLI_USAGE);
    assert_int_equal(run(rig, "consume -t wrong -p 2 -e", "", output), CLI_FAILED);
    assert_int_equal(run(rig, "consume -t wrong -o middle", "", output), CLI_USAGE);
    assert_int_equal(run(rig, "consume -t wrong -f %x", "", output), CLI_USAGE);
    assert_int_equal(run(rig, "consume -t wrong --no-commit", "", output), CLI_USAGE);
    assert_int_equal(run(rig, "consume -t wrong --group g -p 0", "", output), CLI_USAGE);
    assert_int_equal(run(rig, "consume -t wrong --group g -o 5", "", output), CLI_USAGE);
    assert_int_equal(run(rig, "produce", "", output), CLI_USAGE);
    assert_int_equal(run(rig, "produce -t wrong -f %k%s", "", output), CLI_USAGE);
    assert_int_equal(run(rig, "produce -t wrong -K : -f %s", "", output), CLI_USAGE);
    assert_int_equal(run(rig, "produce -t wrong -H a", "", output), CLI_USAGE);
    assert_int_equal(run(rig, "produce -t wrong -f %k:%s\\n", "ab\n", output), CLI_FAILED);
    assert_int_equal(run(rig, "produce -t wrong -z rar", "", output), CLI_USAGE);
    assert_int_equal(run(rig, "produce -t wrong --timeout 0", "", output), CLI_USAGE);
    assert_int_equal(run(rig, "produce -t wrong -X nonsense=1", "", output), CLI_USAGE);
    assert_int_equal(run(rig, "consume -t wrong -e", "", output), 0); /* empty: ends at once */
    assert_string_equal(output, "");
}

/* Wrong use is told without a broker, and at once. */
static void test_wrong_use_needs_no_broker(void **state)
{
    static const char *const lines[] = {
        "consume -t a -o middle",
        "consume -t a -o @-1",
        "consume -t a -o 99999999999999999999",
        "consume -t a -p x",
        "consume -t a -J -f %s",
        "group reset g --to 1 -p x",
        "group reset g --to @-1",
        "group reset g --to 99999999999999999999",
        "group reset g h --to 1",
        "group delete g -o xml",
        "topic create a -o xml",
        "topic add-partitions a",
        "topic trim a",
        "config alter -t a",
        "config alter -t a --config x",
        "config describe -t a --group b",
        "config describe --broker all",
    };
    char output[TEXT_BYTES];
    MILL_UNUSED(state);
    for (size_t i = 0; i < MILL_COUNT_OF(lines); i++) {
        if (run_at("127.0.0.1:1", lines[i], "", output) != CLI_USAGE) {
            fail_msg("%s", lines[i]);
        }
    }
}

/* Offsets that are not there: what is there is read. */
static void test_consume_starts_inside_of_the_log(void **state)
{
    const struct rig *rig = *state;
    char output[TEXT_BYTES];
    rd_kafka_mock_topic_create(rig->cluster, "inside", 1, 1);
    assert_int_equal(run(rig, "produce -t inside", "one\ntwo\n", output), 0);
    assert_int_equal(run(rig, "consume -t inside -e -o -9223372036854775807", "", output), 0);
    assert_string_equal(output, "one\ntwo\n");
    assert_int_equal(run(rig, "consume -t inside -e -o 9223372036854775807", "", output), 0);
    assert_string_equal(output, "");
    assert_int_equal(run(rig, "consume -t inside -e -o -0", "", output), 0);
    assert_string_equal(output, "");
}

/* A coordinator that has just begun refuses, and is asked again. */
static void test_group_coordinator_that_refuses(void **state)
{
    const struct rig *rig = *state;
    char output[TEXT_BYTES];
    rd_kafka_mock_topic_create(rig->cluster, "refused", 1, 1);
    rd_kafka_mock_push_request_errors(rig->cluster, MILL_API_KEY_OFFSET_FETCH, 2,
                                      RD_KAFKA_RESP_ERR_NOT_COORDINATOR,
                                      RD_KAFKA_RESP_ERR_COORDINATOR_LOAD_IN_PROGRESS);
    assert_int_equal(run(rig, "group reset g --to end -t refused --dry-run", "", output), CLI_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_consume_gives_what_was_produced),
        cmocka_unit_test(test_produce_dead_broker_says_so_and_ends),
        cmocka_unit_test(test_keys_are_split_and_shown),
        cmocka_unit_test(test_format_round_trip),
        cmocka_unit_test(test_headers_keys_and_nulls_of_every_record),
        cmocka_unit_test(test_wrong_use_and_wrong_partition),
        cmocka_unit_test(test_wrong_use_needs_no_broker),
        cmocka_unit_test(test_consume_starts_inside_of_the_log),
        cmocka_unit_test(test_group_coordinator_that_refuses),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
