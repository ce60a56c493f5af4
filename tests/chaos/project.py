"""What is trained: the quickstart's tiny model with real backends, or the kit's fakes; each prompt is to be trained once an episode."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlcore_plugin_tools.run_record import RunRecord

from rlcore.testing import RunTester
from rlcore.testing.run_tester import PROGRAM, QUIET
from tests.integration.ray.faults import fault_run

__all__ = ["Project", "Shape"]

_BATCH = 16
_ROWS = 1600
_ENGINE = Path(__file__).parents[1] / "integration/ray/doomed_engine.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A run: on which runtime, with which backends, how long, of how many processes; ``silence``: its deadline of heartbeats, None for the
    default; ``pace``: seconds of a step of the fake engine."""

    runtime: str
    fakes: bool
    updates: int
    ranks: int = 2
    producers: int = 2
    silence: float | None = None
    pace: float = 0.15


class Project:
    """A folder with a configuration; ``start`` runs it, and ``check`` says what came of it."""

    def __init__(self, folder: Path, shape: Shape) -> None:
        self.folder, self.shape = folder, shape
        self._tester = RunTester(folder).with_fakes()
        self._environment = {**self._tester.plugins.environment, **QUIET}
        self._config = self._fakes() if shape.fakes else self._quickstart()

    def _sections(self) -> dict[str, dict[str, Any]]:
        shape = self.shape
        limits: dict[str, Any] = {"producer_restarts": 20, "max_restores": 20}
        if shape.silence is not None:
            limits["heartbeat_deadline"] = shape.silence
        return {
            "run": {"runtime": shape.runtime, "max_steps": shape.updates},
            "inference": {"num_inferencer": shape.producers},
            "training": {"num_trainers": shape.ranks},
            "schedule": {"max_staleness": 2, "reward_workers": 1, **limits},
            "weights": {"transport": "object_store"} if shape.runtime == "ray" else {},
            "log": {"rollout_interval": 1, "save_interval": 5},
        }

    def _fakes(self) -> str:
        self._tester.plugins.install("slow", _ENGINE.read_text("utf-8"))
        sections = self._sections()
        sections["inference"] |= {"name": "slow", "options": {"seconds": self.shape.pace}}
        self.prompts = 3 * self.shape.updates
        return fault_run(self._tester, self.shape.updates // 2, **sections)

    def _quickstart(self) -> str:
        """Two passes over as many problems as give the updates; without the filter, which would leave prompts out."""
        from rlcore_plugin_quickstart.assets import prepare

        made = prepare(self.folder / "quickstart", 0, lambda line: None).folder
        self.prompts = _BATCH * self.shape.updates
        rows = (made / "train.jsonl").read_text("utf-8").splitlines(keepends=True)
        self._tester.write("train.jsonl", "".join(rows[: self.prompts // 2]))
        sections = self._sections()
        sections["run"] |= {"num_episodes": 2}
        sections["inference"] |= {"name": "transformers"}
        sections["training"] |= {"name": "torch", "train_batch_size": _BATCH, "learning_rate": 4e-4, "warmup_steps": 5, "min_lr_ratio": 0.5}
        more: dict[str, Any] = {
            "model": {"model": str(made / "base")},
            "data": {"dataset": "train.jsonl", "system_prompt": "", "max_prompt_tokens": 64},
            "sampling": {"num_generations": 8, "max_new_tokens": 16},
            "algorithm": {"name": "grpo", "filter_range": "none"},
            "eval": {"eval_dataset": {"held": str(made / "heldout.jsonl")}, "eval_interval": 0, "eval_temperature": 0.0},
        }
        return str(self._tester.write_toml("run.toml", {**sections, **more, "rewards": [{"name": "boxed"}]}))

    def start(self, name: str, log: Path, address: str | None) -> subprocess.Popen[bytes]:
        """The command that a scheduler repeats, for the run of this name; what it says goes to ``log``."""
        words = ["train", self._config, "--resume", "auto", "--project", name]
        if address is not None:
            words += ["--master_address", address]
        with log.open("ab") as said:
            return subprocess.Popen(
                [sys.executable, "-c", PROGRAM, *words],
                cwd=self.folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )

    def run_folder(self, name: str) -> Path | None:
        """Of the run of this name, once it is there."""
        return next(iter(sorted((self.folder / "runs" / name).glob("*/"))), None)

    def check(self, name: str) -> dict[str, Any]:
        """Of a run that ended: prompts that were trained twice, or not at all, with their ledger, and the accuracies."""
        run = self.run_folder(name)
        assert run is not None, "it never began"
        times: Counter[tuple[int, int]] = Counter()
        record = RunRecord(run)
        for step in record.rollout_steps():
            times.update({(row["episode"], row["prompt_id"]) for row in record.rollouts(step)})
        steps = [row["step"] for row in map(json.loads, (run / "metrics.jsonl").read_text("utf-8").splitlines()) if "seconds" in row]
        summary = json.loads((run / "summary.json").read_text("utf-8"))
        return {
            "steps": summary["steps"],
            "whole": steps == list(range(1, self.shape.updates + 1)),
            "doubled": sum(count > 1 for count in times.values()),
            "missing": self.prompts - len(times),
            "ledger": summary["ledger"],
            "accuracy_before": summary["accuracy_before"],
            "accuracy_after": summary["accuracy_after"],
            "remarks": summary.get("remarks", []),
        }
