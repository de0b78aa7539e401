#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: what a client may ask of one broker, Kafka 4.4 and Millrace answer alike.

Method: requests of every API and version that both serve, made by chance from our schemas and from values that
mean something, go to both in the same order; answers are compared field by field after ids, times, addresses and
texts are taken out. A difference that we want, or cannot help, is a row of WANTED with its reason; any other
fails. The last ones are printed with the request that shows them."""
import collections
import os
import random
import re
import struct
import sys
import time
import uuid

from lib import message
from lib.broker import Broker, pick, skip
from lib.wire import Client, batch, record
from measure.kafka import JARS, Kafka

ROUNDS = pick(5000, 600)
SEED = 1  # of the default run: what is found by chance is found in full
TOLD = 3  # examples of one kind
TOPICS = {"plain": (3, {}), "compacted": (1, {"cleanup.policy": "compact"}), "tiny": (2, {"max.message.bytes": "200"})}
GROUP = "group"
GROUPS = (GROUP, "other", "", "absent")
TEXTS = ("a", "b", "note")
LOADING = (14, 15, 16)
METADATA, JOIN_GROUP = 3, 11
JOINS = (JOIN_GROUP, 68)  # and ConsumerGroupHeartbeat
ID_REQUIRED = 79
STAY = 10  # requests that a member is there for
FOREVER = "9223372036854775807"
SETTLE_S = 5
NOTHING = uuid.UUID(int=0)
UNKNOWN = uuid.UUID(int=0x1234567890abcdef1234567890abcdef)
# Asked of neither, and why.
# Named twice in one of these, Kafka does the last of both and Millrace both: from then on they would differ. A JoinGroup
# whose protocol stands twice Kafka never answers.
ONCE = (0, 8, 11, 19, 21, 24, 28, 47)
# Settings of topics in Kafka that are none here.
UNBUILT = {"compression.gzip.level", "compression.lz4.level", "compression.zstd.level",
           "errors.deadletterqueue.group.enable", "local.retention.bytes", "local.retention.ms",
           "max.decompressed.message.bytes", "remote.copy.lag.bytes", "remote.copy.lag.ms", "remote.log.copy.disable",
           "remote.log.delete.on.disable", "remote.storage.enable"}
ASKED_SETTINGS = ("retention.ms", "cleanup.policy", "segment.ms", "nonsense", "max.message.bytes")
# Settings of a broker: those that say something else of each, those that Kafka changes at run time and we do not,
# those that Kafka 4.4 does not have (our own, and older ones that are accepted), and families that we do not have.
OF_EACH = ("advertised.listeners", "controller.listener.names", "controller.quorum.bootstrap.servers",
           "controller.quorum.voters", "process.roles", "listeners", "listener.security.protocol.map", "log.dirs",
           "node.id")
FIXED = ("group.consumer.assignment.interval.ms", "listeners", "listener.security.protocol.map",
         "sasl.enabled.mechanisms", "ssl.key.password", "ssl.(keystore|truststore).(location|password)")
OURS = {"allow.everyone.if.no.acl.found", "connection.pinned.max.bytes", "connection.stall.timeout.ms",
        "control.frame.max.bytes", "control.request.timeout.ms", "controlled.shutdown.max.retries",
        "controlled.shutdown.retry.backoff.ms", "dataplane.core.endpoints", "dataplane.cores", "dataplane.idle",
        "dataplane.jitter", "dpdk.eal.args", "dpdk.memory.mb", "dpdk.netns", "dpdk.ports",
        "group.consumer.regex.refresh.interval.ms", "http.listener", "hugepages", "hugepages.dir",
        "hugepages.size.mb", "leader.imbalance.per.broker.percentage", "log.cold.max.mb", "log.dirty.max.mb",
        "metadata.dir", "metadata.store", "replica.lag.max.messages", "run.dir", "super.users", "zookeeper.connect",
        "zookeeper.connection.timeout.ms", "zookeeper.session.timeout.ms"}
UNBUILT_FAMILIES = (
    r"(sasl|ssl|security|delegation|principal|early\.start|connections\.max\.reauth|connection\.failed)\..*|"
    r"(group\.(share|streams)|share|remote|log\.(remote|local)|follower\.fetch|errors)\..*|"
    r"(controller|metadata|broker\.(heartb|sess)[a-z]*|initial\.broker|cordoned|socket\.connection\.setup)\..*|"
    r"(metrics?|kafka\.metrics|telemetry|compression|config\.providers|client\.quota\.callback)(\..*)?|"
    r".*\.(purgatory\.purge\.interval\.requests|load\.buffer\.size|policy\.class\.name|quota\.window\..*)|"
    r"group\.coordinator\..*|log\.(dir\.failure|initial\.task|cleaner\.io)\..*|replica\.socket\.receive.*|"
    r"(add\.partitions\.to\.txn|transaction\.(partition\.verification|two\.phase))\..*|"
    r"broker\.id|log\.dir|max\.decompressed\.message\.bytes|num\.replica\.alter\.log\.dirs\.threads|"
    r"offsets\.topic\.compression\.codec|queued\.max\.request\.bytes")
EXCLUDED = {27: "between brokers only; it would write markers into partitions"}
# Taken out of answers, by field name.
IDS = ("throttle_time_ms", "host", "port", "cluster_id", "controller_id", "log_append_time_ms", "producer_id",
       "log_dir", "total_bytes", "usable_bytes", "size", "partition_size", "client_host", "error_message",
       "broker_epoch", "message", "batch_index_error_message", "documentation", "leader_epoch", "current_leader")
EPOCHS = ("member_epoch", "group_epoch", "assignment_epoch")  # they count changes; only their order means something
NAMES = ("topic_id", "name", "topic", "topic_name", "group_id", "partition_index", "partition", "index", "resource_name",
         "transactional_id", "member_id")
SORTED_BY = ("name", "topic", "topic_id", "group_id", "partition_index", "partition", "partition_id", "index", "resource_name",
             "resource_type", "node_id", "broker_id", "member_id", "group", "api_key", "entity_type", "entity_name", "entity")


def asks(name, *values):
    """A judge: somewhere the request has a field of this name with one of these values."""
    def somewhere(tree):
        if isinstance(tree, dict):
            return any(key == name and value in values or somewhere(value) for key, value in tree.items())
        return isinstance(tree, list) and any(map(somewhere, tree))
    return lambda request, *_: somewhere(request)


def twice(request, mine, theirs):
    """Something stands twice in the request, or in what it asks of one thing."""
    def rows(tree):
        if isinstance(tree, dict):
            return any(map(rows, tree.values()))
        if not isinstance(tree, list):
            return False
        names = [next((str(row[name]) for name in NAMES if name in row), None) if isinstance(row, dict) else str(row)
                 for row in tree]
        return len(set(names)) < len(names) or any(map(rows, tree))
    return rows(request) and isinstance(mine, list) and isinstance(theirs, list) and len(mine) > len(theirs)


def shorter(_, mine, theirs):
    return isinstance(mine, list) and len(mine) > len(theirs)


def altered_unknown(request, mine, theirs):
    """A setting of brokers that none has."""
    return mine == 42 and theirs in (0, 40) and any(
        row["resource_type"] == 4 and row["configs"] for row in request["resources"])


# API, pattern of the path within the answer, reason, judge of (request, ours, theirs). The path has no indexes:
# topics.partitions.error_code.
WANTED = (
    ("ApiVersions", "(api_keys|(supported|finalized)_features.*)", "what is not built is not told; our features "
     "are those that are", None),
    ("(Create|Describe|Delete)Acls", "closed", "a code that is no ACL's fails Kafka's parser and closes the "
     "connection; here it is answered 54, as any without an authorizer", None),
    ("ElectLeaders", "(error_code|replica_election_results)", "an election type that is none: one error for all in "
     "place of one for each partition", asks("election_type", 2)),
    (".*", ".*", "what stands twice is answered twice: Kafka keeps it in a map", twice),
    ("(Produce|Fetch|ListOffsets|OffsetCommit|TxnOffsetCommit|OffsetDelete|DeleteRecords|AddPartitionsToTxn)",
     "(responses|topics|results_by_transaction.topic_results|results_by_topic_v3_and_below)", "a topic without "
     "partitions is answered without partitions in place of not at all", shorter),
    ("Produce", "responses.partition_responses.error_code", "acks that are none are refused before topics are "
     "looked for", asks("acks", 2)),
    ("Produce", "responses.partition_responses.log_start_offset", "with an error nothing is told of the log",
     lambda _, mine, theirs: mine == -1 and theirs >= 0),
    ("(CreateTopics|DescribeConfigs)", "(topics|results).configs.names", "settings of topics that are not built",
     lambda _, mine, theirs: not mine and UNBUILT.issuperset(theirs)),
    ("ElectLeaders", "replica_election_results", "an election of all: topics of which nothing is elected are left out",
     lambda request, mine, _: request["topic_partitions"] is None and mine == []),
    ("CreateTopics", "topics.topic_id", "a topic that was only checked has no id", asks("validate_only", True)),
    ("(Incremental)?AlterConfigs", "closed", "nothing but resources of no type, or named twice: Kafka never answers",
     lambda _, mine, theirs: "closed" not in mine and theirs["closed"]),
    ("DescribeConfigs", f"results.configs<({'|'.join(OF_EACH)})>.(value|config_source|synonyms.*)", "addresses, folders "
     "and roles of each broker's own", None),
    ("DescribeConfigs", "results.configs<log.(retention|roll|roll.jitter|flush.interval).ms>.value", "what holds, where "
     "Kafka tells nothing of a name because another gives the value", lambda _, mine, theirs: theirs is None),
    ("DescribeConfigs", f"results.configs<({'|'.join(FIXED)})>.read_only", "not changed while it runs",
     lambda _, mine, theirs: mine and not theirs),
    ("DescribeConfigs", "results.configs.names", "settings of brokers: what is not built is not told, ours are; Kafka "
     "keeps unknown ones, and min.insync.replicas of all brokers", lambda _, mine, theirs: OURS.issuperset(mine) and all(
         name in (*ASKED_SETTINGS, "min.insync.replicas") or re.fullmatch(UNBUILT_FAMILIES, name) for name in theirs)),
    ("DescribeConfigs", "results.configs<.*>.synonyms", "a default that another key gives, as log.retention.hours, or that "
     "only topics have, is told", lambda _, mine, theirs: isinstance(theirs, list) and all(
         row in mine for row in theirs) and all(row["source"] == 5 for row in mine if row not in theirs)),
    ("DescribeTopicPartitions", "(topics.*|next_cursor)", "Kafka fails at a topic without a name",
     lambda request, *_: any(row["name"] == "" for row in request["topics"])),
    ("ListOffsets", "topics.partitions.(offset|timestamp)", "the record with the greatest time is told as long as it is "
     "there", lambda request, mine, theirs: mine == -1 and asks("timestamp", -3)(request)),
    ("(DescribeConfigs|CreateTopics)", "(results|topics).configs<min.insync.replicas>.(config_source|synonyms)",
     "that of all brokers Kafka sets itself", None),
    ("(Incremental)?AlterConfigs", "responses.error_code", "a setting that no broker has is refused: there are no "
     "plugins that could have it", altered_unknown),
    ("AlterConfigs", "responses.error_code", "Kafka lets nobody take away min.insync.replicas of all brokers, which it "
     "sets itself", lambda request, mine, theirs: theirs == 40 and any(
         row["resource_type"] == 4 and row["resource_name"] == "" for row in request["resources"])),
    ("AddPartitionsToTxn", "closed", "without transactions: Kafka never answers", asks("transactions", [])),
    ("DescribeTopicPartitions", "(topics|next_cursor.*)", "behind the last partition there is nothing to go on from; "
     "Kafka's sum overflows", lambda request, *_: (request["cursor"] or {}).get("partition_index") == 2147483647),
)


def once(rows):
    """Without those that name what another one does."""
    names = [str(next((row[name] for name in NAMES if name in row), number)) for number, row in enumerate(rows)]
    return [row for number, row in enumerate(rows) if names[number] not in names[:number]]


class Values:
    """Values by the name of a field; None: any of its type."""

    def __init__(self, chance):
        self.chance = chance
        self.ids = {}  # topic -> its id, told by a side

    def topic(self):
        return self.chance.choices([*TOPICS, "absent", "bad name", "", "x" * 250], [9, 6, 6, 3, 1, 1, 1])[0]

    def partition(self):
        return self.chance.choices([0, 1, 2, 7, -1, 2147483647], [9, 4, 2, 2, 1, 1])[0]

    def records(self):
        kind = self.chance.randrange(2, 8)  # Kafka never answers a request with null or empty records
        rows = b"".join(record(i, b"v" * self.chance.randrange(20), b"k%d" % self.chance.randrange(3))
                        for i in range(2))
        if kind == 2:
            return batch([b"v"], records=record(0, b"v"))  # without a key
        if kind == 3:
            return batch([b"v"] * 2, records=rows, crc=7)
        if kind == 4:
            return batch([b"v"], records=record(0, b"v" * 400, b"k"))
        if kind == 5:
            return batch([b"v"] * 2, records=rows)[:-3]
        return batch([b"v"] * 2, records=rows, timestamp=1_700_000_000_000 + self.chance.randrange(9))

    def number(self, name, kind):
        choose = self.chance.choice
        if name in ("partition_index", "partition", "partition_id", "partition_indexes", "partitions"):
            return self.partition()
        if "timestamp" in name:
            return choose([-1, -2, -3, -4, 0, 1_700_000_000_000, 1_700_000_000_004, 1 << 50])
        if "offset" in name or name == "replica_id":
            return choose([-1, 0, 1, 3, 1000]) if name != "replica_id" else -1
        if name == "acks":
            return choose([-1, 1, -1, 2])
        if name == "max_wait_ms":
            return choose([0, 1])
        if name in ("min_bytes",):
            return choose([0, 1])
        if name in ("max_bytes", "partition_max_bytes"):
            return choose([0, 1, 100, 1 << 20])
        if name in ("session_id", "isolation_level", "key_type", "throttle_time_ms"):
            return choose([0, 0, 1]) if name != "session_id" else 0
        if name == "session_epoch":
            return -1
        if "epoch" in name:
            return choose([-1, -1, 0, 1])
        if name in ("session_timeout_ms", "rebalance_timeout_ms"):
            return choose([1000, 60000, 90000])  # nobody is removed for his silence meanwhile
        if "timeout_ms" in name:
            return choose([1000, 6000, 10000])
        if name in ("count", "num_partitions"):
            return choose([-1, 1, 2, 4, 0])
        if name == "replication_factor":
            return choose([1, -1, 1, 3])
        if name in ("resource_type", "resource_type_filter"):
            return choose([2, 2, 4, 0, 9])
        if name == "config_operation":
            return choose([0, 1, 2, 3])  # Kafka fails all of a request with one that is none
        if name == "election_type":
            return choose([0, 1, 2])
        if name in ("broker_ids", "replicas", "node_id", "leader"):
            return choose([1, 1, 2])
        return choose([0, 1, -1, 2]) if kind != "bool" else bool(choose([0, 1]))

    def text(self, name, owner):
        choose = self.chance.choice
        if name in ("topic", "topic_name", "name") and "config" not in owner:
            return self.topic()
        if name in ("group_id", "groups", "group", "groups_names", "key", "coordinator_keys", "group_ids"):
            return choose([GROUP, *GROUPS])
        if name == "transactional_id":
            return None
        if name == "resource_name":
            return choose([*TOPICS, "absent", "1", ""])
        if "member" in name or name == "leader":
            return choose(["", "nobody", "nobody-2"])
        if name == "group_instance_id":
            return choose([None, "static"])
        if name in ("protocol_type",):
            return choose(["consumer", "consumer", "", "other"])
        if "config" in owner and name == "name" or name == "config_names" or name == "configuration_keys":
            return choose(ASKED_SETTINGS)
        if name == "value":
            return choose(["1000", "compact", "delete", "x", "-1", "1048576"])
        return choose(TEXTS)


class Maker:
    """Requests by chance."""

    def __init__(self, chance):
        self.chance = chance
        self.values = Values(chance)
        self.once = False  # nothing is named twice

    def request(self, api, version):
        self.once = api.key in ONCE
        values = self.struct(api.request, version)
        if api.key == METADATA and version >= 12 and values["topics"]:
            ids = self.chance.random() < 0.5  # all by their ids, or none: Kafka looks at no names beside ids
            for row in values["topics"]:
                if not ids:
                    row["topic_id"], row["name"] = ("id", ""), row["name"] or "absent"
        return values

    def struct(self, of, version):
        return {field.name: self.field(field, of, version) for field in of.fields
                if field.versions.holds(version) and (field.tag is None or field.name == "replica_state")}

    def field(self, field, owner, version):
        nullable = field.null_from is not None and version >= field.null_from
        if nullable and self.chance.random() < 0.1 and field.type != "records":
            return None
        if field.kind == "plain":
            return self.plain(field.name, field.type, owner.name, nullable)
        if field.kind == "struct":
            return self.struct(field.struct, version)
        count = self.chance.choices([0, 1, 2], [1, 8, 2])[0]
        if field.name == "transactions":
            count = min(count, 1)  # brokers say it, of one id each
        if field.kind == "structs":
            rows = [self.struct(field.struct, version) for _ in range(count)]
            return once(rows) if self.once else rows
        return [self.plain(field.name, field.type, owner.name, False) for _ in range(count)]

    def plain(self, name, kind, owner, nullable):
        if kind == "uuid":
            return ("id", self.values.topic() or "absent")  # Kafka fails at an id of zeros
        if kind == "records":
            return self.values.records()
        if kind == "blob":
            return bytes(self.chance.randrange(4))
        if kind == "f64":
            return 1000.0
        if kind == "str":
            value = self.values.text(name, owner)
            return value if value is not None or nullable else ""
        return self.values.number(name, kind)


class Side:
    """One of the two brokers."""

    def __init__(self, name, address):
        self.name = name
        self.address = address
        self.client = None
        self.ids = {}

    def connect(self):
        if self.client:
            self.client.close()
        self.client = Client(self.address, timeout=6)

    def ask(self, api, version, values):
        """ret: the answer's tree; None: the connection was closed."""
        frame = message.request(api, version, self.own(values))
        try:
            self.client.send(struct.pack(">i", len(frame)) + frame)
            _, data = self.client.answer()
        except (ConnectionError, TimeoutError) as end:
            self.connect()
            return {"closed": type(end).__name__ == "TimeoutError"}
        return message.answer(api, version, data)

    def own(self, tree):
        """With this side's topic ids."""
        if isinstance(tree, dict):
            return {name: self.own(value) for name, value in tree.items()}
        if isinstance(tree, list):
            return [self.own(value) for value in tree]
        if isinstance(tree, tuple):
            return self.ids.get(tree[1], NOTHING if tree[1] == "" else UNKNOWN)
        return tree

    def learn(self, api):
        """Ids of all topics. ret: what is there: names and partitions."""
        got = self.ask(api, 12, {"topics": None, "allow_auto_topic_creation": False,
                                 "include_topic_authorized_operations": False})
        self.ids = {topic["name"]: topic["topic_id"] for topic in got["topics"]}
        return sorted((topic["name"], len(topic["partitions"]),
                       all(part["leader_id"] == 1 for part in topic["partitions"])) for topic in got["topics"])

    def serves(self, api, topics):
        """Every partition has a leader that knows it is one."""
        asked = [{"name": name, "partitions": [{"partition_index": part, "timestamp": -1} for part in range(count)]}
                 for name, count, _ in topics]
        got = self.ask(api, 1, {"replica_id": -1, "topics": asked})
        return all(part["error_code"] == 0 for topic in got["topics"] for part in topic["partitions"])

    def plain(self, tree, name=""):
        """Without what differs between any two brokers."""
        if isinstance(tree, dict):
            return {key: self.plain(value, key) for key, value in tree.items() if key not in IDS}
        if isinstance(tree, list):
            rows = [self.plain(value, name) for value in tree]
            rows = merged(rows) if name == "responses" else rows
            if name == "entity":  # Kafka tells a type that is named twice once
                rows = list({row["entity_type"]: row for row in rows}.values())
            return sorted(rows, key=sort_key) if rows and isinstance(rows[0], dict) else rows
        if isinstance(tree, uuid.UUID):
            known = {number: topic for topic, number in self.ids.items()}
            return known.get(tree, "no id" if tree == NOTHING else "an id")
        if name in EPOCHS and tree > 0:
            return "an epoch"
        if name == "records" and tree:
            return batches(tree)
        if name in ("member_id", "leader") and tree and re.search(r"-[0-9a-f]{8}-", str(tree)):
            return "a member"
        return tree


