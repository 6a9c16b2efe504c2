# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests `xi:include` in Artemis' broker.xml: files below the folder only, and findings that name them."""

from __future__ import annotations

from pathlib import Path

import pytest

from redeliver_mw.errors import PolicyError
from redeliver_mw.policy import load_policies
from redeliver_mw.policy.formats.artemis.includes import DEEPEST, MOST

XI = 'xmlns:xi="http://www.w3.org/2001/XInclude"'
SETTINGS = """<address-settings xmlns="urn:activemq:core">
  <address-setting match="#"><dead-letter-address>DLA</dead-letter-address>
    <max-delivery-attempts>4</max-delivery-attempts></address-setting>
</address-settings>
"""


def broker(*hrefs: str) -> str:
    inside = "\n".join(f'<xi:include href="{href}"/>' for href in hrefs)
    return f"""<configuration xmlns="urn:activemq" {XI}><core xmlns="urn:activemq:core">
<name>b</name>
{inside}
</core></configuration>
"""


def written(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder / "broker.xml"


def error_of(path: Path) -> str:
    with pytest.raises(PolicyError) as caught:
        load_policies(path)
    return str(caught.value)


def test_an_included_file_counts_as_written_in_its_place(tmp_path: Path) -> None:
    path = written(tmp_path, {"broker.xml": broker("parts/settings.xml"), "parts/settings.xml": SETTINGS})
    read = load_policies(path, strict=True)
    assert read.resolve("orders").dead_after == 4
    assert [str(target) for target in read.resolve("orders").targets] == ["queue:DLA"]


def test_files_include_others_from_their_own_folder(tmp_path: Path) -> None:
    outer = f'<address-settings xmlns="urn:activemq:core" {XI}><xi:include href="b/one.xml"/></address-settings>'
    one = '<address-setting xmlns="urn:activemq:core" match="x"><max-delivery-attempts>2</max-delivery-attempts>'
    files = {"broker.xml": broker("a/outer.xml"), "a/outer.xml": outer, "a/b/one.xml": f"{one}</address-setting>"}
    assert load_policies(written(tmp_path, files)).resolve("x").dead_after == 2


def test_a_finding_in_an_included_file_names_file_and_line(tmp_path: Path) -> None:
    wrong = SETTINGS.replace("max-delivery-attempts", "max-delivery-attemps")
    path = written(tmp_path, {"broker.xml": broker("s.xml"), "s.xml": wrong})
    [told] = [warning for warning in load_policies(path).warnings if "did you mean" in warning]
    assert told.startswith("s.xml, line 3, column 5, <max-delivery-attemps>")
    written(tmp_path, {"s.xml": SETTINGS.replace("4", "four")})
    assert "s.xml, line 3, column 5, <max-delivery-attempts>" in error_of(path)
    written(tmp_path, {"s.xml": SETTINGS + "<"})
    assert "s.xml, line 5" in error_of(path)


@pytest.mark.parametrize(
    "href",
    [
        "/etc/passwd",
        "../s.xml",
        "a/../../s.xml",
        "file:///etc/passwd",
        "http://localhost/s.xml",
        "HTTPS:x",
        "..\\s.xml",
        "%2e%2e/s.xml",
        "~/s.xml",
        "C:/s.xml",
        "",
        ".",
        "missing.xml",
        "folder",
    ],
)
def test_what_is_not_a_file_below_the_folder_is_refused(tmp_path: Path, href: str) -> None:
    (tmp_path / "s.xml").write_text(SETTINGS, encoding="utf-8")
    path = written(tmp_path / "etc", {"broker.xml": broker(href), "folder/s.xml": SETTINGS})
    assert "line 3, column 1, <include>" in error_of(path)


def test_a_link_that_leads_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s.xml").write_text(SETTINGS, encoding="utf-8")
    path = written(tmp_path / "etc", {"broker.xml": broker("link.xml")})
    (path.parent / "link.xml").symlink_to(tmp_path / "s.xml")
    assert "a link that leads elsewhere" in error_of(path)
    (path.parent / "loop.xml").symlink_to(path.parent / "loop.xml")
    written(path.parent, {"broker.xml": broker("loop.xml")})
    assert "line 3, column 1, <include>" in error_of(path)


@pytest.mark.parametrize("attribute", ['parse="text"', 'xpointer="a"'])
def test_a_part_of_a_file_is_refused(tmp_path: Path, attribute: str) -> None:
    text = broker("s.xml").replace("<xi:include ", f"<xi:include {attribute} ")
    assert "a part or the text of a file" in error_of(written(tmp_path, {"broker.xml": text, "s.xml": SETTINGS}))


def test_cycles_depth_and_number_are_bounded(tmp_path: Path) -> None:
    def around(inner: str) -> str:
        return f'<core xmlns="urn:activemq:core" {XI}><xi:include href="{inner}"/></core>'

    path = written(tmp_path, {"broker.xml": broker("a.xml"), "a.xml": around("b.xml"), "b.xml": around("a.xml")})
    assert "a.xml includes itself" in error_of(path)
    assert "b.xml, line 1" in error_of(path)
    chain = {f"{at}.xml": around(f"{at + 1}.xml") for at in range(DEEPEST + 1)}
    assert "levels" in error_of(written(tmp_path, {**chain, "broker.xml": broker("0.xml")}))
    written(tmp_path, {"s.xml": SETTINGS, "broker.xml": broker(*["s.xml"] * (MOST + 1))})
    assert f"{MOST} files" in error_of(path)


def test_a_text_cannot_include_a_file() -> None:
    with pytest.raises(PolicyError, match="no file cannot include"):
        load_policies(broker("s.xml"))


@pytest.mark.parametrize(
    ("name", "namespace"),
    [("includ", "http://www.w3.org/2001/XInclude"), ("include", "http://www.w3.org/2003/XInclude")],
)
def test_an_include_that_is_none_is_an_error_beside_settings(name: str, namespace: str, tmp_path: Path) -> None:
    settings = '<address-settings><address-setting match="#"/></address-settings>'
    include = f'<xi:{name} xmlns:xi="{namespace}" href="part.xml"/>'
    file = tmp_path / "broker.xml"
    file.write_text(f'<core xmlns="urn:activemq:core">{include}{settings}</core>', "utf-8")
    with pytest.raises(PolicyError, match="no include of XInclude") as raised:
        load_policies(file)
    assert 'xmlns:xi="http://www.w3.org/2001/XInclude"' in raised.value.cure
