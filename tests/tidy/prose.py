"""Rules of prose that a program can measure: sentences of docstrings, comments and pages, and names of tests.

`python -m tests.tidy.prose [FOLDER]` lists the sentences that break a rule.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

import attrs

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("pgm", "aggregator", "repairer", "deploy")
MOST_WORDS = 28
MOST_TEST_NAME = 64

_VAGUE = re.compile(
    r"\b(who|whom|whoever|what|whatever|somebody|nobody|everybody|anew|befalls?|befell|in vain)\b", re.IGNORECASE
)
_OPENING = re.compile(r"^(Who|Whoever|What|Whatever|Of|Where|Behind|So many|Such)\b")
_DIRECTIVE = re.compile(r"#\s*(noqa|type:|fmt:|mypy:|ruff:)")
_EXAMPLE = re.compile(r"(?m)^( {4,}|\|).*$")  # indented blocks and tables
_SENTENCE_END = re.compile(r"(?<=[.;:])\s+")


@attrs.frozen
class Sentence:
    """A sentence and its place."""

    place: str
    text: str

    @property
    def is_vague(self) -> bool:
        """Return whether the sentence relies on a word for an unnamed person or thing."""
        return bool(_VAGUE.search(self.text))

    @property
    def opens_badly(self) -> bool:
        """Return whether the sentence opens with a word that delays its subject."""
        return bool(_OPENING.match(self.text))

    @property
    def is_long(self) -> bool:
        """Return whether the sentence has more than `MOST_WORDS` words."""
        return len(self.text.split()) > MOST_WORDS


def sentences_of_module(path: Path) -> Iterator[Sentence]:
    """Yield the sentences of all docstrings, and the comments, of one module."""
    source = path.read_text()
    name = path.relative_to(ROOT)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            text = _EXAMPLE.sub("", ast.get_docstring(node) or "").replace("\n", " ")
            for sentence in _SENTENCE_END.split(text):
                if sentence.strip():
                    yield Sentence(f"{name}:{node.body[0].lineno}", sentence.strip())
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not _DIRECTIVE.match(token.string):
            yield Sentence(f"{name}:{token.start[0]}", token.string.lstrip("# ").strip())


def sentences_of_page(path: Path) -> Iterator[Sentence]:
    """Yield the sentences of a Markdown page, without code, tables, headings and pictures."""
    text = re.sub(r"(?ms)^```.*?^```", "", path.read_text())
    text = "\n".join(line for line in text.splitlines() if not line.startswith(("|", "#", "![")))
    for paragraph in re.split(r"\n\s*\n", text):
        for sentence in _SENTENCE_END.split(paragraph.replace("\n", " ").strip()):
            if len(sentence.split()) > 2:
                yield Sentence(str(path.relative_to(ROOT)), sentence)


def product_sentences(folder: str = "") -> list[Sentence]:
    """Return the sentences of all product modules, or of those below a folder."""
    paths = (path for package in PRODUCT for path in sorted((ROOT / package).rglob("*.py")))
    return [
        sentence
        for path in paths
        if str(path.relative_to(ROOT)).startswith(folder)
        for sentence in sentences_of_module(path)
    ]


def pages() -> list[Path]:
    """Return the README and all pages of the documentation."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def names_of_tests() -> Iterator[tuple[str, str]]:
    """Yield (place, name) of every test function."""
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test_"):
                yield f"{path.relative_to(ROOT)}:{node.lineno}", node.name


if __name__ == "__main__":
    for found in product_sentences(sys.argv[1] if len(sys.argv) > 1 else ""):
        reasons = [name for name in ("is_vague", "opens_badly", "is_long") if getattr(found, name)]
        if reasons:
            print(f"{found.place} {', '.join(reasons)}: {found.text}")
