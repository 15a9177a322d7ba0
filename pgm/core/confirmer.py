"""NCFs: the first at once, identical ones at most every `ncf_ivl`, none forgotten (RFC 5.2, 7.2)."""

from __future__ import annotations

import heapq
import itertools
from collections import OrderedDict

import attrs

from pgm.core.brakes import Brakes
from pgm.core.channel import Segment
from pgm.core.counters import Counters
from pgm.core.effects import Effects, Send, control, control_train
from pgm.parameters import Parameters
from pgm.units import NEVER
from pgm.wire.formats import Nla
from pgm.wire.naks import Naks, list_key, ncf_rows_for
from pgm.wire.options import NO_OPTIONS, Options
from pgm.wire.packets import Nak, ncf_for

_MOST_RECENT = 4096  # NAKs remembered; an older one is confirmed again at once, which is harmless

_Key = tuple[int, Nla | None, bool, bytes]  # segment, addressee, whether of parity, and the list


@attrs.define
class _Sent:
    at_ns: int
    again: Send | None = None  # a damped NCF that is still to go


class Confirmer:
    """The NCFs of one session at a parent."""

    def __init__(self, parameters: Parameters, counters: Counters, brakes: Brakes) -> None:
        self._parameters = parameters
        self._counters = counters
        self._brakes = brakes
        self._recent: OrderedDict[_Key, _Sent] = OrderedDict()
        self._waiting: list[tuple[int, int, _Key, _Sent]] = []  # a heap by when they are due
        self._ties = itertools.count()

    @property
    def deadline_ns(self) -> int:
        """When a damped NCF is due."""
        while self._waiting and self._waiting[0][3].again is None:
            heapq.heappop(self._waiting)
        return self._waiting[0][0] if self._waiting else NEVER

    def confirm(
        self, nak: Nak, segment: Segment, now_ns: int, to: Nla | None = None, options: Options = NO_OPTIONS
    ) -> Effects:
        """The NCF for a NAK, to the segment it came from, or by unicast to who asked; with `options` besides the list."""
        if isinstance(nak, Naks):
            return self._confirm_all(nak, segment, now_ns, to, options)
        key = (segment.index, to, nak.parity, list_key(nak.sqns))
        sent = self._recent.get(key)
        if sent is None or now_ns >= sent.at_ns + self._parameters.ncf_ivl:
            return self._send(key, control(segment, ncf_for(nak, options), to), now_ns)
        self._counters.ncf_packets_damped += 1
        if sent.again is None:
            sent.again = control(segment, ncf_for(nak, options), to)
            due_ns = sent.at_ns + self._parameters.ncf_ivl
            heapq.heappush(self._waiting, (due_ns, next(self._ties), key, sent))
        return ()

    def _confirm_all(self, naks: Naks, segment: Segment, now_ns: int, to: Nla | None, options: Options) -> Effects:
        """The same for a train of NAKs: a train of NCFs where nothing else is to be said and none of them is damped."""
        keys: list[_Key] = [(segment.index, to, False, each) for each in naks.each_list()]
        known = [self._recent.get(key) for key in keys]
        recently_ns = now_ns - self._parameters.ncf_ivl
        are_new = all(one is None or one.at_ns <= recently_ns for one in known) and len(set(keys)) == len(keys)
        if options or not are_new or len(keys) > _MOST_RECENT:
            singles = (self.confirm(one, segment, now_ns, to, options) for one in naks.singles())
            return [ncf for ncfs in singles for ncf in ncfs]
        if not self._brakes.admit_ncf(now_ns, len(keys)):
            return ()
        self._counters.ncf_packets += len(keys)
        for key, previous in zip(keys, known, strict=True):
            if previous is not None:
                previous.again = None  # this one answers for it
                del self._recent[key]
            self._recent[key] = _Sent(now_ns)
        return [control_train(segment, ncf_rows_for(naks), to), *self._forget(now_ns)]

    def _send(self, key: _Key, ncf: Send, now_ns: int) -> list[Send]:
        """Let an NCF go and remember it; what was put off and would be forgotten for it goes too."""
        if not self._brakes.admit_ncf(now_ns):
            return []
        self._counters.ncf_packets += 1
        previous = self._recent.pop(key, None)
        if previous is not None:
            previous.again = None  # this one answers for it
        self._recent[key] = _Sent(now_ns)
        return [ncf, *self._forget(now_ns)] if len(self._recent) > _MOST_RECENT else [ncf]

    def _forget(self, now_ns: int) -> list[Send]:
        """Forget the oldest; what was put off of them goes now."""
        sends: list[Send] = []
        while len(self._recent) > _MOST_RECENT:
            _, oldest = self._recent.popitem(last=False)
            again, oldest.again = oldest.again, None
            if again is not None and self._brakes.admit_ncf(now_ns):
                self._counters.ncf_packets += 1
                sends.append(again)
        return sends

    def handle_deadline(self, now_ns: int) -> list[Send]:
        """Damped NCFs whose interval is over."""
        due: list[Send] = []
        while self.deadline_ns <= now_ns:
            _, _, key, sent = heapq.heappop(self._waiting)
            again, sent.again = sent.again, None
            assert again is not None, key  # `deadline_ns` has passed over those that are answered
            due += self._send(key, again, now_ns)
        return due
