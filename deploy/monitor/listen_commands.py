"""How to listen to the streams of a node that runs: the commands that `pgm top` shows, made of the node's snapshot."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

_IP = " over IP protocol 113"
_NOT_MULTICAST = "unicast"


def command_lines(snapshot: dict[str, Any]) -> list[str]:
    """A `pgm recv` command for each stream that the node sends, passes on or receives, by one of its multicast segments.

    The receiver is none of the tree: it has no name, and never asks for repairs.
    """
    streams = {(one["data_port"], one.get("framing", "")) for one in snapshot["sessions"]}
    link = next(_links(snapshot["segments"]), None)
    if link is None:
        return []
    where, more, address = link
    lines = []
    for port, framing in sorted(streams):
        form = f"&framing={framing}" if framing not in ("", "plain") else ""
        url = f"pgm://{where}?interface={address}&data_port={port}{more}{form}&order=unreliable"
        lines.append(f"pgm recv --lines {shlex.quote(url)}")
    return lines


def _links(segments: list[dict[str, Any]]) -> Iterator[tuple[str, str, str]]:
    """Group and port, further keys, and the node's address, of the segments that have a group."""
    for one in segments:
        where: str = one["group"]
        if where.startswith(_NOT_MULTICAST):
            continue
        if where.endswith(_IP):
            group = where.removesuffix(_IP)
            yield f"[{group}]" if ":" in group else group, "&transport=ip", one["address"]
        else:
            yield where, "", one["address"]
