# SPDX-License-Identifier: Apache-2.0
"""An Apache Kafka 4.4 broker of its own for a measurement: one node, KRaft, a heap of 1 GB, its folders where
the caller says, started from the jars that tests/clients/setup fetched."""
import base64
import os
import shutil
import subprocess
import tempfile
import time
import uuid

from lib.broker import TOP, PREFIX, free_port

JARS = os.path.join(TOP, "build/clients/java/lib")
# As Kafka's own start script has them.
JVM = ("-Xms1g", "-Xmx1g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
       "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true")
START_S = 60
# Before a command: it ends when we end, however that happens.
WITH_US = ("setpriv", "--pdeathsig", "KILL")


class Kafka:
    """Use it in a with statement; `folder` holds the log, `settings` add to the configuration."""

    def __init__(self, folder, settings=None):
        self.home = tempfile.mkdtemp(prefix=PREFIX + "kafka-", dir=folder)
        self.port = free_port()
        self.process = None
        self.config = os.path.join(self.home, "server.properties")
        controller = free_port()
        with open(self.config, "w", encoding="utf-8") as out:
            out.write(f"""process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{self.port}
controller.listener.names=CONTROLLER
log.dirs={self.home}/data
auto.create.topics.enable=false
offsets.topic.replication.factor=1
log.segment.delete.delay.ms=100
""")
            for key, value in (settings or {}).items():
                out.write(f"{key}={value}\n")

    @staticmethod
    def java(*words):
        return ["java", *JVM, "-cp", JARS + "/*", *words]

    def start(self):
        self.format()
        self.launch()
        limit = time.monotonic() + START_S
        probe = ["kcat", "-b", self.address(), "-L", "-m", "2"]
        while subprocess.run(probe, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                             check=False).returncode != 0:
            assert self.process.poll() is None and time.monotonic() < limit, "Kafka does not start: " + self.log()
            time.sleep(0.2)
        return self

    def format(self):
        cluster = "-"
        while cluster.startswith("-"):  # one in 64, which the tool would take for an option
            cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        with open(os.path.join(self.home, "kafka.log"), "ab") as log:
            subprocess.run(self.java("kafka.tools.StorageTool", "format", "-t", cluster, "-c", self.config),
                           stdout=log, stderr=log, check=True, timeout=START_S)

    def launch(self):
        with open(os.path.join(self.home, "kafka.log"), "ab") as log:
            self.process = subprocess.Popen([*WITH_US, *self.java("kafka.Kafka", self.config)], stdout=log,
                                            stderr=log, stdin=subprocess.DEVNULL)

    def stop(self, timeout=300):
        """Clean stop. Returns seconds."""
        begun = time.monotonic()
        self.process.terminate()
        self.process.wait(timeout=timeout)
        return time.monotonic() - begun

    def kill(self):
        self.process.kill()
        self.process.wait()

    def log(self):
        with open(os.path.join(self.home, "kafka.log"), encoding="utf-8", errors="replace") as log:
            return log.read()[-3000:]

    def address(self):
        return f"127.0.0.1:{self.port}"

    def pids(self):
        return [self.process.pid]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        shutil.rmtree(self.home, ignore_errors=True)
