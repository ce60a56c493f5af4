"""The parts of ``make gpu``, in the order in which they run: the cheap checks first. Standard library only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.gpu.refused import Refused

__all__ = ["LIMIT", "PARTS", "Part", "choose"]

LIMIT = 480
"""Seconds after which a part is ended."""
TINY = 120
"""Seconds that a part with tiny models takes at most, on a CPU too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """``target``: module and function, called with a ``Setting`` and ``arguments``. ``expected``: estimated upper bound in seconds on a
    data-centre GPU; ``--minutes`` starts a part only if that still fits."""

    name: str
    what: str
    target: str
    arguments: tuple[str, ...] = ()
    expected: int = 120

    def seconds(self, *, tiny: bool) -> int:
        """``expected``, or the bound of any part with tiny models."""
        return min(TINY, self.expected) if tiny else self.expected


_CONTRACTS = "benchmarks.gpu.contracts:conformance"
_THROUGHPUT = "benchmarks.gpu.throughput:measure"
_PEERS = "benchmarks.gpu.peers:side_by_side"

PARTS: tuple[Part, ...] = (
    Part(name="contracts-fp32", what="contract suites of both backends, float32", target=_CONTRACTS, arguments=("float32",), expected=180),
    Part(
        name="contracts-bf16", what="contract suites of both backends, bfloat16", target=_CONTRACTS, arguments=("bfloat16",), expected=180
    ),
    Part(name="tests", what="the backends' own fast tests, float32", target="benchmarks.gpu.contracts:own_tests", expected=360),
    Part(name="quickstart", what="quickstart, accuracy before and after", target="benchmarks.gpu.quickstart:learn", expected=150),
    Part(name="sleep", what="colocated: sleep, wake, update", target="benchmarks.gpu.sleep:take_turns", expected=300),
    Part(name="throughput-0.6b", what="Qwen3-0.6B shape: generation and update", target=_THROUGHPUT, arguments=("0.6b",), expected=180),
    Part(name="throughput-1.7b", what="Qwen3-1.7B shape: generation and update", target=_THROUGHPUT, arguments=("1.7b",), expected=240),
    Part(name="trace", what="heaviest operations by torch's profiler", target="benchmarks.gpu.trace:profile"),
    Part(name="peers-0.6b", what="rlcore beside TRL, Qwen3-0.6B shape", target=_PEERS, arguments=("0.6b",), expected=420),
    Part(name="peers-1.7b", what="rlcore beside TRL, Qwen3-1.7B shape", target=_PEERS, arguments=("1.7b",), expected=470),
    Part(
        name="peers-heavy-tailed",
        what="rlcore beside TRL, lengths log-normal, Qwen3-0.6B shape",
        target=_PEERS,
        arguments=("heavy-tailed",),
        expected=400,
    ),
)


def choose(names: Sequence[str]) -> list[Part]:
    """The parts so named in their own order, all of them for no names; Refused for a name that none has."""
    known = {part.name for part in PARTS}
    if unknown := [name for name in names if name not in known]:
        raise Refused(f"--only {unknown[0]!r}: no part is called so; the parts are {', '.join(part.name for part in PARTS)}")
    return [part for part in PARTS if not names or part.name in names]
