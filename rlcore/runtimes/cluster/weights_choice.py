"""Which transport a run on Ray uses, by the name that ``[weights] transport`` has after planning.

``shared``: publisher and all receivers on one host. ``object_store``: any hosts. ``collective``: any hosts; see below.

With ``collective`` the set of receivers is part of every transfer. A receiver that is made joins by itself, one that is closed leaves;
call ``publisher.left(name)`` as soon as a producer has died, and make its receiver anew, under the same name or another, when it is
started again. Until ``left`` is called a transfer waits for the dead one, at most until the deadline. With the other transports a death
needs no call, and ``left`` does nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlcore.errors import ConfigError
from rlcore.runtimes.cluster.weights_store import StorePublisher, StoreReceiver
from rlcore.weights.shared import SharedPublisher
from rlcore.weights.shared_receiver import SharedReceiver
from rlcore.weights.transport import OnFailure, Publisher, Receiver

__all__ = ["make_publisher", "make_receiver"]


def make_publisher(transport: str, deadline: float, on_failure: OnFailure | None = None, device: str = "cpu") -> Publisher:
    """The trainer's end, in rank 0's process. ``device``: that of the collectives, ``cpu`` (gloo) or ``cuda`` (nccl)."""
    match transport:
        case "shared":
            return SharedPublisher(deadline, on_failure)
        case "object_store":
            return StorePublisher(deadline, on_failure)
        case "collective":
            from rlcore.runtimes.cluster.weights_collective import CollectivePublisher  # it needs torch, the others do not

            return CollectivePublisher(deadline, on_failure, device=device)
    raise _unknown(transport)


def make_receiver(transport: str, name: str, address: Any, deadline: float, on_news: Callable[[], None]) -> Receiver:
    """A producer's end, in its own process; ``address`` is that of the publisher. WeightsError where it cannot be reached."""
    match transport:
        case "shared":
            return SharedReceiver(name, address, deadline, on_news)
        case "object_store":
            return StoreReceiver(name, address, deadline, on_news)
        case "collective":
            from rlcore.runtimes.cluster.weights_collective import CollectiveReceiver

            return CollectiveReceiver(name, address, deadline, on_news)
    raise _unknown(transport)


def _unknown(transport: str) -> ConfigError:
    return ConfigError(
        f"transport {transport!r} does not reach another process; set [weights] transport to shared, object_store or collective, or leave "
        "it out"
    )
