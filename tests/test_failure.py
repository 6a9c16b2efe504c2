# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests an exception in words: the same bug has the same print, no secret is in it, and no second failure happens."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redeliver_mw.failure import Failure, describe, fingerprint, redact, redact_url, trim_utf8

KIB64 = 64 * 1024


def caught(work: Callable[[], object]) -> Failure:
    try:
        work()
    except BaseException as error:
        return describe(error)
    raise AssertionError("nothing was raised")


def writable(failure: Failure) -> bool:
    parts = [failure.type, failure.message, failure.text, *failure.frames]
    return all("\x00" not in part and part.encode() is not None for part in parts)


def boom(text: object = "no") -> None:
    raise ValueError(text)


# Description


def test_type_message_frames_and_text_of_a_plain_exception() -> None:
    failure = caught(lambda: boom("order 17 is bad"))
    assert failure.type == "ValueError"
    assert failure.message == "order 17 is bad"
    assert failure.frames[-1] == "tests.test_failure:boom"
    assert failure.text.startswith("Traceback (most recent call last):\n")
    assert "raise ValueError(text)" in failure.text
    assert failure.text.endswith("ValueError: order 17 is bad\n")
    assert re.fullmatch("[0-9a-f]{16}", failure.fingerprint)
    assert failure.fingerprint == fingerprint(failure.type, failure.frames)


def test_another_message_is_the_same_bug_and_another_place_or_type_is_not() -> None:
    def elsewhere() -> None:
        raise ValueError("x")

    def other_type() -> None:
        raise KeyError("x")

    prints = [caught(partial(boom, text)).fingerprint for text in ("a", "order 4711 at 0x7f12", "")]
    assert len(set(prints)) == 1
    assert len({prints[0], caught(elsewhere).fingerprint, caught(other_type).fingerprint}) == 3


SHOP = """
{blank}
def load(n):
    return [int(x) for x in (str(n), "a" * n)]
def on_order(n):
    try:
        load(n)
    except ValueError as error:
        raise RuntimeError(f"order {{n}} at {{object()!r}}") from error
"""

RUNNER = """
import sys
sys.path.insert(0, sys.argv[1])
import shop
from redeliver_mw.failure import describe
try:
    shop.on_order(int(sys.argv[2]))
except RuntimeError as error:
    found = describe(error)
    print(found.fingerprint, *found.frames[1:], sep="|")
"""


def test_the_print_is_the_same_in_another_run_in_another_folder_and_on_other_lines(tmp_path: Path) -> None:
    out = []
    for number, blank in ((3, ""), (40000, "# a comment\n" * 9)):
        folder = tmp_path / f"copy{number}"
        folder.mkdir()
        (folder / "shop.py").write_text(SHOP.format(blank=blank))
        command = [sys.executable, "-c", RUNNER, str(folder), str(number)]
        environment = {**os.environ, "PYTHONHASHSEED": str(number), "PYTHONPATH": os.getcwd()}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=30)
        out.append(done.stdout)
    assert out[0] == out[1]
    assert out[0].strip().split("|")[1:] == ["shop:on_order", "^ ValueError", "shop:on_order", "shop:load"]


def test_a_stack_that_was_seen_before_is_described_as_it_was_the_first_time() -> None:
    def failing(*, early: bool) -> None:
        if early:
            raise ValueError("early")
        raise ValueError("late")

    first, other, again = [caught(partial(failing, early=early)) for early in (True, False, True)]
    assert first == again
    assert other.frames == first.frames
    assert 'raise ValueError("early")' in first.text
    assert 'raise ValueError("late")' in other.text
    assert 'raise ValueError("early")' not in other.text


def test_code_that_is_made_and_thrown_away_is_never_taken_for_other_code() -> None:
    """The place of such code in memory is soon that of other code."""
    for n in (n % 997 for n in range(3000)):  # four digits would be no part of the print
        made: dict[str, Any] = {"__name__": "made"}
        exec(f"def f{n}():\n    raise ValueError", made)
        assert caught(made[f"f{n}"]).frames[-1] == f"made:f{n}"


def test_the_cause_makes_a_difference_and_is_described_before_its_effect() -> None:
    def wrapped(inner: type[Exception]) -> None:
        try:
            raise inner("deep")
        except Exception as error:
            raise RuntimeError("outer") from error

    one, two = caught(lambda: wrapped(KeyError)), caught(lambda: wrapped(OSError))
    assert one.fingerprint != two.fingerprint
    assert "^ KeyError" in one.frames
    assert one.text.index("KeyError") < one.text.index("direct cause") < one.text.index("RuntimeError: outer")


