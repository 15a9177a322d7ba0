"""`pgm archive schema`: the fields of the values, from a sample."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from deploy.terminal.output import print_json, remedy, warn
from pgm.errors import UsageError

if TYPE_CHECKING:
    from pgm.archive.requests import SessionExtent
    from pgm.archive.service.collection import Archives

SAMPLE = 1000  # values: enough to see what one in a hundred has, and read in a second
CODECS = ("cbor", "json", "arrow")
_PLACES = 8  # of each session, from its oldest row to its newest: fields may change in between
_PATIENCE_S = 30.0
_PREFIX = "value_"


def is_address(text: str) -> bool:
    """Return whether a text names a range service, and no directory."""
    return text.startswith(("grpc://", "grpc+tls://", "grpc+tcp://"))


def print_schema(where: Archives | str, as_json: bool, options: dict[str, Any]) -> int:
    """Print the fields of the values of archives, or of a range service. Raises `UsageError`, `ArchiveError`."""
    from pgm.messages.typed.fields import ValueCodec
    from pgm.messages.typed.inference import sampled_schema

    most = options["sample"] or SAMPLE
    subjects = tuple(options["subjects"]) or None
    sample = _from_service(where, subjects, most) if isinstance(where, str) else _from_directory(where, subjects, most)
    values = list(sample)
    if not values:
        of = f" with the subjects {', '.join(subjects)}" if subjects else ""
        raise UsageError(f"the archive holds no message{of}", remedy="pgm archive ls DIRECTORY shows the sessions")
    codec = None if options["codec"] is None else ValueCodec(options["codec"])
    found = sampled_schema(values, codec)
    clashes = _clashes([field.name for field in found.fields])
    if as_json:
        print_json(
            {
                "decode": found.codec.value,
                "ddl": found.ddl,
                "sampled": found.sampled,
                "differ": found.differing,
                "reasons": [{"reason": reason, "values": count} for reason, count in found.reasons.items()],
                "clashes": clashes,
            }
        )
        return 0
    print(found.ddl)
    warn(f"{found.codec.value}: {found.sampled:,} values sampled, {found.differing:,} differ")
    for reason, count in found.reasons.items():
        warn(f"{count:,}: {reason}")
    if clashes:
        warn(f"columns of the rows have the names of the fields {', '.join(clashes)}")
        remedy(f'.option("decodePrefix", "{_PREFIX}")')
    return 0


def _clashes(names: Sequence[str]) -> list[str]:
    from pgm.archive.store.schema import COLUMN_NAMES

    return [name for name in names if name.lower() in (*COLUMN_NAMES, "verified", "decode_error")]


def _places(extent: SessionExtent) -> Iterator[tuple[int, int]]:
    """Yield the ranges of a session from whose beginnings values are taken."""
    sqns = extent.next_sqn - extent.oldest
    cuts = sorted({extent.oldest + sqns * place // _PLACES for place in range(_PLACES)})
    yield from zip(cuts, [*cuts[1:], extent.next_sqn], strict=True)


def _shares(extents: Sequence[SessionExtent], most: int) -> Iterator[tuple[SessionExtent, int, int, int]]:
    """Yield sessions with ranges and numbers of values, which together are at most `most`."""
    held = [extent for extent in extents if extent.next_sqn > extent.oldest][:most]
    parts = [(extent, first, end) for extent in held for first, end in _places(extent)]
    for place, (extent, first, end) in enumerate(parts):
        share = most * (place + 1) // len(parts) - most * place // len(parts)
        if share:
            yield extent, first, end, share


def _from_directory(archives: Archives, subjects: tuple[str, ...] | None, most: int) -> Iterator[bytes]:
    from pgm.archive.requests import RangeRequest
    from pgm.archive.session import COMPANIONS

    extents = [extent for extent in archives.holdings() if extent.kind not in COMPANIONS]
    for extent, first, end, share in _shares(extents, most):
        request = RangeRequest(
            extent.tsi,
            epoch_us=extent.epoch_us,
            first=first,
            end=end,
            columns=("value",),
            subjects=subjects,
            node=extent.node,
        )
        left = share
        for batch in archives.read(request).batches():
            values = batch.column("value").drop_null()[:left].to_pylist()
            yield from values
            left -= len(values)
            if not left:
                break


def _from_service(where: str, subjects: tuple[str, ...] | None, most: int) -> Iterator[bytes]:
    from pgm.archive.client import ArchivedMessages, RangeClient
    from pgm.archive.errors import ArchiveError
    from pgm.archive.requests import RangeRequest

    client = RangeClient(where, _PATIENCE_S)
    try:
        for extent, first, end, share in _shares(client.holdings(None), most):
            request = RangeRequest(
                extent.tsi, epoch_us=extent.epoch_us, first=first, end=end, subjects=subjects, node=extent.node
            )
            left = share
            for part in client.rows(request):
                if isinstance(part, ArchivedMessages):
                    values = part.columns.part(0, min(left, part.columns.count)).payloads()
                    yield from values
                    left -= len(values)
                    if not left:
                        break
    except ArchiveError as error:
        raise ArchiveError(
            f"{where} does not give its values: {error.message}",
            remedy="start it (pgm serve), correct its address, or name the directory on its host, as for services with keys or a token",
        ) from None
    finally:
        client.close()
