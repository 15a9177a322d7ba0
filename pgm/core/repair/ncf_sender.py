"""NCFs: the first at once, identical ones every `ncf_ivl` (RFC 5.2, 7.2). A damped NCF is late, never left out."""

from __future__ import annotations

import heapq
from collections import OrderedDict

from pgm.core.effects import Effects, Send, control, control_train
from pgm.core.repair.nak_limits import NakLimits
from pgm.core.segment import Segment
from pgm.core.session_context import SessionContext
from pgm.units import NEVER
from pgm.wire.control_packets import Nak, ncf_for
from pgm.wire.formats import Nla
from pgm.wire.naks import Naks, ncf_rows_for
from pgm.wire.options import NO_OPTIONS, Options

_MOST_RECENT = 4096  # remembered NAKs: a forgotten NAK is confirmed again at once, which is harmless

Key = tuple[int, Nla, bool, bytes]  # of a NAK: index of the segment, NCF's destination or "", is parity, the list


class NcfSender:
    """Sender of one session's NCFs at a parent. Identical NCFs within `ncf_ivl` are damped: one is sent later."""

    def __init__(self, context: SessionContext, nak_limits: NakLimits) -> None:
        self._parameters = context.parameters
        self._counters = context.counters
        self._nak_limits = nak_limits
        self._recent: OrderedDict[Key, int] = OrderedDict()  # when the last NCF for each NAK was sent
        self._again: dict[Key, tuple[int, Send]] = {}  # the damped NCF of a key in `_recent`, and when it is due
        self._waiting: list[tuple[int, Key]] = []  # heap of the keys in `_again`, and of some that have left it

    @property
    def deadline_ns(self) -> int:
        """Return when a damped NCF is due."""
        while self._waiting and not self._waits(*self._waiting[0]):
            heapq.heappop(self._waiting)
        return self._waiting[0][0] if self._waiting else NEVER

    def _waits(self, due_ns: int, key: Key) -> bool:
        return key in self._again and self._again[key][0] == due_ns

    def confirm(
        self, nak: Nak, segment: Segment, now_ns: int, to: Nla | None = None, options: Options = NO_OPTIONS
    ) -> Effects:
        """Return the NCF for a NAK, with `options`, on the segment that the NAK came from, or by unicast to `to`."""
        if isinstance(nak, Naks):
            return self._confirm_all(nak, segment, now_ns, to, options)
        key = _key(segment, nak.listed, to, parity=nak.parity)
        sent_ns = self._recent.get(key, -NEVER)
        if now_ns >= sent_ns + self._parameters.ncf_ivl:
            return self._send(key, control(segment, ncf_for(nak, options), to), now_ns)
        self._counters.ncf_packets_damped += 1
        if key not in self._again:
            due_ns = sent_ns + self._parameters.ncf_ivl
            self._again[key] = due_ns, control(segment, ncf_for(nak, options), to)
            heapq.heappush(self._waiting, (due_ns, key))
        return ()

    def _confirm_all(self, naks: Naks, segment: Segment, now_ns: int, to: Nla | None, options: Options) -> Effects:
        """Return the NCFs for a train of NAKs: one train if none has options and none of the NCFs is damped."""
        keys: list[Key] = [_key(segment, each, to) for each in naks.each_list()]
        last_ns = max([self._recent.get(key, -NEVER) for key in keys])
        are_new = last_ns <= now_ns - self._parameters.ncf_ivl
        if options or not are_new or len(set(keys)) != len(keys) or len(keys) > _MOST_RECENT:
            singles = (self.confirm(nak, segment, now_ns, to, options) for nak in naks.singles())
            return [ncf for ncfs in singles for ncf in ncfs]
        if not self._nak_limits.admit_ncf(now_ns, len(keys)):
            return ()
        self._counters.ncf_packets += len(keys)
        if last_ns != -NEVER:
            for key in keys:
                self._forget_key(key)
        self._forget_old(now_ns)
        self._recent.update(dict.fromkeys(keys, now_ns))
        return [control_train(segment, ncf_rows_for(naks), to), *self._forget_oldest(now_ns)]

    def _forget_key(self, key: Key) -> None:
        """Forget the key and its damped NCF, which the NCF sent now replaces."""
        self._recent.pop(key, None)
        self._again.pop(key, None)

    def _send(self, key: Key, ncf: Send, now_ns: int) -> list[Send]:
        """Send an NCF within the budget, and damped NCFs forgotten for lack of room. Remember its NAK."""
        if not self._nak_limits.admit_ncf(now_ns):
            return []
        self._counters.ncf_packets += 1
        if key in self._recent:
            self._forget_key(key)
        self._forget_old(now_ns)
        self._recent[key] = now_ns
        return [ncf, *self._forget_oldest(now_ns)] if len(self._recent) > _MOST_RECENT else [ncf]

    def _forget_old(self, now_ns: int) -> None:
        """Forget NAKs that damp nothing any more. Without this a quiet session fills its table for an hour."""
        end_ns = now_ns - self._parameters.ncf_ivl
        while self._recent:
            key, sent_ns = next(iter(self._recent.items()))
            if sent_ns > end_ns or key in self._again:
                return
            del self._recent[key]

    def _forget_oldest(self, now_ns: int) -> list[Send]:
        """Forget the oldest NAKs. Return their damped NCFs, which are sent now."""
        sends: list[Send] = []
        while len(self._recent) > _MOST_RECENT:
            key, _ = self._recent.popitem(last=False)
            if key in self._again:
                _, ncf = self._again.pop(key)
                if self._nak_limits.admit_ncf(now_ns):
                    self._counters.ncf_packets += 1
                    sends.append(ncf)
        return sends

    def handle_deadline(self, now_ns: int) -> list[Send]:
        """Return the damped NCFs that are due."""
        due: list[Send] = []
        while self.deadline_ns <= now_ns:
            _, key = heapq.heappop(self._waiting)
            _, ncf = self._again.pop(key)
            due += self._send(key, ncf, now_ns)
        return due


def _key(segment: Segment, listed: bytes, to: Nla | None = None, *, parity: bool = False) -> Key:
    """Return the key of a NAK with these sqns as on the wire."""
    return segment.index, to or "", parity, listed
