"""One card for both, in turns: how much memory sleep gives back, how long waking and updating take, and whether the answers stay right."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from rlcore_plugin_torch.backend import TorchBackend
from rlcore_plugin_transformers.engine import TransformersBackend

from benchmarks.gpu.device import free, gigabytes, timed
from benchmarks.gpu.models import SHAPES, TINY, write_model
from benchmarks.gpu.setting import Outcome, Setting
from benchmarks.gpu.workload import FULL, TINY_LOAD, Load, batch_of, drain, make_engine, make_trainer, objective, requests, snapshot
from rlcore.testing import update_engine

__all__ = ["memory_problems", "take_turns"]

ROUNDS = 3
KEPT = 0.2
"""Of what the engine holds awake, the share that may still be taken while it sleeps: the work space of cuBLAS stays."""
SLACK_GB = 0.3
"""What one round may leave behind, since blocks that are kept may hold segments of the allocator; more would grow from round to round."""
GAP = 0.1
"""Nats a token, on average, by which engine and trainer may differ in bfloat16."""


@dataclass
class Measured:
    """Seconds of the last round, gigabytes taken of the device in every round (none on a CPU), and nats between the two backends."""

    seconds: dict[str, float] = field(default_factory=dict)
    awake: list[float] = field(default_factory=list)
    asleep: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)


def take_turns(setting: Setting) -> Outcome:
    """Three rounds of generate, sleep, train, wake, update; ``failed`` where memory stays or scores are not those of the weights."""
    shape, load = (TINY, TINY_LOAD) if setting.tiny else (SHAPES["0.6b"], FULL)
    model = write_model(shape, setting.scratch / "model", setting.device)
    trainer = make_trainer(model, load, setting.device, "bfloat16", max(load.row_tokens // 4, load.length))
    free(setting.device)
    alone = gigabytes(setting.device)
    engine = make_engine(model, load, setting.device, "bfloat16")
    measured = Measured()
    for version in range(1, ROUNDS + 1):
        _round(setting.device, engine, trainer, load, shape.vocabulary, version, measured)
    engine.close()
    trainer.close()
    return _outcome(measured, alone)


def _round(
    device: str, engine: TransformersBackend, trainer: TorchBackend, load: Load, vocabulary: int, version: int, measured: Measured
) -> None:
    asked = requests(load, vocabulary, version)
    answers = drain(engine, asked)
    _note(measured.awake, device)
    with timed(device) as sleeping:
        engine.sleep()
    _note(measured.asleep, device)
    trainer.update(batch_of(asked, answers, load), objective())
    weights = snapshot(trainer, version)
    free(device)
    with timed(device) as waking:
        engine.wake()
    with timed(device) as updating:
        update_engine(engine, weights)
    measured.seconds = {"sleep": sleeping.seconds, "wake": waking.seconds, "update": updating.seconds}
    sequence = asked[0].token_ids
    measured.gaps.append(float(np.abs(engine.score(sequence) - trainer.probe(sequence)).mean()))


def _note(levels: list[float], device: str) -> None:
    taken = gigabytes(device)
    if taken is not None:
        levels.append(taken)


def _outcome(measured: Measured, alone: float | None) -> Outcome:
    problems = memory_problems(alone, measured.awake, measured.asleep)
    if not max(measured.gaps) <= GAP:
        problems.append(f"after an update engine and trainer differ by {max(measured.gaps):.3g} nats a token")
    figures: dict[str, Any] = {f"{name}_seconds": round(spent, 4) for name, spent in measured.seconds.items()}
    figures |= {"trainer_alone_gb": alone, "awake_gb": measured.awake, "asleep_gb": measured.asleep, "gap": max(measured.gaps)}
    said = ", ".join(f"{name} {spent:.2f} s" for name, spent in measured.seconds.items())
    if alone is not None:
        said += f"; {measured.awake[0]:.1f} GB awake, {measured.asleep[0]:.1f} GB asleep, {alone:.1f} GB the trainer alone"
    return Outcome(said="; ".join([*problems, said]), figures=figures, status="failed" if problems else "done")


def memory_problems(alone: float | None, awake: list[float], asleep: list[float]) -> list[str]:
    """Check reserved gigabytes: before the engine exists, and awake and asleep in each round.

    Returns one sentence per problem; [] on a CPU. The first round alone compares with ``alone``: later the trainer holds its moments too.
    """
    if alone is None:
        return []
    problems = []
    if asleep[0] - alone > KEPT * (awake[0] - alone):
        problems.append(f"asleep {asleep[0]:.2f} GB are taken, awake {awake[0]:.2f}, before the engine was there {alone:.2f}")
    if asleep[-1] - asleep[-2] > SLACK_GB:
        problems.append(f"memory grows asleep from round to round: {', '.join(f'{value:.2f}' for value in asleep)} GB")
    return problems
