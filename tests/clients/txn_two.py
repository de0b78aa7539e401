# SPDX-License-Identifier: Apache-2.0
"""A producer of transactions of version 2 (KIP-890), in plain requests: what a client sends, and what one sends that
was given up for dead. For transactions.py."""
from lib import message, wire

PRODUCE, FIND_COORDINATOR, INIT, END, OFFSETS = 0, 10, 22, 26, 28
NONE, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE = 0, 47, 48
CONCURRENT_TRANSACTIONS, PRODUCER_FENCED, TRANSACTION_ABORTABLE = 51, 90, 120
AGAIN = (14, 15, 16, 19, CONCURRENT_TRANSACTIONS)
TRIES = 200
TRANSACTIONAL = 16


class Producer:
    """One transactional id on a connection of its own; epoch and producer id as the broker gave them."""

    apis = message.apis()

    def __init__(self, address, name):
        self.name = name
        self.wire = wire.Client(address)
        self.sequences = {}
        self.producer_id, self.epoch = -1, -1

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.wire.close()

    def ask(self, key, version, values):
        api = self.apis[key]
        self.wire.correlation += 1
        frame = message.request(api, version, values, self.wire.correlation)
        self.wire.send(len(frame).to_bytes(4, "big") + frame)
        correlation, data = self.wire.answer()
        assert correlation == self.wire.correlation
        return message.answer(api, version, data)

    def settled(self, action):
        """Asks until the answer says more than to ask again. ret: its error and itself."""
        for _ in range(TRIES):
            error, said = action()
            if error not in AGAIN:
                return error, said
        raise AssertionError(f"asked {TRIES} times, the last answer was {error}")

    def init(self):
        def action():
            said = self.ask(INIT, 5, {"transactional_id": self.name, "transaction_timeout_ms": 60000,
                                      "producer_id": -1, "producer_epoch": -1})
            return said["error_code"], said

        error, said = self.settled(action)
        assert error == NONE, said
        self.producer_id, self.epoch = said["producer_id"], said["producer_epoch"]
        self.sequences = {}

    def produce(self, topic, partition, value, epoch=None, sequence=None, version=12):
        """Of the present epoch and sequence, or of those that are given. ret: the error."""
        own = epoch is None
        sequence = self.sequences.get((topic, partition), 0) if sequence is None else sequence
        records = wire.batch((value.encode(),), attributes=TRANSACTIONAL, producer_id=self.producer_id,
                             producer_epoch=self.epoch if own else epoch, base_sequence=sequence)

        def action():
            said = self.ask(PRODUCE, version, {"transactional_id": self.name, "acks": -1, "timeout_ms": 10000,
                                               "topic_data": [{"name": topic, "partition_data": [
                                                   {"index": partition, "records": records}]}]})
            return said["responses"][0]["partition_responses"][0]["error_code"], said

        error, _ = self.settled(action)
        if own and error == NONE:
            self.sequences[topic, partition] = sequence + 1
        return error

    def end(self, commit, epoch=None, version=5):
        """ret: the error. What the answer gives out is taken."""
        def action():
            said = self.ask(END, version, {"transactional_id": self.name, "producer_id": self.producer_id,
                                           "producer_epoch": self.epoch if epoch is None else epoch,
                                           "committed": commit})
            return said["error_code"], said

        error, said = self.settled(action)
        if error == NONE and version >= 5:
            if (said["producer_id"], said["producer_epoch"]) != (self.producer_id, self.epoch):
                self.sequences = {}
            self.producer_id, self.epoch = said["producer_id"], said["producer_epoch"]
        return error

    def commit_offset(self, group, topic, offset, version=5):
        def action():
            said = self.ask(OFFSETS, version, {
                "transactional_id": self.name, "group_id": group, "producer_id": self.producer_id,
                "producer_epoch": self.epoch, "generation_id_or_member_epoch": -1, "member_id": "",
                "group_instance_id": None, "topics": [{"name": topic, "partitions": [
                    {"partition_index": 0, "committed_offset": offset, "committed_leader_epoch": -1,
                     "committed_metadata": ""}]}]})
            return said["topics"][0]["partitions"][0]["error_code"], said

        return self.settled(action)[0]
