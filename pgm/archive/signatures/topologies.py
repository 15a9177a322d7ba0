"""Keys of topology files, for a check of rows."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pgm.archive.errors import ArchiveError
from pgm.archive.signatures.authority import Authority, SignedStream
from pgm.core.source_names import gsi_of
from pgm.topology.load import load
from pgm.topology.tree import Tree


def topology_authority(paths: Iterable[Path]) -> Authority:
    """Return the keys of all files. Raises `TopologyError`, and `ArchiveError` for files without a signed stream."""
    authority = Authority()
    for path in paths:
        authority = authority.with_more(_authority_of(path))
    if not authority.streams:
        raise ArchiveError(
            f"{authority.origin} has no signed stream whose packets are proved",
            remedy="name the topology file by which the rows were recorded; its stream has signed = true",
        )
    return authority


def _authority_of(path: Path) -> Authority:
    topology = load(path)
    tree = Tree.of(topology)
    streams = {}
    for stream in topology.streams.values():
        if not stream.signed or stream.order != "ordered":
            continue
        sources = tree.sources_of(stream.name)
        streams[stream.name] = (
            SignedStream(
                keys={name: topology.keys.get(name, ()) for name in sources},
                gsis={gsi_of(f"{stream.name}.{name}.{topology.name}"): name for name in sources},
                is_batched=stream.framing == "batch",
                is_sealed=stream.sealed,
            ),
        )
    return Authority(streams, dict(topology.revoked), str(path))
