# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""An operator sees an outage from its beginning to the audit: once by the command line, once by the HTTP API.

An App in a process of its own handles orders with the help of a warehouse, which is away as long as a file exists. One
letter of another failure is there before, so that the failure of the outage is a new group among older ones.
"""

from __future__ import annotations

import json
import re
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from redeliver_mw.operations import Store, counts
from redeliver_mw.operations.became import became_of
from redeliver_mw.operations.control import app_status, known_apps
from redeliver_mw.operations.operation import person
from redeliver_mw.operations.tokens import Role, add_token
from redeliver_mw.session import Session, connect
from tests.api.serving import Served, served
from tests.api.test_operations import events
from tests.brokers import Broker
from tests.cli.running import Running, redeliver
from tests.cli.test_run_processes import eventually
from tests.faults.letters import declare
from tests.operations.test_collect_brokers import THREE

pytestmark = pytest.mark.broker

PATIENCE = 90.0  # seconds to wait for what another process does, also on a machine that has much else to do
FAILED, BEHIND = 8, 4  # orders that die in the outage, and orders that come while the breaker is open
CANARY = 2

# Each order of the outage fails twice. The last of these failures opens the breaker, for longer than the test takes.
SHOP = """
from pathlib import Path
from redeliver_mw import App, Breaker, RedeliveryPolicy

app = App(
    {url!r},
    policy=RedeliveryPolicy(2, 0.1),
    breaker=Breaker(failure_rate=1.0, window={runs}, min_calls={runs}, open_for=3600, max_open_for=3600),
    operations={store!r},
)
outage = Path(__file__).with_name("outage")

@app.handler({queue!r})
def on_order(delivery):
    if delivery.text == "no order":
        raise ValueError("this is no order")
    if outage.exists():
        raise ConnectionError("the warehouse does not answer")
    print("handled", delivery.text, flush=True)
