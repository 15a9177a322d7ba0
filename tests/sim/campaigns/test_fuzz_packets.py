"""Part of the campaign of mutated packets, and tests of its account."""

import pytest

from tests.sim.campaigns.fuzz_packets import Account, run


@pytest.mark.parametrize("seed", [43, 55, 104, 126, 143, 147])
def test_seeds_that_found_silent_losses_find_none(seed):
    """Seeds with two causes: a forged SPM that began parity, and a forged group size.

    The forged SPM hit a stream without parity. The forged size hid losses.
    """
    run(seed)


@pytest.mark.parametrize("seed", range(10))
def test_mutated_packets_break_no_core(seed):
    run(seed)


@pytest.mark.parametrize("loose", [False, True])
def test_an_account_complains_of_what_is_told_twice(loose):
    account = Account(5, loose, 5)
    assert account.tell(5, 3) == ""
    assert account.tell(8, 1) == ""
    assert account.tell(7, 2) != ""


def test_an_account_notes_what_was_passed_over_in_silence():
    account = Account(5, False, 5)
    assert account.tell(9, 1) == ""
    assert (account.passed_over, account.next_sqn) == (4, 10)
