"""Messages as the values that they carry."""

from __future__ import annotations

from typing import Any

import attrs

from pgm.core.counters import Counters
from pgm.core.effects import Lost
from pgm.core.source_names import FromSession
from pgm.messages.objects import BadObject, Codec
from pgm.messages.structures import structure_untrusted
from pgm.net.framing.items import Item, Message, StreamMark, span_of
from pgm.wire.formats import Tsi


@attrs.define
class Object(FromSession):
    """Value of one message. If the codec cannot decode it, `value` is None and `error` says why."""

    value: Any
    sqn: int
    tsi: Tsi
    subject: str | None = None
    error: str = ""
    _last: int = attrs.field(default=-1, eq=False, repr=False)  # the newest sqn that an ack of it covers

    @property
    def span(self) -> tuple[int, int]:
        """Return the first and the last sqn that an ack of this value covers."""
        return self.sqn, self._last


ObjectItem = Object | Lost | StreamMark


def object_of(item: Item, codec: Codec, kind: Any, counters: Counters) -> ObjectItem:
    """Return the value of a message as a `kind`, if given; return another item unchanged.

    A message that cannot be decoded is counted, and is an `Object` with an error.
    """
    if not isinstance(item, Message):
        return item
    last = span_of(item)[1]
    try:
        value = codec.decode(item.payload)
        if kind is not None:
            value = structure_untrusted(value, kind)
        return Object(value, item.sqn, item.tsi, item.subject, last=last)
    except BadObject as error:
        counters.object_rejects += 1
        return Object(None, item.sqn, item.tsi, item.subject, error.message, last)
