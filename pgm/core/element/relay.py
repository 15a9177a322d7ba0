"""Relay of a session from the upstream segment to downstream segments (RFC 7.1).

SPMs are relayed with the path rewritten, ODATA unchanged. A relay with a partner shares the work: for each segment and
TSI, one of the two is active. The other receives everything, serves NAKs, and stays silent. The silent relay takes over
if an upstream SPM was not relayed for `relay_takeover_ivl`.

A relay that starts first checks whether its partner is active, with SPMRs of hop limit 1, or to the partner where
requests need codes. A restarted relay therefore does not interrupt. If both are active after a partition, the standby becomes silent.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterable, Mapping

import attrs

from pgm.core.effects import NOTHING, Effect, Effects, Notice, Send, control
from pgm.core.element.setup import ElementSetup
from pgm.core.polling.back_off import AdvertisedBackOff
from pgm.core.recovery.redirect import is_elsewhere
from pgm.core.segment import Segment
from pgm.core.session_context import SessionContext
from pgm.units import NEVER
from pgm.wire.control_packets import Spm, Spmr, encode, with_path
from pgm.wire.formats import tsi_text
from pgm.wire.option_rewriting import with_back_off
from pgm.wire.options import NbrUnreach, StateOffer
from pgm.wire.sequence_numbers import is_newer
from pgm.wire.train import Data, Octets

_QUESTIONS = 3  # SPMRs sent while listening


class RelayRole(enum.Enum):
    """The role of a relay for one session."""

    LISTENING = "asks whether the partner speaks"
    SPEAKING = "speaks"
    SILENT = "leaves it to the partner"


class Relay:
    """Relay of one session at one node."""

    def __init__(
        self, context: SessionContext, setup: ElementSetup, back_offs: Mapping[int, AdvertisedBackOff]
    ) -> None:
        self._tsi = context.tsi
        self._data_port = context.data_port
        self._is_signed = context.is_signed
        self._setup = setup
        self._parameters = context.parameters
        self._counters = context.counters
        self._back_offs = back_offs  # by downstream segment: the back-off that its SPMs advertise
        self._spm: Spm | None = None  # the newest from upstream
        self._partner_spm_sqn: int | None = None
        self.deadline_ns = NEVER  # when to send the next SPMR, or to take over
        self._owed_since_ns = NEVER  # when the first upstream SPM came that the partner has not relayed
        self._questions = 0
        self._unreachable_sent_ns = -NEVER
        self._state_wanted: StateOffer | None = None  # the last request that was passed on
        self._state_again_ns = 0  # when it may be passed on again
        if not setup.is_relay:
            self.role = RelayRole.SILENT
        elif not setup.partners:
            self.role = RelayRole.SPEAKING
        else:
            self.role = RelayRole.SILENT if setup.is_standby else RelayRole.LISTENING

    @property
    def is_active(self) -> bool:
        """Whether this node relays the session now."""
        return self.role is RelayRole.SPEAKING

    @property
    def may_poll(self) -> bool:
        """Return whether this node polls the nodes below. In a pair of relays, the active one polls."""
        return self.is_active or not self._setup.is_relay

    def on_spm(self, spm: Spm, now_ns: int) -> Effects:
        """Relay an upstream SPM that was in sequence. A silent relay notes that its partner must relay the SPM."""
        self._spm = spm
        if self.is_active:
            return self._speak(self._setup.downs)
        if self._is_partner_behind():
            self._owed_since_ns = min(self._owed_since_ns, now_ns)
        if self.deadline_ns == NEVER and self._setup.partners:
            self._start_wait(now_ns)
        return NOTHING

    def _start_wait(self, now_ns: int) -> None:
        self._questions = 0
        is_listening = self.role is RelayRole.LISTENING
        self.deadline_ns = now_ns + (0 if is_listening else self._parameters.relay_takeover_ivl)

    def on_partner_spm(self, spm: Spm, now_ns: int) -> Effects:
        """Note an SPM of the partner, heard on a downstream segment. A late copy of an old SPM shows no live partner."""
        if self._partner_spm_sqn is not None and not is_newer(spm.spm_sqn, self._partner_spm_sqn):
            return NOTHING
        self._partner_spm_sqn = spm.spm_sqn
        self._owed_since_ns = now_ns if self._is_partner_behind() else NEVER
        if self.is_active:
            self._counters.other_speakers += 1
            if not self._setup.is_standby:
                return NOTHING
        has_changed = self.role is not RelayRole.SILENT
        self.role = RelayRole.SILENT
        self.deadline_ns = now_ns + self._parameters.relay_takeover_ivl
        return (self._notice("relay-silent", "leaves the session to its partner"),) if has_changed else NOTHING

    def on_data(self, data: Data) -> Effects:
        """Relay upstream ODATA unchanged (NE-04)."""
        return self.pass_down(data.octets, data.stride, self._setup.downs) if self.is_active else NOTHING

    def pass_down(self, octets: Octets, stride: int, segments: Iterable[Segment]) -> list[Effect]:
        """Send packets on downstream segments."""
        sends: list[Effect] = []
        for segment in segments:
            self._counters.odata_packets += octets.size // stride
            self._counters.odata_octets += octets.size
            sends.append(Send(segment, octets, stride, is_data=True))
        return sends

    def answer_spmr(self, segment: Segment) -> Effects:
        """Send the newest SPM again: new to the sender of the SPMR, a duplicate to all others (NE-39)."""
        return self._speak((segment,)) if self.is_active else NOTHING

    def pass_up(self, wanted: StateOffer, now_ns: int) -> Effects:
        """Pass a request for a state, or for details of proofs, on towards the source, unless a young one covers it."""
        spm, last = self._spm, self._state_wanted
        is_covered = last is not None and (wanted == last or not (wanted.details or is_newer(wanted.sqn, last.sqn)))
        if not self.is_active or spm is None or (is_covered and now_ns < self._state_again_ns):
            return NOTHING
        self._state_wanted, self._state_again_ns = wanted, now_ns + self._parameters.snapshot_ask_ivl // 2
        packet = encode(Spmr(tsi=self._tsi, data_port=self._data_port, options=(wanted,)))
        return (control(self._setup.up, packet, to=spm.path_nla),)

    def _speak(self, segments: Iterable[Segment]) -> list[Effect]:
        if self._spm is None:
            return []
        sends: list[Effect] = []
        for segment in segments:
            self._counters.spm_packets += 1
            packet = with_path(self._spm, segment.address)
            sends.append(control(segment, with_back_off(self._spm, packet, self._back_offs[segment.index].options)))
        return sends

    def tell_unreachable(self, now_ns: int) -> Effects:
        """Announce that the parent cannot be heard (IMP-24, IMP-25).

        The announcement is sent at most once in IHB_MIN. Nodes below then send no NAKs until a regular SPM comes. The
        SPM repeats the last SPM_SQN and its edges. The RFC requires edges that say "no window", on which other
        implementations hang (INT-Q11). This implementation evaluates neither. A relay cannot sign in the name of the
        source, so it announces nothing in a signed stream.
        """
        if (
            not self.is_active
            or self._spm is None
            or self._is_signed
            or now_ns < self._unreachable_sent_ns + self._parameters.ihb_min
        ):
            return NOTHING
        self._unreachable_sent_ns = now_ns
        special = attrs.evolve(self._spm, options=(NbrUnreach(),), octets=b"")
        self._counters.spm_packets += len(self._setup.downs)
        return [control(segment, with_path(special, segment.address)) for segment in self._setup.downs]

    def handle_deadline(self, now_ns: int) -> Effects:
        """Send another SPMR, become active, or take over."""
        if now_ns < self.deadline_ns:
            return NOTHING
        if self.role is RelayRole.LISTENING and self._questions < _QUESTIONS:
            self._questions += 1
            self.deadline_ns = now_ns + self._parameters.relay_listen_ivl // _QUESTIONS
            question = encode(Spmr(tsi=self._tsi, data_port=self._data_port))
            if self._data_port not in self._setup.signers.control.ports:
                return [control(segment, question, hops=1) for segment in self._setup.downs]
            # A code is for one node.
            ways = itertools.product(self._setup.downs, sorted(self._setup.partners))
            return [control(segment, question, to=to) for segment, to in ways if not is_elsewhere(to, segment)]
        if self.role is RelayRole.SILENT and not self._is_partner_behind():
            # The source is slow, not the partner. The next upstream SPM starts the wait again.
            self.deadline_ns = NEVER
            return NOTHING
        if self.role is RelayRole.SILENT and now_ns < self._owed_since_ns + self._parameters.relay_listen_ivl:
            # The upstream segment was silent, not the partner. The packet that just came is still on its way through
            # the partner.
            self.deadline_ns = self._owed_since_ns + self._parameters.relay_listen_ivl
            return NOTHING
        if self.role is RelayRole.SILENT:
            self._counters.takeovers += 1
        self.role = RelayRole.SPEAKING
        self.deadline_ns = NEVER
        return [*self._speak(self._setup.downs), self._notice("relay-speaking", "speaks on the segments below")]

    def _is_partner_behind(self) -> bool:
        if self._spm is None:
            return False
        return self._partner_spm_sqn is None or is_newer(self._spm.spm_sqn, self._partner_spm_sqn)

    def _notice(self, code: str, text: str) -> Notice:
        return Notice(code, f"session {tsi_text(self._tsi)}: this relay {text}")