def test_a_suppressed_context_is_left_out_and_an_unsuppressed_one_is_described() -> None:
    def second() -> None:
        raise RuntimeError("second")

    def during(suppress: bool) -> None:
        try:
            raise KeyError("first")
        except KeyError:
            if suppress:
                raise RuntimeError("second") from None
            second()

    hidden = caught(lambda: during(True)).text
    assert "KeyError: 'first'" not in hidden
    shown = caught(lambda: during(False)).text
    assert "During handling of the above exception" in shown
    assert "KeyError: 'first'" in shown


def test_recursion_of_any_depth_has_one_print_and_few_frames() -> None:
    def even(n: int) -> None:
        if n == 0:
            raise ValueError("end")
        odd(n - 1)

    def odd(n: int) -> None:
        even(n - 1)

    shallow, deep = caught(lambda: even(4)), caught(lambda: even(300))
    assert shallow.fingerprint == deep.fingerprint
    assert len(deep.frames) <= 30
    assert len(deep.text.encode()) <= KIB64


def test_an_endless_recursion_is_described() -> None:
    def down() -> None:
        down()

    failure = caught(down)
    assert failure.type == "RecursionError"
    assert failure.frames[-1].endswith("down")


def test_at_most_thirty_frames_are_kept_the_innermost() -> None:
    source = "\n".join(f"def f{n}():\n    f{n + 1}()" for n in range(60)) + "\ndef f60():\n    1 / 0\n"
    space: dict[str, Callable[[], object]] = {}
    exec(source, space)
    failure = caught(space["f0"])
    assert len(failure.frames) == 30
    assert failure.frames[-1].endswith(":f60")
    assert failure.frames[0].endswith(":f31")


def test_frames_of_this_library_in_front_of_the_handler_are_no_part_of_the_print() -> None:
    def through(module: str) -> Failure:
        space: dict[str, Any] = {"__name__": module, "boom": boom}
        exec("def run():\n    boom()", space)
        try:
            space["run"]()
        except ValueError as error:
            here = error.__traceback__
            return describe(error.with_traceback(here and here.tb_next))  # as the library would catch it
        raise AssertionError

    for module in ("redeliver_mw.runtime.runner", "redeliver_pika.dropin.wrapper"):
        assert through(module).frames == ["tests.test_failure:boom"]
    assert through("redeliverer.shop").frames == ["redeliverer.shop:run", "tests.test_failure:boom"]


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


