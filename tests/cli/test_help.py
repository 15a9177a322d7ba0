"""Every help page says the purpose of the command and of every option, with at least one valid example."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from deploy.cli import main
from tests.cli.command import pgm
from tests.net.support.lab import ROOT

CONTEXT = click.Context(main, info_name="pgm")
COMMANDS = main.list_commands(CONTEXT)
_WIDTH = 80
_SHELL = re.compile(r"&&|[|<>&]|\d>")


def command_named(name: str) -> click.Command:
    command = main.get_command(CONTEXT, name)
    assert command is not None
    return command


def help_of(*name: str) -> str:
    done = CliRunner().invoke(main, [*name, "--help"], prog_name="pgm", terminal_width=_WIDTH)
    assert done.exit_code == 0, done.output
    return done.output


def examples(text: str) -> Iterator[list[str]]:
    """Return the words of every pgm command in a text, without redirections and pipes."""
    for line in text.splitlines():
        words = shlex.split(line.split("  #")[0].strip(), comments=True) if re.match(r"\s*(.*\| )?pgm ", line) else []
        current: list[str] | None = None
        for word in [*words, "|"]:
            if _SHELL.fullmatch(word):
                if current and current[0] == "pgm":
                    yield current[1:]
                current = None if word in "<>" else []
            elif current is not None or word == "pgm":
                current = [*(current or []), word]


def assert_valid_command(words: list[str]) -> None:
    """Assert that the command exists and takes these arguments."""
    name, *arguments = words
    assert name in COMMANDS, words
    with command_named(name).make_context(name, arguments, parent=CONTEXT):
        pass


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command(name: str) -> None:
    text = help_of(name)
    assert text.startswith(f"Usage: pgm {name} ")
    assert all(len(line) <= _WIDTH for line in text.splitlines() if "pgm://" not in line)
    body = text.split("\n\n", 1)[1].split("Options:")[0]
    assert len(body.split()) > 15, "the help text is too short"
    told = list(examples(body))
    assert any(one[0] == name for one in told), "the help has no example of the command"
    for words in told:
        assert_valid_command(words)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_explained_and_takes_json(name: str) -> None:
    options = [one for one in command_named(name).params if isinstance(one, click.Option)]
    assert {one.name for one in options if not one.help and not one.hidden} == set()  # hidden: former names
    assert "--json" in {spelling for one in options for spelling in one.opts}


def test_the_overview_through_the_real_process() -> None:
    done = pgm("--help")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("Usage: pgm ")
    for name in COMMANDS:
        assert re.search(rf"^  {name} +\w", done.out, re.MULTILINE), name
    assert "Exit codes: 0 done, 1 failed, 2 wrong usage or a wrong file" in done.out
    assert pgm("-h").out == done.out
    assert re.fullmatch(r"pgm, version \d+\.\d+\.\d+\n", pgm("--version").out)


def test_help_without_a_command_shows_the_overview() -> None:
    done = pgm()
    assert done.code == 2
    assert "Commands:" in done.out + done.err


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "docs/reference/command.md",
        "docs/internals/design.md",
        "docs/guide/monitoring.md",
        "docs/guide/telemetry.md",
        "docs/guide/security.md",
        "docs/reference/topology.md",
        "docs/guide/tuning.md",
        "docs/guide/simulator.md",
        "docs/guide/predict.md",
    ],
)
def test_help_commands_in_the_documents_are_valid(page: str) -> None:
    text = (ROOT / page).read_text()
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    told = [words for block in blocks for words in examples(block)]
    told += [shlex.split(one)[1:] for one in re.findall(r"`(pgm [^`]+)`", text) if "COMMAND" not in one]
    for words in told:
        if words[1:]:
            assert_valid_command(words)
        else:
            assert words[0] in COMMANDS
    assert told or page != "README.md"


def test_help_command_page_lists_every_command() -> None:
    page = (ROOT / "docs" / "reference" / "command.md").read_text()
    assert [name for name in COMMANDS if f"| `{name}` |" not in page] == []
