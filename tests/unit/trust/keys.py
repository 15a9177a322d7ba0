"""Keys of tests, made of given octets, and strategies for public keys."""

from __future__ import annotations

import hashlib
from datetime import date, timedelta

from hypothesis import strategies as st

from pgm.trust.private_keys import PrivateKeys
from pgm.trust.public_keys import PublicKeys

FIRST, END = date(2026, 1, 1), date(2028, 1, 1)


def private_keys(number: int = 1, first: date = FIRST, end: date = END) -> PrivateKeys:
    """Return the keys of a number."""
    return PrivateKeys.of_secret(hashlib.sha512(b"test %d" % number).digest(), first, end)


days = st.dates(date(1, 1, 1), date(9999, 12, 30))
public_keys = st.builds(
    lambda ed25519, x25519, first, length: PublicKeys(
        ed25519, x25519, first, min(first + timedelta(days=length), date.max)
    ),
    st.binary(min_size=32, max_size=32),
    st.binary(min_size=32, max_size=32),
    st.dates(date(1, 1, 1), date(9900, 1, 1)),
    st.integers(1, 36_500),
).filter(lambda keys: not keys.is_weak)
