#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""/metrics has every counter of millrace status with its value, and Kafka's names with what clients did; promtool
finds nothing wrong with it. It answers while a core is stuck, which /readyz then tells, beside clients that say
nothing, and after control was killed. A port in use refuses a first start; beside a broker that serves it is waited
for."""
import ctypes
import os
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

from lib.broker import TOP, Broker, free_port, pick
from lib.wire import Client, batch

RECORDS = 500
CONNECTIONS_MAX = 32  # MILL_HTTP_CONNECTIONS_MAX
LIMIT_S = 10          # MILL_HTTP_LIMIT_MS
PROMTOOL = os.path.join(TOP, "build/tools/promtool")
SAMPLE = re.compile(r'([a-z_:]+)(?:\{(.*)\})? (\S+)')
LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')
PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 17, 0x4206, 0x4207


def get(port, path, timeout=10):
    """Status and body."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=timeout) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def scrape(port):
    """{(name, labels): value} of all samples; every line is one or a comment."""
    samples = {}
    status, text = get(port, "/metrics")
    assert status == 200, text
    for line in text.splitlines():
        if not line.startswith("#"):
            name, labels, value = SAMPLE.fullmatch(line).groups()
            key = name, frozenset(LABEL.findall(labels or ""))
            assert key not in samples, f"twice: {line}"
            samples[key] = float(value)
    return samples


def value(samples, name, **labels):
    return samples[name, frozenset(labels.items())]


def wait_for(what, check, seconds=15):
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.1)


# --- what it says ---------------------------------------------------------------------------------

def names_of(prefix, key):
    """The names that a counter of status may have: one that grows, or a level."""
    is_time = key.endswith("_ns")
    stem = f"{prefix}_{key[:-3] + '_seconds' if is_time else key.removesuffix('_total')}"
    return (stem + "_total", stem), 1e9 if is_time else 1


def compare(prefix, before, after, samples, labels):
    """Each whole number of an object of status lies in the sample, or between two readings of it."""
    count = 0
    for key, low in before.items():
        if not isinstance(low, int) or isinstance(low, bool) or key in ("cpu", "tid", "pid", "mtu"):
            continue
        names, scale = names_of(prefix, key)
        found = [sum(one for (name, have), one in samples.items() if name == wanted and labels <= have)
                 for wanted in names if any(name == wanted for name, _ in samples)]
        assert len(found) == 1, f"{prefix} {key}: {len(found)} metrics"
        high = max(low, after[key])
        low = min(low, after[key])
        assert low - 1 <= found[0] * scale <= high + 1, f"{names}: {found[0]} is not {low} to {high}"
        count += 1
    return count


def as_in_status(broker, port):
    before = broker.status()
    samples = scrape(port)
    after = broker.status()
    count = 0
    for kind, label in (("listeners", "listener"), ("ports", "port")):
        for low, high in zip(before[kind], after[kind]):
            count += compare("millrace_" + label, low, high, samples, {(label, low["name"])})
    for index, (low, high) in enumerate(zip(before["cores"], after["cores"])):
        count += compare("millrace_core", low, high, samples, {("core", str(index))})
        count += compare("millrace_core", low["stolen"], high["stolen"], samples, {("core", str(index))})
        for api, stages in low["stages"].items():
            for stage, one in stages.items():
                labels = {"core": str(index), "api": api, "stage": stage}
                got = value(samples, "millrace_request_stage_seconds_count", **labels)
                assert one["count"] <= got <= high["stages"][api][stage]["count"], labels
                count += 1
    before["tcp"].pop("connections")  # a listener's
    for kind in ("tcp", "control", "http"):
        count += compare("millrace_" + kind, before[kind], after[kind], samples, set())
    assert value(samples, "millrace_build_info", version=before["version"]) == 1
    assert value(samples, "millrace_arena_bytes") == before["memory"]["arena_bytes"]
    for name in ("supervisor", "control", "dataplane"):
        pid = str(before[name]["pid"])
        assert value(samples, "millrace_process_info", process=name, pid=pid) == 1, name
    print(f"{count} numbers of status are in the metrics")


def check_histograms(samples):
    """Buckets never fall with their bound, and the last one is the count."""
    rows = {}
    for (name, labels), count in samples.items():
        if name.endswith("_bucket"):
            bound = float(dict(labels)["le"])
            key = name[:-7], frozenset(one for one in labels if one[0] != "le")
            rows.setdefault(key, []).append((bound, count))
    assert len(rows) > 20, len(rows)
    for (name, labels), row in rows.items():
        counts = [count for _, count in sorted(row)]
        assert counts == sorted(counts) and max(row)[0] == float("inf"), (name, row)
        assert samples[name + "_count", labels] == counts[-1], name


