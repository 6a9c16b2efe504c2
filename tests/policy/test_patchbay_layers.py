# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Puts several `dynamoMessagingSystem.xml` over each other, by the rules for `xml-combine` of ATG.

The rules are in ATG's programming guide.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from redeliver_mw.cli.main import run
from redeliver_mw.errors import PolicyError
from redeliver_mw.policy import DeadLetter, PolicyMap, load_policies

SINK = """<message-sink{attribute}><nucleus-name>{sink}</nucleus-name><input-port><input-destination>
  <destination-name>{queue}</destination-name><destination-type>Queue</destination-type>
  <redelivery><max-attempts>{attempts}</max-attempts><delay>1000</delay>
  <failure-output-port>Failed</failure-output-port></redelivery></input-destination></input-port>
  <redelivery-port><port-name>Failed</port-name>{outputs}</redelivery-port></message-sink>"""


def output(queue: str, attribute: str = "") -> str:
    return f"""<output-destination{attribute}><destination-name>{queue}</destination-name>
<destination-type>Queue</destination-type></output-destination>"""


def sink(name: str, queue: str, attempts: int, *outputs: str, attribute: str = "") -> str:
    inside = "".join(outputs) or output("dead")
    return SINK.format(sink=name, queue=queue, attempts=attempts, outputs=inside, attribute=attribute)


def system(*sinks: str, attribute: str = "") -> str:
    inside = "".join(sinks)
    return f"<dynamo-message-system><patchbay{attribute}>{inside}</patchbay></dynamo-message-system>"


def change(name: str, inside: str, attribute: str = "") -> str:
    return system(f"<message-sink{attribute}><nucleus-name>{name}</nucleus-name>{inside}</message-sink>")


def files(folder: Path, *texts: str) -> list[Path]:
    paths = [folder / f"layer{number}.xml" for number in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text, "utf-8")
    return paths


def layered(folder: Path, *texts: str) -> PolicyMap:
    return load_policies(files(folder, *texts), strict=True)


def letters(policies: PolicyMap, queue: str, attempts: int) -> list[str]:
    decision = policies.resolve(queue).decide(attempts)
    assert isinstance(decision, DeadLetter)
    return [str(target) for target in decision.targets]


BASE = system(sink("/acme/Orders", "orders", 3), sink("/acme/Bills", "bills", 5))


def test_a_sink_of_a_later_file_is_added(tmp_path: Path) -> None:
    policies = layered(tmp_path, BASE, system(sink("/acme/Mails", "mails", 7)))
    assert [policies.resolve(name).dead_after for name in ("orders", "bills", "mails")] == [3, 5, 7]


def test_a_value_of_a_later_file_stands_over_an_earlier_one(tmp_path: Path) -> None:
    """Of two elements that hold nothing but a text the later one is taken."""
    policies = layered(tmp_path, BASE, system(sink("/acme/Orders", "orders", 9)))
    assert [policies.resolve(name).dead_after for name in ("orders", "bills")] == [9, 5]


def test_the_destinations_of_a_port_are_added_to_those_below(tmp_path: Path) -> None:
    port = f"<redelivery-port><port-name>Failed</port-name>{output('dead')}{output('alarm')}</redelivery-port>"
    policies = layered(tmp_path, BASE, change("/acme/Orders", port))
    assert letters(policies, "orders", 3) == ["queue:dead", "queue:alarm"]
    assert letters(policies, "bills", 5) == ["queue:dead"]


def test_a_sink_that_says_replace_is_taken_as_it_is(tmp_path: Path) -> None:
    replaced = sink("/acme/Orders", "orders", 2, output("other"), attribute=' xml-combine="replace"')
    policies = layered(tmp_path, BASE, system(replaced))
    assert letters(policies, "orders", 2) == ["queue:other"]


def test_a_sink_that_says_remove_is_gone(tmp_path: Path) -> None:
    policies = layered(tmp_path, BASE, change("/acme/Orders", "", ' xml-combine="remove"'))
    assert policies.resolve("orders").dead_after is None
    assert policies.resolve("bills").dead_after == 5


def test_what_is_removed_and_was_never_there_is_no_error(tmp_path: Path) -> None:
    policies = layered(tmp_path, BASE, change("/acme/Nobody", "", ' xml-combine="remove"'))
    assert [policies.resolve(name).dead_after for name in ("orders", "bills")] == [3, 5]


