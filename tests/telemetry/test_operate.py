# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the alert rules with promtool, the dashboard by its queries, and the pages that explain both."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

from redeliver_mw import App, Delivery
from redeliver_mw.telemetry.families import BY_NAME, FAMILIES
from redeliver_mw.telemetry.prometheus import PrometheusMetrics
from redeliver_mw.testing import TestApp
from tests.telemetry import dashboard
from tests.telemetry.prometheus_server import promtool

DOCS = Path(__file__).resolve().parents[2] / "docs"
OPERATE = DOCS / "operate"
METRIC = re.compile(r"\bredeliver_\w+")
SUFFIXES = ("_bucket", "_count", "_sum")


class Rule(NamedTuple):
    """Holds one rule of the file, and its text."""

    name: str
    text: str

    def value(self, key: str) -> str:
        """Return the value of a key that stands once in the rule, on one line."""
        (found,) = re.findall(rf"^ +{key}: (.+)$", self.text, re.MULTILINE)
        return str(found)


def rules() -> list[Rule]:
    _, *found = (OPERATE / "alerts.yml").read_text().split("- alert: ")
    return [Rule(text.partition("\n")[0], text) for text in found]


def panels() -> list[dict[str, Any]]:
    return [panel for panel in dashboard.dashboard()["panels"] if panel["type"] != "row"]


def is_known(name: str) -> bool:
    family = BY_NAME.get(next((name.removesuffix(end) for end in SUFFIXES if name.endswith(end)), name))
    return family is not None and (family.name == name or family.kind == "histogram")


def test_promtool_accepts_the_rules() -> None:
    done = promtool("check", "rules", "alerts.yml", cwd=OPERATE)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_rules_fire_and_resolve_as_their_tests_say() -> None:
    done = promtool("test", "rules", "alerts_test.yml", cwd=OPERATE)
    assert done.returncode == 0, done.stdout + done.stderr
    tests = (OPERATE / "alerts_test.yml").read_text().split("- alertname: ")
    fires = {text.partition("\n")[0] for text in tests if "exp_alerts" in text}
    silent = {text.partition("\n")[0] for text in tests[1:] if "exp_alerts" not in text}
    assert fires == {rule.name for rule in rules()}
    assert silent == fires  # each is silent at some time, too


def test_every_rule_has_a_section_of_the_page_and_a_summary() -> None:
    headings = re.findall(r"^## (Redeliver\w+)$", (DOCS / "alerts.md").read_text(), re.MULTILINE)
    assert headings == [rule.name for rule in rules()]
    for rule in rules():
        assert rule.value("summary")
        assert rule.value("runbook_url") == f"docs/alerts.md#{rule.name.lower()}"
        assert rule.value("severity") in ("warning", "critical")


def test_rules_and_dashboard_ask_only_for_metrics_that_there_are() -> None:
    asked = {name for rule in rules() for name in METRIC.findall(rule.text)}
    asked |= {name for one in panels() for target in one["targets"] for name in METRIC.findall(target["expr"])}
    assert sorted(name for name in asked if not is_known(name)) == []
    shown = {name for one in panels() for target in one["targets"] for name in METRIC.findall(target["expr"])}
    bare = {next((n.removesuffix(end) for end in SUFFIXES if n.endswith(end)), n) for n in shown}
    assert bare == {family.name for family in FAMILIES}


def test_the_dashboard_file_is_the_one_that_is_made() -> None:
    made = dashboard.text()
    assert dashboard.FILE.read_text() == made, "run: python -m tests.telemetry.dashboard --write"


def test_the_dashboard_uses_panels_that_every_grafana_has_and_none_overlaps() -> None:
    found = dashboard.dashboard()["panels"]
    assert {panel["type"] for panel in found} <= dashboard.CORE_PANELS
    assert len({panel["id"] for panel in found}) == len(found)
    places = set()
    for panel in found:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24
        assert not cells & places, panel["title"]
        places |= cells
    assert all(panel["title"] and panel["targets"] for panel in panels())


def test_promtool_can_read_every_query_of_the_dashboard(tmp_path: Path) -> None:
    variables = {"$__rate_interval": "5m", "$job": ".*", "$source": ".*"}
    recorded = []
    for number, panel in enumerate(panels()):
        for target in panel["targets"]:
            expr = target["expr"]
            for name, value in variables.items():
                expr = expr.replace(name, value)
            recorded.append({"record": f"panel_{number}_{target['refId']}", "expr": expr})
    (tmp_path / "panels.yml").write_text(json.dumps({"groups": [{"name": "panels", "rules": recorded}]}))
    done = promtool("check", "rules", str(tmp_path / "panels.yml"))
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_finds_nothing_to_improve_in_what_is_exposed() -> None:
    metrics = PrometheusMetrics()
    app = App("memory://", metrics=metrics, breaker=True)

    @app.handler("orders")
    def handle(delivery: Delivery) -> None:
        raise ValueError("no stock")

    with TestApp(app) as test:
        test.send("orders", "one")
        test.advance(10.0)
        text = metrics.text()[0].decode()
    done = promtool("check", "metrics", given=text)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_page_of_the_metrics_names_every_metric_with_its_kind() -> None:
    page = (DOCS / "metrics.md").read_text()
    rows = dict(re.findall(r"^\| `(redeliver_\w+)` \| (\w+) \|", page, re.MULTILINE))
    assert rows == {family.name: family.kind for family in FAMILIES}
