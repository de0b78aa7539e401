#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""group_storm_load.py ADDRESS TOPIC MEMBERS GROUPS: load of coordinators until SIGTERM.

MEMBERS connections are members of one classic group of which every third second half leave and join again as new
ones; GROUPS other groups commit an offset each second. Frames are made by hand, and the process is nice: it takes
little time from whom it is measured beside. Prints a line when all members have their
assignments for the first time, and at the end what it saw as JSON."""
import collections
import heapq
import json
import os
import random
import selectors
import signal
import socket
import struct
import sys
import time

from lib.wire import Client, text

OFFSET_COMMIT, FIND_COORDINATOR, JOIN, HEARTBEAT, LEAVE, SYNC = 8, 10, 11, 12, 13, 14
VERSIONS = {OFFSET_COMMIT: 2, JOIN: 4, HEARTBEAT: 2, LEAVE: 2, SYNC: 2}
UNKNOWN_MEMBER, REBALANCING, ID_REQUIRED = 25, 27, 79
STORM_S = 3
BEAT_S = 1
AGAIN_S = 0.1
NICE = 5
COMMIT_CONNECTIONS = 50
COMMITS_OPEN_MAX = 200  # of one connection, not answered yet
GROUP = "stormy"
METADATA = struct.pack(">hi", 0, 1) + text("storm") + struct.pack(">i", -1)  # a subscription as Java writes it
ASSIGNMENT = struct.pack(">hii", 0, 0, -1)


def blob(data):
    return struct.pack(">i", len(data)) + data


class Reader:
    def __init__(self, data):
        self.data = data
        self.at = 0

    def take(self, form):
        values = struct.unpack_from(">" + form, self.data, self.at)
        self.at += struct.calcsize(">" + form)
        return values[0] if len(values) == 1 else values

    def bytes(self, size):
        self.at += max(size, 0)
        return self.data[self.at - max(size, 0):self.at]

    def text(self):
        return self.bytes(self.take("h")).decode()


class Connection:
    """Frames over one socket; subclasses take the answers, which come in order."""

    def __init__(self, loop, address):
        host, port = address.rsplit(":", 1)
        self.loop = loop
        self.socket = socket.create_connection((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.unread = bytearray()
        self.unsent = bytearray()
        self.asked = collections.deque()
        loop.selector.register(self.socket, selectors.EVENT_READ, self)

    def ask(self, key, body):
        head = struct.pack(">hhi", key, VERSIONS[key], 0) + text("storm")
        self.asked.append(key)
        self.unsent += struct.pack(">i", len(head) + len(body)) + head + body
        self.flush()

    def flush(self):
        try:
            sent = self.socket.send(self.unsent)
        except BlockingIOError:
            sent = 0
        del self.unsent[:sent]
        self.loop.selector.modify(self.socket, selectors.EVENT_READ |
                                  (selectors.EVENT_WRITE if self.unsent else 0), self)

    def ready(self, events):
        if events & selectors.EVENT_WRITE:
            self.flush()
        if not events & selectors.EVENT_READ:
            return
        piece = self.socket.recv(1 << 18)
        assert piece, "the broker closed a connection"
        self.unread += piece
        while len(self.unread) >= 4:
            size = struct.unpack_from(">i", self.unread)[0]
            if len(self.unread) < 4 + size:
                return
            answer = bytes(self.unread[8:4 + size])
            del self.unread[:4 + size]
            self.answered(self.asked.popleft(), Reader(answer))


class Member(Connection):
    def __init__(self, loop, address):
        super().__init__(loop, address)
        self.id = ""
        self.generation = -1
        self.stable = False
        self.leaving = False
        self.join()

    def join(self):
        self.stable = False
        self.ask(JOIN, text(GROUP) + struct.pack(">ii", 60000, 60000) + text(self.id) + text("consumer") +
                 struct.pack(">i", 1) + text("range") + blob(METADATA))

    def beat(self):
        """A heartbeat, or leaving; one request at a time: a second join behind a parked one would wait for it."""
        if not self.stable or self.asked:
            return
        if self.leaving:
            self.stable = False
            self.ask(LEAVE, text(GROUP) + text(self.id))
        else:
            self.ask(HEARTBEAT, text(GROUP) + struct.pack(">i", self.generation) + text(self.id))

    def again(self):
        self.loop.later(AGAIN_S, self.join)

    def answered(self, key, answer):
        answer.take("i")  # throttled
        error = answer.take("h")
        if key == JOIN:
            self.joined(error, answer)
        elif key == SYNC and error == 0:
            self.loop.seen["synced"] += 1
            self.stable = True
            self.beat()
        elif key == LEAVE:
            self.id = ""
            self.leaving = False
            self.loop.seen["left"] += error == 0
            self.join()
        elif error != 0:
            self.rejoin(error)

    def rejoin(self, error):
        self.stable = False
        self.id = "" if error == UNKNOWN_MEMBER else self.id
        if error in (REBALANCING, UNKNOWN_MEMBER):
            self.join()
        else:
            self.again()

    def joined(self, error, answer):
        generation = answer.take("i")
        answer.text()
        leader, mine = answer.text(), answer.text()
        if error == ID_REQUIRED:
            self.id = mine
            self.join()
        elif error != 0:
            self.rejoin(error)
        else:
            self.id = mine
            self.generation = generation
            self.loop.seen["joined"] += 1
            ids = []
            if leader == mine:
                for _ in range(answer.take("i")):
                    ids.append(answer.text())
                    answer.bytes(answer.take("i"))
                self.loop.seen["members_most"] = max(self.loop.seen["members_most"], len(ids))
            self.ask(SYNC, text(GROUP) + struct.pack(">i", generation) + text(mine) + struct.pack(">i", len(ids)) +
                     b"".join(text(one) + blob(ASSIGNMENT) for one in ids))


class Committer(Connection):
    """Commits for some groups, one after the other."""

    def __init__(self, loop, address, topic, groups):
        super().__init__(loop, address)
        self.topic = topic
        self.groups = groups
        self.number = 0
        self.every = 1 / len(groups)

    def begin(self):
        self.loop.later(random.random() * self.every, self.tick)

    def tick(self):
        self.loop.later(self.every, self.tick)
        if len(self.asked) >= COMMITS_OPEN_MAX:
            self.loop.seen["commits_unasked"] += 1
            return
        group = self.groups[self.number % len(self.groups)]
        self.number += 1
        self.ask(OFFSET_COMMIT, text(group) + struct.pack(">i", -1) + text("") + struct.pack(">qi", -1, 1) +
                 text(self.topic) + struct.pack(">iiq", 1, 0, self.number) + text(""))

    def answered(self, key, answer):
        answer.take("i")
        answer.text()
        _, _, error = answer.take("iih")
        self.loop.seen["commits" if error == 0 else "commits_failed"] += 1


class Loop:
    def __init__(self):
        self.selector = selectors.DefaultSelector()
        self.timers = []
        self.order = 0
        self.seen = collections.Counter()

    def later(self, seconds, call):
        self.order += 1
        heapq.heappush(self.timers, (time.monotonic() + seconds, self.order, call))

    def run(self, done):
        while not done():
            now = time.monotonic()
            while self.timers and self.timers[0][0] <= now:
                heapq.heappop(self.timers)[2]()
            wait = max(0.0, min(0.2, self.timers[0][0] - now)) if self.timers else 0.2
            for key, events in self.selector.select(wait):
                key.data.ready(events)


def find_coordinator(address):
    """Its topic is made by the first question."""
    with Client(address) as client:
        while struct.unpack_from(">h", client.ask(FIND_COORDINATOR, 0, text(GROUP)))[0] != 0:
            time.sleep(AGAIN_S)


def main(address, topic, members_count, groups_count):
    stopping = []
    signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
    os.nice(NICE)
    find_coordinator(address)
    loop = Loop()
    names = [f"committing-{number}" for number in range(int(groups_count))]
    members = [Member(loop, address) for _ in range(int(members_count))]

    def beat_all(every=10):
        """A tenth of the members at a time."""
        first = loop.seen["beats"] % every
        loop.seen["beats"] += 1
        for member in members[first::every]:
            member.beat()
        loop.later(BEAT_S / every, beat_all)

    def storm():
        for member in random.sample(members, len(members) // 2):
            member.leaving = True
            member.beat()
        loop.later(STORM_S, storm)

    beat_all()
    loop.run(lambda: stopping or all(member.stable for member in members))
    if stopping:
        return
    print("all joined", flush=True)
    committers = [Committer(loop, address, topic, names[number::COMMIT_CONNECTIONS])
                  for number in range(min(COMMIT_CONNECTIONS, len(names)))]
    for one in committers:
        one.begin()
    storm()
    loop.run(lambda: stopping)
    print(json.dumps(loop.seen))


if __name__ == "__main__":
    main(*sys.argv[1:])