def kafka_names(broker, port):
    broker.millrace("topic", "create", "counted")
    before = scrape(port)
    data = "".join(f"{number:0100d}\n" for number in range(RECORDS))
    broker.kcat("LOCAL", "-P", "-t", "counted", input=data)
    got = broker.kcat("LOCAL", "-C", "-t", "counted", "-o", "beginning", "-c", str(RECORDS))
    assert got == data
    # A topic that is not there, and one batch that was changed on its way.
    with Client(broker.address("LOCAL")) as client:
        assert client.produce("absent", 0, batch(), version=3)[0] == 3
        assert client.produce("counted", 0, batch(crc=1), version=3)[0] == 2
    time.sleep(1)  # a core publishes before it sleeps
    after = scrape(port)

    def grown(name, **labels):
        key = name, frozenset(labels.items())
        return after.get(key, 0) - before.get(key, 0)
    topics, requests = "kafka_server_broker_topic_metrics_", "kafka_network_request_metrics_"
    assert grown(topics + "messages_in_total") == RECORDS
    assert grown(topics + "bytes_in_total") > RECORDS * 100
    assert grown(topics + "bytes_out_total") > RECORDS * 100
    assert grown(topics + "failed_produce_requests_total") == 2
    assert grown(topics + "bytes_rejected_total") > 0
    assert grown(topics + "invalid_message_crc_records_total") == 1
    assert grown(requests + "errors_total", request="Produce", error="UNKNOWN_TOPIC_OR_PARTITION") == 1
    assert grown(requests + "errors_total", request="Produce", error="CORRUPT_MESSAGE") == 1
    assert grown(requests + "requests_total", request="Produce", version="3") == 2
    produced = grown(topics + "total_produce_requests_total")
    assert 3 <= produced <= 2 + RECORDS, produced
    assert grown(requests + "total_time_seconds_count", request="Produce") == produced
    assert grown("millrace_partition_bytes_in_total", topic="counted", partition="0") > RECORDS * 100
    assert value(after, "millrace_partition_end_offset", topic="counted", partition="0") == RECORDS
    assert value(after, "kafka_controller_kafka_controller_global_topics") == 1
    assert value(after, "kafka_controller_kafka_controller_active_controllers") == 1
    # Each append of this topic waits for its sync; afterwards none does.
    flushes = "kafka_log_log_flush_stats_log_flush_rate_and_time_seconds"
    broker.millrace("topic", "create", "flushed", "--config", "flush.messages=1")
    broker.kcat("LOCAL", "-P", "-t", "flushed", input="one\n")
    time.sleep(1)
    synced = scrape(port)
    assert value(synced, flushes + "_count") > value(after, flushes + "_count")
    assert value(synced, flushes + "_sum") > value(after, flushes + "_sum")
    for operation in ("Fetch", "Produce"):
        assert value(synced, "kafka_server_delayed_operation_purgatory_purgatory_size",
                     delayed_operation=operation) == 0
    for name in ("cleaner_max_clean_time_seconds", "cleaner_cleaner_recopy_ratio",
                 "cleaner_max_buffer_utilization_ratio", "cleaner_manager_max_dirty_ratio"):
        assert value(synced, "kafka_log_log_" + name) >= 0, name
    check_histograms(synced)


def by_promtool(port):
    _, text = get(port, "/metrics")
    done = subprocess.run([PROMTOOL, "check", "metrics"], input=text, text=True, capture_output=True, timeout=60,
                          check=False)
    assert done.returncode == 0 and not done.stdout and not done.stderr, done.stdout + done.stderr


# --- what it survives -----------------------------------------------------------------------------

def silent_clients(broker, port):
    """All connections but one are taken by clients that say half a word; the last one still serves, one more is
    refused, and after the limit they are gone."""
    begun = time.monotonic()
    clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(CONNECTIONS_MAX)]
    for client in clients:
        client.sendall(b"GET /metr")
    wait_for("all are counted", lambda: broker.status()["http"]["connections"] == CONNECTIONS_MAX, LIMIT_S / 2)
    with socket.create_connection(("127.0.0.1", port)) as extra:
        extra.settimeout(5)
        try:
            assert extra.recv(1) == b"", "one too many was served"
        except ConnectionResetError:
            pass
    assert broker.status()["http"]["refused"] == 1
    broker.millrace("topic", "create", "beside")  # control does not mind
    assert time.monotonic() - begun < LIMIT_S, "this machine is too slow to tell"
    for client in clients:
        client.settimeout(3 * LIMIT_S)
        assert client.recv(1) == b"", "an answer to half a request"
        client.close()
    wait_for("they are gone", lambda: broker.status()["http"]["connections"] == 0)
    assert broker.status()["http"]["slow"] == CONNECTIONS_MAX
    assert get(port, "/healthz") == (200, "ok\n")


def raw(port, data):
    """All that comes back until the close."""
    with socket.create_connection(("127.0.0.1", port), timeout=2 * LIMIT_S) as peer:
        got = b""
        try:
            peer.sendall(data)
            while piece := peer.recv(1 << 16):
                got += piece
        except (BrokenPipeError, ConnectionResetError):
            pass
        return got


