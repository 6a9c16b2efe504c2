# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Says which clusters there are, which faults befall each, and which consumers are looked at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.infrastructure import faults
from tests.infrastructure.activemq_pair import ActiveMQPair
from tests.infrastructure.artemis_pair import ArtemisPair
from tests.infrastructure.cluster import Cluster
from tests.infrastructure.faults import Fault
from tests.infrastructure.rabbitmq_cluster import RabbitMQCluster
from tests.infrastructure.scene import Way


@dataclass(frozen=True)
class Plan:
    """Describes one cluster. Its consumers run together under each fault, each with a queue of its own."""

    make: Callable[[], Cluster]
    faults: Sequence[Fault]
    ways: Sequence[Way]


def _of_rabbitmq(kind: str, *more: Way) -> tuple[Way, ...]:
    return (
        Way("App", "app", "rabbitmq", kind),
        Way("App, every delay by a copy", "app-scheduling", "rabbitmq", kind),
        Way("drop-in, pika", "drop-in", "rabbitmq", kind),
        *more,
        Way("bare pika", "bare", "rabbitmq", kind),
    )


def _of_pair(kind: str, driver: str) -> tuple[Way, ...]:
    return (
        Way("App", "app", kind),
        Way("App, every delay by a copy", "app-scheduling", kind),
        Way("App, every delay in PostgreSQL", "app-parking", kind),
        Way(f"drop-in, {driver}", "drop-in", kind),
        Way(f"bare {driver}", "bare", kind),
    )


_OVER_1_0 = Way("App over AMQP 1.0", "app", "rabbitmq+proton", "quorum")
_PARKING = Way("App, every delay in PostgreSQL", "app-parking", "rabbitmq", "quorum")
_NODES_AND_NETS = tuple(fault for fault in faults.OF_RABBITMQ if fault.name in ("kill", "rolling", "partition"))

#: docs/rabbitmq.md tells why: without it, a rolling restart can stop the ladder of 3.10 for three to six minutes.
_SOONER = "[{rabbit, [{dead_letter_worker_publisher_confirm_timeout, 10000}]}].\n"

CLUSTERS: dict[str, Plan] = {
    "rabbitmq43": Plan(
        lambda: RabbitMQCluster("4.3"),
        (*faults.OF_RABBITMQ, faults.DATABASE),
        _of_rabbitmq("quorum", _OVER_1_0, _PARKING),
    ),
    "rabbitmq43-classic": Plan(
        lambda: RabbitMQCluster("4.3", advanced=_SOONER), _NODES_AND_NETS, _of_rabbitmq("classic")
    ),
    "rabbitmq310": Plan(lambda: RabbitMQCluster("3.10", advanced=_SOONER), faults.OF_RABBITMQ, _of_rabbitmq("quorum")),
    "rabbitmq310-autoheal": Plan(
        lambda: RabbitMQCluster("3.10", partitions="autoheal", advanced=_SOONER, mirrored=True),
        (*_NODES_AND_NETS, faults.LOSING),
        _of_rabbitmq("classic"),
    ),
    "rabbitmq310-pause": Plan(
        lambda: RabbitMQCluster("3.10", partitions="pause_minority", advanced=_SOONER),
        _NODES_AND_NETS,
        _of_rabbitmq("quorum"),
    ),
    "artemis-shared-store": Plan(
        lambda: ArtemisPair("2.44", "shared-store"),
        (*faults.OF_ARTEMIS, faults.DATABASE),
        _of_pair("artemis", "proton"),
    ),
    "artemis-replication": Plan(
        lambda: ArtemisPair("2.44", "replication"), faults.OF_REPLICATION, _of_pair("artemis", "proton")
    ),
    "activemq63": Plan(
        lambda: ActiveMQPair("6.3"), (*faults.OF_ACTIVEMQ, faults.DATABASE), _of_pair("activemq", "stomp.py")
    ),
    "activemq518": Plan(lambda: ActiveMQPair("5.18"), faults.OF_ACTIVEMQ, _of_pair("activemq", "stomp.py")),
}
