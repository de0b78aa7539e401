#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records request frames of real client libraries into tests/data/frames.

    record_frames.py [CLIENT...]        clients: kcat confluent kafka-python franz-go

Listens on loopback, answers with canned bodies just enough for a client to go on, and keeps the
first frame of each API and version as CLIENT-api_name-vVERSION.bin (without the size). Run by hand
when a client is added; the frames are committed and tests/unit/protocol/test_frames.c reads them.
Nothing here uses our own codec: the answers are packed by hand."""

import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'frames')
SCHEMAS = os.path.join(os.path.dirname(FOLDER), '..', '..', 'protocol', 'schema')
TOPIC = 'frames'
MAX_FRAME_BYTES = 1 << 20


def read_table():
    """key -> (name, lowest advertised, highest, first flexible)"""
    table = {}
    for name in sorted(os.listdir(SCHEMAS)):
        if not name.endswith('.schema'):
            continue
        with open(os.path.join(SCHEMAS, name), encoding='utf-8') as file:
            text = file.read()
        key = int(re.search(r'^api (\d+)', text, re.M)[1])
        low, high = (int(v) for v in re.search(r'^versions (\d+)-(\d+)', text, re.M).groups())
        advertised = re.search(r'^advertised (\d+)', text, re.M)
        flexible = int(re.search(r'^flexible (\d+)', text, re.M)[1])
        table[key] = (name[:-7], int(advertised[1]) if advertised else low, high, flexible)
    return table


TABLE = read_table()


def i8(v):
    return struct.pack('>b', v)


def i16(v):
    return struct.pack('>h', v)


def i32(v):
    return struct.pack('>i', v)


def i64(v):
    return struct.pack('>q', v)


class Form:
    """Lengths as the version wants them."""

    def __init__(self, flexible):
        self.flexible = flexible
        self.tags = b'\0' if flexible else b''

    def text(self, value):
        if self.flexible:
            return b'\0' if value is None else bytes([len(value) + 1]) + value.encode()
        return i16(-1) if value is None else i16(len(value)) + value.encode()

    def array(self, items):
        count = bytes([len(items) + 1]) if self.flexible else i32(len(items))
        return count + b''.join(items)


def api_versions(version, form, _port):
    keys = [i16(k) + i16(low) + i16(high) + form.tags
            for k, (_, low, high, _) in sorted(TABLE.items())]
    return i16(0) + form.array(keys) + (i32(0) if version >= 1 else b'') + form.tags


def metadata(version, form, port):
    def since(first, data):
        return data if version >= first else b''
    broker = (i32(1) + form.text('127.0.0.1') + i32(port) + since(1, form.text(None)) + form.tags)
    partition = (i16(0) + i32(0) + i32(1) + since(7, i32(0)) + form.array([i32(1)]) +
                 form.array([i32(1)]) + since(5, form.array([])) + form.tags)
    topic = (i16(0) + form.text(TOPIC) + since(10, bytes(15) + b'\7') + since(1, i8(0)) +
             form.array([partition]) + since(8, i32(-2147483648)) + form.tags)
    body = since(3, i32(0)) + form.array([broker]) + since(2, form.text('cluster')) + since(1, i32(1))
    body += form.array([topic])
    if 8 <= version <= 10:
        body += i32(-2147483648)
    return body + form.tags


def produce(version, form, _port):
    partition = i32(0) + i16(0) + i64(0) + i64(-1) + (i64(0) if version >= 5 else b'')
    if version >= 8:
        partition += form.array([]) + form.text(None)
    topic = form.text(TOPIC) + form.array([partition + form.tags]) + form.tags
    return form.array([topic]) + i32(0) + form.tags


def fetch(version, form, _port):
    partition = i32(0) + i16(0) + i64(0) + i64(0) + (i64(0) if version >= 5 else b'')
    partition += form.array([]) + (i32(-1) if version >= 11 else b'')
    partition += b'\1' if form.flexible else i32(0)
    topic = form.text(TOPIC) + form.array([partition + form.tags]) + form.tags
    return i32(0) + (i16(0) + i32(0) if version >= 7 else b'') + form.array([topic]) + form.tags


def list_offsets(version, form, _port):
    partition = i32(0) + i16(0) + i64(-1) + i64(0) + (i32(0) if version >= 4 else b'')
    topic = form.text(TOPIC) + form.array([partition + form.tags]) + form.tags
    return (i32(0) if version >= 2 else b'') + form.array([topic]) + form.tags


def init_producer_id(_version, form, _port):
    return i32(0) + i16(0) + i64(4000) + i16(0) + form.tags


def find_coordinator(version, form, port):
    head = i32(0) if version >= 1 else b''
    text = form.text(None) if version >= 1 else b''
    return head + i16(0) + text + i32(1) + form.text('127.0.0.1') + i32(port) + form.tags


def create_topics(version, form, _port):
    topic = form.text(TOPIC) + (bytes(16) if version >= 7 else b'') + i16(0) + form.text(None)
    if version >= 5:
        topic += i32(1) + i16(1) + form.array([])
    return i32(0) + form.array([topic + form.tags]) + form.tags


def delete_topics(version, form, _port):
    topic = form.text(TOPIC) + (bytes(16) if version >= 6 else b'') + i16(0)
    topic += form.text(None) if version >= 5 else b''
    return i32(0) + form.array([topic + form.tags]) + form.tags


def describe_configs(_version, form, _port):
    result = i16(0) + form.text(None) + i8(2) + form.text(TOPIC) + form.array([])
    return i32(0) + form.array([result + form.tags]) + form.tags


def offset_for_leader_epoch(_version, form, _port):
    partition = i16(0) + i32(0) + i32(0) + i64(0) + form.tags
    topic = form.text(TOPIC) + form.array([partition]) + form.tags
    return i32(0) + form.array([topic]) + form.tags


ANSWERS = {0: produce, 1: fetch, 2: list_offsets, 3: metadata, 10: find_coordinator,
           18: api_versions, 19: create_topics, 20: delete_topics, 22: init_producer_id, 23: offset_for_leader_epoch,
           32: describe_configs}


def read_exact(peer, size):
    data = b''
    while len(data) < size:
        part = peer.recv(size - len(data))
        if not part:
            return None
        data += part
    return data


def serve(peer, client, port):
    """One connection until the client goes or asks for what has no canned answer."""
    with peer:
        while True:
            head = read_exact(peer, 4)
            size = struct.unpack('>i', head)[0] if head else 0
            frame = read_exact(peer, size) if 8 <= size <= MAX_FRAME_BYTES else None
            if frame is None:
                return
            key, version, correlation = struct.unpack('>hhi', frame[:8])
            if key not in ANSWERS:
                return
            name, low, high, flexible = TABLE[key]
            if not low <= version <= high:
                peer.sendall(i32(4 + 2 + 4) + i32(correlation) + i16(35) + i32(0))
                continue
            path = os.path.join(FOLDER, f'{client}-{name}-v{version}.bin')
            if not os.path.exists(path):
                with open(path, 'wb') as file:
                    file.write(frame)
                print(f'{os.path.basename(path)}: {len(frame)} bytes')
            form = Form(version >= flexible)
            if key == 0 and frame_wants_no_answer(frame, version, form):
                continue
            header = i32(correlation) + (form.tags if key != 18 else b'')
            body = header + ANSWERS[key](version, form, port)
            peer.sendall(i32(len(body)) + body)


def frame_wants_no_answer(frame, version, form):
    """acks=0 in a Produce request."""
    at = 10 + max(0, struct.unpack('>h', frame[8:10])[0]) + len(form.tags)
    if form.flexible:
        at += max(frame[at], 1)
    elif version >= 3:
        at += 2 + max(0, struct.unpack('>h', frame[at:at + 2])[0])
    return struct.unpack('>h', frame[at:at + 2])[0] == 0


def run(command, text=None):
    try:
        subprocess.run(command, input=text, timeout=12, check=False, text=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        pass


def kcat(address):
    run(['kcat', '-b', address, '-L'])
    run(['kcat', '-b', address, '-P', '-t', TOPIC, '-p', '0', '-k', 'key'], 'value\n')
    run(['kcat', '-b', address, '-P', '-t', TOPIC, '-p', '0', '-z', 'zstd'], 'value\n' * 50)
    run(['kcat', '-b', address, '-C', '-t', TOPIC, '-p', '0', '-o', 'beginning', '-e'])


def confluent(address):
    script = '''
import sys
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic
address = {'bootstrap.servers': sys.argv[1]}
producer = Producer(address | {'enable.idempotence': True, 'client.id': 'confluent'})
producer.produce('frames', b'value', b'key', partition=0, headers={'h': b'x'})
producer.flush(5)
admin = AdminClient(address)
for done in (admin.create_topics([NewTopic('frames', 1, 1, config={'retention.ms': '1000'})]),
             admin.describe_configs([ConfigResource('topic', 'frames')]),
             admin.delete_topics(['frames'])):
    for future in done.values():
        try:
            future.result(5)
        except Exception as error:
            print(error)
consumer = Consumer(address | {'group.id': 'g', 'isolation.level': 'read_committed'})
consumer.assign([TopicPartition('frames', 0, 0)])
consumer.get_watermark_offsets(TopicPartition('frames', 0), timeout=5)
consumer.offsets_for_times([TopicPartition('frames', 0, 1000)], timeout=5)
consumer.poll(1)
'''
    run([sys.executable, '-c', script, address])


def kafka_python(address):
    script = '''
import sys
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewTopic
producer = KafkaProducer(bootstrap_servers=sys.argv[1], client_id='kafka-python')
producer.send('frames', b'value', b'key', partition=0).get(5)
consumer = KafkaConsumer(bootstrap_servers=sys.argv[1])
consumer.assign([TopicPartition('frames', 0)])
consumer.seek_to_beginning()
consumer.poll(1000)
admin = KafkaAdminClient(bootstrap_servers=sys.argv[1])
for call in (lambda: admin.create_topics([NewTopic('frames', 1, 1)]),
             lambda: admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, 'frames')]),
             lambda: admin.delete_topics(['frames'])):
    try:
        call()
    except Exception as error:
        print(error)
'''
    run([sys.executable, '-c', script, address])


def franz_go(address):
    source = os.path.join(os.path.dirname(FOLDER), 'record_franz')
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, 'franz')
        subprocess.run(['go', 'build', '-o', program, '.'], cwd=source, check=True)
        run([program, address])


CLIENTS = {'kcat': kcat, 'confluent': confluent, 'kafka-python': kafka_python,
           'franz-go': franz_go}


def main(names):
    os.makedirs(FOLDER, exist_ok=True)
    for name in names or CLIENTS:
        if name not in CLIENTS:
            sys.exit(f'unknown client {name}; known: {" ".join(CLIENTS)}')
        program = {'kcat': 'kcat', 'franz-go': 'go'}.get(name)
        if program and not shutil.which(program):
            print(f'{name} left out: {program} is not installed')
            continue
        listener = socket.create_server(('127.0.0.1', 0))
        port = listener.getsockname()[1]

        def accept(listener=listener, name=name, port=port):
            while True:
                try:
                    peer, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=serve, args=(peer, name, port), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        CLIENTS[name](f'127.0.0.1:{port}')
        listener.close()


if __name__ == '__main__':
    main(sys.argv[1:])
