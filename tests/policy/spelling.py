# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Writes one policy as an administrator of each system would have written it.

A rule says how long the delay after each failure is, and at which failure a message goes to the queue `dead.SOURCE`.
Only ActiveMQ's connection URL has no word for that queue: its dead letters go to ActiveMQ.DLQ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Rule(NamedTuple):
    source: str
    rest_ms: int
    dead_after: int
    times: int = 1  # each delay is so many times as long as the one before

    @property
    def rests(self) -> list[float]:
        """Return the delays in seconds."""
        return [self.rest_ms * self.times**step / 1000 for step in range(self.dead_after - 1)]


def jmsjca(*rules: Rule) -> str:
    (rule,) = rules  # one string, one policy
    steps = "".join(f"{failures}:{round(rest * 1000)}; " for failures, rest in enumerate(rule.rests, 1))
    return f"{steps}{rule.dead_after}:move(queue:dead.$)"


def jmsjca_url(*rules: Rule) -> str:
    return f"tcp://broker:61613?JMSJCA.redeliveryhandling={jmsjca(*rules)}"


def activemq_url(*rules: Rule) -> str:
    (rule,) = rules
    options = _activemq(rule).items()
    return "tcp://broker:61616?" + "&".join(f"jms.redeliveryPolicy.{name}={value}" for name, value in options)


def activemq_plugin(*rules: Rule) -> str:
    return f"""<broker schedulerSupport="true">
      <plugins><redeliveryPlugin>{_activemq_map(rules)}</redeliveryPlugin></plugins>{_ACTIVEMQ_DEAD}
    </broker>"""


def activemq_client(*rules: Rule) -> str:
    return f"<beans>{_activemq_map(rules)}<broker>{_ACTIVEMQ_DEAD}</broker></beans>"


_ACTIVEMQ_DEAD = """<destinationPolicy><policyMap><policyEntries><policyEntry queue="&gt;">
  <deadLetterStrategy><individualDeadLetterStrategy queuePrefix="dead."/></deadLetterStrategy>
</policyEntry></policyEntries></policyMap></destinationPolicy>"""


def _activemq(rule: Rule) -> dict[str, str]:
    growth = {"useExponentialBackOff": "true", "backOffMultiplier": f"{rule.times}"} if rule.times > 1 else {}
    rest = {"initialRedeliveryDelay": f"{rule.rest_ms}", "redeliveryDelay": f"{rule.rest_ms}"}
    return {"maximumRedeliveries": f"{rule.dead_after - 1}", **rest, **growth}


def _activemq_map(rules: tuple[Rule, ...]) -> str:
    def entry(rule: Rule) -> str:
        attributes = {"queue": rule.source, **_activemq(rule)}
        return f"<redeliveryPolicy {' '.join(f'{name}={value!r}' for name, value in attributes.items())}/>"

    return f"""<redeliveryPolicyMap><redeliveryPolicyMap>
      <redeliveryPolicyEntries>{"".join(map(entry, rules))}</redeliveryPolicyEntries>
    </redeliveryPolicyMap></redeliveryPolicyMap>"""


def patchbay(*rules: Rule) -> str:
    def sink(rule: Rule) -> str:
        assert rule.times == 1  # there is one delay
        return f"""<message-sink><nucleus-name>/shop/{rule.source}</nucleus-name>
          <input-port><input-destination>
            <destination-name>{rule.source}</destination-name><destination-type>Queue</destination-type>
            <redelivery><max-attempts>{rule.dead_after}</max-attempts><delay>{rule.rest_ms}</delay>
              <failure-output-port>Failed</failure-output-port></redelivery>
          </input-destination></input-port>
          <redelivery-port><port-name>Failed</port-name><output-destination>
            <destination-name>dead.{rule.source}</destination-name><destination-type>Queue</destination-type>
          </output-destination></redelivery-port>
        </message-sink>"""

    return f"<dynamo-message-system><patchbay>{''.join(map(sink, rules))}</patchbay></dynamo-message-system>"


def weblogic(*rules: Rule) -> str:
    def queue(rule: Rule) -> str:
        assert rule.times == 1  # there is one delay
        return f"""<queue name="{rule.source}">
          <delivery-params-overrides><redelivery-delay>{rule.rest_ms}</redelivery-delay></delivery-params-overrides>
          <delivery-failure-params>
            <redelivery-limit>{rule.dead_after - 1}</redelivery-limit>
            <error-destination>dead.{rule.source}</error-destination>
          </delivery-failure-params>
        </queue><queue name="dead.{rule.source}"/>"""

    return f"<weblogic-jms>{''.join(map(queue, rules))}</weblogic-jms>"


def artemis(*rules: Rule, prefix: str = "") -> str:
    def setting(rule: Rule) -> str:
        return f"""<address-setting match="{prefix}{rule.source}">
          <redelivery-delay>{rule.rest_ms}</redelivery-delay>
          <redelivery-delay-multiplier>{rule.times}</redelivery-delay-multiplier>
          <max-delivery-attempts>{rule.dead_after}</max-delivery-attempts>
          <dead-letter-address>{prefix}dead.{rule.source}</dead-letter-address>
        </address-setting>"""

    return f"<address-settings>{''.join(map(setting, rules))}</address-settings>"


def hornetq(*rules: Rule) -> str:
    return artemis(*rules, prefix="jms.queue.")


def native(*rules: Rule) -> str:
    return "\n".join(
        f"""[destinations."{rule.source}"]
        dead_after = {rule.dead_after}
        backoff = {{ initial = {rule.rest_ms / 1000}, multiplier = {rule.times} }}
        dead_letter = "queue:dead.$" """
        for rule in rules
    )


SPELLINGS: dict[str, Callable[..., str]] = {
    "jmsjca": jmsjca,
    "jmsjca-url": jmsjca_url,
    "activemq-url": activemq_url,
    "activemq-plugin": activemq_plugin,
    "activemq-client": activemq_client,
    "patchbay": patchbay,
    "weblogic": weblogic,
    "artemis": artemis,
    "hornetq": hornetq,
    "native": native,
}
GROWING = sorted(SPELLINGS.keys() - {"patchbay", "weblogic"})  # those have one delay for all
BY_DESTINATION = sorted(name for name in SPELLINGS if not name.startswith("jmsjca") and name != "activemq-url")


def dead_queue(spelling: str, source: str) -> str:
    return "ActiveMQ.DLQ" if spelling == "activemq-url" else f"dead.{source}"