def nonsense(broker, port):
    """Headers without end, paths that climb, other methods and hosts: refused or answered as if they were not there,
    and nothing of a core's time."""
    end = b"\r\nConnection: close\r\n\r\n"
    huge = b"GET /metrics HTTP/1.1\r\nHost: x\r\nX: " + b"y" * (4 << 20) + end
    many = b"GET /metrics HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 200_000 + end
    climbs = (b"/../../etc/passwd", b"/%2e%2e/%2e%2e/etc/passwd", b"/metrics/../../etc/passwd", b"//etc/passwd",
              b"/" + b"a" * 100_000)
    cases = [(huge, (b"431", b"400", b"413", b"")), (many, (b"431", b"400", b"413", b""))]
    cases += [(b"GET " + path + b" HTTP/1.1\r\nHost: x" + end, (b"404", b"414", b"400", b"431", b""))
              for path in climbs]
    cases += [(method + b" /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 3" + end + b"abc", (b"405", b""))
              for method in (b"POST", b"PUT", b"DELETE", b"PATCH", b"FOO")]
    cases += [(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + end, (b"400", b"")),
              (b"GET /healthz HTTP/1.1\r\nHost: elsewhere.example\r\nOrigin: http://elsewhere.example" + end,
               (b"200",))]
    before = broker.status()["control"]["pid"]
    for data, wanted in cases:
        got = raw(port, data)
        code = got.split(b" ", 2)[1] if got else b""
        assert code in wanted, f"{data[:60]}: {got[:80]}, not {wanted}"
        # No page of another origin reads it.
        assert b"access-control-allow" not in got.lower() and b"root:" not in got, got[:200]
    assert broker.status()["control"]["pid"] == before
    assert get(port, "/healthz") == (200, "ok\n")


def ptrace(request, tid):
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    libc.ptrace.restype = ctypes.c_long
    assert libc.ptrace(request, tid, None, None) == 0, os.strerror(ctypes.get_errno())


def stuck_core(broker, port):
    assert get(port, "/readyz") == (200, "ok\n")
    tid = broker.status()["cores"][0]["tid"]
    ptrace(PTRACE_SEIZE, tid)
    ptrace(PTRACE_INTERRUPT, tid)
    begun = time.monotonic()
    wait_for("not ready", lambda: get(port, "/readyz")[0] == 503)
    if time.monotonic() - begun < 9:
        assert get(port, "/healthz")[0] == 200, "a short standstill is no reason for a restart"
    assert "core 0: no turn for" in get(port, "/readyz")[1]
    assert value(scrape(port), "millrace_core_standstill_seconds", core="0") > 2
    wait_for("not live", lambda: get(port, "/healthz")[0] == 503, 30)
    os.waitpid(tid, 0x40000000)  # __WALL: its stop, which a detach wants to have been seen
    ptrace(PTRACE_DETACH, tid)
    wait_for("ready again", lambda: get(port, "/readyz") == (200, "ok\n"))
    assert get(port, "/healthz") == (200, "ok\n")


def control_killed(broker, port):
    """Its successor listens again; while another has the port it serves without, and then with it."""
    broker.wait_restart("control", broker.kill("control"))
    wait_for("metrics after a kill", lambda: answers(port))
    supervisor = broker.pid("supervisor")
    os.kill(supervisor, signal.SIGSTOP)
    try:
        old = broker.kill("control")
        thief = socket.socket()
        thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        wait_for("the port is free", lambda: binds(thief, port))
        thief.listen(1)
    finally:
        os.kill(supervisor, signal.SIGCONT)
    broker.wait_restart("control", old)
    broker.millrace("topic", "create", "without-metrics")
    assert "control.http-not-listening" in broker.log_text()
    thief.close()
    wait_for("metrics when the port is free", lambda: answers(port))


def answers(port):
    try:
        return get(port, "/metrics")[0] == 200
    except OSError:
        return False


def binds(sock, port):
    try:
        sock.bind(("127.0.0.1", port))
        return True
    except OSError:
        return False


def in_use(broker, port):
    with Broker(nic=False, settings={"http.listener": f"127.0.0.1:{port}"}) as second:
        done = subprocess.run([os.path.join(second.build, "millrace"), "start", "-c", second.config], text=True,
                              capture_output=True, timeout=60, check=False)
        assert done.returncode == 1 and not done.stdout, done
        assert f"http.listener: cannot listen on 127.0.0.1 port {port}: Address already in use" in done.stderr, done
    assert get(port, "/readyz") == (200, "ok\n"), broker.log_text()


def main():
    port = free_port()
    settings = {"http.listener": f"127.0.0.1:{port}", "dataplane.idle": "adaptive"}
    with Broker(nic=os.geteuid() == 0, settings=settings) as broker:
        broker.start()
        assert get(port, "/readyz") == (200, "ok\n") and get(port, "/healthz") == (200, "ok\n")
        assert get(port, "/")[0] == 404
        kafka_names(broker, port)
        as_in_status(broker, port)
        by_promtool(port)
        in_use(broker, port)
        silent_clients(broker, port)
        nonsense(broker, port)
        for _ in range(pick(5, 1)):
            control_killed(broker, port)
    settings["dataplane.idle"] = "busy"  # a core that sleeps is not stuck
    with Broker(nic=False, settings=settings) as broker:
        broker.start()
        stuck_core(broker, port)
    print("metrics, health and readiness are as they should be")


if __name__ == "__main__":
    main()
