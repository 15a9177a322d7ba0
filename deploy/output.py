"""What all commands share: results for people or as JSON, and errors that end in one clear message."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, NoReturn

import click

from pgm.errors import PgmError, TopologyError, UnitError, UsageError

EXIT_FAILED = 1
EXIT_USAGE = 2


def print_json(value: Any) -> None:
    """One JSON object on one line, so that scripts can read line by line."""
    print(json.dumps(value, separators=(",", ":"), default=str), flush=True)


def exit_code_of(error: PgmError) -> int:
    """2 for what the user wrote, 1 for what did not work."""
    return EXIT_USAGE if isinstance(error, (UsageError, TopologyError, UnitError)) else EXIT_FAILED


def fail(error: PgmError, *, as_json: bool) -> NoReturn:
    """End the command with the error's message, remedy and exit code."""
    if as_json:
        print_json({"error": {"code": error.code, "message": error.message, "remedy": error.remedy}})
    else:
        for line in error.message.splitlines():
            print(f"pgm: {line}", file=sys.stderr)
        if error.remedy:
            print(f"  remedy: {error.remedy}", file=sys.stderr)
    sys.exit(exit_code_of(error))


def command(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a command: adds --json, and turns every `PgmError` into message, remedy and exit code."""

    @click.option("--json", "as_json", is_flag=True, help="Print results as JSON.")
    @wraps(function)
    def wrapper(*args: Any, as_json: bool, **kwargs: Any) -> Any:
        try:
            return function(*args, as_json=as_json, **kwargs)
        except PgmError as error:
            fail(error, as_json=as_json)
        except KeyboardInterrupt:
            sys.exit(130)
        except BrokenPipeError:
            # Whoever read our output has gone; closing quietly is what other tools do.
            sys.stderr.close()
            sys.exit(EXIT_FAILED)

    return wrapper


def warn(text: str) -> None:
    """A line for people, never mixed with results."""
    print(f"pgm: {text}", file=sys.stderr, flush=True)


def log(code: str, text: str) -> None:
    """One line of a process's log: a stable code and a sentence."""
    print(f"{code}: {text}", file=sys.stderr, flush=True)
