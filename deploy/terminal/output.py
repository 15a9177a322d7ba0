"""Output shared by all commands: results as text or JSON, and errors as one message with a remedy."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial, wraps
from typing import IO, Any, NoReturn

import click

from deploy.terminal.exit_codes import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USAGE
from pgm.errors import PgmError, ProcessError, TopologyError, UnitError, UsageError

_OPEN_FILES = (errno.EMFILE, errno.ENFILE)  # too many open files in the process, on the machine


def print_json(value: Any, file: IO[str] | None = None) -> None:
    """Print one JSON value on one line, so that scripts can read line by line."""
    print(json.dumps(value, separators=(",", ":"), default=str), flush=True, file=file)


def exit_code_of(error: PgmError) -> int:
    """Return 2 for an error in the user's input, 1 for a failure."""
    return EXIT_USAGE if isinstance(error, (UsageError, TopologyError, UnitError)) else EXIT_FAILED


def fail(error: PgmError, *, as_json: bool, file: IO[str] | None = None) -> NoReturn:
    """End the command with the error's message, remedy and exit code. JSON goes to `file`, standard output by default."""
    is_printed = False
    if as_json:
        with contextlib.suppress(OSError):  # the output itself may have failed; then the error goes to standard error
            print_json({"error": _error_row(error)}, file)
            is_printed = True
    if not is_printed:
        for line in error.message.splitlines():
            warn(line)
        if error.remedy:
            remedy(error.remedy)
    sys.exit(exit_code_of(error))


def _error_row(error: PgmError) -> dict[str, Any]:
    """Return an error as an object. An error of a topology file may have several problems, each with its remedy."""
    row: dict[str, Any] = {"code": error.code, "message": error.message, "remedy": error.remedy}
    if isinstance(error, TopologyError) and error.rows:
        row["problems"] = error.rows
        if len(error.rows) == 1:
            row["remedy"] = error.rows[0]["remedy"]
    return row


def command(function: Callable[..., Any], *, is_json_on_stderr: bool = False) -> Callable[..., Any]:
    """Wrap a command: add --json, and turn every expected error into a message, a remedy and an exit code."""
    stream = "standard error, as the last line" if is_json_on_stderr else "standard output"

    @click.option(
        "--json",
        "as_json",
        is_flag=True,
        help=f"Print results and errors as JSON on {stream}; see docs/reference/command.md.",
    )
    @wraps(function)
    def wrapper(*args: Any, as_json: bool, **kwargs: Any) -> Any:
        try:
            try:
                return function(*args, as_json=as_json, **kwargs)
            finally:
                _flush()  # inside the try block, so that a full disk or a closed pipe is reported
        except (Exception, KeyboardInterrupt, BaseExceptionGroup) as error:
            _end(error, as_json, sys.stderr if is_json_on_stderr else None)

    return wrapper


# Decorator of commands with data on standard output.
data_command = partial(command, is_json_on_stderr=True)


def _end(error: BaseException, as_json: bool, file: IO[str] | None) -> NoReturn:
    """End the command by an error of one or several tasks. Raises an unexpected error unchanged."""
    causes = list(_leaves(error))
    for error_class in (KeyboardInterrupt, BrokenPipeError, PgmError, OSError):
        cause = next((leaf for leaf in causes if isinstance(leaf, error_class)), None)
        if isinstance(cause, KeyboardInterrupt):
            sys.exit(EXIT_INTERRUPTED)
        if isinstance(cause, BrokenPipeError):
            _drop_stdout()
            sys.exit(EXIT_FAILED)
        if isinstance(cause, PgmError):
            fail(cause, as_json=as_json, file=file)
        if isinstance(cause, OSError):
            _drop_stdout()
            fail(refused(cause), as_json=as_json, file=file)
    raise error


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions:
            yield from _leaves(member)
    else:
        yield error


def _flush() -> None:
    if sys.stdout is not None:  # None if the caller closed descriptor 1
        sys.stdout.flush()


def _drop_stdout() -> None:
    """Discard output that standard output rejects; the interpreter would otherwise report a second error at its end."""
    try:
        _flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())


def refused(error: OSError) -> PgmError:
    """Return the `ProcessError` for an error of the operating system that is no socket error, mostly of files and pipes."""
    path = f"{error.filename}: " if error.filename else ""
    remedy = "check the path, its permissions and the space left"
    if error.errno in _OPEN_FILES:
        remedy = "raise the limit of open files: ulimit -n, in a unit LimitNOFILE"
    return ProcessError(f"{path}{error.strerror or error}", remedy=remedy)


def warn(text: str) -> None:
    """Print a message on standard error, apart from results."""
    print_line(f"pgm: {text}")


def remedy(text: str) -> None:
    """Print the remedy for the problem in the previous line."""
    print_line(f"  remedy: {text}")


def print_line(text: str) -> None:
    """Print a line on standard error."""
    with contextlib.suppress(OSError):  # a full disk or a closed pipe behind the log must not end the process
        print(text, file=sys.stderr, flush=True)
