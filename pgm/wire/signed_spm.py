"""Signatures of SPMs: the octets that a source signs, and the option that carries the signature.

A source signs everything that it says in an SPM. The signature leaves out what elements rewrite on the way: the path
address, the back-off options of a segment, and the checksum.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from pgm.units import SECOND
from pgm.wire.control_packets import Spm, encode
from pgm.wire.formats import PacketType
from pgm.wire.options import NakBoIvl, NakBoRng, SpmSignature, find
from pgm.wire.sequence_numbers import MASK

KEY_ID_OCTETS = 10

_DOMAIN = b"pgm spm 1\0"
_NO_PATH = "0.0.0.0"
_OF_ELEMENTS = (NakBoIvl, NakBoRng)  # options that elements write for one segment

Sign = Callable[[bytes], bytes]  # returns the signature of octets


@attrs.frozen
class SpmSigner:
    """Signing keys of a source: their id, and the function that signs with them."""

    key_id: bytes
    sign: Sign = attrs.field(repr=False)

    def signed(self, spm: Spm, now_ns: int) -> Spm:
        """Return an SPM with its signature. `now_ns` is the wall clock, in ns since 1970."""
        seconds, ns = divmod(now_ns, SECOND)
        unsigned = SpmSignature(signed_s=seconds & MASK, signed_ns=ns, proof=self.key_id)
        signature = self.sign(octets_to_sign(attrs.evolve(spm, options=(*spm.options, unsigned))))
        option = attrs.evolve(unsigned, proof=self.key_id + signature)
        return attrs.evolve(spm, options=(*spm.options, option))


@attrs.frozen
class SignedSpm:
    """Signature of a received SPM: the id of the keys, the signed octets, and the time."""

    key_id: bytes
    signature: bytes
    octets: bytes  # that were signed
    signed_at_ns: int  # ns since 1970, by the source's clock

    @classmethod
    def of(cls, spm: Spm) -> SignedSpm | None:
        """Return the signature of an SPM, not yet verified; None if the SPM has none that a source could have made."""
        option = find(spm.options, SpmSignature) if spm.options else None
        if option is None or not _may_be_signed(spm):
            return None
        key_id, signature = option.proof[:KEY_ID_OCTETS], option.proof[KEY_ID_OCTETS:]
        return cls(key_id, signature, octets_to_sign(spm), option.signed_s * SECOND + option.signed_ns)


def is_copy_of(spm: Spm, known: Spm) -> bool:
    """Return whether an SPM says what a known SPM of the source says. Only what elements rewrite may differ."""
    return _may_be_signed(spm) and octets_to_sign(spm) == octets_to_sign(known)


def _may_be_signed(spm: Spm) -> bool:
    """Return whether a source can have sent the options of a received SPM. An attacker can send any option."""
    return all(PacketType.SPM in option.CARRIERS for option in spm.options)


def octets_to_sign(spm: Spm) -> bytes:
    """Return the octets of an SPM that its source signs: without path, back-off options and signature.

    Raises `ValueError` for an option that does not belong on an SPM.
    """
    kept = tuple(
        attrs.evolve(option, proof=option.proof[:KEY_ID_OCTETS]) if isinstance(option, SpmSignature) else option
        for option in spm.options
        if not isinstance(option, _OF_ELEMENTS)
    )
    return _DOMAIN + encode(attrs.evolve(spm, path_nla=_NO_PATH, options=kept, octets=b""))