"""


@dataclass
class Shop:
    """Holds an App that runs, its queues, and the switch of the outage."""

    folder: Path
    store_url: str
    broker: Broker
    queue: str
    running: Running
    session: Session

    @property
    def dlq(self) -> str:
        return f"DLQ.{self.queue}"

    def send(self, *orders: str) -> None:
        for order in orders:
            self.session.publish(self.queue, order.encode())

    def await_dead_letters(self, number: int) -> None:
        assert eventually(lambda: self.session.depth(self.dlq) == number, PATIENCE), self.said

    def await_handled(self, *orders: str) -> None:
        for order in orders:
            assert self.running.saw(f"(?m)^handled {order}$", PATIENCE), self.said

    def begin_outage(self) -> None:
        """Take the warehouse away, and send orders, each of which fails for the last time before the breaker opens."""
        (self.folder / "outage").touch()
        self.send(*self.failed)

    def end_outage(self) -> None:
        (self.folder / "outage").unlink()

    @property
    def failed(self) -> list[str]:
        return [f"order {n}" for n in range(1, 1 + FAILED)]

    @property
    def behind(self) -> list[str]:
        return [f"order {n}" for n in range(1 + FAILED, 1 + FAILED + BEHIND)]

    @property
    def said(self) -> str:
        return f"{self.running.out}\n{self.running.err}"

    def is_known(self) -> bool:
        """Return whether the App has reported to the store."""
        with Store(self.store_url) as store:
            return known_apps(store) == ["shop"]

    def breaker(self) -> str:
        """Return the state of the breaker that the App has reported last."""
        with Store(self.store_url) as store:
            return app_status(store, "shop")[0].sources[0].breaker

    def recovered(self, replay: str) -> int:
        """Return how many messages of a replay are known to have been handled."""
        with Store(self.store_url) as store:
            return became_of(store, replay).recovered

    def handled(self) -> Counter[str]:
        return Counter(re.findall(r"(?m)^handled (.*)$", self.running.out))

    def check_end(self) -> None:
        """Check that nothing is left anywhere and that each order was handled once, and end the App."""
        assert (self.session.depth(self.queue), self.session.depth(self.dlq)) == (0, 0)
        with Store(self.store_url) as store:
            assert counts(store) == {"replayed": FAILED, "archived": 1}
        self.running.signal(signal.SIGTERM)
        assert self.running.wait(PATIENCE) == 0, self.said
        assert self.handled() == Counter(["order 0", *self.failed, *self.behind])


@contextmanager
def open_shop(broker: Broker, folder: Path, queue: str) -> Iterator[Shop]:
    """Run the App on empty queues. One order was handled, and one message that is no order is a dead letter."""
    store_url = f"sqlite:///{folder}/store.db"
    with Store(store_url):
        pass  # it is made before two programs begin to use it
    declare(broker, queue, f"DLQ.{queue}")
    text = SHOP.format(url=broker.url, store=store_url, queue=queue, runs=2 * FAILED)
    (folder / "shop.py").write_text(text)
    with Running(folder, "run", "shop:app") as running, connect(broker.url) as session:
        shop = Shop(folder, store_url, broker, queue, running, session)
        assert running.saw(f"consuming queue:{queue}", PATIENCE), shop.said
        assert eventually(shop.is_known, PATIENCE), shop.said
        shop.send("no order")
        shop.await_dead_letters(1)
        shop.send("order 0")  # a success: the breaker counts the failures after it
        shop.await_handled("order 0")
        yield shop


# -- by the command line ----------------------------------------------------------------------------


def say(shop: Shop, *words: str) -> Any:
    """Return the JSON that a command prints, or its text if it prints none; it has to end well."""
    env = {"BROKER": shop.broker.url, "REDELIVER_STORE": shop.store_url}
    done = redeliver(shop.folder, *words, extra=env, patience=PATIENCE)
    assert done.returncode == 0, (words, done.stdout, done.stderr, shop.said)
    return json.loads(done.stdout) if "--json" in words else done.stdout


def groups_by_error(shop: Shop) -> dict[str, int]:
    return {one["error"]: one["letters"] for one in say(shop, "dead", "groups", "--by", "error", "--json")}


def breaker_by_command(shop: Shop) -> tuple[str, bool]:
    [process] = say(shop, "control", "shop", "status", "--json")
    [source] = process["sources"]
    return source["breaker"], source["breaker_forced"]


@pytest.mark.parametrize("name", THREE)
def test_an_outage_is_triaged_by_the_command_line(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    broker: Broker = request.getfixturevalue(name)
    with open_shop(broker, tmp_path, "on-call.cli") as shop:
        collect = ("dead", "collect", "env:BROKER", shop.dlq, "--json")
        assert say(shop, *collect)["queues"][0]["collected"] == 1
        known = groups_by_error(shop)
        assert known == {"ValueError": 1}

        shop.begin_outage()
        shop.await_dead_letters(FAILED)
        assert eventually(lambda: shop.breaker() == "open", PATIENCE), shop.said
        assert breaker_by_command(shop) == ("open", False)
        shop.send(*shop.behind)
        assert say(shop, *collect)["queues"][0]["collected"] == FAILED
        new = {error: letters for error, letters in groups_by_error(shop).items() if error not in known}
        assert new == {"ConnectionError": FAILED}

        shop.end_outage()
        preview = say(shop, "dead", "replay", "env:BROKER", "--group", "error=ConnectionError", "--json")
        assert (preview["sent"], preview["letters"], preview["going"]) == (None, FAILED, FAILED)
        replay = preview["operation"]
        assert shop.handled().keys() == {"order 0"}  # the breaker has kept the others from their attempts
        say(shop, "control", "shop", "breaker", "close", shop.queue)
        shop.await_handled(*shop.behind)
        canary = ("--canary", str(CANARY), "--stop-at", "20%", "--wait", str(PATIENCE))
        done = say(shop, "dead", "replay", "env:BROKER", "--resume", replay, *canary, "--yes", "--json")
        assert (done["operation"], done["state"], done["replayed"]) == (replay, "done", FAILED)
        assert done["canary"] | {"waited_s": 0} == {
            "letters": CANARY,
            "recovered": CANARY,
            "failed_again": 0,
            "waited_s": 0,
            "verdict": "passed",
        }

        assert eventually(lambda: shop.recovered(replay) == FAILED, PATIENCE), shop.said
        became = [one["became"] for one in say(shop, "dead", "operations", replay, "--json")["letters"]]
        assert became == ["recovered"] * FAILED
        say(shop, "control", "shop", "breaker", "auto", shop.queue)
        say(shop, "dead", "archive", "--group", "error=ValueError")
        assert say(shop, *collect)["queues"][0]["found"] in (0, None)
        audit = say(shop, "dead", "audit", "--json")
        assert {one["who"] for one in audit} == {person()}
        did = {(one["what"], one["outcome"], one["letters"]) for one in audit}
        assert did >= {("replay", "success", FAILED), ("archive", "success", 1)}
        assert {what for what, _, _ in did} >= {"control-breaker-close", "control-breaker-auto"}
        shop.check_end()


# -- by the HTTP API --------------------------------------------------------------------------------


@contextmanager
def api_of(shop: Shop) -> Iterator[Served]:
    """Serve the store to Ann, who looks, Ada, who replays, and Bo, who controls Apps."""
    people: dict[Role, str] = {"viewer": "ann", "reader": "rob", "operator": "ada", "admin": "bo"}
    with Store(shop.store_url) as store:
        tokens = {role: add_token(store, name, role, expires_s=3600, who="a test")[1] for role, name in people.items()}
    with served(shop.store_url, tokens, brokers=shop.broker.url) as api:
        api.timeout = PATIENCE
        yield api


def letters_by_error(api: Served) -> dict[str, int]:
    found = api.get("/groups?by=error", "viewer")["groups"]
    return {one["key"]: one["letters"] for one in found}


def breaker_by_api(api: Served) -> tuple[str, bool]:
    [process] = api.get("/apps/shop", "viewer")["processes"]
    [source] = process["sources"]
    return source["breaker"], source["forced"]


@pytest.mark.parametrize("name", THREE)
def test_an_outage_is_triaged_by_the_http_api(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    broker: Broker = request.getfixturevalue(name)
    with open_shop(broker, tmp_path, "on-call.api") as shop, api_of(shop) as api:
        words = ("dead", "collect", "env:BROKER", shop.dlq, "--follow", "--store", shop.store_url)
        with Running(tmp_path, *words, extra={"BROKER": broker.url}) as collecting:
            assert eventually(lambda: letters_by_error(api) == {"ValueError": 1}, PATIENCE), collecting.err

            shop.begin_outage()
            new = {"ConnectionError": FAILED}
            assert eventually(lambda: letters_by_error(api) == {"ValueError": 1} | new, PATIENCE), shop.said
            assert eventually(lambda: breaker_by_api(api) == ("open", False), PATIENCE), shop.said
            shop.send(*shop.behind)

            shop.end_outage()
            planned = api.post(
                "/operations",
                {
                    "kind": "replay",
                    "selection": {"group": {"by": "error", "value": "ConnectionError"}},
                    "expected": FAILED,
                    "replay": {"canary": str(CANARY), "stop_at": "20%", "wait_s": PATIENCE},
                },
                "operator",
                201,
            )
            replay = f"/operations/{planned['id']}"
            routes = api.get(f"{replay}/preview", "viewer")["routes"]
            assert [(one["to"], one["letters"]) for one in routes] == [(shop.queue, FAILED)]
            assert shop.handled().keys() == {"order 0"}
            close = {"wish": "close", "source": shop.queue}
            api.post("/apps/shop/breaker", close, "operator", 403)
            assert api.post("/apps/shop/breaker", close, "admin")["running"] == 1
            shop.await_handled(*shop.behind)
            with api.client("viewer").stream("GET", f"{replay}/events", timeout=PATIENCE) as stream:
                seen = events(stream.iter_lines())
                assert next(seen)[1]["state"] == "planned"
                api.post(f"{replay}/run", {}, "operator", 202)
                *progress, (last, end) = seen
            assert {kind for kind, _ in progress} == {"progress"}
            assert (last, end["state"], end["done"], end["total"]) == ("end", "done", FAILED, FAILED), end

            def became() -> dict[str, int]:
                found: dict[str, int] = api.get(replay, "viewer")["became"]
                return {fate: number for fate, number in found.items() if number}

            assert eventually(lambda: became() == {"recovered": FAILED}, PATIENCE), shop.said
            fates = [one["became"] for one in api.get(f"{replay}/letters", "viewer")["letters"]]
            assert fates == ["recovered"] * FAILED
            api.post("/apps/shop/breaker", {"wish": "auto", "source": shop.queue}, "admin")
            assert eventually(lambda: breaker_by_api(api) == ("closed", False), PATIENCE), shop.said
            chosen = {"group": {"by": "error", "value": "ValueError"}}
            archive = api.post("/operations", {"kind": "archive", "selection": chosen}, "operator", 201)
            api.post(f"/operations/{archive['id']}/run", {}, "operator", 202)
            assert eventually(lambda: letters_by_error(api) == {}, PATIENCE), "a letter still waits"

            def did() -> set[tuple[str, str, str, int | None]]:
                entries = api.get("/audit", "reader")["entries"]
                return {(one["who"], one["what"], one["outcome"], one["letters"]) for one in entries}

            wanted = {("api:ada", "replay", "success", FAILED), ("api:ada", "archive", "success", 1)}
            assert eventually(lambda: did() >= wanted, PATIENCE), did()
            controls = [one[:3] for one in did() if one[0] == "api:bo"]
            assert sorted(controls) == [
                ("api:bo", "control-breaker-auto", "success"),
                ("api:bo", "control-breaker-close", "success"),
            ]
            assert ("api:ada", "denied") in {(who, outcome) for who, _, outcome, _ in did()}
            collecting.signal(signal.SIGINT)
            assert collecting.wait(PATIENCE) == 130, collecting.err
        shop.check_end()