def plain_ids(tree, known):
    """With one word for every id that no topic has: it is asked for by one id."""
    if isinstance(tree, dict):
        return {name: plain_ids(value, known) for name, value in tree.items()}
    if isinstance(tree, list):
        return [plain_ids(value, known) for value in tree]
    return ("id", "of none") if isinstance(tree, tuple) and tree[1] != "" and tree[1] not in known else tree


def merged(rows):
    """Of Fetch: a topic once. Kafka tells what cannot be read in an entry of its own."""
    topics = {}
    for row in rows:
        name = str(row.get("topic_id", row.get("topic")))
        if name in topics and "partitions" in row:
            topics[name]["partitions"] = sorted(topics[name]["partitions"] + row["partitions"], key=sort_key)
        else:
            topics[name if "partitions" in row else len(topics)] = row
    return list(topics.values())


def sort_key(row):
    return [str(row.get(name)) for name in SORTED_BY]


def batches(data):
    """Base offset, and everything behind the leader epoch and the sum."""
    found = []
    while len(data) >= 61:
        base, length = struct.unpack_from(">qi", data)
        found.append((base, data[21:12 + length].hex()))
        data = data[12 + length:]
    return found


def compare(ours, theirs, path=""):
    """Yields (path, ours, theirs) of all that differs."""
    if isinstance(ours, dict) and isinstance(theirs, dict) and ("closed" in ours) != ("closed" in theirs):
        yield "closed", ours, theirs
    elif isinstance(ours, dict) and isinstance(theirs, dict):
        for name in dict.fromkeys([*ours, *theirs]):
            yield from compare(ours.get(name, "absent"), theirs.get(name, "absent"), f"{path}.{name}".lstrip("."))
    elif path.endswith("configs") and isinstance(ours, list) and isinstance(theirs, list):
        mine, other = ({row["name"]: row for row in rows} for rows in (ours, theirs))
        if set(mine) != set(other):
            yield f"{path}.names", sorted(set(mine) - set(other)), sorted(set(other) - set(mine))
        for name in sorted(set(mine) & set(other)):
            yield from compare(mine[name], other[name], f"{path}<{name}>")
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for mine, other in zip(ours, theirs):
            yield from compare(mine, other, path)
    elif ours != theirs:
        yield path, ours, theirs


