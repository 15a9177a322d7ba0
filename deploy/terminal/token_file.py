"""Files that only their owner should read: the token that clients of a service must send, and others with secrets."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deploy.terminal.output import warn
from pgm.errors import UsageError

_LEAST_TOKEN = 16
_MOST_TOKEN = 4096


def read_token(file: Path | None) -> str | None:
    """Return the token in a file, stripped. Raises `UsageError` for an unreadable file or an invalid token."""
    if file is None:
        return None
    create = f"openssl rand -hex 32 > {file}"
    with secret_text("--token-file", file, _MOST_TOKEN, f"{create}; chmod 600 {file}") as text:
        token = text.strip()
        if (
            not _LEAST_TOKEN <= len(token) <= _MOST_TOKEN
            or not token.isprintable()
            or not token.isascii()
            or " " in token
        ):
            raise UsageError(
                f"--token-file {file}: a token is one word of {_LEAST_TOKEN} to {_MOST_TOKEN} ASCII characters",
                remedy=create,
            )
    return token


@contextmanager
def secret_text(option: str, file: Path, most: int, remedy: str) -> Iterator[str]:
    """Give a block the ASCII text of a file, cut to one octet more than `most`. Warn after it if others can read the file.

    Raises `UsageError` with `remedy` for an unreadable file. A block that raises gets no warning: an error is one message.
    """
    try:
        octets = file.read_bytes()[: most + 1]
        mode = file.stat().st_mode
    except OSError as error:
        raise UsageError(f"{option} {file}: {error.strerror}", remedy=remedy) from error
    yield octets.decode("ascii", errors="replace")
    if mode & (stat.S_IRGRP | stat.S_IROTH):
        warn(f"other users can read {file}: chmod 600 {file}")
