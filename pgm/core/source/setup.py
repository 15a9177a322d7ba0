"""Fixed setup of a source core."""

from __future__ import annotations

import attrs

from pgm.core.control_codes import NO_CONTROL_KEYS, ControlKeys
from pgm.core.named_children import NO_CHILDREN, NamedChildren
from pgm.core.segment import Segment
from pgm.core.session.key_records import PayloadSealer
from pgm.wire.formats import Tsi
from pgm.wire.options import SourceFile
from pgm.wire.signed_spm import SpmSigner


@attrs.frozen
class SourceSetup:
    """Settings of one source from the topology and the start of its process."""

    tsi: Tsi
    segment: Segment
    data_port: int
    # the upper half is 0 at the start; OpenPGM receivers need the first SPM_SQN to be 0 too (INT-Q2)
    first_sqn: int = 0
    started_at_ns: int = 0  # wall clock, for the epoch option
    flow: str = "rate"  # or "acked" or "pgmcc"
    lines: tuple[Segment, ...] = ()  # further segments to send on
    signer: SpmSigner | None = None  # of the SPMs, if the stream is signed
    control: ControlKeys = NO_CONTROL_KEYS  # codes of requests, if the stream is authenticated
    join_back_ivl: int = 0  # joiners request what was sent in this time; 0: only what is sent from now on
    children: NamedChildren = NO_CHILDREN
    file: SourceFile | None = None  # digests of the topology file and of the plan, for the SPMs
    sealer: PayloadSealer | None = None  # of the payloads, if the stream is sealed
