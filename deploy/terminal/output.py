"""What all commands share: results for people or as JSON, and errors that end in one clear message."""

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

_OPEN_FILES = (errno.EMFILE, errno.ENFILE)  # of the process, of the machine


def print_json(value: Any, file: IO[str] | None = None) -> None:
    """One JSON object on one line, so that scripts can read line by line."""
    print(json.dumps(value, separators=(",", ":"), default=str), flush=True, file=file)


def exit_code_of(error: PgmError) -> int:
    """2 for what the user wrote, 1 for what did not work."""
    return EXIT_USAGE if isinstance(error, (UsageError, TopologyError, UnitError)) else EXIT_FAILED


def fail(error: PgmError, *, as_json: bool, file: IO[str] | None = None) -> NoReturn:
    """End the command with the error's message, remedy and exit code. JSON goes to `file`, standard output by default."""
    is_told = False
    if as_json:
        with contextlib.suppress(OSError):  # the output may be what has failed; then it is told in words
            print_json({"error": _error_row(error)}, file)
            is_told = True
    if not is_told:
        for line in error.message.splitlines():
            warn(line)
        if error.remedy:
            remedy(error.remedy)
    sys.exit(exit_code_of(error))


def _error_row(error: PgmError) -> dict[str, Any]:
    """An error as an object; a topology file may have many, each with a remedy of its own."""
    row: dict[str, Any] = {"code": error.code, "message": error.message, "remedy": error.remedy}
    if isinstance(error, TopologyError) and error.rows:
        row["problems"] = error.rows
        if len(error.rows) == 1:
            row["remedy"] = error.rows[0]["remedy"]
    return row


def command(function: Callable[..., Any], *, is_json_on_stderr: bool = False) -> Callable[..., Any]:
    """Wrap a command: adds --json, and turns everything that can go wrong into message, remedy and exit code."""
    where = "standard error, behind what is said there" if is_json_on_stderr else "standard output"

    @click.option(
        "--json", "as_json", is_flag=True, help=f"Results and errors as JSON on {where}; see docs/reference/command.md."
    )
    @wraps(function)
    def wrapper(*args: Any, as_json: bool, **kwargs: Any) -> Any:
        try:
            try:
                return function(*args, as_json=as_json, **kwargs)
            finally:
                _flush()  # here, where a full disk or a closed pipe can still be told
        except (Exception, KeyboardInterrupt, BaseExceptionGroup) as error:
            _end(error, as_json, sys.stderr if is_json_on_stderr else None)

    return wrapper


# For commands whose standard output is data.
data_command = partial(command, is_json_on_stderr=True)


def _end(error: BaseException, as_json: bool, file: IO[str] | None) -> NoReturn:
    """End the command by what one or several of its tasks raised. What nobody foresaw is raised as it is."""
    causes = list(_leaves(error))
    for kind in (KeyboardInterrupt, BrokenPipeError, PgmError, OSError):
        found = next((cause for cause in causes if isinstance(cause, kind)), None)
        if isinstance(found, KeyboardInterrupt):
            sys.exit(EXIT_INTERRUPTED)
        if isinstance(found, BrokenPipeError):
            _drop_stdout()
            sys.exit(EXIT_FAILED)
        if isinstance(found, PgmError):
            fail(found, as_json=as_json, file=file)
        if isinstance(found, OSError):
            _drop_stdout()
            fail(refused(found), as_json=as_json, file=file)
    raise error


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from _leaves(one)
    else:
        yield error


def _flush() -> None:
    if sys.stdout is not None:  # closed by whoever started us
        sys.stdout.flush()


def _drop_stdout() -> None:
    """Give up what standard output does not take, or the interpreter would complain of it once more at its end."""
    try:
        _flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())


def refused(error: OSError) -> PgmError:
    """What the operating system refused outside of sockets: files and pipes, mostly."""
    what = f"{error.filename}: " if error.filename else ""
    remedy = "check the path, its permissions and the space left"
    if error.errno in _OPEN_FILES:
        remedy = "raise the limit of open files: ulimit -n, in a unit LimitNOFILE"
    return ProcessError(f"{what}{error.strerror or error}", remedy=remedy)


def warn(text: str) -> None:
    """A line for people, never mixed with results."""
    _say(f"pgm: {text}")


def log(code: str, text: str) -> None:
    """One line of a process's log: a stable code and a sentence."""
    _say(f"{code}: {text}")


def remedy(text: str) -> None:
    """What to do about the line before."""
    _say(f"  remedy: {text}")


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # a log that is full, or that nobody reads any more, is no reason to end
        print(text, file=sys.stderr, flush=True)
