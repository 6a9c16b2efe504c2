# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds the faults of a cluster. Each fault is a function that strikes, waits, and puts right what it did.

The function returns a moment on the machine's monotonic clock: what is sent later and confirmed shows that the broker
is back. The moment is right after the blow where nothing is confirmed until the broker is back, and after the repair
where something may be confirmed before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import pika

from tests.adapters.stomp.plain import Plain
from tests.brokers._process import BrokerFailed
from tests.faults.load import channel_on
from tests.faults.proxy import Direction
from tests.infrastructure.activemq_pair import ActiveMQPair
from tests.infrastructure.artemis_pair import ArtemisPair
from tests.infrastructure.cluster import SECRET, WORKER
from tests.infrastructure.rabbitmq_cluster import RabbitMQCluster

if TYPE_CHECKING:
    from tests.infrastructure.scene import Scene

LASTS = 8.0  # seconds that a fault lasts
CRUMB = 3  # bytes that the network passes on at a time
SLOW = 0.2  # seconds that it takes for each
RESETS = 8
IDLE = 20  # clients
WITNESSES = 50  # messages
#: Of Artemis: one message is too many; a page must be smaller than what there is room for.
FULL = '{"maxSizeBytes":2,"pageSizeBytes":1,"addressFullMessagePolicy":"FAIL"}'


@dataclass(frozen=True, slots=True)
class Fault:
    """Describes a fault: `strike` does it. `proxied`: clients reach the nodes through proxies only."""

    name: str
    says: str
    strike: Callable[[Scene], float]
    proxied: bool = False


# --- nodes


def kill_first(scene: Scene) -> float:
    return _kill(scene, [0])


def kill_last(scene: Scene) -> float:
    return _kill(scene, [-1])


def kill_majority(scene: Scene) -> float:
    return _kill(scene, [1, 2])


def kill_all(scene: Scene) -> float:
    return _kill(scene, range(len(scene.cluster.nodes)))


def _kill(scene: Scene, which: Sequence[int]) -> float:
    nodes = [scene.cluster.nodes[n] for n in which]
    for node in nodes:
        node.kill()
    moment = time.monotonic()
    time.sleep(LASTS)
    scene.cluster.together(lambda node: node.start(), nodes)
    return moment


def freeze_first(scene: Scene) -> float:
    node = scene.cluster.active()
    node.pause()
    moment = time.monotonic()
    time.sleep(2 * LASTS)
    node.resume()
    return moment


def rolling_restart(scene: Scene) -> float:
    for node in scene.cluster.nodes:
        node.leave()
        node.start()
    return time.monotonic()


def fail_over(scene: Scene) -> float:
    """Kill the active one, and wait until the other one takes over."""
    node = scene.cluster.active()
    node.kill()
    moment = time.monotonic()
    scene.cluster.wait_active(node)
    scene.afterwards(node.start)
    return moment


def fail_over_and_back(scene: Scene) -> float:
    """Kill the active one; start it again once the other one has taken over, and wait until that one gives back."""
    node = scene.cluster.active()
    node.kill()
    other = scene.cluster.wait_active(node)
    time.sleep(LASTS)
    node.start()
    moment = time.monotonic()
    scene.cluster.wait_active(other)
    return moment


def leave(scene: Scene) -> float:
    """End the active one in good order, and wait until the other one takes over."""
    node = scene.cluster.active()
    node.leave()
    moment = time.monotonic()
    scene.cluster.wait_active(node)
    scene.afterwards(node.start)
    return moment


def kill_waiting(scene: Scene) -> float:
    """Kill the one that waits, and start it again."""
    active = scene.cluster.active()
    (node,) = [node for node in scene.cluster.nodes if node is not active]
    node.kill()
    moment = time.monotonic()
    time.sleep(LASTS)
    node.start()
    return moment


# --- what a broker runs out of