def wanted(api, path, request, mine, theirs):
    for number, (name, pattern, _, judge) in enumerate(WANTED):
        if re.fullmatch(name, api.name) and re.fullmatch(pattern, path) and \
                (judge is None or judge(request, mine, theirs)):
            return number
    return None


def served(sides, ours):
    """API keys and the versions that both serve, within our schemas. Says what only one of them serves; what we serve
    has all of Kafka's versions and no other."""
    told = []
    for side in sides:
        got = side.ask(ours[18], 3, {"client_software_name": "test", "client_software_version": "1"})
        told.append({row["api_key"]: range(row["min_version"], row["max_version"] + 1) for row in got["api_keys"]})
    for side, here, there in ((sides[0], *told), (sides[1], *reversed(told))):
        alone = {key: sorted(set(here[key]) - set(there.get(key, ()))) for key in sorted(here)}
        print(f"only {side.name}:", ", ".join(f"{key} v{rows[0]}-{rows[-1]}" for key, rows in alone.items() if rows))
    other = [key for key in told[0] if told[0][key] != told[1].get(key)]
    assert not other, f"these APIs have other versions: {other}"
    both = {key: [version for version in told[0][key] if version in told[1][key] and
                  key in ours and ours[key].versions.holds(version)] for key in told[0] if key in told[1]}
    return {key: versions for key, versions in sorted(both.items()) if versions and key not in EXCLUDED}


