"""File with the token that clients of a service must send."""

from __future__ import annotations

import stat
from pathlib import Path

from deploy.terminal.output import warn
from pgm.errors import UsageError

_LEAST_TOKEN = 16
_MOST_TOKEN = 4096


def read_token(file: Path | None) -> str | None:
    """Return the token in a file, stripped. Raises `UsageError` for an unreadable file or an invalid token."""
    if file is None:
        return None
    try:
        octets = file.read_bytes()[: _MOST_TOKEN + 1]
        mode = file.stat().st_mode
    except OSError as error:
        raise UsageError(
            f"--token-file {file}: {error.strerror}", remedy=f"openssl rand -hex 32 > {file}; chmod 600 {file}"
        ) from error
    token = octets.decode("ascii", errors="replace").strip()
    if not _LEAST_TOKEN <= len(token) <= _MOST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError(
            f"--token-file {file}: a token is one word of {_LEAST_TOKEN} to {_MOST_TOKEN} ASCII characters",
            remedy=f"openssl rand -hex 32 > {file}",
        )
    if mode & (stat.S_IRGRP | stat.S_IROTH):
        warn(f"other users can read {file}: chmod 600 {file}")
    return token