def memory_alarm(scene: Scene) -> float:
    return _alarm(scene, ("set_vm_memory_high_watermark", "absolute", "1MB"), ("set_vm_memory_high_watermark", "0.4"))


def disk_alarm(scene: Scene) -> float:
    return _alarm(scene, ("set_disk_free_limit", "900000000000000"), ("set_disk_free_limit", "50000000"))


def _alarm(scene: Scene, on: Sequence[str], off: Sequence[str]) -> float:
    node: Any = scene.cluster.nodes[0]
    node.ctl(*on)
    time.sleep(LASTS)
    node.ctl(*off)
    return time.monotonic()


def full_addresses(scene: Scene) -> float:
    """Let one message fill an address: the dead-letter queues, and sources whose consumers are slow."""
    node = scene.cluster.active()
    queues = [name for lane in scene.lanes for name in (lane.queue, f"DLQ.{lane.queue}")]
    for name in queues:
        node.ctl("broker", "addAddressSettings", name, FULL)
    time.sleep(LASTS)
    for name in queues:
        node.ctl("broker", "removeAddressSettings", name)
    return time.monotonic()


def full_store(scene: Scene) -> float:
    """Fill the store with somebody else's messages until nobody can send; then take them away."""
    broker, where = cast(Any, scene.cluster.active()), "/queue/somebody.else"
    filled = 0
    with closing(Plain(broker, patience=3.0)) as client, suppress(TimeoutError):
        while True:
            client.send(where, b"x" * 1_000_000)
            filled += 1
    assert filled, "the store was full before"
    time.sleep(LASTS)
    with closing(Plain(broker)) as client:
        client.say("SUBSCRIBE", {"id": "1", "destination": where, "ack": "client-individual"})
        while (frame := client.wait(3.0)) is not None:
            client.say("ACK", {"id": frame.headers["ack"]})
    return time.monotonic()


# --- who may do what


def rabbitmq_permissions(scene: Scene) -> float:
    node: Any = scene.cluster.nodes[0]
    node.ctl("clear_permissions", WORKER)
    time.sleep(LASTS / 2)
    node.ctl("close_all_connections", "permissions withdrawn")
    time.sleep(LASTS / 2)
    node.ctl("set_permissions", WORKER, ".*", ".*", ".*")
    return time.monotonic()


def rabbitmq_credentials(scene: Scene) -> float:
    node: Any = scene.cluster.nodes[0]
    node.ctl("change_password", WORKER, "another")
    node.ctl("close_all_connections", "the password was changed")
    time.sleep(LASTS)
    node.ctl("change_password", WORKER, SECRET)
    return time.monotonic()


def artemis_permissions(scene: Scene) -> float:
    return _artemis_worker(scene, permitted=False)


def artemis_credentials(scene: Scene) -> float:
    return _artemis_worker(scene, password="another")


def _artemis_worker(scene: Scene, **changed: Any) -> float:
    pair = cast(ArtemisPair, scene.cluster)
    pair.set_worker(**changed)
    time.sleep(1.5)  # the broker looks at its files, and forgets whom it has let in, each second
    pair.active().ctl("broker", "closeConnectionsForUser", WORKER)
    time.sleep(LASTS)
    pair.set_worker()
    return time.monotonic()


def activemq_credentials(scene: Scene) -> float:
    """Start both again with another password, and then once more with the right one."""
    pair = cast(ActiveMQPair, scene.cluster)
    pair.restart("another")
    time.sleep(LASTS)
    pair.restart(SECRET)
    return time.monotonic()


# --- queues


def delete_dead_letters(scene: Scene) -> float:
    """Delete the dead-letter queues, and make them again later. What lay in them is taken away before."""
    return _delete(scene, [f"DLQ.{lane.queue}" for lane in scene.lanes])


def delete_sources(scene: Scene) -> float:
    """Delete the sources while nothing is in them, and make them again later."""
    return _delete(scene, [lane.queue for lane in scene.lanes])


