#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Directories are replaced, emptied, lost or pointed elsewhere: extents are discarded loudly or the start is
refused with the reason, nothing wrong is served, and nothing that was there is begun anew. What is put back is
served again."""
import os
import shutil
import time

from lib import oracle
from lib.broker import Broker
from lib.wire import Client, batch
from stop import kill_hard


STORAGE_ERROR = 56


def produce(broker, topic, seconds):
    load = oracle.Load(broker, topic, ["LOCAL"])
    try:
        load.wait_running()
        time.sleep(seconds)
        return load.stop()
    finally:
        load.end()


def refused(broker, *words):
    """The start fails and says why."""
    try:
        broker.start(timeout=20)
    except AssertionError:
        text = broker.log_text()
        assert broker.process.poll() not in (None, 0), "neither started nor ended"
        for word in words:
            assert word in text, text[-2000:]
    else:
        raise AssertionError(f"started, in spite of: {words[0]}")


def older_copy():
    with Broker(nic=False) as broker:
        broker.start()
        broker.millrace("topic", "create", "old")
        early = produce(broker, "old", 0.5)
        code, _ = broker.stop()
        assert code == 0
        copy = broker.log_dir + ".copy"
        shutil.copytree(broker.log_dir, copy)
        broker.start()
        broker.kcat("LOCAL", "-P", "-t", "old", "-p", "0", input="later\n" * 1000)
        kill_hard(broker)
        shutil.rmtree(broker.log_dir)
        os.rename(copy, broker.log_dir)
        broker.start()
        assert "discard" in broker.log_text(), "an older copy was not told"
        # What the copy holds is served, as it was, and nothing of later.
        oracle.check(broker, "old", early)
        assert "later" not in broker.kcat("LOCAL", "-C", "-t", "old", "-p", "0", "-o", "beginning",
                                          "-e")


def another_one():
    with Broker(nic=False) as broker, Broker(nic=False) as other:
        for one in (broker, other):
            one.start()
            one.millrace("topic", "create", "mine")
            one.kcat("LOCAL", "-P", "-t", "mine", "-p", "0", input=f"{one.home}\n")
        kill_hard(broker)
        code, _ = other.stop()
        assert code == 0
        kept = os.path.join(broker.home, "kept")
        metadata = [name for name in os.listdir(broker.log_dir) if name.startswith("millrace.db")]
        os.rename(broker.log_dir, kept)
        shutil.copytree(other.log_dir, broker.log_dir)
        for name in os.listdir(broker.log_dir):
            if name.startswith("millrace.db"):
                os.unlink(os.path.join(broker.log_dir, name))
        for name in metadata:
            shutil.copy(os.path.join(kept, name), broker.log_dir)
        refused(broker, "belongs to cluster")
        # With its own directory back, everything is there.
        shutil.rmtree(broker.log_dir)
        os.rename(kept, broker.log_dir)
        broker.start()
        assert broker.home in broker.kcat("LOCAL", "-C", "-t", "mine", "-p", "0", "-o", "beginning",
                                          "-e")


def stopped_broker(settings):
    """A broker with metadata of its own folder and a topic of four partitions, cleanly stopped."""
    broker = Broker(nic=False, settings=settings)
    with open(broker.config, "a", encoding="utf-8") as out:
        out.write(f"metadata.dir={broker.home}/meta\n")
    broker.start()
    broker.millrace("topic", "create", "kept", "-p", "4")
    for partition in range(4):
        broker.kcat("LOCAL", "-P", "-t", "kept", "-p", str(partition), input=f"value {partition}\n")
    time.sleep(0.5)  # control notes once in a while what has served
    assert broker.stop()[0] == 0
    return broker


def whole(broker):
    for partition in range(4):
        text = broker.kcat("LOCAL", "-C", "-t", "kept", "-p", str(partition), "-o", "beginning", "-e")
        assert text == f"value {partition}\n", (partition, text)


def lost_metadata():
    with stopped_broker({}) as broker:
        meta = os.path.join(broker.home, "meta")
        database = os.path.join(meta, "millrace.db")
        os.rename(database, database + ".away")
        refused(broker, "is missing or empty", "kept-", "put the file back")
        assert not os.path.exists(database), "a new store was made"
        open(database, "w", encoding="ascii").close()
        refused(broker, "is missing or empty")
        with open(database, "w", encoding="ascii") as out:
            out.write("no database at all")
        refused(broker, "millrace.db", "not a database")
        os.rename(database + ".away", database)
        # Another partition's directory is nobody's: named, and left alone.
        stray = os.path.join(broker.log_dir, "nobodys-3")
        shutil.copytree(os.path.join(broker.log_dir, "kept-0"), stray)
        broker.start()
        whole(broker)
        assert "control.stray" in broker.log_text() and stray in broker.log_text()
        assert os.path.exists(os.path.join(stray, "partition.metadata"))


def lost_directory():
    folders = []
    with stopped_broker({}) as broker:
        folders = [os.path.join(broker.home, name) for name in ("data", "more")]
        with open(broker.config, "a", encoding="utf-8") as out:
            out.write(f"log.dirs={','.join(folders)}\n")
        broker.start()
        broker.millrace("topic", "create", "spread", "-p", "6")
        with Client(broker.address("LOCAL")) as client:
            for partition in range(6):
                assert client.produce("spread", partition, batch([b"here"]))[0] == 0
        time.sleep(0.5)
        assert broker.stop()[0] == 0
        lost = {int(name.rsplit("-", 1)[1]) for name in os.listdir(folders[1]) if name.startswith("spread-")}
        assert 0 < len(lost) < 6, f"the directory with fewer partitions got {lost}"
        os.rename(folders[1], folders[1] + ".away")
        broker.start()
        with Client(broker.address("LOCAL")) as client:
            for partition in range(6):
                error = client.produce("spread", partition, batch([b"there"]))[0]
                assert error == (STORAGE_ERROR if partition in lost else 0), (partition, error)
        assert "store.lost" in broker.log_text()
        assert broker.stop()[0] == 0
        shutil.rmtree(folders[1])
        os.rename(folders[1] + ".away", folders[1])
        broker.start()
        with Client(broker.address("LOCAL")) as client:
            for partition in range(6):
                assert client.end_offset("spread", partition)[2] == (1 if partition in lost else 2)
                assert b"here" in client.fetch("spread", partition, 0)[3]


def pointed_elsewhere():
    with stopped_broker({}) as broker:
        away = broker.log_dir + ".away"
        os.rename(broker.log_dir, away)
        os.symlink(away, broker.log_dir)
        refused(broker, "is a symbolic link")
        os.unlink(broker.log_dir)
        os.rename(away, broker.log_dir)
        meta = os.path.join(broker.home, "meta/millrace.db")
        os.rename(meta, meta + ".away")
        os.symlink(meta + ".away", meta)
        refused(broker, "is a symbolic link", "metadata.dir")
        os.unlink(meta)
        os.rename(meta + ".away", meta)
        properties = os.path.join(broker.log_dir, "meta.properties")
        with open(properties, encoding="utf-8") as file:
            text = file.read()
        with open(properties, "w", encoding="utf-8") as file:
            file.write(text.replace("version=1", "version=9"))
        refused(broker, "has format version 9")
        with open(properties, "w", encoding="utf-8") as file:
            file.write(text)
        # A segment that is somewhere else: its partition is not served, the others are.
        segment = os.path.join(broker.log_dir, "kept-2", "0" * 20 + ".log")
        os.rename(segment, segment + ".away")
        os.symlink(segment + ".away", segment)
        broker.start()
        with Client(broker.address("LOCAL")) as client:
            for partition in range(4):
                error = client.produce("kept", partition, batch([b"x"]))[0]
                assert error == (STORAGE_ERROR if partition == 2 else 0), (partition, error)


def shared_metadata():
    with stopped_broker({}) as broker, Broker(nic=False) as other:
        broker.start()
        with open(other.config, "a", encoding="utf-8") as out:
            out.write(f"metadata.dir={broker.home}/meta\n")
        refused(other, "metadata directory", f"is in use by process {broker.process.pid}")
        whole(broker)


def main():
    older_copy()
    another_one()
    lost_metadata()
    lost_directory()
    pointed_elsewhere()
    shared_metadata()
    print("an older copy discards extents loudly; another cluster's directory, a newer format, links, shared or lost "
          "metadata are refused; a lost directory is not begun anew")


if __name__ == "__main__":
    main()
