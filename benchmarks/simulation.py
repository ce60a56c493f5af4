"""`make bench-simulation`: the simulated runtime against real runs, with backends that sleep. The last line is one JSON object.

First the delays of the runtime itself are measured on three fixed configurations (constant lengths, closed forms). Then others, chosen
by ``--seed``, are run for real and simulated with these delays, and compared: updates a second (relative), idle shares of trainer and
producers (in points). The simulation draws the very lengths that the fakes draw, so what differs is the runtime and not chance.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rlcore_plugin_tools.plan.simulated import Draws, Scenario, Simulation, Workload

from benchmarks.paced import PacedInferenceOptions, response_tokens
from rlcore.entry import make_plan
from rlcore.runtime import run
from rlcore.testing import LengthKind, PluginFolder, write_fake_model

PROMPTS, MEAN_LENGTH, CUT = 160, 64, 4.0
TOLERANCE = 0.10
MOST = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One configuration. ``pace``: seconds of a token; ``update``: of an update; ``sigma`` 0: constant lengths."""

    producers: int
    slots: int
    generations: int
    batch: int
    in_flight: int
    staleness: int
    pace: float
    update: float
    sigma: float = 0.0

    @property
    def generation(self) -> float:
        """Seconds of an average response."""
        return self.pace * MEAN_LENGTH


@dataclass(frozen=True, kw_only=True)
class Delays:
    """What the runtime itself takes, seconds; see the overheads of a workload. ``computing``: an update beyond its sleep."""

    lease: float
    deliver: float
    handover: float
    publish: float
    swap: float
    transfer: float
    computing: float


@dataclass(frozen=True, kw_only=True)
class Seen:
    """Updates a second, idle shares, and seconds an update of some activities (real runs only)."""

    updates_per_second: float
    trainer_idle: float
    producers_idle: float
    computing: float = 0.0
    publishing: float = 0.0
    waiting: float = 0.0
    swapping: float = 0.0


@dataclass(frozen=True)
class Stage:
    """Where real runs take place, and how long they are."""

    folder: Path
    runtime: str
    updates: int
    warmup: int