def delete_rungs(scene: Scene) -> float:
    """Delete the retry queues while nothing is in them."""
    scene.drained()
    for name in scene.cluster.rungs():
        scene.cluster.delete(name)
    for lane in scene.lanes:
        lane.producer.resume()
    return time.monotonic()


def _delete(scene: Scene, queues: Sequence[str]) -> float:
    """Delete queues once all messages have come to their end, since what is in a queue is deleted with it."""
    scene.drained()
    for name in queues:
        scene.cluster.delete(name)
    for lane in scene.lanes:
        lane.producer.resume()
    time.sleep(LASTS)
    for lane in scene.lanes:
        for name in (lane.queue, f"DLQ.{lane.queue}"):
            scene.cluster.declare(name, lane.kind)
    return time.monotonic()


# --- databases


def fail_over_everything(scene: Scene) -> float:
    """Kill the active node and the database's primary, whose standby is promoted a moment later, for good."""
    if not scene.databases:
        raise BrokerFailed("there is no PostgreSQL here")
    primary, standby = scene.databases
    node = scene.cluster.active()
    node.kill()
    primary.kill()
    moment = time.monotonic()
    time.sleep(LASTS / 2)
    standby.promote()
    scene.cluster.wait_active(node)
    node.start()
    return moment


# --- networks


def part_first(scene: Scene) -> float:
    """Cut the first node of three, to which everybody is connected, off from the others, and join it again."""
    cluster = cast(RabbitMQCluster, scene.cluster)
    if cluster.heals_by_restart:
        return _part_with_witnesses(scene, 1.5 * LASTS)
    node = cluster.nodes[0]
    cluster.part(node)
    time.sleep(1.5 * LASTS)
    cluster.join(node)
    return time.monotonic()


def part_losing(scene: Scene) -> float:
    """Cut the first node off while the other side has so many idle clients that it wins: the first has to forget."""
    cluster = cast(RabbitMQCluster, scene.cluster)
    with ExitStack() as idle:
        for _ in range(IDLE):
            idle.enter_context(channel_on(cluster.nodes[1]))
        return _part_with_witnesses(scene, LASTS)


def _part_with_witnesses(scene: Scene, seconds: float) -> float:
    """Cut the first node off from the others for so long, and see whether its side had to forget.

    What the broker drops then is seen on a queue that nobody consumes: how many of its confirmed messages are gone.
    """
    cluster = cast(RabbitMQCluster, scene.cluster)
    first, queue = cluster.nodes[0], f"idle.{time.monotonic_ns()}"
    cluster.declare(queue, "classic")
    cluster.part(first)
    with channel_on(first) as channel:
        channel.confirm_delivery()
        for _ in range(WITNESSES):
            channel.basic_publish("", queue, b"", pika.BasicProperties(delivery_mode=2), mandatory=True)
    time.sleep(seconds)
    cluster.join(first)
    moment = time.monotonic()
    time.sleep(LASTS)  # in which autoheal restarts the side that lost
    scene.dropped = WITNESSES - len(cluster.site("classic").drain(queue))
    return moment


def part_pair(scene: Scene) -> float:
    """Hold up what the two that replicate say to each other, for less than makes one believe the other one dead."""
    pair = cast(ArtemisPair, scene.cluster)
    for proxy in pair.between:
        proxy.stall("up")
        proxy.stall("down")
    time.sleep(3.0)
    for proxy in pair.between:
        proxy.resume()
    return time.monotonic()


def slow(scene: Scene) -> float:
    return _weather(scene, "delay", SLOW)


def crumbs(scene: Scene) -> float:
    return _weather(scene, "crumb", CRUMB)


def _weather(scene: Scene, what: str, much: float) -> float:
    for proxy in scene.proxies:
        setattr(proxy, what, much)
    time.sleep(LASTS)
    for proxy in scene.proxies:
        setattr(proxy, what, 0)
    return time.monotonic()


