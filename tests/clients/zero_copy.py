#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Record bytes are copied once on the way in and never on the way out: counters after a run of 1 MiB
fetches through NIC, and after producing in 16 KiB batches."""
import os

from lib.broker import TOP, Broker, pick

INLINED_SHARE = 0.02


def check(broker, total, listener, port=0):
    """On a broker that has served nothing else through this listener. ret: its status after."""
    script = os.path.join(TOP, "tests/clients/zero_copy_load.py")
    topic = f"zero-{listener.lower()}"
    broker.millrace("topic", "create", topic, listener=listener)
    print(broker.python(listener, script, "produce", topic, str(total), timeout=1200).strip())
    nic = broker.listener(listener)
    assert nic["bytes_in"] >= total and nic["bytes_copied_in"] == nic["bytes_in"], nic
    status = broker.status()
    assert status["memory"]["bytes_staged"] == 0, status["memory"]
    print(broker.python(listener, script, "fetch", topic, str(total), timeout=1200).strip())
    nic = broker.listener(listener)
    status = broker.status()
    assert nic["bytes_out"] >= total, nic
    assert nic["bytes_copied_out"] == 0, nic
    assert nic["bytes_inlined"] < INLINED_SHARE * nic["bytes_out"], nic
    assert status["ports"][port]["bytes_linearised"] == 0, status["ports"]
    broker.wait_no_loans()
    print(f"{listener}: {total >> 20} MiB in with one copy, out with none; inlined "
          f"{nic['bytes_inlined']} bytes")


def main():
    total = pick(1 << 30, 128 << 20)
    with Broker() as broker:
        broker.start()
        check(broker, total, "NIC")


if __name__ == "__main__":
    main()
