"""What `make bench-algorithms` runs: rows of the learning table, their runs in order, and the settings of one run. Runs nothing."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlcore_plugin_quickstart.recipe import RECIPE_VERSION, run_toml

VERSION = f"{RECIPE_VERSION}.1"
"""Quickstart's recipe, and ours: raise the second with every change of COMMON. Results of another version are not used."""

SEEDS = (0, 1, 2)
UPDATES = 100
CONTROL = "random reward"
STALE = (2, 8)
"""Values of max_staleness, beside 0, for what is meant for off-policy data."""
OFF_POLICY = ("grpo", "dapo", "gspo", "cispo", "gmpo", "sapo")
CORRECTED: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "grpo + decoupled": ("grpo", {"algorithm.mismatch_correction": "decoupled"}),
    "grpo + truncated": ("grpo", {"algorithm.mismatch_correction": "truncated"}),
    "sapo + truncated": ("sapo", {"algorithm.mismatch_correction": "truncated"}),
}
"""Label -> recipe and further settings. Stale data only: on fresh data of one engine the weights are 1."""
LEARNING_RATE: Mapping[str, tuple[float, str]] = {}
"""Recipe -> a learning rate other than the quickstart's, and why. Shown in the table."""
COMMON: Mapping[str, Any] = {
    "run.project": "bench-algorithms",
    "run.num_episodes": 8,  # replaced groups use prompts up; max_steps ends the run
    "run.max_steps": UPDATES,
    "inference.device": "cpu",
    "training.device": "cpu",
    "schedule.reward_workers": 1,
    "eval.eval_interval": 0,  # before and after is enough
    "log.rollout_interval": 0,
}
"""On top of the quickstart's run.toml without its [algorithm]: every recipe runs with its own estimator, loss and defaults."""
COIN = Path(__file__).with_name("coin.py")


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table: three runs that differ in the seed alone."""

    label: str
    recipe: str
    staleness: int = 0

    @property
    def overrides(self) -> dict[str, Any]:
        """Settings by dotted path, beside recipe and staleness, in which the row's runs differ from the common ones."""
        rate = {"training.learning_rate": LEARNING_RATE[self.recipe][0]} if self.recipe in LEARNING_RATE else {}
        reward = {"rewards": "coin"} if self.label == CONTROL else {}
        return {**rate, **reward, **CORRECTED.get(self.label, ("", {}))[1]}


@dataclass(frozen=True, slots=True)
class Run:
    """One training run."""

    row: Row
    seed: int

    @property
    def key(self) -> str:
        """What a recorded result must agree in, to stand for this run."""
        return key_of(self.identity())

    def identity(self) -> dict[str, Any]:
        """The fields of a record by which it is found again."""
        row = self.row
        return {
            "bench": VERSION,
            "label": row.label,
            "recipe": row.recipe,
            "staleness": row.staleness,
            "seed": self.seed,
            "overrides": row.overrides,
        }

    def settings(self, assets: Path, runs: Path) -> dict[str, Any]:
        """Nested settings for ``rlcore train``: ``assets`` is the quickstart's folder of this seed, ``runs`` gets the run's folder."""
        table = tomllib.loads(run_toml(assets, self.seed, aside=True))
        table["algorithm"] = {"name": self.row.recipe}
        values = {**COMMON, "run.run_dir": runs.as_posix(), "schedule.max_staleness": self.row.staleness, **self.row.overrides}
        if values.pop("rewards", "") == "coin":
            table["rewards"] = [{"name": f"{COIN}:coin"}]
        for path, value in values.items():
            section, key = path.split(".")
            table.setdefault(section, {})[key] = value
        return table

    def __str__(self) -> str:
        return f"{self.row.label}, staleness {self.row.staleness}, seed {self.seed}"


def key_of(record: Mapping[str, Any]) -> str:
    """The key of a record (``Run.key``); KeyError where a field is absent."""
    return json.dumps([record[name] for name in ("bench", "label", "recipe", "staleness", "seed", "overrides")], sort_keys=True)


def rows(recipes: Iterable[str]) -> list[Row]:
    """Every row, in the order of the table: recipes by name at staleness 0, 2 and 8, what is corrected, the control last."""
    table = [Row(name, name, staleness) for name in sorted(recipes) for staleness in (0, *(STALE if name in OFF_POLICY else ()))]
    table += [Row(label, recipe, staleness) for label, (recipe, _) in CORRECTED.items() for staleness in STALE]
    return [*table, Row(CONTROL, "grpo")]


def runs_in_order(table: Sequence[Row]) -> list[Run]:
    """All runs: fresh data with seed 0 first, so that a weak recipe shows early, then the control, other seeds, stale data, corrections."""

    def stage(run: Run) -> int:
        if run.row.label == CONTROL:
            return 1
        if run.row.label in CORRECTED:
            return 4
        if run.row.staleness:
            return 3
        return 0 if run.seed == SEEDS[0] else 2

    return sorted((Run(row, seed) for seed in SEEDS for row in table), key=stage)
