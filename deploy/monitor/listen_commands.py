"""Commands to listen to the streams of a running node, made from its snapshot."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

_IP = " over IP protocol 113"
_NOT_MULTICAST = "unicast"


def command_lines(snapshot: dict[str, Any]) -> list[str]:
    """Return a `pgm recv` command for each stream of a node.

    The streams are those that the node sends, relays or receives. The command uses one of the node's multicast
    segments. The receiver is no node of the tree: it has no name and never sends NAKs.
    """
    streams = {(session["data_port"], session.get("framing", "")) for session in snapshot["sessions"]}
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
    """Return the group with port, further URL keys and the node's address by segment, for segments with a group."""
    for segment in segments:
        where: str = segment["group"]
        if where.startswith(_NOT_MULTICAST):
            continue
        if where.endswith(_IP):
            group = where.removesuffix(_IP)
            yield f"[{group}]" if ":" in group else group, "&transport=ip", segment["address"]
        else:
            yield where, "", segment["address"]
