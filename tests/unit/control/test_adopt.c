/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what Kafka left becomes metadata whole or not at all, and whatever cannot be served as it
 * is is refused with its reason, with nothing changed. Method: directories in Kafka's formats, made
 * by hand, each fault in turn. */
#include "tests/unit/test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/byteorder.h"
#include "control/adopt.h"
#include "control/meta/meta.h"

static const char cluster[] = "AAECAwQFBgcICQoLDA0ODw";
static const char topic_id[] = "EBESExQVFhcYGRobHB0eHw";

static char root[64];
static struct mill_config *config;
static struct mill_report report;

/* A command of the shell, in the folder of the test. */
static void run(const char *text, const char *word)
{
    char command[512];
    snprintf(command, sizeof(command), "cd %s && %s%s", root, text, word);
    assert_int_equal(system(command), 0);
}

static void put(const char *name, const void *bytes, size_t size)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", root, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static void put_text(const char *name, const char *text)
{
    put(name, text, strlen(text));
}

static void make_partition(const char *dir)
{
    char name[128];
    char text[128];
    uint8_t batch[61] = {[16] = 2};
    run("mkdir -p ", dir);
    snprintf(name, sizeof(name), "%s/partition.metadata", dir);
    snprintf(text, sizeof(text), "version: 0\ntopic_id: %s", topic_id);
    put_text(name, text);
    snprintf(name, sizeof(name), "%s/leader-epoch-checkpoint", dir);
    put_text(name, "0\n2\n0 0\n7 10\n");
    snprintf(name, sizeof(name), "%s/00000000000000000000.log", dir);
    put(name, batch, sizeof(batch));
}

/* Two log directories of a ZooKeeper broker with a topic of three partitions over both. */
static void make_kafka(void)
{
    uint8_t snapshot[10 + 46] = {0};
    char properties[200];
    char a[160];
    snprintf(root, sizeof(root), "/tmp/millrace-adopt-XXXXXX");
    assert_non_null(mkdtemp(root));
    run("mkdir a b", "");
    snprintf(properties, sizeof(properties), "#\n#Mon\nversion=0\nbroker.id=5\ncluster.id=%s\n",
             cluster);
    put_text("a/meta.properties", properties);
    put_text("b/meta.properties", properties);
    make_partition("a/my-topic-0");
    make_partition("b/my-topic-1");
    make_partition("a/my-topic-2");
    run("mkdir a/__cluster_metadata-0 a/old-0.0123456789abcdef0123456789abcdef-delete", "");
    put_text("a/recovery-point-offset-checkpoint", "0\n0\n");
    mill_store_be32(snapshot + 6, 1);
    mill_store_be64(snapshot + 10, 3000000); /* a producer id */
    put("b/my-topic-1/00000000000000000010.snapshot", snapshot, sizeof(snapshot));
    snprintf(a, sizeof(a), "log.dirs=%s/a,%s/b", root, root);
    const char *sets[] = {"node.id=5", a};
    assert_int_equal(mill_config_load(NULL, sets, 2, false, &config), 0);
}

static void drop(void)
{
    char command[128];
    mill_config_free(config);
    snprintf(command, sizeof(command), "rm -rf %s", root);
    assert_int_equal(system(command), 0);
}

static bool there(const char *name)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", root, name);
    return access(path, F_OK) == 0;
}

static int adopt(void)
{
    report = (struct mill_report){0};
    return mill_adopt(config, &report);
}

static int check_topic(void *context, const struct mill_meta_topic *topic)
{
    struct mill_uuid id;
    uint32_t *seen = context;
    assert_int_equal(mill_uuid_parse(topic_id, &id), 0);
    assert_true(mill_uuid_equal(&topic->record->id, &id));
    assert_string_equal(topic->record->name, "my-topic");
    assert_int_equal(topic->record->flags, MILL_TOPIC_MADE);
    assert_int_equal(topic->record->partitions_count, 3);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(topic->record->partitions[i].leader, 5);
        assert_int_equal(topic->record->partitions[i].leader_epoch, 8);
        assert_int_equal(topic->record->partitions[i].isr_count, 1);
    }
    assert_int_equal(topic->configs_count, 2); /* nothing is deleted */
    assert_string_equal(topic->configs[0].value, "-1");
    assert_string_equal(topic->configs[1].value, "-1");
    (*seen)++;
    return 0;
}

static void check_store(void)
{
    char file[128];
    struct mill_meta meta;
    struct mill_uuid fresh = {{1}};
    struct mill_uuid id;
    char text[MILL_UUID_TEXT_BYTES];
    uint32_t seen = 0;
    int64_t first;
    snprintf(file, sizeof(file), "%s/a/millrace.db", root);
    assert_int_equal(mill_meta_sqlite_open(file, 0, &meta, &report), 0);
    assert_int_equal(meta.calls->broker(meta.store, 5, &report), 0);
    assert_int_equal(meta.calls->cluster_id(meta.store, &fresh, &id, &report), 0);
    mill_uuid_format(&id, text);
    assert_string_equal(text, cluster);
    assert_int_equal(meta.calls->load(meta.store, check_topic, &seen, &report), 0);
    assert_int_equal(seen, 1);
    assert_int_equal(meta.calls->take_ids(meta.store, 1, &first, &report), 0);
    assert_true(first > 3000000);
    mill_meta_close(&meta);
}

