"""Accounts of test messages: every fault is counted, and the memory of an account does not grow with the stream."""

from __future__ import annotations

import sys
from collections.abc import Iterable

import numpy as np

from deploy.node.sample_messages import Account, generate
from tests.memory import kept_by

SIZE = 16


def account(numbers: Iterable[int]) -> Account:
    made = Account(SIZE, 1)
    for number in numbers:
        made.add(next(generate(1, SIZE, 1, first=number)))
    return made


def faults(made: Account) -> tuple[int, int, int, int]:
    return made.delivered, made.duplicates, made.out_of_order, made.damaged


def test_account_counts_duplicates_and_disorder() -> None:
    assert faults(account([0, 1, 2, 3])) == (4, 0, 0, 0)
    assert faults(account([0, 1, 1, 0, 2])) == (5, 2, 0, 0)
    assert faults(account([5, 9, 6, 6, 9, 0, 10])) == (7, 2, 2, 0)


def test_account_counts_damage() -> None:
    made = account([0])
    rows = next(generate(2, SIZE, 1, first=1)).copy()
    rows[1, -1] ^= 1
    made.add(rows)
    made.add(np.zeros((1, SIZE + 1), np.uint8))
    assert faults(made) == (4, 0, 0, 2)


def test_account_of_a_long_stream_keeps_little() -> None:
    made = account([0])
    before = sum(sys.getsizeof(one) for one in kept_by(made))
    for rows in generate(50_000, SIZE, 1, most=5000, first=1):
        made.add(rows)
    for number in range(100_000, 3_000_000, 1000):
        made.add(next(generate(1, SIZE, 1, first=number)))
    assert made.delivered == 52_901
    assert sum(sys.getsizeof(one) for one in kept_by(made)) < before + 1_000_000


def test_account_takes_any_number() -> None:
    assert faults(account([2**60, 2**60 + 1, 0])) == (3, 0, 1, 0)
