"""SPMs of a source: window edges, and the options of all parts that announce something."""

from __future__ import annotations

from collections.abc import Iterable

from pgm.core.segment import Segment
from pgm.core.source.flow_control import FlowControl
from pgm.core.source.setup import SourceSetup
from pgm.core.window.transmit_window import TransmitWindow
from pgm.parameters import Parameters
from pgm.units import SECOND
from pgm.wire.control_packets import Spm, encode
from pgm.wire.options import Epoch, Join, Option, Options
from pgm.wire.sequence_numbers import MASK, wrap


class SpmBuilder:
    """Builder of the SPMs of one source, numbered in order."""

    def __init__(
        self, setup: SourceSetup, window: TransmitWindow, flow: FlowControl, parameters: Parameters, now_ns: int
    ) -> None:
        self.spm_sqn = 0  # of the next SPM
        self._setup = setup
        self._window = window
        self._flow = flow
        self._parameters = parameters
        self._started_ns = now_ns
        self.announced: Options = ()  # further options of every SPM

    def packet(self, segment: Segment, options: Iterable[Option], now_ns: int) -> bytes:
        """Return the next SPM for a segment, with `options` after its own."""
        setup, window = self._setup, self._window
        # A joiner that heard this SPM knows its position, so it may request everything after it (RFC 9.4).
        elapsed_ns = window.strategy.elapsed_ns(now_ns - self._started_ns)
        is_young = elapsed_ns < self._parameters.join_ivl and window.trail <= setup.first_sqn
        joins_at = setup.first_sqn if is_young else window.lead + 1
        if setup.join_back_ivl:
            joins_at = min(joins_at, max(window.trail, window.sent_since(setup.join_back_ivl, now_ns)))
        own: list[Option] = [Join(min_sqn=wrap(joins_at))]
        own += self._flow.spm_options()
        if self._parameters.private_options:
            start_s, start_ns = divmod(setup.started_at_ns, SECOND)
            if setup.file is not None:
                own.append(setup.file)
            own.append(Epoch(next_upper=(window.lead + 1 >> 32) & MASK, start_s=start_s & MASK, start_ns=start_ns))
        spm = Spm(
            tsi=setup.tsi,
            data_port=setup.data_port,
            spm_sqn=self.spm_sqn,
            trail=wrap(window.trail),
            lead=wrap(window.lead),
            path_nla=segment.address,
            options=(*own, *self.announced, *options),
        )
        self.spm_sqn = wrap(self.spm_sqn + 1)
        signer = setup.signer
        return encode(spm if signer is None else signer.signed(spm, setup.started_at_ns + now_ns - self._started_ns))
