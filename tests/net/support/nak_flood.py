"""Process that sends NAKs in the name of a receiver, without need: `python -m tests.net.support.nak_flood OPTIONS`."""

from __future__ import annotations

import argparse
import socket
import time

from pgm.wire.control_packets import encode_list
from pgm.wire.formats import PacketType
from pgm.wire.naks import LIST_SQNS
from pgm.wire.sequence_numbers import wrap

_STEP_S = 0.01


def main() -> None:
    """Send lists of 63 sqns to all parents in turn, over the last sqns up to `lead`, again and again."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("address", "group", "source", "tsi"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--parents", nargs="+", required=True)
    for name in ("port", "data-port", "lead", "span", "rate"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    given = parser.parse_args()
    *gsi, port = (int(part) for part in given.tsi.split("."))
    tsi = bytes(gsi) + port.to_bytes(2, "big")
    begun, sent = time.monotonic(), 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind((given.address, 0))
        while (passed := time.monotonic() - begun) < given.seconds:
            while sent < passed * given.rate:
                first = given.lead - given.span + sent * LIST_SQNS % (given.span - LIST_SQNS)
                sqns = [wrap(first + index) for index in range(LIST_SQNS)]
                nak = encode_list(PacketType.NAK, tsi, given.data_port, given.source, given.group, sqns)
                sock.sendto(nak, (given.parents[sent % len(given.parents)], given.port))
                sent += 1
            time.sleep(_STEP_S)


if __name__ == "__main__":
    main()