def settle(sides, ours):
    """Until both show the same topics and serve their partitions: what an answer promised may take a moment."""
    limit = time.monotonic() + SETTLE_S
    while True:
        seen = [side.learn(ours[3]) for side in sides]
        if seen[0] == seen[1] and all(whole for _, _, whole in seen[0]) and \
                all(side.serves(ours[2], seen[0]) for side in sides):
            return
        assert time.monotonic() < limit, f"the topics stay different: {seen}"
        time.sleep(0.05)


def await_none(side, api, version, values):
    """Until the broker has made what it needs for an answer without an error."""
    limit = time.monotonic() + 60
    while side.ask(api, version, values)["error_code"] != 0:
        assert time.monotonic() < limit, f"{side.name}: {api.name} fails"
        time.sleep(0.1)


def make_topics(sides, ours):
    """Those of TOPICS that are not there, on both."""
    for name, (count, settings) in TOPICS.items():
        if all(name in side.ids for side in sides):
            continue
        values = {"topics": [{"name": name, "num_partitions": count, "replication_factor": 1, "assignments": [],
                              "configs": [{"name": key, "value": value} for key, value in settings.items()]}],
                  "timeout_ms": 10000, "validate_only": False}
        for side in sides:
            side.ask(ours[19], 7, values)
    settle(sides, ours)