@pytest.mark.parametrize(
    ("way", "order"),
    [
        ("append", ["queue:dead", "queue:late"]),
        ("prepend", ["queue:late", "queue:dead"]),
        ("append-without-matching", ["queue:dead", "queue:late"]),
        ("prepend-without-matching", ["queue:late", "queue:dead"]),
    ],
)
def test_elements_are_put_behind_or_before_those_below(way: str, order: list[str], tmp_path: Path) -> None:
    port = f'<redelivery-port xml-combine="{way}">{{}}{output("late")}</redelivery-port>'
    named = port.format("<port-name>Failed</port-name>")
    policies = load_policies(files(tmp_path, BASE, change("/acme/Orders", named)))
    assert letters(policies, "orders", 3) == order


def test_three_files_are_combined_from_the_lowest_up(tmp_path: Path) -> None:
    layers = [system(sink("/acme/Orders", "orders", attempts)) for attempts in (3, 4, 5)]
    assert layered(tmp_path, *layers).resolve("orders").dead_after == 5


def test_a_redelivery_port_alone_changes_that_of_its_sinks(tmp_path: Path) -> None:
    """The second example of the manual's page adds a queue for dead messages so."""
    port = f"<redelivery-port><port-name>Failed</port-name>{output('dead')}{output('kept')}</redelivery-port>"
    policies = layered(tmp_path, BASE, port)
    assert letters(policies, "orders", 3) == ["queue:dead", "queue:kept"]
    assert letters(policies, "bills", 5) == ["queue:dead", "queue:kept"]


def test_a_redelivery_port_with_nothing_below_it_is_refused_with_the_cure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    port = f"<redelivery-port><port-name>Failed</port-name>{output('dead')}</redelivery-port>"
    (path,) = files(tmp_path, port)
    assert run(["check", str(path)]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"error: {path}: line 1, column 1, <redelivery-port>: ")
    assert "It belongs in <message-sink>" in err
    with pytest.raises(PolicyError, match="Other is not in the files below"):
        layered(tmp_path, BASE, port.replace("Failed", "Other"))


def test_a_mistake_is_reported_with_the_file_it_is_in(tmp_path: Path) -> None:
    paths = files(tmp_path, BASE, system(sink("/acme/Orders", "orders", 0)))
    with pytest.raises(PolicyError) as refused:
        load_policies(paths)
    assert str(paths[1]) in str(refused.value)
    assert "max-attempts" in str(refused.value)


@pytest.mark.parametrize("text", ["<dynamo", "", "3:1000", "<beans/>", "\xff"])
def test_a_layer_that_cannot_be_read_is_reported_with_its_name(text: str, tmp_path: Path) -> None:
    paths = files(tmp_path, BASE, "")
    paths[1].write_bytes(text.encode("latin-1"))
    with pytest.raises(PolicyError) as refused:
        load_policies(paths)
    assert str(refused.value).startswith(str(paths[1]))
    assert refused.value.cure


def test_an_unknown_way_of_combining_is_refused_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="Did you mean replace"):
        layered(tmp_path, BASE, change("/acme/Orders", "<input-port/>", ' xml-combine="replaec"'))


def test_a_file_that_speaks_of_one_below_it_is_a_finding_when_it_is_alone(capsys: pytest.CaptureFixture[str]) -> None:
    text = system(sink("/acme/Orders", "orders", 3, attribute=' xml-combine="replace"'))
    assert run(["check", text]) == 0
    assert "xml-combine speaks of a file below this one" in capsys.readouterr().err
    assert run(["check", text, "--strict"]) == 2


def test_each_command_takes_layers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base, over = map(str, files(tmp_path, BASE, system(sink("/acme/Orders", "orders", 9))))
    assert run(["check", base, "--layer", over]) == 0
    assert "dead after 9 failures" in capsys.readouterr().out
    assert run(["explain", base, "--layer", over, "--destination", "orders"]) == 0
    assert "Dead after 9 failures" in capsys.readouterr().out
    assert run(["convert", base, "--layer", over, "--to", "patchbay"]) == 0
    assert "<max-attempts>9</max-attempts>" in capsys.readouterr().out


def test_files_of_another_language_do_not_lie_over_each_other(tmp_path: Path) -> None:
    paths = files(tmp_path, "1:1000; 3:move(queue:dead)", BASE)
    with pytest.raises(PolicyError, match="it is in jmsjca"):
        load_policies(paths)
