# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reads Artemis' `broker.properties`: address settings as properties of Java beans. Pure.

Grammar, in the syntax of `java_properties`::

    addressSettings.NAME.FIELD=VALUE        NAME without dots
    addressSettings."NAME".FIELD=VALUE      any NAME; other marks than the quote with key.surround=MARKS
    addressesSettings...                    the older spelling of the same

FIELD is that of the XML in one word: `redelivery-delay` is `redeliveryDelay`; but `redelivery-delay-multiplier` is
`redeliveryMultiplier`. Of two lines with the same key the later one counts. All other properties of the broker are
skipped.

In Artemis the properties override `broker.xml`. That file is not read together with them here.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ....errors import PolicyError
from ..diagnostics import Diagnostics, nearest
from ..java_properties import Property, properties_of
from ..schema import MOST_FINDINGS, words
from ..xml import Element
from .schema import COUNTED_BEFORE, FIELDS

SETTINGS = "addressSettings"
_SPELLINGS = (SETTINGS, "addressesSettings")
_SURROUND = "key.surround"
_MOST_LINES = 2_000  # of a text that may be anything, to detect its language
_REMOVED = "-"  # the value that removes a whole setting
_COUNTED_BEFORE = "persistDeliveryCountBeforeDelivery"


def _in_one_word(name: str) -> str:
    first, *others = name.split("-")
    return first + "".join(other.capitalize() for other in others)


# The setters of Artemis 2.44's AddressSettings.
_OURS = {
    "redeliveryMultiplier" if name == "redelivery-delay-multiplier" else _in_one_word(name): name for name in FIELDS
}
_FOREIGN = words(
    """
    addressFullMessagePolicy autoCreateAddresses autoCreateJmsQueues autoCreateJmsTopics autoCreateQueues
    autoDeleteAddresses autoDeleteAddressesDelay autoDeleteAddressesSkipUsageCheck autoDeleteCreatedQueues
    autoDeleteJmsQueues autoDeleteJmsTopics autoDeleteQueues autoDeleteQueuesDelay autoDeleteQueuesMessageCount
    autoDeleteQueuesSkipUsageCheck configDeleteAddresses configDeleteDiverts configDeleteQueues
    defaultAddressRoutingType defaultConsumerWindowSize defaultConsumersBeforeDispatch defaultDelayBeforeDispatch
    defaultExclusiveQueue defaultGroupBuckets defaultGroupFirstKey defaultGroupRebalance
    defaultGroupRebalancePauseDispatch defaultLastValueKey defaultLastValueQueue defaultMaxConsumers
    defaultNonDestructive defaultPurgeOnNoConsumers defaultQueueRoutingType defaultRingSize enableIngressTimestamp
    enableMetrics expiryDelay IDCacheSize initialQueueBufferSize managementBrowsePageSize
    managementMessageAttributeSizeLimit maxExpiryDelay maxReadPageBytes maxReadPageMessages maxSizeBytes
    maxSizeBytesRejectThreshold maxSizeMessages messageCounterHistoryDayLimit minExpiryDelay noExpiry
    pageCacheMaxSize pageFullMessagePolicy pageLimitBytes pageLimitMessages pageSizeBytes prefetchPageBytes
    prefetchPageMessages queuePrefetch redistributionDelay retroactiveMessageCount sendToDLAOnNoRoute
    slowConsumerCheckPeriod slowConsumerPolicy slowConsumerThreshold slowConsumerThresholdMeasurementUnit
    """
)


@dataclass
class AddressSettings:
    """Holds a file's settings about redelivery, as elements of the XML."""

    settings: list[Element] = field(default_factory=list)
    counted_before: list[Element] = field(default_factory=list)


def looks_like_properties(text: str) -> bool:
    """Return whether a line of the text sets an address setting, perhaps a misspelt one. Pure."""
    for line in text.splitlines()[:_MOST_LINES]:
        head, dot, _ = line.strip().partition(".")
        if dot and (head in _SPELLINGS or (head.isalpha() and nearest(head, _SPELLINGS, alike=0.85))):
            return True
    return False


