"""pgm's ends on the busy-poll driver for messages that share packets."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from deploy.bench.peers.control import Control
from deploy.bench.peers.ours.batched import PATTERN, batched_parameters, batched_target, subjects_of
from deploy.bench.peers.ours.busy_poll import recv_by, send_by


def send(control: Control, job: Mapping[str, Any]) -> None:
    """Send probes, then messages of ten subjects in turn."""
    opening = batched_target(job, "sender", is_source=True)
    send_by(control, job, {**opening, **batched_parameters(job)}, subjects_of)


def recv(control: Control, job: Mapping[str, Any]) -> None:
    """Receive by a wildcard subscription until all messages arrived.

    `quiet_s` of silence ends the reception as well.
    """
    recv_by(control, job, {**batched_target(job, "receiver", is_source=False), "subjects": [PATTERN]})


_ENDS = {"send": send, "recv": recv}


def main() -> None:
    """Run the end that the first argument names."""
    _ENDS[sys.argv[1]](Control(), Control.job())


if __name__ == "__main__":
    main()
