"""Texts with secrets, known or by their form, and texts without any."""

from __future__ import annotations

import base64
import hashlib
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.bundle.redaction import REMOVED, Redactor
from tests.unit.trust.keys import private_keys

SECRET = "correct-horse-9"
WORD = base64.b64encode(hashlib.sha256(b"word").digest()).decode()
DIGITS = hashlib.sha256(b"digits").hexdigest()


@pytest.mark.parametrize(
    "text",
    [
        "password={}",
        "Password: {}",
        'db_passwd = "{}"',
        "x?token={}&y=1",
        "api-key={}",
        "AWS_SECRET_ACCESS_KEY={}",
        '{{"passphrase": "{}"}}',
        "private = {}",
        'tokens: ["other", "{}]"] and more',
        '{{"secret": {{"deep": {{"v": "{}"}}}}}}',
        "Authorization: Basic {}",
        "GET / bearer {}",
        "https://user:{}@10.0.0.1/",
        "pgm agent --token-file {} tree.toml",
        "--tls-key={}",
        "-----BEGIN EC PRIVATE KEY-----\n{}\n-----END EC PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\ncut {}",
    ],
)
def test_secret_behind_its_name_is_removed(text: str) -> None:
    redactor = Redactor()
    found = redactor.text("before " + text.format(SECRET) + " ")
    assert SECRET not in found
    assert found.startswith("before ")
    assert (REMOVED in found, redactor.removed > 0) == (True, True)


@pytest.mark.parametrize("name", ["0x", "psk_", "key:"])
def test_digits_of_a_key_are_removed_behind_any_letter(name: str) -> None:
    assert Redactor().text(f"with {name}{DIGITS}_1") == f"with {name}{REMOVED}_1"


@pytest.mark.parametrize("secret", [WORD, DIGITS, "/srv/pgm/agent-key.pem", "keys/tree/exchange.abc.key"])
def test_lone_word_with_the_form_of_a_key_is_removed(secret: str) -> None:
    assert Redactor().text(f"the line has {secret}, and more") == f"the line has {REMOVED}, and more"


def test_private_file_is_removed() -> None:
    keys = private_keys()
    secret = base64.b64encode(keys.secret_octets()).decode()
    text = f"tree = t\nnode = n\npublic = {keys.public.line}\nprivate = {secret}\n"
    assert secret not in Redactor().text(text)


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-26T14:52:02.454Z info    east-1 | opened: session 66.205.40.241.149.61.2546 begins at 17",
        "lost 3 packets of stream quotes from 10.0.0.10: gave-up",
        "rmem_max 208KiB, this user gets 208KiB: 21.3 ms of the stream",
        "fe80::1%eth0 port 3056, file 0123456789abcdef",
        "/var/lib/pgm/telemetry has no room",
    ],
)
def test_ordinary_line_stays_as_it_is(text: str) -> None:
    assert Redactor().text(text) == text


@given(
    secret=st.text(string.ascii_letters + string.digits + "/+-_ .:", min_size=6, max_size=80).filter(str.strip),
    around=st.lists(st.text(max_size=20), min_size=2, max_size=4),
)
def test_known_secret_is_removed_from_any_value(secret: str, around: list[str]) -> None:
    text = secret.join(around)
    value = {"a": [text, {text: 5}], "deep": {"x": {"y": (text, None, True)}}}
    assert secret not in str(Redactor((secret,)).value(value)).replace(REMOVED, "\0")


def test_value_whose_key_names_a_secret_is_removed() -> None:
    value = {"node": "desk-1", "token": "abc", "secret_wait": "10s", "tokens": 7}
    assert Redactor().value(value) == {"node": "desk-1", "token": REMOVED, "secret_wait": "10s", "tokens": 7}


def test_texts_at_any_depth_below_a_secret_name_are_removed() -> None:
    value = {"tokens": ["abc", ["def", 7]], "secret": {"v": "ghi", "count": 3, "none": ""}, "names": ["abc"]}
    redactor = Redactor()
    assert redactor.value(value) == {
        "tokens": [REMOVED, [REMOVED, 7]],
        "secret": {"v": REMOVED, "count": 3, "none": ""},
        "names": ["abc"],
    }
    assert redactor.removed == 3


@pytest.mark.parametrize(
    "unit", ["a", "/", "token", "=", "-----BEGIN PRIVATE KEY-----", "--key", "://", "A1b", "token=["]
)
@pytest.mark.timeout(20)
def test_hostile_log_of_a_megabyte_takes_no_more_than_seconds(unit: str) -> None:
    """Patterns without bounds would take hours for a long run of letters."""
    Redactor().text(unit * (100_000 // len(unit)))
