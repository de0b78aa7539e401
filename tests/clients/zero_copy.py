#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Record bytes are copied once on the way in and never on the way out: counters after a run of 1 MiB
fetches through NIC, and after producing in 16 KiB batches."""
import os

from lib.broker import TOP, Broker, pick

INLINED_SHARE = 0.02
SEGMENT_BYTES = 1448  # of a retransmission, which is copied again where a driver needs a copy


def check_linearised(status, nic, port, in_place):
    """What the port copied: nothing, or each byte that was sent once."""
    linearised = status["ports"][port]["bytes_linearised"]
    if in_place:
        assert linearised == 0, status["ports"]
        return
    least = nic["bytes_out"] - nic["bytes_inlined"]
    most = nic["bytes_out"] * (1 + INLINED_SHARE) + status["tcp"]["retransmits"] * SEGMENT_BYTES
    assert least <= linearised <= most, (least, linearised, most)


def check(broker, total, listener, port=0, in_place=True):
    """On a broker that has served nothing else through this listener."""
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
    check_linearised(status, nic, port, in_place)
    broker.wait_no_loans()
    print(f"{listener}: {total >> 20} MiB in with one copy, out with {'none' if in_place else 'one, by the port'}; "
          f"inlined {nic['bytes_inlined']} bytes")


def main():
    total = pick(1 << 30, 128 << 20)
    with Broker() as broker:
        broker.start()
        check(broker, total, "NIC", in_place=broker.lab.sends_in_place)


if __name__ == "__main__":
    main()