def main() -> None:
    """Calibrate, compare, report. Exit code 1 where a difference is beyond the tolerance."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=_whole(1), default=40, help="updates that count (40)")
    parser.add_argument("--warmup", type=_whole(0), default=8, help="updates before them (8)")
    parser.add_argument("--trials", type=_whole(1), default=6, help="configurations to compare (6)")
    parser.add_argument("--seed", type=_whole(0), default=0, help="which configurations (0)")
    parser.add_argument("--runtime", choices=["ray", "local"], default="ray", help="local: one producer")
    args = parser.parse_args()
    with TemporaryDirectory(prefix="rlcore-bench-") as name:
        stage = _stage(Path(name), args)
        with PluginFolder(stage.folder / "plugins") as plugins:
            plugins.install("fakes", target="rlcore.testing.fake_plugin")
            plugins.install("paced", target="benchmarks.paced_plugin")
            delays = _calibrated(stage)
            trials = _chosen(args.seed, args.trials, 1 if args.runtime == "local" else 3)
            results = [(trial, _measured(stage, trial), _predicted(stage, trial, delays)) for trial in trials]
    rows = [_compared(*result) for result in results]
    _show(results, rows)
    worst = {
        name: max(abs(row[name]) for row in rows)
        for name in ("throughput_difference", "trainer_idle_difference", "producers_idle_difference")
    }
    print(json.dumps({**worst, "within": max(worst.values()) <= TOLERANCE, "delays": asdict(delays), "trials": rows, "seed": args.seed}))
    raise SystemExit(0 if max(worst.values()) <= TOLERANCE else 1)


def _whole(least: int) -> Callable[[str], int]:
    """A type of argument: a whole number from ``least``."""

    def whole(text: str) -> int:
        if not text.isascii() or not text.isdigit() or not least <= int(text[:30]) <= MOST:
            raise argparse.ArgumentTypeError(f"{text!r} must be a whole number from {least} to {MOST}")
        return int(text)

    return whole


def _stage(folder: Path, args: argparse.Namespace) -> Stage:
    write_fake_model(folder / "model")
    rows = [{"messages": {"role": "user", "content": f"say {number}"}, "gt_answer": f"{number}"} for number in range(PROMPTS)]
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return Stage(folder, args.runtime, args.updates, args.warmup)


def _calibrated(stage: Stage) -> Delays:
    """The delays, from three runs with constant lengths, each of which shows some of them and none of the others."""
    base = Trial(producers=1, slots=16, generations=1, batch=16, in_flight=16, staleness=0, pace=0.2 / MEAN_LENGTH, update=0.2)
    in_turns = _measured(stage, base)
    trained = _measured(stage, replace(base, staleness=4, pace=base.pace / 4, in_flight=32))  # the trainer is never without a batch
    made = _measured(stage, replace(base, staleness=4, update=0.02))  # a slot is never without a response, but for the way of a lease
    lease = max(0.0, 1 / made.updates_per_second - base.generation)
    computing = trained.computing - base.update
    publish, handover, swap = trained.publishing, trained.waiting, made.swapping
    rest = 1 / in_turns.updates_per_second - base.generation - base.update - computing - publish - handover - swap - lease
    # What is left of a synchronous period is the way of the verdicts and groups one way, of the weights the other; nothing separates them.
    return Delays(
        lease=lease,
        deliver=max(0.0, rest / 2),
        handover=handover,
        publish=publish,
        swap=swap,
        transfer=max(0.0, rest / 2),
        computing=computing,
    )


def _chosen(seed: int, count: int, most_producers: int) -> list[Trial]:
    """Configurations of all kinds, the roles between half and twice as fast as each other."""
    generator = np.random.default_rng(seed)
    return [_random_trial(generator, most_producers) for _ in range(count)]


def _random_trial(generator: np.random.Generator, most_producers: int) -> Trial:
    producers = int(generator.integers(1, most_producers + 1))
    slots, generations = int(generator.choice([4, 8, 16])), int(generator.choice([1, 2, 4]))
    batch, update = int(generator.choice([8, 12, 16])), float(generator.uniform(0.15, 0.3))
    full = batch * generations / (producers * slots)  # how many times the slots are filled for a batch
    ratio = float(generator.uniform(0.5, 2.0))
    return Trial(
        producers=producers,
        slots=slots,
        generations=generations,
        batch=batch,
        in_flight=ceil(slots / generations) + int(generator.integers(0, 3)),
        staleness=int(generator.choice([0, 1, 2, 4])),
        pace=ratio * update / (max(1.0, full) * MEAN_LENGTH),
        update=update,
        sigma=float(generator.choice([0.0, 0.5, 1.0])),
    )


# --- real --------------------------------------------------------------------------------------------------------------


def _measured(stage: Stage, trial: Trial) -> Seen:
    steps = stage.warmup + stage.updates
    summary = run(make_plan(_config(stage, trial, steps)))
    lines = (summary.run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return _seen([json.loads(line) for line in lines][stage.warmup :])


def _config(stage: Stage, trial: Trial, steps: int) -> dict[str, Any]:
    return {
        "run": {
            "runtime": stage.runtime,
            "run_dir": str(stage.folder / "runs"),
            "num_episodes": steps * trial.batch // PROMPTS + 1,
            "max_steps": steps,
        },
        "model": {"model": str(stage.folder / "model")},
        "data": {"dataset": str(stage.folder / "train.jsonl"), "shuffle": False},
        "sampling": {"num_generations": trial.generations, "max_new_tokens": int(MEAN_LENGTH * CUT) + 1},
        "inference": {
            "name": "paced",
            "num_inferencer": trial.producers,
            "inference_batch_size": trial.in_flight,
            "options": _engine(trial),
        },
        "training": {"name": "paced", "train_batch_size": trial.batch, "options": {"update_seconds": trial.update}},
        "algorithm": {"name": "fake"},
        "rewards": [{"name": "fake"}],
        "schedule": {"max_staleness": trial.staleness, "reward_workers": 1},
        "log": {"rollout_interval": 0},
    }


def _engine(trial: Trial) -> dict[str, Any]:
    """Options of the paced inference backend."""
    shape = {"lengths": LengthKind.LOGNORMAL.value, "sigma": trial.sigma} if trial.sigma else {"lengths": LengthKind.CONSTANT.value}
    return {"slots": trial.slots, "seconds_per_token": trial.pace, "mean_length": float(MEAN_LENGTH), "cut": CUT, **shape}


def _seen(steps: list[Mapping[str, float]]) -> Seen:
    spent = {name: sum(step[name] for step in steps) / len(steps) for name in steps[0] if name.startswith("time/")}
    trainer = sum(seconds for name, seconds in spent.items() if name.startswith("time/trainer/"))
    producers = sum(seconds for name, seconds in spent.items() if name.startswith("time/producers/"))
    generating = spent["time/producers/compute"] + spent["time/producers/wasted"]
    return Seen(
        updates_per_second=len(steps) / sum(step["seconds"] for step in steps),
        trainer_idle=1 - spent["time/trainer/compute"] / trainer,
        producers_idle=1 - generating / producers,
        computing=spent["time/trainer/compute"],
        publishing=spent["time/trainer/waiting_for_weights"],
        waiting=spent["time/trainer/waiting_for_data"] + spent["time/trainer/other"],
        swapping=spent["time/producers/waiting_for_weights"],
    )


# --- simulated ---------------------------------------------------------------------------------------------------------


class _SameLengths(Draws):
    """The lengths that the paced engine draws for the prompts of the run, in the order in which they are leased."""

    def __init__(self, scenario: Scenario, trial: Trial) -> None:
        super().__init__(scenario)
        self._generations = trial.generations
        self._options = PacedInferenceOptions.model_validate(_engine(trial))
        self._leased = 0

    def responses(self, source: int = 0) -> list[float]:
        episode, prompt = divmod(self._leased, PROMPTS)
        self._leased += 1
        return [float(response_tokens((0, episode, prompt, rollout), self._options)) for rollout in range(self._generations)]


def _predicted(stage: Stage, trial: Trial, delays: Delays) -> Seen:
    scenario = Scenario(
        workload=_workload(trial, delays),
        producers=trial.producers,
        trainers=1,
        max_staleness=trial.staleness,
        in_flight=trial.in_flight,
        updates=stage.updates,
        warm_up=stage.warmup,
        max_steps=stage.warmup + stage.updates,
    )
    figures = Simulation(scenario, _SameLengths(scenario, trial)).run()
    return Seen(
        updates_per_second=figures.updates_per_second, trainer_idle=1 - figures.trainer_busy, producers_idle=1 - figures.producers_busy
    )


def _workload(trial: Trial, delays: Delays) -> Workload:
    return Workload.model_validate(
        {
            "group": {
                "prompt_tokens": 1e-9,
                "response_tokens": float(MEAN_LENGTH),
                "response_sigma": trial.sigma,
                "length_cut": CUT,
                "num_generations": trial.generations,
                "train_batch_size": trial.batch,
            },
            "generation": {"slots": trial.slots, "step_seconds": trial.pace, "request_seconds": 0.0},
            "update": {"update_seconds": trial.update + delays.computing, "token_seconds": 0.0},
            "weights": {"weights_gb": 0.0, "transfer_seconds": delays.transfer},
            "rewards": {"reward_seconds": 0.0},
            "overheads": {
                "lease_seconds": delays.lease,
                "deliver_seconds": delays.deliver,
                "handover_seconds": delays.handover,
                "publish_seconds": delays.publish,
                "swap_seconds": delays.swap,
            },
        }
    )


# --- report ------------------------------------------------------------------------------------------------------------


def _compared(trial: Trial, real: Seen, simulated: Seen) -> dict[str, Any]:
    return {
        "trial": asdict(trial),
        "real": asdict(real),
        "simulated": asdict(simulated),
        "throughput_difference": round(simulated.updates_per_second / real.updates_per_second - 1, 4),
        "trainer_idle_difference": round(simulated.trainer_idle - real.trainer_idle, 4),
        "producers_idle_difference": round(simulated.producers_idle - real.producers_idle, 4),
    }


def _show(results: list[tuple[Trial, Seen, Seen]], rows: list[dict[str, Any]]) -> None:
    table = Table(
        "producers x slots", "batch", "staleness", "sigma", "updates/s", "", "trainer idle", "", "producers idle", "", "difference"
    )
    for (trial, real, simulated), row in zip(results, rows, strict=True):
        pairs = [
            f"{one.updates_per_second:.3f}" if place == 0 else f"{(one.trainer_idle, one.producers_idle)[place - 1]:.1%}"
            for place in range(3)
            for one in (real, simulated)
        ]
        table.add_row(
            f"{trial.producers} x {trial.slots}",
            f"{trial.batch} x {trial.generations}",
            str(trial.staleness),
            f"{trial.sigma:g}",
            *pairs,
            f"{row['throughput_difference']:+.1%}",
        )
    Console(width=140).print("real on the left, simulated on the right", table, sep="\n")


if __name__ == "__main__":
    main()
