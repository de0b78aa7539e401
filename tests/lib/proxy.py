# SPDX-License-Identifier: Apache-2.0
"""A TCP proxy in front of a broker that counts frames and their bytes by API: for tests of what goes over the
wire of a client that one cannot look into."""
import collections
import socket
import struct
import threading


class Counting:
    """Listens on a port of 127.0.0.1 of its own; use it in a with statement. requests and answers have, by API
    key, [frames, bytes with their size fields]."""

    def __init__(self, host, port):
        self.target = (host, port)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.lock = threading.Lock()
        self.sockets = []
        self.reset()

    def reset(self):
        with self.lock:
            self.requests = collections.defaultdict(lambda: [0, 0])
            self.answers = collections.defaultdict(lambda: [0, 0])

    def __enter__(self):
        threading.Thread(target=self.accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.listener.close()
        with self.lock:
            for one in self.sockets:
                try:
                    one.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
                server = socket.create_connection(self.target)
            except OSError:
                return
            with self.lock:
                self.sockets += [client, server]
            asked = {}
            for source, sink, count in ((client, server, self.count_request), (server, client, self.count_answer)):
                source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self.copy, args=(source, sink, count, asked), daemon=True).start()

    @staticmethod
    def copy(source, sink, count, asked):
        """Bytes go on as they come; frames are counted when they are whole."""
        held = b""
        try:
            while piece := source.recv(1 << 18):
                held += piece
                while len(held) >= 4 and len(held) >= (size := 4 + struct.unpack_from(">i", held)[0]):
                    count(held[:size], asked)
                    held = held[size:]
                sink.sendall(piece)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def count_request(self, frame, asked):
        key, _, correlation = struct.unpack_from(">hhi", frame, 4)
        asked[correlation] = key
        self.add(self.requests, key, frame)

    def count_answer(self, frame, asked):
        key = asked.pop(struct.unpack_from(">i", frame, 4)[0], None)
        self.add(self.answers, key, frame)

    def add(self, counts, key, frame):
        with self.lock:
            counts[key][0] += 1
            counts[key][1] += len(frame)
