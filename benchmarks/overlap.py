"""`make bench-overlap`: what overlapping gains, with backends that sleep instead of computing. The last line is one JSON object.

Two producers of 16 slots, batches of 16 prompts with one response each, and an optimizer step that takes as long as the generation of a
batch does on average: the time per token is set so that the longest responses of the batches that count take that long on average, for all
16 start at once and the synchronous mode waits for the longest. So a synchronous update takes twice as long as one that overlaps, and 2 is
the limit of the speed-up. Lengths are constant, or lognormal with sigma 1, cut at 8 means. By this rule half of the slots are enough or
more, and how producers batch matters little. ``lognormal_long`` shows where it does: lognormal lengths at the time per token of the
constant ones, so that a batch waits four times as long for its longest response. It has fewer updates, and does not count among the keys at
the top, which are the worse of the other two.

``oversampling``: lognormal lengths at that pace, in groups of 8, with a place for every response, without and with 2 more that are cut
(the ratios), in turns; with 32 places in all, which the additional responses then take from others; and overlapping, with twice as many
prompts in flight (``without_over_in_turns``: what that gains by itself). ``kept_tokens``: the mean length of what is trained, as a share of
that without it, which is the price. ``--only-oversampling`` runs this part alone.

Everything is taken from ``metrics.jsonl``, over the updates after the warm-up: updates a second, and shares of the seconds that the workers
account for. ``trainer_idle`` is whatever is not training; ``producer_idle`` whatever is not generation, of one request or of many;
``slots_busy`` is the share of the slots' time that tokens took. ``batch``: producers that start and answer 16 requests at a time, at the
same staleness.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.paced import PacedInferenceOptions, response_tokens
from rlcore.entry import make_plan
from rlcore.runtime import run
from rlcore.testing import LengthKind, PluginFolder, write_fake_model

BATCH, SLOTS, PRODUCERS, STALENESS = 16, 16, 2, 4
UPDATE_SECONDS, MEAN_LENGTH, SIGMA, CUT = 0.5, 64, 1.0, 8.0
GROUP, SPARE, GROUP_PROMPTS = 8, 2, 8
CURVE = (0, 1, 2, 4, 8)
PROMPTS = 10 * BATCH
SEED = 0


@dataclass(frozen=True)
class Setting:
    """Where to run and for how long."""

    folder: Path
    runtime: str
    updates: int
    curve_updates: int
    warmup: int


def main() -> None:
    """Every run, the table, the JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=100, help="updates that count (100)")
    parser.add_argument("--curve-updates", type=int, default=20, help="updates that count at the other points of the curve (20)")
    parser.add_argument("--warmup", type=int, default=10, help="updates before them (10)")
    parser.add_argument("--only-oversampling", action="store_true", help="the last part alone; two minutes")
    parser.add_argument("--runtime", choices=["ray", "local"], default="ray", help="local: one producer of 32 slots")
    args = parser.parse_args()
    with TemporaryDirectory(prefix="rlcore-bench-") as name:
        folder = Path(name)
        write_fake_model(folder / "model")
        rows = [{"messages": {"role": "user", "content": f"say {number}"}, "gt_answer": f"{number}"} for number in range(PROMPTS)]
        (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        plugins = PluginFolder(folder / "plugins")
        plugins.install("fakes", target="rlcore.testing.fake_plugin")
        plugins.install("paced", target="benchmarks.paced_plugin")
        setting = Setting(folder, args.runtime, args.updates, args.curve_updates, args.warmup)
        with plugins:
            oversampled = _measure_oversampling(setting)
            print(json.dumps({"oversampling": oversampled}))
            if args.only_oversampling:
                return
            figures = {str(kind): _measure(setting, kind) for kind in LengthKind}
            long = _measure_long(setting)
    _show({**figures, "lognormal_long": long})
    worst = {name: max(of[name] for of in figures.values()) for name in ("trainer_idle", "producer_idle")}
    worst |= {name: min(of[name] for of in figures.values()) for name in ("speedup_over_sync", "speedup_over_batch")}
    settings = {"runtime": args.runtime, "updates": args.updates, "warmup": args.warmup, "update_seconds": UPDATE_SECONDS}
    print(json.dumps({**worst, **figures, "lognormal_long": long, "oversampling": oversampled, **settings}))


def _measure(setting: Setting, kind: LengthKind) -> dict[str, Any]:
    """All runs with lengths of one kind."""
    pace = UPDATE_SECONDS / _mean_longest(setting, kind)
    curve = {
        staleness: _run(setting, kind, pace, staleness, setting.updates if staleness in (0, STALENESS) else setting.curve_updates)
        for staleness in CURVE
    }
    return _compared(curve, _run(setting, kind, pace, STALENESS, setting.updates, batch_synchronous=True))


def _measure_long(setting: Setting) -> dict[str, Any]:
    """Lognormal lengths at the pace that fits constant ones."""
    kind, pace, updates = LengthKind.LOGNORMAL, UPDATE_SECONDS / MEAN_LENGTH, max(1, setting.curve_updates // 2)
    curve = {staleness: _run(setting, kind, pace, staleness, updates) for staleness in (0, STALENESS)}
    return _compared(curve, _run(setting, kind, pace, STALENESS, updates, batch_synchronous=True))


def _measure_oversampling(setting: Setting) -> dict[str, Any]:
    """What cutting the last ``SPARE`` of ``GROUP + SPARE`` responses gains: how many times as many updates a second."""
    pace, updates = UPDATE_SECONDS / MEAN_LENGTH, max(1, setting.curve_updates // 2)
    requests = GROUP_PROMPTS * (GROUP + SPARE)
    measured: dict[str, Any] = {"group": GROUP, "spare": SPARE, "prompts": GROUP_PROMPTS}
    plain: dict[str, float] = {}
    for name, staleness, slots in (
        ("in_turns", 0, requests),
        ("in_turns_few_slots", 0, SLOTS * PRODUCERS),
        ("overlapped", STALENESS, 2 * requests),
    ):
        without, more = (_run(setting, LengthKind.LOGNORMAL, pace, staleness, updates, group=(spare, slots)) for spare in (0, SPARE))
        plain = plain or without
        measured[name] = {
            "speedup": round(more["throughput"] / without["throughput"], 3),
            "generation": round(_generation(more) / _generation(without), 3) if staleness == 0 else None,
            "kept_tokens": round(more["tokens"] / without["tokens"], 3),
            "cut_share": more["cut_share"],
            "without_over_in_turns": round(without["throughput"] / plain["throughput"], 3),
            "slots": slots,
        }
    return measured


def _generation(synchronous: Mapping[str, float]) -> float:
    """Seconds of a step in turns without its optimizer step."""
    return 1.0 / synchronous["throughput"] - UPDATE_SECONDS


def _compared(curve: Mapping[int, Mapping[str, float]], batch: Mapping[str, float]) -> dict[str, Any]:
    sync, overlapped = curve[0], curve[STALENESS]
    return {
        "speedup_over_sync": round(overlapped["throughput"] / sync["throughput"], 3),
        "speedup_over_batch": round(overlapped["throughput"] / batch["throughput"], 3),
        "trainer_idle": overlapped["trainer_idle"],
        "producer_idle": overlapped["producer_idle"],
        "throughput": {name: of["throughput"] for name, of in (("sync", sync), ("overlapped", overlapped), ("batch", batch))},
        "sync": sync,
        "batch": batch,
        "curve": {str(staleness): of for staleness, of in curve.items()},
    }


def _mean_longest(setting: Setting, kind: LengthKind) -> float:
    """Tokens of the longest response of a batch, on average over the batches that count; they are in the order of the data."""
    options = PacedInferenceOptions(lengths=kind, mean_length=MEAN_LENGTH, sigma=SIGMA, cut=CUT)
    places = range(setting.warmup * BATCH, (setting.warmup + setting.updates) * BATCH)
    tokens = [response_tokens((SEED, place // PROMPTS, place % PROMPTS, 0), options) for place in places]
    return float(np.array(tokens).reshape(-1, BATCH).max(axis=1).mean())


def _run(
    setting: Setting,
    kind: LengthKind,
    seconds_per_token: float,
    staleness: int,
    updates: int,
    *,
    batch_synchronous: bool = False,
    group: tuple[int, int] | None = None,
) -> dict[str, float]:
    """One run, and its figures after the warm-up. ``group``: how many responses more of a group of ``GROUP`` are drawn, and the slots of
    all producers; one warm-up update is enough then."""
    producers = PRODUCERS if setting.runtime == "ray" else 1
    slots = (group[1] if group else SLOTS * PRODUCERS) // producers
    warmup = 1 if group else setting.warmup
    engine = {
        "slots": slots,
        "lengths": str(kind),
        "mean_length": MEAN_LENGTH,
        "sigma": SIGMA,
        "cut": CUT,
        "seconds_per_token": seconds_per_token,
        "batch_synchronous": batch_synchronous,
    }
    config = _config(setting, engine, producers, slots, staleness, warmup + updates)
    if group:
        config["sampling"] |= {"num_generations": GROUP, "oversampling": group[0]}
        config["training"] |= {"train_batch_size": GROUP_PROMPTS}
        config["inference"] |= {"inference_batch_size": GROUP_PROMPTS * (1 if staleness == 0 else 2) // producers}
    summary = run(make_plan(config))
    lines = (summary.run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return _figures([json.loads(line) for line in lines][warmup:], seconds_per_token)


def _config(setting: Setting, engine: Mapping[str, Any], producers: int, slots: int, staleness: int, steps: int) -> dict[str, Any]:
    return {
        "run": {
            "runtime": setting.runtime,
            "seed": SEED,
            "run_dir": str(setting.folder / "runs"),
            "num_episodes": steps * BATCH // PROMPTS + 1,
            "max_steps": steps,
        },
        "model": {"model": str(setting.folder / "model")},
        "data": {"dataset": str(setting.folder / "train.jsonl"), "shuffle": False},
        "sampling": {"num_generations": 1, "max_new_tokens": int(MEAN_LENGTH * CUT) + 1},
        "inference": {"name": "paced", "num_inferencer": producers, "inference_batch_size": slots, "options": dict(engine)},
        "training": {"name": "paced", "train_batch_size": BATCH, "options": {"update_seconds": UPDATE_SECONDS}},
        "algorithm": {"name": "fake"},
        "rewards": [{"name": "fake"}],
        "schedule": {"max_staleness": staleness, "reward_workers": 1},
        "log": {"rollout_interval": 0},
    }


def _figures(steps: list[Mapping[str, float]], seconds_per_token: float) -> dict[str, float]:
    seconds = sum(step["seconds"] for step in steps)
    return {
        "throughput": round(len(steps) / seconds, 4),
        "trainer_idle": round(1.0 - _share(steps, "trainer", "compute"), 4),
        "producer_idle": round(1.0 - _share(steps, "producers", "compute", "wasted"), 4),
        "slots_busy": round(sum(step["response_tokens"] for step in steps) * seconds_per_token / (SLOTS * PRODUCERS * seconds), 4),
        "tokens": sum(step["response_tokens"] for step in steps) / len(steps),
        "cut_share": round(sum(step.get("cut_share", 0.0) for step in steps) / len(steps), 4),
        "staleness": round(sum(step["staleness/mean"] for step in steps) / len(steps), 2),
    }


def _share(steps: list[Mapping[str, float]], role: str, *categories: str) -> float:
    """Of the seconds that the workers of a role account for."""
    total = sum(spent for step in steps for name, spent in step.items() if name.startswith(f"time/{role}/"))
    return sum(step[f"time/{role}/{category}"] for step in steps for category in categories) / total


def _show(figures: Mapping[str, Mapping[str, Any]]) -> None:
    table = Table("lengths", "producers", "max staleness", "mean", "updates/s", "x sync", "trainer idle", "producers idle", "slots busy")
    for kind, of in figures.items():
        for staleness, point in of["curve"].items():
            _row(table, kind, "continuous", staleness, point, of["sync"])
        _row(table, kind, "batch by batch", str(STALENESS), of["batch"], of["sync"])
    Console(width=125).print(table)


def _row(table: Table, kind: str, producers: str, staleness: str, point: Mapping[str, float], sync: Mapping[str, float]) -> None:
    table.add_row(
        kind,
        producers,
        staleness,
        f"{point['staleness']:.2f}",
        f"{point['throughput']:.3f}",
        f"{point['throughput'] / sync['throughput']:.2f}",
        f"{point['trainer_idle']:.1%}",
        f"{point['producer_idle']:.1%}",
        f"{point['slots_busy']:.1%}",
    )


if __name__ == "__main__":
    main()