def read_properties(text: str, problems: Diagnostics, *, strict: bool) -> AddressSettings:
    """Return the address settings of a file; problems are reported to `problems`."""
    found = AddressSettings()
    try:
        given = properties_of(text)
    except PolicyError as error:
        problems.take(error)
        problems.close()
        raise
    surround = next((one.value for one in reversed(given) if one.key == _SURROUND), "") or '"'
    kept: dict[str, Property] = {}
    tell = _Findings(problems, strict)
    for one in given:
        if one.key in kept and (one.key.startswith(_SPELLINGS) or one.key == _COUNTED_BEFORE):
            tell(one, "it stands there twice", "the later one counts; leave one out", code="policy-conflict")
        kept.pop(one.key, None)  # the later one is applied later, too
        kept[one.key] = one
    by_match: dict[str, Element] = {}
    for one in kept.values():
        if one.key == _COUNTED_BEFORE:
            found.counted_before.append(_element(COUNTED_BEFORE, one))
            continue
        head, _, rest = one.key.partition(".")
        if head not in _SPELLINGS:
            near = nearest(head, _SPELLINGS, alike=0.85)
            if near:
                tell(one, "unknown, and passed over", f"did you mean {near}?", code="policy-key-unknown")
            continue
        setting = _setting(one, rest, surround, tell)
        if setting is None:
            continue
        match, child = setting
        if match not in by_match:
            by_match[match] = _element("address-setting", one, match=match)
        children = by_match[match].children
        if child is not None:
            # The older spelling of the same field.
            children[:] = [other for other in children if other.name != child.name]
            children.append(child)
            if child.text != child.text.strip() and not child.name.startswith(("redelivery", "max-")):
                tell(one, "a blank at the end is part of the value", "take it out", code="policy-value")
    found.settings.extend(by_match.values())
    return found


def _setting(one: Property, rest: str, surround: str, tell: _Findings) -> tuple[str, Element | None] | None:
    form = f'write {SETTINGS}."NAME".FIELD=VALUE'
    if rest.startswith(surround):
        match, closed, name = rest[len(surround) :].partition(surround)
        if not closed or not name.startswith("."):
            tell(one, "passed over", form, code="policy-syntax")
            return None
        name = name[1:]
    else:
        match, _, name = rest.partition(".")
    if not match or not name:
        removed = one.value == _REMOVED and match
        what = "it takes away what broker.xml sets, which is not read here" if removed else "it sets no field"
        tell(one, what, "leave it out" if removed else form, code="policy-syntax")
        return None
    if name in _OURS:
        text = one.value if _OURS[name].endswith(("address", "prefix", "suffix")) else one.value.strip()
        child = _element(_OURS[name], one)
        child.text = text
        return match, child
    if name in _FOREIGN:
        return match, None
    tell(one, "unknown, and passed over", _meant(rest, name), code="policy-key-unknown")
    return None


def _meant(rest: str, name: str) -> str:
    last = name.rpartition(".")[2]
    if last != name and (last in _OURS or last in _FOREIGN):
        return f'put the name between quotes: {SETTINGS}."{rest.removesuffix(f".{last}"):.100}".{last}'
    known = {xml: word for word, xml in _OURS.items()}.get(name)
    near = known or nearest(name, (*_OURS, *_FOREIGN))
    return f"did you mean {near}?" if near else f"it is not known here; write one of {', '.join(_OURS)}"


@dataclass
class _Findings:
    """Reports findings about a property: errors with `strict`, otherwise warnings."""

    problems: Diagnostics
    strict: bool
    count: int = 0

    def __call__(self, one: Property, what: str, hint: str, *, code: str) -> None:
        self.count += 1
        if self.count > MOST_FINDINGS:
            return
        where, cure = _where(one), hint[:1].upper() + hint[1:]
        if self.strict:
            self.problems.add(what, where=where, cure=cure, code=code)
        else:
            self.problems.suspect(f"{where}: {what}; {hint}", PolicyError(what, where=where, cure=cure, code=code))


def _where(one: Property) -> str:
    return f"line {one.line}, {one.key:.200}"


def _element(name: str, one: Property, **attributes: str) -> Element:
    return Element(name, attributes, [], one.value.strip(), one.line, 1, called=f"{one.key:.200}")
