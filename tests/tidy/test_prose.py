"""The measurable rules of docs/internals/style.md hold for docstrings, comments, pages and names of tests."""

from __future__ import annotations

from tests.tidy.prose import MOST_TEST_NAME, names_of_tests, pages, product_sentences, sentences_of_page

# Shares of sentences, %. A rule about words has exceptions; a share leaves room for the natural ones.
MOST_VAGUE, MOST_BAD_OPENINGS, MOST_LONG, MOST_VAGUE_IN_PAGES = 4.0, 0.7, 3.0, 6.0


def test_prose_of_modules_keeps_the_share_of_each_rule() -> None:
    sentences = product_sentences()
    for rule, most in (("is_vague", MOST_VAGUE), ("opens_badly", MOST_BAD_OPENINGS), ("is_long", MOST_LONG)):
        share = 100 * sum(getattr(sentence, rule) for sentence in sentences) / len(sentences)
        assert share <= most, f"{rule}: {share:.2f} % of sentences; python -m tests.tidy.prose lists them"


def test_prose_of_pages_is_seldom_vague() -> None:
    sentences = [sentence for page in pages() for sentence in sentences_of_page(page)]
    broken = [sentence for sentence in sentences if sentence.is_vague]
    share = 100 * len(broken) / len(sentences)
    assert share <= MOST_VAGUE_IN_PAGES, "\n".join(f"{one.place}: {one.text}" for one in broken)


def test_prose_of_test_names_is_short_and_has_a_subject() -> None:
    named = list(names_of_tests())
    assert [place for place, name in named if len(name) > MOST_TEST_NAME] == []
    assert [place for place, name in named if name.split("_")[1] in ("who", "whoever", "what", "whatever")] == []
