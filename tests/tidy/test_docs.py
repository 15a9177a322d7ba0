"""Generated pages are fresh, links have a target, and every parameter and counter is explained."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from deploy.reference import PAGES
from deploy.reference import page as printed
from tests.tidy.pictures import FOLDER, PICTURES
from tests.tidy.shared_tables import shared_tables

ROOT = Path(__file__).resolve().parents[2]
DOCS = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"])


@pytest.mark.parametrize("name", PAGES)
def test_generated_pages_are_fresh(name: str) -> None:
    committed = (ROOT / name).read_text()
    assert committed == printed(name), f"{name} is stale; write it with: python -m deploy.reference --write"


@pytest.mark.parametrize("name", PICTURES)
def test_drawn_pictures_are_fresh(name: str) -> None:
    assert (FOLDER / name).read_text() == PICTURES[name](), (
        f"docs/pictures/{name} is stale; draw it: python -m tests.tidy.pictures --write"
    )


@pytest.mark.parametrize(("page", "table"), shared_tables(), ids=lambda value: value.splitlines()[0])
def test_pages_show_the_tables_of_the_code(page: str, table: str) -> None:
    assert table in (ROOT / page).read_text(), f"paste it into {page}: python -m tests.tidy.shared_tables --write"


def anchors(path: Path) -> set[str]:
    """Return the anchors of the headings of a page."""
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    heads = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head).strip().lower().replace(" ", "-") for head in heads}


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_links_to_headings_find_them(path: Path) -> None:
    for target, anchor in re.findall(r"\]\((?!https?://)([^)#]*)#([^)]+)\)", path.read_text()):
        page = path.parent / target if target else path
        assert anchor in anchors(page), f"{path.name} links to #{anchor} of {page.name}"


def test_every_page_is_reachable_from_the_readme() -> None:
    pages = [ROOT / "README.md"]
    for path in pages:
        targets = re.findall(r"\]\((?!https?://)([^)#]+\.md)", path.read_text())
        pages += {(path.parent / target).resolve() for target in targets} - set(pages)
    assert set(pages) >= set(DOCS)


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_links_and_files_named_in_the_docs_exist(path: Path) -> None:
    text = path.read_text()
    for target in re.findall(r"\]\((?!https?://)([^)#]+)(?:#[^)]*)?\)", text):
        assert (path.parent / target).exists(), f"{path.name} links to {target}"
    for name in re.findall(r"`((?:pgm|aggregator|repairer|deploy|tests|docs)/[\w/.-]+\.(?:py|md|toml))`", text):
        assert (ROOT / name).exists(), f"{path.name} names {name}"


def test_docs_install_commands_name_the_project() -> None:
    """With the name, installation works from any folder and not from a checkout alone."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    known = {f"{project['name']}[{extra}]" for extra in project["optional-dependencies"]}
    files = [
        path
        for folder in ("pgm", "deploy", "docs")
        for path in (ROOT / folder).rglob("*.*")
        if path.suffix in (".py", ".md")
    ]
    named = {name for path in files for name in re.findall(r"pip\s+install\s+'([^'{]+)'", path.read_text())}
    assert named
    assert named <= known, named - known
