"""Process of a range service that belongs to a recording node. It ends with the node, whose end closes standard input."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import attrs

from pgm.archive.service.collection import Archives
from pgm.archive.service.service import RangeService
from pgm.parameters import Parameters


@attrs.frozen
class ServiceOrder:
    """Order of a node: the archive, the address, the name to report, and the parameters that differ from the defaults."""

    directory: str
    address: str
    node: str
    parameters: dict[str, Any]

    @classmethod
    def from_text(cls, text: str) -> ServiceOrder:
        """Read the argument of the process."""
        return cls(**json.loads(text))


def _end_with_node(service: RangeService) -> None:
    sys.stdin.buffer.read()  # until the node has ended
    if not service.end():
        os._exit(0)  # the threads of open calls in the Flight library would prevent a normal exit


def main() -> None:
    """Serve until the node ends."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # of the terminal or of systemd: the node decides
        signal.signal(number, signal.SIG_IGN)
    order = ServiceOrder.from_text(sys.argv[1])
    parameters = attrs.evolve(Parameters(), **order.parameters)
    archives = Archives(Path(order.directory))
    service = RangeService(archives, f"grpc://{order.address}", parameters, node=order.node)
    threading.Thread(target=_end_with_node, args=(service,), daemon=True).start()
    print("ready", flush=True)
    service.serve()


if __name__ == "__main__":
    main()