def await_coordinators(side, ours):
    """Until every partition of the internal topics that a name of ours may belong to is loaded."""
    limit = time.monotonic() + 60
    groups = {"groups": [{"group_id": name, "topics": []} for name in GROUPS], "require_stable": False}
    while any(row["error_code"] in LOADING for row in side.ask(ours[15], 5, {
            "groups": list(GROUPS), "include_authorized_operations": False})["groups"]) or \
            any(row["error_code"] in LOADING for row in side.ask(ours[65], 0, {
                "transactional_ids": list(TEXTS)})["transaction_states"]) or \
            any(row["error_code"] in LOADING for row in side.ask(ours[9], 8, groups)["groups"]):
        assert time.monotonic() < limit, f"{side.name}: coordinators do not load"
        time.sleep(0.1)


def prepare(sides, ours):
    make_topics(sides, ours)
    for side in sides:
        with Client(side.address) as client:
            for number in range(4):
                rows = record(0, b"value-%d" % number, b"key")
                assert client.produce("plain", 0, batch([b"v"], records=rows))[0] == 0
        side.ask(ours[10], 3, {"key": GROUP, "key_type": 0})
        await_none(side, ours[10], 3, {"key": GROUP, "key_type": 1})
        await_none(side, ours[22], 2, {"transactional_id": None, "transaction_timeout_ms": 1000})
        await_coordinators(side, ours)
    limit = time.monotonic() + 60
    for side in sides:  # Kafka makes its topic of offsets meanwhile
        commit = {"group_id": GROUP, "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None,
                  "topics": [{"name": "plain", "partitions": [
                      {"partition_index": 0, "committed_offset": 2, "committed_leader_epoch": -1,
                       "committed_metadata": "note"}]}]}
        while side.ask(ours[8], 7, commit)["topics"][0]["partitions"][0]["error_code"] != 0:
            assert time.monotonic() < limit, f"{side.name}: no group"
            time.sleep(0.2)


