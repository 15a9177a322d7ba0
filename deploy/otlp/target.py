"""Collector that gets the metrics: options of the command, and the file with headers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

import attrs
import click

from deploy.terminal.options import PATH, option
from deploy.terminal.token_file import secret_text
from pgm.errors import UsageError

DEFAULT_IVL_S = 10.0  # as often as Prometheus asks in the example of the page; nodes cost a millisecond each time
_LEAST_IVL_S, _MOST_IVL_S = 1.0, 3600.0
_PATH = "/v1/metrics"  # of the specification of OTLP, for URLs without a path
_MOST_HEADERS = 32
_MOST_OCTETS = 16_384  # of the file
_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+)\s*:\s*([ -~]*)")
_REMEDY = "write one NAME: VALUE a line, as in: Authorization: Bearer TOKEN"


@attrs.frozen
class OtlpTarget:
    """Collector with the headers of requests, and the seconds between requests."""

    url: str
    headers: Mapping[str, str] = attrs.field(repr=False)
    interval_s: float = DEFAULT_IVL_S

    @property
    def shown(self) -> str:
        """Return the URL for people, without a password."""
        return urlsplit(self.url)._replace(netloc=urlsplit(self.url).netloc.rpartition("@")[2], query="").geturl()


def otlp_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --otlp and its further options to a command, which gets them as one `otlp`, None without --otlp."""

    @click.option(
        "--otlp", "url", metavar="URL", help="Send the metrics to this collector of OpenTelemetry, too (OTLP by HTTP)."
    )
    @click.option(
        "--otlp-headers", type=PATH, help="With --otlp: file with headers of each request, one NAME: VALUE a line."
    )
    @option(
        "--otlp-interval",
        "interval_s",
        type=click.FloatRange(_LEAST_IVL_S, _MOST_IVL_S),
        default=DEFAULT_IVL_S,
        help="With --otlp: seconds between two requests.",
    )
    @wraps(function)
    def wrapper(*args: Any, url: str | None, otlp_headers: Path | None, interval_s: float, **kwargs: Any) -> Any:
        if url is None and otlp_headers is not None:
            raise UsageError("--otlp-headers needs --otlp", remedy="as in: --otlp http://collector:4318")
        target = None if url is None else OtlpTarget(_checked(url), _headers(otlp_headers), interval_s)
        return function(*args, otlp=target, **kwargs)

    return wrapper


def _checked(url: str) -> str:
    """Return a URL with the path of metrics. Raises `UsageError`."""
    try:
        parts: SplitResult | None = urlsplit(url)
        is_good = parts is not None and parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        parts, is_good = None, False
    if parts is None or not is_good:
        raise UsageError(f"--otlp {url[:200]}: no URL of a collector", remedy="as in: http://127.0.0.1:4318")
    return parts._replace(path=_PATH).geturl() if parts.path in ("", "/") else url


def _headers(file: Path | None) -> dict[str, str]:
    """Return the headers in a file. Raises `UsageError` for an unreadable file, and for a line that is no header."""
    if file is None:
        return {}
    found: dict[str, str] = {}
    with secret_text("--otlp-headers", file, _MOST_OCTETS, _REMEDY) as text:
        for number, line in enumerate(text.splitlines(), 1):
            if not line.strip() or line.startswith("#"):
                continue
            match = _HEADER.fullmatch(line.strip())
            if match is None:  # the line may be a secret, so it is not told
                raise UsageError(f"--otlp-headers {file}: line {number} is no header", remedy=_REMEDY)
            found[match[1]] = match[2]
        if len(found) > _MOST_HEADERS or len(text) > _MOST_OCTETS:
            raise UsageError(
                f"--otlp-headers {file}: too long",
                remedy=f"give at most {_MOST_HEADERS} headers in {_MOST_OCTETS:,} octets",
            )
    return found