class Leaver(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


def test_an_exception_whose_own_words_fail_is_described_all_the_same() -> None:
    def unprintable() -> None:
        raise Unprintable

    def leaver() -> None:
        raise Leaver

    for work, name in ((unprintable, "Unprintable"), (leaver, "Leaver")):
        failure = caught(work)
        assert failure.type == name
        assert name in failure.message
        assert failure.frames
        assert name in failure.text


def test_exits_and_interrupts_are_failures_like_others() -> None:
    def leave() -> None:
        raise SystemExit(2)

    def interrupt() -> None:
        raise KeyboardInterrupt

    assert (caught(leave).type, caught(leave).message) == ("SystemExit", "2")
    assert (caught(interrupt).type, caught(interrupt).message) == ("KeyboardInterrupt", "")


def test_a_group_tells_its_members_and_their_order_does_not_matter() -> None:
    def member(kind: type[Exception]) -> Exception:
        try:
            raise kind("inside")
        except Exception as error:
            return error

    def group(*kinds: type[Exception]) -> None:
        raise ExceptionGroup("several", [member(kind) for kind in kinds])

    one, two = caught(lambda: group(KeyError, OSError)), caught(lambda: group(OSError, KeyError))
    assert one.fingerprint == two.fingerprint
    assert one.fingerprint != caught(lambda: group(OSError)).fingerprint
    assert "  | KeyError: 'inside'" in one.text
    assert "  | OSError: inside" in one.text


def test_a_ring_of_causes_and_a_huge_group_end() -> None:
    first, second = ValueError("a"), KeyError("b")
    first.__cause__, second.__cause__ = second, first
    assert describe(first).frames == ["^ KeyError"]
    assert len(describe(ExceptionGroup("many", [ValueError(n) for n in range(50_000)])).text) < KIB64


def test_surrogates_nul_and_newlines_come_out_writable() -> None:
    failure = caught(lambda: boom("a\udc80b\x00c\nd\r\n\x1b[31m"))
    assert failure.message == "a\\udc80b\\x00c\nd\r\n\x1b[31m"
    assert writable(failure)


def test_a_message_of_200_kb_is_cut_to_64_kib_fast_and_its_frames_stay() -> None:
    error: ValueError
    try:
        boom("€uro lorem ipsum " * 12_000)
    except ValueError as raised:
        error = raised
    describe(error)  # the source lines are read once
    took = min(timed(lambda: describe(error)) for _ in range(5))
    failure = describe(error)
    assert KIB64 - 4 <= len(failure.message.encode()) <= KIB64
    assert failure.message.endswith("…")
    assert len(failure.text.encode()) <= KIB64
    assert "in boom" in failure.text
    assert took < 0.02


def test_a_long_chain_of_long_messages_keeps_the_innermost_frames_of_the_raised_one() -> None:
    def chain(n: int) -> None:
        if n == 0:
            boom("x" * 100_000)
        try:
            chain(n - 1)
        except Exception as error:
            raise RuntimeError("y" * 100_000) from error

    failure = caught(lambda: chain(40))
    assert len(failure.text.encode()) <= KIB64
    assert "cut here" in failure.text
    assert failure.text.rindex("in chain") < failure.text.rindex("RuntimeError: yyy")


def test_secrets_are_in_no_part_of_a_description() -> None:
    def connect(url: str = "amqp://shop:hunter2@broker/") -> None:
        raise ConnectionError(f"cannot reach {url}, password='hunter2'")

    def outer() -> None:
        try:
            connect("amqp://shop:hunter2@broker/")
        except ConnectionError as error:
            error.add_note("token=hunter2")
            raise RuntimeError("Authorization: Bearer hunter2") from error

    failure = caught(outer)
    assert "hunter2" not in repr(failure)
    assert "amqp://shop:***@broker/" in failure.text


@given(st.text(st.characters(exclude_categories=[])))
def test_any_message_is_described(text: str) -> None:
    assert writable(caught(lambda: boom(text)))


# Redaction

HIDDEN = [
    ("amqp://user:s3cret@host:5672/v", "amqp://user:***@host:5672/v"),
    ("at stomp://u:pa/ss#1@host, twice", "at stomp://u:***@host, twice"),
    ("amqps://joe@corp.com:pw@host", "amqps://joe@corp.com:***@host"),
    ("amqp://u:it's@h", "amqp://u:***@h"),
    ("failover:(tcp://u:p1@h1:61616,tcp://u:p2@h2)", "failover:(tcp://u:***@h1:61616,tcp://u:***@h2)"),
    ("password=abc", "password=***"),
    ("f(user='u', password='a, \\'b\\' c', n=1)", "f(user='u', password='***', n=1)"),
    ('{"password": "a \\"b\\" c", "x": 1}', '{"password": "***", "x": 1}'),
    ("{'passwd': b'abc', 'n': 1}", "{'passwd': b'***', 'n': 1}"),
    ('"{\\"password\\": \\"abc\\", \\"n\\": 1}"', '"{\\"password\\": \\"***\\", \\"n\\": 1}"'),
    ("PWD: abc", "PWD: ***"),
    ("DB_PASSWORD_PROD=abc", "DB_PASSWORD_PROD=***"),
    ("client_secret => abc", "client_secret => ***"),
    ("https://h/p?token=abc&x=1", "https://h/p?token=***&x=1"),
    ('accessToken":"abc"', 'accessToken":"***"'),
    ("api_key=abc apikey=def x-api-key: ghi", "api_key=*** apikey=*** x-api-key: ***"),
    ("Authorization: Bearer abc.def\nnext", "Authorization: ***\nnext"),
    ("{'Authorization': 'Basic dTpw', 'a': 'b'}", "{'Authorization': '***', 'a': 'b'}"),
    ('curl -H "authorization: Digest a=b, c=d" http://h', 'curl -H "authorization: ***" http://h'),
    ('Authorization: Digest username="bob", response="66ae"', 'Authorization: ***"'),
    ("Authorization: of an \u2026 secret => 'abc'", "Authorization: ***'"),
    ("Cookie: a='b c'; d=e", "Cookie: ***"),
    ("x-auth-token: Bearer abc", "x-auth-token: ***"),
    ("[(b'authorization', b'Bearer abc'), (b'a', b'b')]", "[(b'authorization', b'***'), (b'a', b'b')]"),
    ("sent Bearer abc123def", "sent Bearer ***"),
    ("sent Basic dXNlcjpwYXNz", "sent Basic ***"),
    ("aws_secret_access_key = wJalr/K7+M", "aws_secret_access_key = ***"),
    ("key AKIAIOSFODNN7EXAMPLE used", "key *** used"),
    ("jwt eyJhbGciOiJI.eyJzdWIiOiIx.SflKxwRJ_-x end", "jwt *** end"),
    ("ghp_0123456789abcdefghijABCDEFGHIJ012345", "***"),
    ("account-key: abc, private-key=def", "account-key: ***, private-key=***"),
    ("Server=x;Pwd=abc;Uid=u", "Server=x;Pwd=***;Uid=u"),
    ("AccountName=a;AccountKey=abc==;E=f", "AccountName=a;AccountKey=***;E=f"),
    ("host=h password=abc dbname=d", "host=h password=*** dbname=d"),
    ("<password>abc</password>", "<password>***</password>"),
    (
        "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\nx",
        "-----BEGIN RSA PRIVATE KEY-----***-----END RSA PRIVATE KEY-----\nx",
    ),
    ("-----BEGIN PRIVATE KEY-----\nMIIE", "-----BEGIN PRIVATE KEY-----***"),
]


@pytest.mark.parametrize(("text", "wanted"), HIDDEN)
def test_a_secret_is_hidden_and_its_name_stays(text: str, wanted: str) -> None:
    assert redact(text) == wanted
    assert redact(wanted) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "order 17: value must be > 3, not 2",
        "http://host:8080/path?mail=a@b.c",
        "see https://docs.example/a:b@c",
        "Basic authentication is not enabled",
        "the secretary: Joe",
        "password > 8 characters",
        "def login(user, password=None):",
        "KeyError: 'orders'",
        "-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redact(text) == text


@given(st.lists(st.sampled_from([*"=:'\"@/>\\ \n,;.<", "password", "token", "://", "a", "É", "İ", "Bearer ", "***"])))
@settings(max_examples=300)
def test_no_text_in_front_saves_a_secret_on_a_line_of_its_own(parts: list[str]) -> None:
    once = redact("".join(parts) + "\npassword=hunter2\n")
    assert "hunter2" not in once


def timed(work: Callable[[], object]) -> float:
    """Return the CPU seconds of this thread: what else runs on the machine does not count."""
    start = time.thread_time()
    work()
    return time.thread_time() - start


HOSTILE = (
    *(
        "password",
        "password=",
        "password='",
        'password="\\',
        "password>",
        "password>'",
        "token: ]]]",
        "İpassword=",
    ),
    *(
        "eyJ",
        "eyJaaaa.",
        "://a:",
        "://",
        "a:b@",
        "-----BEGIN ",
        "-----BEGIN PRIVATE KEY-----",
        "bearer ",
        "ghp_",
    ),
    *(
        "authorization:",
        "authorization: '",
        "sig=",
        "\\",
        "xoxb-",
        "secret_",
        "password \t",
        "AKIA",
        "€",
        "\udc80",
    ),
)


@pytest.mark.parametrize("seed", HOSTILE)
def test_redaction_is_linear_on_hostile_text_of_200_kb(seed: str) -> None:
    # Quadratic behaviour would take minutes here; a slow machine takes tenths of a second.
    text = (seed * 200_000)[:200_000]
    assert timed(lambda: redact(text)) < 2.0


def test_a_url_for_the_log_keeps_user_and_host() -> None:
    assert redact_url("rabbitmq://shop:s3 cret@h1:5672/v") == "rabbitmq://shop:***@h1:5672/v"
    assert redact_url("rabbitmq://shop@h1,h2:5673/v") == "rabbitmq://shop@h1,h2:5673/v"
    assert redact_url("memory://") == "memory://"
    assert redact_url("amqp://h/?password=abc&heartbeat=5") == "amqp://h/?password=***&heartbeat=5"


# Trimming


@pytest.mark.parametrize(
    ("text", "limit", "wanted"),
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "…"),
        ("abcdef", 5, "ab…"),
        ("€€€", 9, "€€€"),
        ("€€€", 8, "€…"),
        ("a😀b", 5, "a…"),
        ("abc", 2, "ab"),
        ("€", 2, ""),
        ("abc", 0, ""),
        ("", 0, ""),
        ("\udc80", 6, "\\udc80"),
    ],
)
def test_text_is_cut_between_characters_and_the_cut_is_marked(text: str, limit: int, wanted: str) -> None:
    assert trim_utf8(text, limit) == wanted


@given(st.text(st.characters(exclude_categories=[])), st.integers(0, 40))
def test_trimmed_text_always_fits(text: str, limit: int) -> None:
    assert len(trim_utf8(text, limit).encode()) <= limit