class Members:
    """Who joined a group by one of our requests leaves it again some requests later, or when the next one comes to it:
    whose time is over, and who waits for whom, is never a matter of the two brokers' pace."""

    def __init__(self, sides, ours):
        self.sides = sides
        self.ours = ours
        self.present = {}  # group -> number of the request after which they leave, and how: key, ids by side

    def note(self, number, key, values, told):
        if key == JOIN_GROUP and all(answer.get("error_code") == ID_REQUIRED for answer in told):
            self.leave(values["group_id"], key, [answer["member_id"] for answer in told])  # others would wait for it
        if key in JOINS and all(answer.get("error_code") == 0 and answer.get("member_id") for answer in told):
            self.present[values["group_id"]] = (number + STAY, key, [answer["member_id"] for answer in told])

    def make_room(self, number, key, values):
        for group, (until, _, _) in list(self.present.items()):
            if number >= until or (key in JOINS and values["group_id"] == group):
                self.leave(group, *self.present.pop(group)[1:])

    def leave(self, group, key, ids):
        for side, member in zip(self.sides, ids):
            if key == JOIN_GROUP:
                side.ask(self.ours[13], 2, {"group_id": group, "member_id": member})
            else:
                side.ask(self.ours[68], 0, {
                    "group_id": group, "member_id": member, "member_epoch": -1, "instance_id": None, "rack_id": None,
                    "rebalance_timeout_ms": -1, "subscribed_topic_names": None, "server_assignor": None,
                    "topic_partitions": None})


