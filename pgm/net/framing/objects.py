"""Messages as the values that they carry."""

from __future__ import annotations

from typing import Any

import attrs

from pgm.core.counters import Counters
from pgm.core.effects import Closed, Lost, Opened
from pgm.core.source_names import FromSession
from pgm.messages.objects import BadObject, Codec
from pgm.net.framing.items import Item, Message
from pgm.wire.formats import Tsi


@attrs.define
class Object(FromSession):
    """Value of one message. If the codec cannot decode it, `value` is None and `error` says why."""

    value: Any
    sqn: int
    tsi: Tsi
    subject: str | None = None
    error: str = ""


ObjectItem = Object | Lost | Opened | Closed


def object_of(item: Item, codec: Codec, counters: Counters) -> ObjectItem:
    """Return the value of a message, or another item unchanged. An undecodable one is counted: `Object` with error."""
    if not isinstance(item, Message):
        return item
    try:
        return Object(codec.decode(item.payload), item.sqn, item.tsi, item.subject)
    except BadObject as error:
        counters.object_rejects += 1
        return Object(None, item.sqn, item.tsi, item.subject, error.message)
