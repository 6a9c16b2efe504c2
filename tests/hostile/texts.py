# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds texts, times and numbers that break readers, and secrets in the forms that are promised to be hidden."""

from __future__ import annotations

import re
from random import Random

CASE = re.compile(rb"case=([0-9a-f]+\.[0-9]+)")
SECRET = "Zq9S3cr3t"  # with which every secret of a run begins
STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

ESCAPES = (
    "\x1b[31mred\x1b[0m",
    "\x1b]0;owned\x07",
    "\x1b[2J\x1b[H",
    "\x9b2J",
    "\x1bP+q544e\x1b\\",
    "\x90q\x9c",
    "over\rwritten",
    "\x08\x08\x08",
    "\u202eevil\u202c",
    "\x7f",
)
TEXTS = (
    "",
    " ",
    "a b",
    "grüße 🐇",
    "\U0010ffff",
    "a\nb\r\n",
    "{0} {x} %s %d %(a)s",
    "[bold red]markup[/]",
    "<script>alert(1)</script>",
    "../../etc/passwd",
    "'; DROP TABLE limbo; --",
    "null",
    "NaN",
    "-1",
    "\ufeff",
    "a\u0000b",
    "\ud7ff\ue000\uffff",
    "İ" * 20,
    "x" * 255,
    *ESCAPES,
)
INVALID = (b"\xff\xfe", b"\xc3", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"a\xc0\xafb", b"\x80" * 30)
TIMES = (
    "9999-12-31T23:59:59.999999Z",
    "9999-12-31T23:59:59.999999-23:59",
    "0001-01-01T00:00:00+23:59",
    "0001-01-01T00:00:00Z",
    "1970-01-01T00:00:00Z",
    "1969-12-31T23:59:59.999999Z",
    "2026-13-45T99:99:99Z",
    "10000-01-01T00:00:00Z",
    "2026-11-25",
    "20261125T131415,5Z",
    "tomorrow",
    "",
    "-1",
    "9" * 400,
)
NUMBERS = (
    "0",
    "-1",
    "1",
    "2147483647",
    "2147483648",
    "9223372036854775808",
    "9" * 400,
    "1e9",
    "٣",
    "0x10",
    " 7 ",
    "nan",
)
JSONS = (
    "{}",
    "[]",
    "null",
    "[" * 5000,
    '{"a":' * 900,
    '[["9999-12-31T23:59:59.999999Z","x","y",1e999]]',
    '[{"at": "9999-12-31T23:59:59.999999Z", "host": "\x1b[2J"}]',
    "[[1e308,1e308,1e308,1e308]]",
    '[[-1,null,{},"a"]]',
    '{"a": 1e400, "b": NaN, "c": "\\ud800"}',
    "{" + "x" * 500,
    '[["2026-01-01T00:00:00Z", "0123456789abcdef", "\\u001b[31m", 99999999999999999999]]',
)
#: Headers that redeliver-mw writes itself, or that brokers write; forged ones are strangers' texts.
FORGED = {
    "original-destination": ("queue", "\x1b[2J", "", "/queue/x", "topic://"),
    "redeliver_original_destination": TEXTS,
    "redeliver_original_kind": ("queue", "topic", "", "Queue", "\x1b[31m"),
    "redeliver_original_message_id": TEXTS,
    "redeliver_original_timestamp": TIMES,
    "redeliver_original_\x1b[2J": TEXTS,
    "redeliver_failures": NUMBERS,
    "redeliver_failures_for": (*TEXTS, "queue:", "topic::::"),
    "redeliver_lineage": (*TEXTS, "0" * 32, "f" * 300),
    "redeliver_copy_id": (*TEXTS, "0" * 32),
    "redeliver_hop": NUMBERS,
    "redeliver_generation": NUMBERS,
    "redeliver_state": JSONS,
    "redeliver_first_failed_at": TIMES,
    "redeliver_last_failed_at": TIMES,
    "redeliver_first_attempt_at": TIMES,
    "redeliver_not_before": tuple(t for t in TIMES if not t.startswith("9999")),
    "redeliver_expires_at": tuple(t for t in TIMES if not t.startswith(("0", "19"))),
    "redeliver_error_type": TEXTS,
    "redeliver_error_message": TEXTS,
    "redeliver_error_fingerprint": (*TEXTS, "0123456789abcdef"),
    "redeliver_history": JSONS,
    "redeliver_trace": (*TEXTS, "00-" + "a" * 32 + "-" + "b" * 16 + "-01"),
    "redeliver_reason": ("exhausted", "rejected", "expired", "", "\x1b[31mx", "nonsense"),
    "redeliver_policy": TEXTS,
    "redeliver_policy_version": TEXTS,
    "redeliver_replay_id": TEXTS,
    "redeliver_host": TEXTS,
    "redeliver_app": TEXTS,
}
#: Those of them that are ids, which logs and journals show as they are.
IDS = {"redeliver_original_message_id", "redeliver_lineage", "redeliver_copy_id", "redeliver_replay_id"}


def secret(rng: Random) -> str:
    """Return a new secret, alike for no two calls."""
    return f"{SECRET}{rng.getrandbits(48):012x}"


def telling(rng: Random) -> str:
    """Return a text that gives a secret away in a form that is promised to be hidden."""
    word = secret(rng)
    forms = (
        f"password={word}",
        f"amqp://shop:{word}@broker:5672/",
        f'{{"token": "{word}"}}',
        f"Authorization: Bearer {word}",
        f"login failed for https://me:{word}@host/path?x=1",
        f"api_key: {word}",
        f"pwd={word};",
        f"secret => '{word}'",
    )
    return rng.choice(forms)


def text(rng: Random) -> str:
    """Return one of the texts, or several in a row; one in six gives a secret away."""
    if rng.random() < 1 / 6:
        return telling(rng)
    return " ".join(rng.choice(TEXTS) for _ in range(rng.choice((1, 1, 1, 2, 3))))


def word(rng: Random) -> str:
    """Return a text without a secret, for ids: logs and journals show those as they are."""
    return rng.choice(TEXTS)


def forged(rng: Random) -> dict[str, str]:
    """Return some headers that only redeliver-mw should write."""
    names = rng.sample(sorted(FORGED), rng.choice((1, 2, 5, len(FORGED))))
    return {name: rng.choice(FORGED[name]) for name in names}
