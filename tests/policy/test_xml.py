# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests XML for the readers: names, places, bounds; and the list of all that is wrong."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redeliver_mw.errors import PolicyError
from redeliver_mw.policy import load_policies
from redeliver_mw.policy.formats import xml
from redeliver_mw.policy.formats.diagnostics import SHOWN, Diagnostics, nearest

TEXT = """<?xml version="1.0" encoding="ISO-8859-1"?>
<a:root xmlns:a="urn:a" xmlns="urn:b" a:x="1" y=" 2 ">
  <child>  one
  </child><!-- no --><a:child><inner/>tw<![CDATA[o]]></a:child>
</a:root>"""


def test_names_are_local_and_places_count_from_one() -> None:
    root = xml.parse(TEXT)
    assert (root.name, root.attributes, root.text) == ("root", {"x": "1", "y": " 2 "}, "")
    one, two = root.all("child")
    assert (one.text, two.text) == ("one", "two")
    assert one.where == "line 3, column 3, <child>"
    assert (two.line, two.column) == (4, 22)
    assert root.first("child") is one
    assert root.first("inner") is None
    assert [element.name for element in root.find("inner", "root")] == ["root", "inner"]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "ends before an element"),
        ("<a><b></a>", "another element than <b> of line 1"),
        ("<a>\0</a>", "invalid token"),
        ("<a>\ud800</a>", "not XML"),
        ("<p:a/>", "a prefix that no xmlns:"),
        ("<a/><b/>", "behind the end of the root"),
        ("<a>&unknown;</a>", "an entity that nothing declares"),
        ('<!DOCTYPE a SYSTEM "http://localhost/x.dtd"><a/>', "document type"),
        ('<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>', "document type"),
        ('<!DOCTYPE a [<!ENTITY x "xxxxxxxxxx"><!ENTITY y "&x;&x;">]><a>&y;</a>', "document type"),
        ("<a>" * 101 + "</a>" * 101, "100 levels"),
        ("<a>" + "<b/>" * xml.MOST + "</a>", "elements"),
        ("<a " + "".join(f"b{n}='' " for n in range(xml.MOST_ATTRIBUTES + 1)) + "/>", "attributes"),
        (" " * (xml.LARGEST + 1), "characters"),
    ],
)
def test_what_is_no_xml_or_is_dangerous_is_refused(text: str, what: str) -> None:
    with pytest.raises(PolicyError) as caught:
        xml.parse(text)
    assert what in caught.value.what
    assert caught.value.cure


@pytest.mark.parametrize("before", ["", "\n", "\n\n\n", "  \n\t\n", "\ufeff\n\n", "\ufeff", "   "])
def test_lines_and_columns_before_the_root_count(before: str) -> None:
    root = xml.parse(f"{before}<a>\n  <b/></a>")
    lines = before.count("\n")
    columns = len(before) if not lines else 0
    assert (root.line, root.column) == (lines + 1, columns + 1)
    assert root.children[0].where == f"line {lines + 2}, column 3, <b>"
    with pytest.raises(PolicyError) as caught:
        xml.parse(f"{before}<a></b>")
    assert caught.value.where.startswith(f"line {lines + 1}, column {columns + 6}")


@pytest.mark.parametrize(
    "text",
    [
        f"<!--{'x' * 9_000_000}--><redeliveryPolicy/>",
        f"<redeliveryPolicyMap>{'<a/>' * 150_000}</redeliveryPolicyMap>",
        "<redeliveryPolicy " + "".join(f"a{n}='1' " for n in range(200_000)) + "/>",
        "1:100;" * 1_500_000,
        "x" * 9_000_000,
        "[default]\n" + "".join(f"a{n} = 1\n" for n in range(90_000)),
    ],
    ids=["comment", "elements", "attributes", "jmsjca", "letters", "toml"],
)
def test_a_large_file_is_read_or_refused_in_a_moment(text: str, tmp_path: Path) -> None:
    path = tmp_path / "policy"
    path.write_text(text)
    before = time.process_time()
    with suppress(PolicyError):
        load_policies(path)
    assert time.process_time() - before < 4  # a fraction of a second, where nothing else runs


def test_the_root_alone_is_read_without_the_rest() -> None:
    text = f"\n<?xml version='1.0'?><!-- <x> --><p:a xmlns:p='urn:a' b='1'>{'<c/>' * 10_000}</wrong>"
    root = xml.root_of(text)
    assert (root.name, root.namespace, root.attributes, root.line) == ("a", "urn:a", {"b": "1"}, 2)
    assert xml.root_of("<a/>").namespace == ""
    with pytest.raises(PolicyError):
        xml.root_of("<!-- -->")


def test_five_megabytes_of_text_are_read() -> None:
    root = xml.parse("<a>" + "x" * 5_000_000 + "</a>")
    assert len(root.text) == 5_000_000


@given(st.text() | st.text(alphabet="<>/=\"'ab &;![]-? ", max_size=40))
def test_whatever_the_text_is_only_a_policy_error_comes_out(text: str) -> None:
    with suppress(PolicyError):
        xml.parse(text)


def test_one_problem_is_reported_as_it_is_and_several_are_counted() -> None:
    problems = Diagnostics()
    problems.close()
    problems.add("wrong", where="line 1", cure="Right it", code="policy-value")
    with pytest.raises(PolicyError) as caught:
        problems.close()
    assert (caught.value.what, caught.value.where, caught.value.cure) == ("wrong", "line 1", "Right it")
    assert caught.value.code == "policy-value"
    for number in range(SHOWN + 1):
        problems.add(f"wrong {number}", code="policy-syntax")
    with pytest.raises(PolicyError) as caught:
        problems.close()
    assert str(caught.value).startswith(
        "12 problems: (1) line 1: wrong. Right it [policy-value]; (2) wrong 0 [policy-syntax]; "
    )
    assert str(caught.value).endswith("(10) wrong 8 [policy-syntax]; and 2 more [policy-problems]")


def test_what_is_suspect_is_a_warning_and_reported_with_what_is_wrong() -> None:
    problems = Diagnostics()
    problems.suspect("hm", PolicyError("strange", where="line 1"))
    problems.close()
    assert problems.warnings == ("hm",)
    problems.add("wrong", code="policy-value")
    with pytest.raises(PolicyError, match=r"2 problems: \(1\) line 1: strange; \(2\) wrong"):
        problems.close()


def test_a_warning_is_reported_once_and_is_no_problem() -> None:
    problems = Diagnostics()
    problems.warn("hm")
    problems.warn("hm")
    problems.close()
    assert problems.warnings == ("hm",)


@pytest.mark.parametrize(
    ("word", "near"), [("redelivry-limit", "redelivery-limit"), ("REDELIVERY-LIMIT", "redelivery-limit"), ("x", None)]
)
def test_the_nearest_word(word: str, near: str | None) -> None:
    assert nearest(word, ["redelivery-limit", "error-destination"]) == near
