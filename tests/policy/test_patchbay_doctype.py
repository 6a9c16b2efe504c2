# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Patch Bay's DOCTYPE is passed over, and nothing that it names is read."""

from __future__ import annotations

import pytest

from redeliver_mw.errors import PolicyError
from redeliver_mw.policy import load_policies
from tests.policy.examples import EXAMPLES

PLAIN = EXAMPLES["patchbay"]
ATG = '<!DOCTYPE dynamo-message-system SYSTEM "http://www.atg.com/dtds/patchbay/patchbay_1.0.dtd">'
PUBLIC = (
    '<!DOCTYPE dynamo-message-system PUBLIC "-//Art Technology Group, Inc.//DTD Patch Bay//EN" "file:///missing.dtd">'
)


@pytest.mark.parametrize("doctype", [ATG, PUBLIC, "<!DOCTYPE dynamo-message-system>"])
def test_a_doctype_changes_nothing(doctype: str) -> None:
    assert load_policies(f'<?xml version="1.0"?>\n{doctype}\n{PLAIN}', strict=True) == load_policies(PLAIN)


@pytest.mark.parametrize(
    "inside",
    [
        '<!ENTITY n "4">',
        '<!ENTITY n SYSTEM "file:///etc/passwd">',
        '<!ENTITY % n SYSTEM "http://localhost/x.dtd"> %n;',
        '<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">',
    ],
)
def test_entities_are_refused(inside: str) -> None:
    with pytest.raises(PolicyError):
        load_policies(f"<!DOCTYPE dynamo-message-system [{inside}]>\n{PLAIN}")


def test_an_entity_of_a_dtd_that_is_not_read_is_no_silence() -> None:
    text = PLAIN.replace("<max-attempts>", "<max-attempts>&more;", 1)
    assert "&more;" in text
    for doctype in (ATG, PUBLIC):
        with pytest.raises(PolicyError):
            load_policies(f"{doctype}\n{text}")


def test_the_other_languages_refuse_a_doctype() -> None:
    for language in ("activemq", "weblogic", "artemis"):
        text = EXAMPLES[language]
        if text.lstrip().startswith("<"):
            with pytest.raises(PolicyError, match="document type"):
                load_policies(f"<!DOCTYPE x>\n{text}")
