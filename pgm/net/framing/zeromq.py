"""ZeroMQ's framing between packets and messages: added at the source, removed at the receiver."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from pgm.core.counters import Counters
from pgm.core.effects import CloseCause, Closed, LossCause, Lost, Opened
from pgm.core.source.source import SourceCore
from pgm.errors import PayloadTooLarge, SourceClosed, UsageError
from pgm.messages.decoder import DecodedMessages, Decoder, UnusedPackets
from pgm.messages.subscriptions import Subscriptions
from pgm.messages.zmtp import OFFSET, Packer, Payload, weight
from pgm.net.framing.items import Batch, BatchItem, MultipartBatch
from pgm.wire.formats import DATA_HEADER_OCTETS, FRAGMENT_OCTETS, Tsi


class ZeromqSender:
    """Packer of a source's messages into packets of ZeroMQ's size (INT-Z6), several to a packet.

    A packet that is not full leaves when nothing else waits to be sent. A lone message is therefore not delayed, and
    messages sent faster than the rate allows fill their packets.

    Raises `UsageError` if the transmit window has no room for a packet.
    """

    def __init__(self, core: SourceCore, max_message: int) -> None:
        self._core = core
        self._max_message = max_message
        size = min(core.max_tpdu - DATA_HEADER_OCTETS - FRAGMENT_OCTETS, core.window.largest_payload)
        if size <= OFFSET.size:
            raise UsageError(
                f"a transmit window for payloads of {core.window.largest_payload} octets holds no packet",
                remedy="raise max_apdu, txw_bytes or txw_secs",
            )
        self._packer = Packer(size)

    @property
    def has_rest(self) -> bool:
        """Return whether a message waits that is in no packet yet."""
        return self._packer.has_rest

    def submit(self, messages: Sequence[Sequence[Payload]]) -> None:
        """Accept messages, each a sequence of parts. Raises `PayloadTooLarge`, `SourceClosed` or ValueError."""
        self._core.submit(())  # raises if the source is closed, before anything is accepted
        for parts in messages:
            octets = weight(sum(map(len, parts)), len(parts))
            if octets > self._max_message:
                raise PayloadTooLarge(
                    f"a message of {len(parts)} parts and {octets} octets does not fit: the limit is {self._max_message}",
                    remedy="raise max_apdu, or send it as several messages",
                )
        packets = self._packer.add(messages)
        if packets:
            self._core.submit(packets)
        self.send_rest_if_idle()

    def flush(self, now_ns: int) -> None:
        """Send the partly filled packet if no packet waits ahead; this framing has no other delay."""
        self.send_rest_if_idle(now_ns)

    def send_rest_if_idle(self, now_ns: int = 0) -> None:
        """Send the partly filled packet if no packet waits ahead."""
        if self._packer.has_rest and not self._core.window.has_unsent:
            self.send_rest()

    def send_rest(self, now_ns: int = 0) -> None:
        """Send the partly filled packet. After an abort the stream has ended, and the packet is dropped."""
        if self._packer.has_rest:
            try:
                self._core.submit((self._packer.take_rest(),))
            except SourceClosed:
                return


def zeromq_required(feature: str) -> UsageError:
    """Return the error for a feature that only ZeroMQ's framing has."""
    return UsageError(
        f"only streams with ZeroMQ's framing have {feature}",
        remedy='open an epgm:// address, or write framing = "zeromq" at the stream',
    )


def messages_of(payloads: Sequence[Payload] | npt.NDArray[np.uint8]) -> list[tuple[Payload]]:
    """Return payloads, or the rows of an array, as messages of one part."""
    if isinstance(payloads, np.ndarray):
        return [(row.tobytes(),) for row in payloads]
    return [(payload,) for payload in payloads]


class ZeromqReceiver:
    """Unpacker of framed packets. Each session has a decoder; all share one filter."""

    def __init__(
        self, data_ports: Iterable[int], max_message: int, subscriptions: Subscriptions, counters: Counters
    ) -> None:
        self._data_ports = frozenset(data_ports)
        self._max_message = max_message
        self.subscriptions = subscriptions
        self._counters = counters
        self._decoders: dict[Tsi, Decoder] = {}

    def begun(self, tsi: Tsi) -> int | None:
        """Return the sqn in which the incomplete message of a session began; None without one."""
        decoder = self._decoders.get(tsi)
        return None if decoder is None else decoder.begun

    def take(self, item: BatchItem) -> Iterator[BatchItem]:
        """Yield the messages of an item; yield the item itself if its stream is not framed."""
        if isinstance(item, Opened) and item.data_port in self._data_ports and item.tsi not in self._decoders:
            self._decoders[item.tsi] = Decoder(self._max_message)
        decoder = self._decoders.get(item.tsi)
        if decoder is None:
            yield item
        elif isinstance(item, Batch):
            yield from self._items_of(item.tsi, decoder.add(item.first_sqn, item.payloads))
        else:
            if isinstance(item, Lost) or (isinstance(item, Closed) and item.cause is not CloseCause.SILENT):
                yield from self._items_of(item.tsi, decoder.lost())
            if isinstance(item, Closed) and item.cause is not CloseCause.SILENT:
                del self._decoders[item.tsi]
            yield item

    def _items_of(self, tsi: Tsi, results: Sequence[DecodedMessages | UnusedPackets]) -> Iterator[BatchItem]:
        for result in results:
            if isinstance(result, DecodedMessages):
                batch = self.wanted(MultipartBatch(tsi, result.messages, result.sqns))
                if batch is not None:
                    yield batch
            else:
                self._counters.framing_rejects += result.count if result.is_malformed else 0
                yield Lost(
                    tsi, result.first, result.count, LossCause.MALFORMED if result.is_malformed else LossCause.FRAGMENT
                )

    def wanted(self, item: BatchItem) -> BatchItem | None:
        """Return the item without messages that no subscription matches; None if none is left."""
        if not isinstance(item, MultipartBatch):
            return item
        chosen = self.subscriptions.select(item.messages)
        if chosen is None or len(chosen) == len(item):
            return item
        batch = MultipartBatch(item.tsi, [item.messages[at] for at in chosen], [item.sqns[at] for at in chosen])
        return batch if chosen else None