def run(sides, chance):
    """ret: differences that nobody wanted: (api, version, path) to examples; rows of WANTED that were used."""
    ours = message.apis()
    for side in sides:
        side.connect()
    prepare(sides, ours)
    versions = served(sides, ours)
    maker = Maker(chance)
    faults = collections.defaultdict(list)
    used = collections.Counter()
    asked = collections.Counter()
    changing = {19, 20, 33, 37, 44}
    members = Members(sides, ours)
    for number in range(ROUNDS):
        key = chance.choice(list(versions))
        version = chance.choice(versions[key])
        api = ours[key]
        values = plain_ids(maker.request(api, version), sides[0].ids)
        members.make_room(number, key, values)
        told = [side.ask(api, version, values) for side in sides]
        members.note(number, key, values, told)
        answers = [side.plain(answer) for side, answer in zip(sides, told)]
        asked[key] += 1
        for path, mine, theirs in compare(*answers):
            row = wanted(api, path, values, mine, theirs)
            if row is None:
                faults[api.name, path].append((number, version, values, mine, theirs))
            else:
                used[row] += 1
        if key in changing:
            settle(sides, ours)
            make_topics(sides, ours)
    print(f"{sum(asked.values())} requests of {len(versions)} APIs; least often {min(asked.values())} times")
    return faults, used


