"""Detection of references in CBOR (tags 28 and 29), by which a value can contain itself or one part many times.

With references a few octets can stand for 2 ** 40 items. A walk over such a value, or its hash as the key of a table, would
never end. The project writes no references, so it reads none.
"""

from __future__ import annotations

import re

# Heads of tag 29, a reference to a value around it or before it.
_REFERENCE = re.compile(rb"\xd8\x1d|\xd9\x00\x1d|\xda\x00{3}\x1d|\xdb\x00{7}\x1d")
_REFERENCE_TAG = 29
_OCTETS, _TEXT, _TAG = 2, 3, 6  # major types
_WIDTHS = {24: 1, 25: 2, 26: 4, 27: 8}  # additional information -> octets of the argument that follow
_INDEFINITE = 31


def has_reference(octets: bytes) -> bool:
    """Return whether CBOR contains a reference, up to the first octet that is not CBOR; asked before decoding."""
    if _REFERENCE.search(octets) is None:
        return False
    at = 0
    while at < len(octets):
        major, information = octets[at] >> 5, octets[at] & 31
        width = _WIDTHS.get(information, 0)
        if not width and 24 <= information < _INDEFINITE:
            return False
        value = int.from_bytes(octets[at + 1 : at + 1 + width], "big") if width else information
        if major == _TAG and value == _REFERENCE_TAG:
            return True
        at += 1 + width
        if major in (_OCTETS, _TEXT) and information != _INDEFINITE:
            at += value
    return False
