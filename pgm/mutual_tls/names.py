"""Names in certificates: one for each pair of keys, and one that all nodes share.

The first name of a certificate tells its keys. Clients of gRPC compare the second one, since they must know a name before
they connect. The second name identifies nobody.
"""

from __future__ import annotations

import re

_DOMAIN = "pgm.internal"  # a name that no resolver answers (ICANN, 2024)
SHARED_NAME = f"any.{_DOMAIN}"
_KEY_NAME = re.compile(rf"([a-z2-7]{{16}})\.{re.escape(_DOMAIN)}")


def name_of_keys(key_id: str) -> str:
    """Return the name of keys in certificates."""
    return f"{key_id}.{_DOMAIN}"


def key_id_of_untrusted(name: str) -> str | None:
    """Return the id of keys that a name tells; None for every other name, such as the shared one."""
    match = _KEY_NAME.fullmatch(name)
    return None if match is None else match[1]
