"""Places of event logs: folders, and agents that serve the folder of their host.

Executors have neither trio nor h11, so agents are asked by the standard library.
"""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlencode, urlsplit

import attrs
import pyarrow as pa

from pgm.errors import PgmError
from pgm.spark.errors import CodedError
from pgm.spark.fleet.options import FleetOptions
from pgm.telemetry.events import FIRST_ROW
from pgm.telemetry.log_files import EVENTS_PATH, ROWS_PATH, EventFolder, LogState, states_of

_MOST_ANSWER = 1 << 26  # octets
_MOST_AT_ONCE = 32  # places asked at a time
_MOST_LOGS = 16_384  # of one place
_DENIED = 401


class PlaceAway(CodedError):
    """Agent or folder that does not answer."""

    code = "PGM-SPARK-FLEET"


class PlaceSilent(PlaceAway):
    """Agent to which no connection came about, or that was silent for too long. Another attempt may succeed."""


class Place(Protocol):
    """Place of event logs."""

    @property
    def name(self) -> str:
        """Return the name of the place: a folder or a URL."""

    def states(self, until_us: int | None) -> list[LogState]:
        """Return the logs, cut after `until_us`. Raises `PlaceAway`."""

    def rows(self, log: str, first: int, end: int) -> Iterator[tuple[int, pa.Table]]:
        """Yield tables of rows with the number of their first row; deleted rows are left out. Raises `PlaceAway`."""


@attrs.define
class FolderPlace:
    """Folder that this process sees."""

    name: str
    _folder: EventFolder = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._folder = EventFolder(Path(self.name))

    def states(self, until_us: int | None) -> list[LogState]:
        """Return the logs, cut after `until_us`. Raises `PlaceAway`."""
        try:
            if not Path(self.name).is_dir():
                raise PlaceAway(f"{self.name} is no folder here", remedy="mount it, or let nodes write telemetry")
            return states_of(self._folder, until_us)
        except (OSError, PgmError) as error:
            raise _away(error) from error

    def rows(self, log: str, first: int, end: int) -> Iterator[tuple[int, pa.Table]]:
        """Yield tables of rows. Raises `PlaceAway`."""
        try:
            yield from self._folder.rows(log, first, end)
        except (OSError, PgmError) as error:
            raise _away(error) from error


def _away(error: Exception) -> PlaceAway:
    return error if isinstance(error, PlaceAway) else PlaceAway(str(error).splitlines()[0])


@attrs.define
class AgentPlace:
    """Agent of a host. `name` has its URLs, separated by `|`; the one that answered last is asked first."""

    name: str
    token: str = attrs.field(repr=False)
    context: ssl.SSLContext | None
    timeout_s: float
    _urls: list[str] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._urls = [url.strip().rstrip("/") for url in self.name.split("|")]

    def states(self, until_us: int | None) -> list[LogState]:
        """Return the logs, cut after `until_us`. Raises `PlaceAway`."""
        query = {} if until_us is None else {"until": until_us}
        try:
            rows = json.loads(self._get(EVENTS_PATH, query))["logs"][:_MOST_LOGS]
            return [LogState(**{key: row[key] for key in _STATE}) for row in rows]
        except (ValueError, KeyError, TypeError) as error:
            raise PlaceAway(f"{self.name}: no answer of an agent", remedy="run the same version there") from error

    def rows(self, log: str, first: int, end: int) -> Iterator[tuple[int, pa.Table]]:
        """Yield tables of rows. Raises `PlaceAway`."""
        at = first
        while at < end:
            octets = self._get(ROWS_PATH, {"log": log, "first": at, "end": end})
            try:
                table = pa.ipc.open_stream(octets).read_all()
                begin = int((table.schema.metadata or {})[FIRST_ROW])
            except (pa.ArrowException, KeyError, ValueError) as error:
                raise PlaceAway(f"{self.name}: no rows of an agent", remedy="run the same version there") from error
            if not table.num_rows or begin < at or begin + table.num_rows > end:
                return
            yield begin, table.replace_schema_metadata(None)
            at = begin + table.num_rows

    def _get(self, path: str, query: Mapping[str, Any]) -> bytes:
        problem = ""
        for url in list(self._urls):
            try:
                octets = self._asked(url, f"{path}?{urlencode(query)}")
            except (OSError, http.client.HTTPException) as error:
                problem = problem or f"{url}: {getattr(error, 'strerror', None) or error}"
            else:
                self._urls.sort(key=lambda one: one != url)
                return octets
        raise PlaceSilent(problem, remedy="run pgm agent FILE on that host, and let TCP to its port pass")

    def _asked(self, url: str, target: str) -> bytes:
        place = urlsplit(url)
        assert place.hostname is not None
        connection = (
            http.client.HTTPSConnection(place.hostname, place.port, timeout=self.timeout_s, context=self.context)
            if place.scheme == "https"
            else http.client.HTTPConnection(place.hostname, place.port, timeout=self.timeout_s)
        )
        try:
            connection.request("GET", target, headers={"Authorization": f"Bearer {self.token}"} if self.token else {})
            answer = connection.getresponse()
            octets = answer.read(_MOST_ANSWER + 1)
        finally:
            connection.close()
        if answer.status != 200 or len(octets) > _MOST_ANSWER:
            reason = "the agent refuses the token" if answer.status == _DENIED else _told(octets, answer.status)
            raise PlaceAway(f"{url}: {reason}", remedy="look at tokenFile, and at the agent's log")
        return octets


_STATE = tuple(attrs.fields_dict(LogState))


def _told(octets: bytes, status: int) -> str:
    """Return the reason of an agent's refusal, without control characters."""
    text = octets[:200].decode("ascii", "replace")
    try:
        text = str(json.loads(octets)["error"]["message"])[:200]
    except (ValueError, KeyError, TypeError):
        text = f"status {status}: {text}"
    return "".join(letter if letter.isprintable() else " " for letter in text)


def places_of(options: FleetOptions) -> dict[str, Place]:
    """Return the places that the options name. Raises `PlaceAway` if a file of them cannot be read."""
    found: dict[str, Place] = {name: FolderPlace(name) for name in options.path}
    try:
        token = Path(options.token_file).read_text().strip() if options.token_file else ""
        context = ssl.create_default_context(cafile=options.ca_file) if options.ca_file else None
    except OSError as error:  # an SSLError is one
        raise PlaceAway(f"tokenFile or caFile: {error}", remedy="name a file that this host has") from error
    for name in options.agents:
        found[name] = AgentPlace(name, token, context, options.timeout_s)
    return found


@attrs.frozen
class FleetSurvey:
    """States of all logs by name, each with its place, and the places that are away with the reason."""

    logs: Mapping[str, tuple[str, LogState]]
    away: Mapping[str, str]


def survey(places: Iterable[Place], until_us: int | None = None) -> FleetSurvey:
    """Ask all places at once."""
    asked: Sequence[Place] = list(places)
    logs: dict[str, tuple[str, LogState]] = {}
    away: dict[str, str] = {}
    with ThreadPoolExecutor(min(_MOST_AT_ONCE, len(asked))) as pool:
        for place, answer in zip(asked, pool.map(lambda one: _states_or_reason(one, until_us), asked), strict=True):
            if isinstance(answer, str):
                away[place.name] = answer
            else:
                logs.update({state.name: (place.name, state) for state in answer})
    return FleetSurvey(logs, away)


def _states_or_reason(place: Place, until_us: int | None) -> list[LogState] | str:
    try:
        return place.states(until_us)
    except PlaceAway as error:
        return error.message