static void test_adopt_makes_topics_of_what_lies_there(void **state)
{
    MILL_UNUSED(state);
    make_kafka();
    assert_int_equal(adopt(), 0);
    check_store();
    assert_int_equal(adopt(), -EEXIST); /* once */
    assert_non_null(strstr(report.text, "start without --adopt"));
    check_store();
    drop();
}

static void check_text(const char *name, const char *expected)
{
    char path[256];
    char text[512] = "";
    snprintf(path, sizeof(path), "%s/%s", root, name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    assert_int_equal(fclose(file), 0);
    assert_string_equal(text, expected);
}

/* A replica copies the gaps of a compacted log before its own cleaner runs. */
static void test_adopt_lets_every_partition_have_gaps(void **state)
{
    MILL_UNUSED(state);
    make_kafka();
    put_text("a/cleaner-offset-checkpoint", "0\n2\nother 3 9\nmy-topic 2 17\n");
    run("mv b/my-topic-1/00000000000000000000.log b/my-topic-1/00000000000000000005.log", "");
    run("cp b/my-topic-1/00000000000000000005.log b/my-topic-1/00000000000000000030.log", "");
    assert_int_equal(adopt(), 0);
    check_text("a/cleaner-offset-checkpoint", "0\n3\nother 3 9\nmy-topic 2 17\nmy-topic 0 0\n");
    check_text("b/cleaner-offset-checkpoint", "0\n1\nmy-topic 1 5\n");
    drop();
    make_kafka();
    put_text("a/cleaner-offset-checkpoint", "damaged");
    assert_int_equal(adopt(), 0);
    check_text("a/cleaner-offset-checkpoint", "0\n2\nmy-topic 0 0\nmy-topic 2 0\n");
    drop();
}

static void test_adopt_killed_midway_is_begun_anew(void **state)
{
    MILL_UNUSED(state);
    make_kafka();
    put_text("a/millrace.db.adopting", "half of a store");
    put_text("a/millrace.db.adopting-wal", "and of its log");
    assert_int_equal(adopt(), 0);
    check_store();
    assert_false(there("a/millrace.db.adopting"));
    assert_false(there("a/millrace.db.adopting-wal"));
    drop();
}

struct fault {
    const char *command; /* what is done to the directories */
    int code;
    const char *says;
};

static const struct fault faults[] = {
    {"rm a/meta.properties", -ENOENT, "that a Kafka broker wrote"},
    {"sed -i s/broker.id=5/broker.id=6/ b/meta.properties", -EPERM, "set node.id=6"},
    {"sed -i s/cluster.id=A/cluster.id=B/ b/meta.properties", -EPERM, "another one to"},
    {"sed -i s/cluster.id=.*/cluster.id=mine/ a/meta.properties", -EINVAL, "22 base64"},
    {"sed -i s/version=0/version=2/ a/meta.properties", -EINVAL, "version 2"},
    {"sed -i /cluster/d a/meta.properties", -EINVAL, "names no version"},
    {"rm a/my-topic-2/partition.metadata", -EINVAL, "no partition.metadata"},
    {"sed -i s/EBES/EBET/ a/my-topic-2/partition.metadata", -EINVAL, "different topic ids"},
    {"rm -r b/my-topic-1", -EINVAL, "partition 1 of topic my-topic is missing"},
    {"cp -r a/my-topic-0 b/", -EINVAL, "partition 0 of topic my-topic is in"},
    {"printf 00000000000000001 > a/my-topic-0/00000000000000000000.log && "
     "printf '\\001' | dd of=a/my-topic-0/00000000000000000000.log bs=1 seek=16 conv=notrunc "
     "2>/dev/null",
     -EINVAL, "before Kafka 0.11"},
};

static void test_adopt_refuses_and_changes_nothing(void **state)
{
    MILL_UNUSED(state);
    for (size_t i = 0; i < MILL_COUNT_OF(faults); i++) {
        make_kafka();
        run(faults[i].command, "");
        run("find . -type f | sort | xargs sha256sum > ../before-$(basename $PWD)", "");
        int r = adopt();
        if (r != faults[i].code || !strstr(report.text, faults[i].says)) {
            fail_msg("%s: %d, %s", faults[i].command, r, report.text);
        }
        run("find . -type f | sort | xargs sha256sum | cmp - ../before-$(basename $PWD)", "");
        run("rm ../before-$(basename $PWD)", "");
        drop();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_adopt_makes_topics_of_what_lies_there),
        cmocka_unit_test(test_adopt_lets_every_partition_have_gaps),
        cmocka_unit_test(test_adopt_killed_midway_is_begun_anew),
        cmocka_unit_test(test_adopt_refuses_and_changes_nothing),
    };
    return cmocka_run_group_tests_name("adopt", tests, NULL, NULL);
}
