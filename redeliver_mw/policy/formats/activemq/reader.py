# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
r"""Reads the redelivery policies of ActiveMQ Classic: on a connection URL, in a client's XML, in a broker's XML.

Grammar::

    URL      := ... "?" option ("&" option)*       percent-encoded; behind the ")" of failover:(...)
    option   := "jms.redeliveryPolicy." PROPERTY "=" VALUE | "jms.nonBlockingRedelivery=" BOOLEAN | others
    XML      := anywhere in <beans>, <broker> or alone:
                <redeliveryPolicyMap>              entries with queue="..." or topic="...", and a defaultEntry
                <redeliveryPlugin>                 the same map, in the broker; no delay below 1000 ms
                <redeliveryPolicy>                 of a connection, where no entry of a map matches
                <destinationPolicy>                policyEntry with a deadLetterStrategy: sharedDeadLetterStrategy,
                                                   individualDeadLetterStrategy or discarding

    PROPERTY                     default   milliseconds, but for
    maximumRedeliveries          6         a number; -1 is for ever, 0 is none; N is dead after N + 1 failures
    initialRedeliveryDelay       1000      the first delay, neither cut nor jittered
    redeliveryDelay              1000      the others, unless they grow
    useExponentialBackOff        false     they grow
    backOffMultiplier            5         so many times; fractions work, 1 or less is no growth
    maximumRedeliveryDelay       -1        at most so long, if they grow; -1 is no cap
    useCollisionAvoidance        false     jitter, from the second delay on, compounding
    collisionAvoidancePercent    15        so much; or collisionAvoidanceFactor, 0.15, as the manual has it
    preDispatchCheck             true      a message that comes in with too many failures is ended unseen

Destinations are words separated by dots; `*` is one word, `>` at the end any number. One entry applies, the exact name
or the pattern that the others contain; nothing is merged. An entry may name several destinations, separated by commas.
The dead-letter strategy that applies is chosen in the same way, independently.

Worked example, `tcp://host:61616?jms.redeliveryPolicy.maximumRedeliveries=4&
jms.redeliveryPolicy.useExponentialBackOff=true&jms.redeliveryPolicy.maximumRedeliveryDelay=60000` on the queue
`orders`, the handler always failing::

    failure 1   again after 1000 ms, the initial delay
    failure 2   again after 5000 ms
    failure 3   again after 25000 ms
    failure 4   again after 60000 ms: 125000 is above the cap
    failure 5   to the queue ActiveMQ.DLQ; the handler was called five times

The delays are those of `redeliver_mw.policy.activemq_delays`, to the millisecond. A `redeliveryPlugin` decides for all
of its broker's consumers: with `sendToDlqIfMaxRetriesExceeded="false"` a dead message is dropped; a destination
without an entry, if there is no default, has no retry at all and goes to the dead-letter queue, or is dropped
with `fallbackToDeadLetter="false"`. The policies of clients are not read beside a plugin: there they multiply.

There are two differences here: no consumer waits behind a delayed message (with or without
`jms.nonBlockingRedelivery`), and a dead non-persistent message is dead-lettered like any other, where ActiveMQ drops it
unless `processNonPersistent="true"`. `strict` refuses settings that ActiveMQ accepts without doing what they suggest,
including unknown properties and elements in XML, and elements out of place; without `strict` those are warnings.
Everything else in ActiveMQ's own schema is skipped. XML without a policy is refused.

The language cannot express: delays from a table, jitter of the first delay or cut by the cap, free choice of targets
(only prefix and suffix, or one for all), several targets, keeping a dead message, rules by exception, an end by time.
"""

from __future__ import annotations

from ....errors import PolicyError
from ...destinations import PolicyMap
from .options import LANGUAGE, PROPERTIES, ReportProblem
from .url import LONGEST_URL, NON_BLOCKING, PREFIX, misspelt, read_url
from .writer import write
from .xml import read_xml

__all__ = ["LONGEST_URL", "PROPERTIES", "read", "write"]


def read(text: str, strict: bool = False) -> PolicyMap:
    """Return the policies of a URL or of XML. Raises one PolicyError that lists everything that is wrong."""
    report = ReportProblem(strict)
    if text.lstrip().lstrip("\ufeff").lstrip().startswith("<"):
        return read_xml(text, report)
    if PREFIX not in text and NON_BLOCKING not in text:
        # A URL may hold a password, so only the name of an option is shown.
        if near := misspelt(text):
            raise PolicyError(
                f"{near[0]} is no option of ActiveMQ", where="URL", cure=f"Write {near[1]}", code="policy-key-unknown"
            )
        raise PolicyError(
            "no policy of ActiveMQ in this text",
            cure=f"Add ?{PREFIX}maximumRedeliveries=4 to the URL",
            code="policy-not-recognized",
        )
    if len(text) > LONGEST_URL:
        raise PolicyError(
            f"a URL of more than {LONGEST_URL} characters",
            cure="Give the connection's URL alone",
            code="policy-too-large",
        )
    options, native = read_url(text, report)
    if not native and not report.problems:
        # For example, with a # or a ; before them.
        report.problems.add(
            f"{PREFIX[:-1]} is not among the options of this URL",
            where="URL",
            cure="Write the options behind the first ?, with an & between them, each beginning with jms.",
            code="policy-key-misplaced",
        )
    report.problems.close()
    policy = options.policy(native)
    return PolicyMap({}, policy, language=LANGUAGE, native=native, warnings=report.problems.warnings)
