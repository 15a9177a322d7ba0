"""Resources of an agent for readers of event logs: states of the logs of its host, and their rows as Arrow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import attrs
import trio
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from pgm.errors import PgmError, UsageError
from pgm.telemetry.log_files import EVENTS_PATH, ROWS_PATH, EventFolder, states_of

_MOST_ROWS = 100_000  # of an answer, some 10 MB
_ARROW = "application/vnd.apache.arrow.stream"
_MOST_NUMBER = 1 << 62


@attrs.define
class EventService:
    """Event logs in the folder of an agent's host. None: nodes write no telemetry."""

    folder: Path | None
    _logs: EventFolder = attrs.field(init=False, default=attrs.Factory(lambda self: EventFolder(self.folder or Path()), takes_self=True))  # fmt: skip
    _reading: trio.Lock = attrs.field(init=False, factory=trio.Lock)  # files are large: one request at a time

    def routes(self) -> list[Route]:
        """Return the resources."""
        return [
            Route(EVENTS_PATH, self.states, methods=["GET"]),
            Route(ROWS_PATH, self.rows, methods=["GET"]),
        ]

    async def states(self, request: Request) -> Response:
        """Return the state of each log, cut after the time `until` in us since 1970."""
        return await self._answer(request, self._states)

    async def rows(self, request: Request) -> Response:
        """Return rows of `log` from `first` on, before `end`, as many as fit; the number of the first is in the metadata."""
        return await self._answer(request, self._rows)

    async def _answer(self, request: Request, answer: Callable[[dict[str, str]], Response]) -> Response:
        if self.folder is None:
            return _refusal(404, "nodes of this host write no telemetry", "set `telemetry` in the topology file")
        try:
            async with self._reading:
                return await trio.to_thread.run_sync(answer, dict(request.query_params), abandon_on_cancel=True)
        except UsageError as error:
            return _refusal(400, error.message, error.remedy)
        except PgmError as error:
            return _refusal(502, error.message, error.remedy)

    def _states(self, query: dict[str, str]) -> Response:
        until_us = _number(query, "until") if "until" in query else None
        rows = [attrs.asdict(state, recurse=False) for state in states_of(self._logs, until_us)]
        return JSONResponse({"logs": rows, "unnumbered": self._logs.unnumbered})

    def _rows(self, query: dict[str, str]) -> Response:
        from pyarrow import BufferOutputStream, ipc

        from pgm.telemetry.events import FIRST_ROW, arrow_schema

        log, first = query.get("log", ""), _number(query, "first")
        if log not in self._logs.logs():
            raise UsageError(f"there is no log {log[:80]!r}", remedy=f"GET {EVENTS_PATH} names the logs")
        found = self._logs.rows(log, first, _number(query, "end"))
        begin, table = next(found, (first, arrow_schema().empty_table()))
        table = table.slice(0, _MOST_ROWS).replace_schema_metadata({FIRST_ROW: str(begin).encode()})
        sink = BufferOutputStream()
        with ipc.new_stream(sink, table.schema, options=ipc.IpcWriteOptions(compression="lz4")) as writer:
            writer.write_table(table)
        return Response(sink.getvalue().to_pybytes(), media_type=_ARROW)


def _number(query: dict[str, str], key: str) -> int:
    """Return a number of a query. Raises `UsageError`."""
    text = query.get(key, "")
    if not text.removeprefix("-").isdecimal() or not text.isascii() or len(text) > 19 or abs(int(text)) > _MOST_NUMBER:
        raise UsageError(f"`{key}` is no number", remedy=f"as in {ROWS_PATH}?log=desk-7-6483&first=0&end=1000")
    return int(text)


def _refusal(status: int, message: str, remedy: str) -> Response:
    return JSONResponse({"error": {"message": message, "remedy": remedy}}, status)