def main():
    if not os.path.isdir(JARS):
        skip("Kafka is not in build/clients: tests/clients/setup")
    seed = int(os.environ.get("MILLRACE_SEED", "0")) or pick(random.randrange(1 << 32), SEED)
    print(f"seed {seed}", flush=True)
    # Nothing goes by its age, or is compacted, while one of the two has answered and the other has not yet.
    same = {"group.initial.rebalance.delay.ms": "0", "auto.create.topics.enable": "false",
            "log.retention.check.interval.ms": "86400000", "log.cleaner.backoff.ms": "86400000",
            "offsets.retention.check.interval.ms": "86400000",
            "log.segment.delete.delay.ms": "100", "log.message.timestamp.after.max.ms": FOREVER,
            "offsets.topic.replication.factor": "1", "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1"}
    with Broker(nic=False, settings=same) as broker, Kafka("/tmp", settings=same | {
            "log.initial.task.delay.ms": "86400000"}) as kafka:
        broker.start()
        kafka.start()
        faults, used = run([Side("Millrace", broker.address("LOCAL")), Side("Kafka", kafka.address())],
                           random.Random(seed))
    for (name, path), examples in sorted(faults.items()):
        print(f"{name} {path}, {len(examples)} times:")
        for number, version, values, mine, theirs in examples[:TOLD]:
            print(f"    {number}: v{version} {mine} in place of {theirs}\n        by {values}")
    if faults:
        sys.exit(f"{len(faults)} kinds of differences that nobody wanted")
    print(f"{ROUNDS} requests, {sum(used.values())} wanted differences of {len(used)} kinds, no other")


if __name__ == "__main__":
    main()
