"""Trees whose streams are in the clear or protected, in files that differ in nothing else."""

from __future__ import annotations

import secrets
from datetime import date, timedelta
from pathlib import Path

from deploy.bench.place import BenchNetwork
from deploy.bench.settings import BenchSettings
from deploy.bench.tree import both_ways, chain
from pgm.net.keys.key_directory import place_of
from pgm.net.keys.key_files import need_cryptography, write_private_file
from pgm.topology.load import load

_LINES = {"clear": "", "signed": "signed = true\n", "sealed": "signed = true\nsealed = true\n"}  # of a stream
PROTECTIONS = tuple(_LINES)
_BOTH_WAYS = ("source", "source-back", "receiver", "receiver-back")
_DAYS = 2  # that the keys are valid: a run may pass midnight


def protected_chain(place: BenchNetwork, role: str, protection: str, framing: str, settings: BenchSettings) -> Path:
    """Write a source, an optional relay and a receiver in a row, and return the file."""
    plain = chain(settings.folder, place, role, settings.rcvbuf)
    return _protected(plain, protection, ("source", "receiver"), f'framing = "{framing}"\n')


def protected_both_ways(place: BenchNetwork, protection: str, settings: BenchSettings) -> Path:
    """Write a source and a receiver on each of two hosts, and return the file."""
    return _protected(both_ways(settings.folder, place), protection, _BOTH_WAYS)


def _protected(plain: Path, protection: str, nodes: tuple[str, ...], of_stream: str = "") -> Path:
    """Return a file whose streams have a protection; its private keys lie beside it."""
    file = plain.with_name(f"{plain.stem}-{protection}.toml")
    text = plain.read_text().replace("data_port = ", f"{of_stream}data_port = ")
    if protection == "clear":
        file.write_text(text)
        return file
    need_cryptography()
    from pgm.trust.private_keys import SECRET_OCTETS, PrivateFile, PrivateKeys

    tree, folder, day = load(plain).name, plain.parent / "keys", date.today()
    lines = []
    for node in nodes:
        secret = secrets.token_bytes(SECRET_OCTETS)
        keys = PrivateKeys.of_secret(secret, day - timedelta(days=1), day + timedelta(days=_DAYS))
        write_private_file(place_of(tree, node, str(folder)), PrivateFile(tree, node, keys))
        lines.append(f'"{node}" = ["{keys.public.line}"]')
    text = text.replace("data_port = ", f'{_LINES[protection]}sources = ["any"]\ndata_port = ')
    text = text.replace("version = 1\n", f'version = 1\nkey_directory = "{folder}"\n')
    file.write_text("\n".join([text, "[keys]", *lines, ""]))
    return file
