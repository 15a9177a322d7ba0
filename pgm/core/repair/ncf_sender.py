"""NCFs: the first at once, identical ones at most every `ncf_ivl`, none forgotten (RFC 5.2, 7.2)."""

from __future__ import annotations

import heapq
from collections import OrderedDict

from pgm.core.counters import Counters
from pgm.core.effects import Effects, Send, control, control_train
from pgm.core.repair.nak_limits import NakLimits
from pgm.core.segment import Segment
from pgm.parameters import Parameters
from pgm.units import NEVER
from pgm.wire.control_packets import Nak, ncf_for
from pgm.wire.formats import Nla
from pgm.wire.naks import Naks, list_key, ncf_rows_for
from pgm.wire.options import NO_OPTIONS, Options

_MOST_RECENT = 4096  # NAKs remembered; an older one is confirmed again at once, which is harmless

Key = tuple[int, Nla, bool, bytes]  # of a NAK: segment, addressee or "", whether of parity, and the list


class NcfSender:
    """The NCFs of one session at a parent."""

    def __init__(self, parameters: Parameters, counters: Counters, nak_limits: NakLimits) -> None:
        self._parameters = parameters
        self._counters = counters
        self._nak_limits = nak_limits
        self._recent: OrderedDict[Key, int] = OrderedDict()  # when each was sent last
        self._again: dict[Key, tuple[int, Send]] = {}  # of these: a damped NCF that is still to go, and when
        self._waiting: list[tuple[int, Key]] = []  # a heap of those, and of some that have gone otherwise

    @property
    def deadline_ns(self) -> int:
        """When a damped NCF is due."""
        while self._waiting and not self._waits(*self._waiting[0]):
            heapq.heappop(self._waiting)
        return self._waiting[0][0] if self._waiting else NEVER

    def _waits(self, due_ns: int, key: Key) -> bool:
        return key in self._again and self._again[key][0] == due_ns

    def confirm(
        self, nak: Nak, segment: Segment, now_ns: int, to: Nla | None = None, options: Options = NO_OPTIONS
    ) -> Effects:
        """The NCF for a NAK, to the segment it came from, or by unicast to who asked; with `options` besides the list."""
        if isinstance(nak, Naks):
            return self._confirm_all(nak, segment, now_ns, to, options)
        key = _key(segment, list_key(nak.sqns), to, parity=nak.parity)
        sent_ns = self._recent.get(key)
        if sent_ns is None or now_ns >= sent_ns + self._parameters.ncf_ivl:
            return self._send(key, control(segment, ncf_for(nak, options), to), now_ns)
        self._counters.ncf_packets_damped += 1
        if key not in self._again:
            due_ns = sent_ns + self._parameters.ncf_ivl
            self._again[key] = due_ns, control(segment, ncf_for(nak, options), to)
            heapq.heappush(self._waiting, (due_ns, key))
        return ()

    def key_if_new(self, segment: Segment, listed: bytes) -> Key | None:
        """What a NAK for a list of packets, by its `list_key`, is remembered by, if no such NAK is remembered; for `confirm_first`."""
        key = _key(segment, listed)
        return None if key in self._recent else key

    def confirm_first(self, key: Key, segment: Segment, ncf: bytes, now_ns: int) -> Effects:
        """Confirm a NAK that is new to the segment it came from by an NCF that is made already: as `confirm` does."""
        return self._send(key, control(segment, ncf), now_ns)

    def _confirm_all(self, naks: Naks, segment: Segment, now_ns: int, to: Nla | None, options: Options) -> Effects:
        """The same for a train of NAKs: a train of NCFs where nothing else is to be said and none of them is damped."""
        keys: list[Key] = [_key(segment, each, to) for each in naks.each_list()]
        known = [sent_ns for sent_ns in map(self._recent.get, keys) if sent_ns is not None]
        are_new = not known or max(known) <= now_ns - self._parameters.ncf_ivl
        if options or not are_new or len(set(keys)) != len(keys) or len(keys) > _MOST_RECENT:
            singles = (self.confirm(one, segment, now_ns, to, options) for one in naks.singles())
            return [ncf for ncfs in singles for ncf in ncfs]
        if not self._nak_limits.admit_ncf(now_ns, len(keys)):
            return ()
        self._counters.ncf_packets += len(keys)
        if known:
            for key in keys:
                self._answer(key)
        self._recent.update(dict.fromkeys(keys, now_ns))
        return [control_train(segment, ncf_rows_for(naks), to), *self._forget(now_ns)]

    def _answer(self, key: Key) -> None:
        """An NCF goes that answers also for the one that was put off, if one was."""
        self._recent.pop(key, None)
        self._again.pop(key, None)

    def _send(self, key: Key, ncf: Send, now_ns: int) -> list[Send]:
        """Let an NCF go and remember it; what was put off and would be forgotten for it goes too."""
        if not self._nak_limits.admit_ncf(now_ns):
            return []
        self._counters.ncf_packets += 1
        if key in self._recent:
            self._answer(key)
        self._recent[key] = now_ns
        return [ncf, *self._forget(now_ns)] if len(self._recent) > _MOST_RECENT else [ncf]

    def _forget(self, now_ns: int) -> list[Send]:
        """Forget the oldest; what was put off of them goes now."""
        sends: list[Send] = []
        while len(self._recent) > _MOST_RECENT:
            key, _ = self._recent.popitem(last=False)
            again = self._again.pop(key, None)
            if again is not None and self._nak_limits.admit_ncf(now_ns):
                self._counters.ncf_packets += 1
                sends.append(again[1])
        return sends

    def handle_deadline(self, now_ns: int) -> list[Send]:
        """Damped NCFs whose interval is over."""
        due: list[Send] = []
        while self.deadline_ns <= now_ns:
            _, key = heapq.heappop(self._waiting)
            _, ncf = self._again.pop(key)
            due += self._send(key, ncf, now_ns)
        return due


def _key(segment: Segment, listed: bytes, to: Nla | None = None, *, parity: bool = False) -> Key:
    """What a NAK for a list, by its `list_key`, is remembered by."""
    return segment.index, to or "", parity, listed