def starved(scene: Scene) -> float:
    """Let nothing come from the broker for a while, then let nothing reach it."""
    directions: Sequence[Direction] = ("down", "up")
    for direction in directions:
        for proxy in scene.proxies:
            proxy.stall(direction)
        time.sleep(0.75 * LASTS)
        for proxy in scene.proxies:
            proxy.resume()
    return time.monotonic()


def resets(scene: Scene) -> float:
    for _ in range(RESETS):
        for proxy in scene.proxies:
            proxy.cut(reset=True)
        time.sleep(LASTS / RESETS)
    return time.monotonic()


#: The last of its cluster, since the database has no standby afterwards.
DATABASE = Fault(
    "database", "the first node and PostgreSQL's primary killed; its standby takes over", fail_over_everything
)
PROXIED = (
    Fault("slow", f"everything takes {SLOW:g} s on its way", slow, proxied=True),
    Fault("crumbs", f"frames arrive by {CRUMB} bytes", crumbs, proxied=True),
    Fault("starved", "nothing comes from the broker, then nothing reaches it", starved, proxied=True),
    Fault("resets", f"all connections are reset, {RESETS} times", resets, proxied=True),
)
DELETED = (
    Fault("delete-dead-letters", "dead-letter queues deleted, made again later", delete_dead_letters),
    Fault("delete-source", "source deleted, made again later", delete_sources),
)
OF_RABBITMQ = (
    Fault("kill", "the first node, where all are connected, killed and started", kill_first),
    Fault("kill-other", "the last node killed and started", kill_last),
    Fault("freeze", "the first node frozen (SIGSTOP) and let go", freeze_first),
    Fault("quorum", "two of three killed and started", kill_majority),
    Fault("kill-all", "all three killed and started", kill_all),
    Fault("rolling", "each stopped and started, one after the other", rolling_restart),
    Fault("memory-alarm", "a memory alarm on the first node", memory_alarm),
    Fault("full", "a disk alarm on the first node", disk_alarm),
    Fault(
        "permissions", "the user's permissions withdrawn, its connections closed, and given back", rabbitmq_permissions
    ),
    Fault("credentials", "its password changed, its connections closed, and changed back", rabbitmq_credentials),
    Fault("partition", "the first node cut off from the others, and joined again", part_first),
    *PROXIED,
    Fault("delete-rungs", "the retry queues deleted", delete_rungs),
    *DELETED,  # last: an App that makes its dead-letter queue again makes a classic one
)
LOSING = Fault("partition-losing", "the first node cut off, while the others have more clients", part_losing)
OF_PAIRS = (
    Fault("kill", "the active one killed, the other takes over", fail_over),
    Fault("freeze", "the active one frozen (SIGSTOP) and let go", freeze_first),
    Fault("kill-other", "the one that waits killed and started", kill_waiting),
    Fault("kill-all", "both killed and started", kill_all),
    Fault("leave", "the active one stopped in good order, the other takes over", leave),
)
OF_ARTEMIS = (
    *OF_PAIRS,
    Fault("failback", "failover, and back to the first one", fail_over_and_back),
    Fault("full", "no address takes more than a message, so that dead letters are refused", full_addresses),
    Fault("permissions", "the user's role withdrawn, its connections closed, and given back", artemis_permissions),
    Fault("credentials", "its password changed, its connections closed, and changed back", artemis_credentials),
    *DELETED,
    *PROXIED,
)
OF_REPLICATION = (
    *OF_ARTEMIS,
    Fault("partition", "what the two say to each other is held up for 3 s", part_pair),
)
OF_ACTIVEMQ = (
    *OF_PAIRS,
    Fault("full", "the store is full of another queue's messages", full_store),
    Fault("credentials", "both started again with another password, and with the right one", activemq_credentials),
    *PROXIED,
)
