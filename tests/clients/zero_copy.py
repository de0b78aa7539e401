#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Record bytes are copied once on the way in and never on the way out: counters after a run of 1 MiB
fetches through NIC, and after producing in 16 KiB batches."""
import os

from lib.broker import TOP, Broker, pick

INLINED_SHARE = 0.02


def main():
    total = pick(1 << 30, 128 << 20)
    script = os.path.join(TOP, "tests/clients/zero_copy_load.py")
    with Broker() as broker:
        broker.start()
        broker.millrace("topic", "create", "zero")
        print(broker.python("NIC", script, "produce", "zero", str(total), timeout=1200).strip())
        nic = broker.listener("NIC")
        assert nic["bytes_in"] >= total and nic["bytes_copied_in"] == nic["bytes_in"], nic
        status = broker.status()
        assert status["memory"]["bytes_staged"] == 0, status["memory"]
        print(broker.python("NIC", script, "fetch", "zero", str(total), timeout=1200).strip())
        nic = broker.listener("NIC")
        status = broker.status()
        assert nic["bytes_out"] >= total, nic
        assert nic["bytes_copied_out"] == 0, nic
        assert nic["bytes_inlined"] < INLINED_SHARE * nic["bytes_out"], nic
        assert status["ports"][0]["bytes_linearised"] == 0, status["ports"]
        assert status["memory"]["loaned_bytes"] == 0, status["memory"]
    print(f"{total >> 20} MiB in with one copy, out with none; inlined {nic['bytes_inlined']} bytes")


if __name__ == "__main__":
    main()
