"""Run folders as a run writes them, made in a second: every figure, evaluations with pass@k and maj@k, rollouts with prompts and parts.

They look like a run that learns, so that a page made of them can be judged by the eye as well.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomli_w

from tests.written_runs import a_rollout, an_answer, write_document, write_lines

__all__ = ["SyntheticRun"]

_PROSE = (
    "so we have that the sum of both sides is equal to and then by the first equation it follows since this number divides let us check "
    "each case in turn if x were negative the left side would be smaller which cannot hold therefore only one value remains next we expand"
)
_WORDS = _PROSE.split()


@dataclass
class SyntheticRun:
    """What to write. ``ends``: ``finished``, ``interrupted`` or ``killed``; ``edit`` may change each row of the rollouts."""

    steps: int = 100
    seed: int = 0
    groups: int = 32
    answers: int = 8
    logged_every: int = 1
    words: int = 90
    trainers: int = 1
    producers: int = 1
    runtime: str = "local"
    learning_rate: float = 1e-6
    ends: str = "finished"
    max_steps: int | None = None
    eval_every: int = 20
    eval_prompts: int = 24
    eval_answers: int = 4
    resumes: tuple[int, ...] = ()
    checkpoints: tuple[int, ...] = (60,)
    task: str = "gsm8k"
    failures: int = 3
    edit: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    draw: random.Random = field(init=False)

    def write(self, root: Path) -> Path:
        """The folder ``root``, which is new; returns it."""
        self.draw = random.Random(self.seed)
        root.mkdir(parents=True)
        (root / "run.toml").write_text(tomli_w.dumps(self.config()), encoding="utf-8")
        for step in self.checkpoints:
            write_document(root / "checkpoints" / f"step-{step}" / "checkpoint.json", {})
        write_document(root / "manifest.json", self.manifest())
        lines: list[dict[str, Any]] = []
        for step in range(self.steps + 1):
            if step:
                lines.append(self.update(step))
            if step % self.eval_every == 0 or (step == self.steps and self.ends == "finished"):
                lines.append(self.evaluation(step))
                write_lines(root / "eval" / self.task / f"step-{step}.jsonl", self.evaluation_rows(step))
            if step and step % self.logged_every == 0:
                write_lines(root / "rollouts" / f"step-{step}.jsonl.gz", self.rollout_rows(step))
        write_lines(root / "metrics.jsonl", lines)
        times: list[dict[str, Any]] = [{"step": step, "workers": self.workers(step)} for step in range(1, self.steps + 1)]
        if self.ends != "killed":
            write_document(root / "summary.json", self.summary())
            times.append({"total": True, "workers": _summed([row["workers"] for row in times])})
        else:
            with (root / "metrics.jsonl").open("a", encoding="utf-8") as file:
                file.write('{"step": 99999, "reward/me')  # what a kill leaves
        write_lines(root / "times.jsonl", times)
        failed = [
            {"step": 7 * number, "prompt_id": f"train:{number}", "error": "the reward did not answer in 10 s"}
            for number in range(1, self.failures + 1)
        ]
        write_lines(root / "failures.jsonl", failed)
        return root

    # --- documents -------------------------------------------------------------------------------------------------------

    def config(self) -> dict[str, Any]:
        """``run.toml``."""
        return {
            "run": {
                "project": "synthetic",
                "seed": self.seed,
                "runtime": self.runtime,
                "max_steps": self.max_steps or self.steps,
                "run_dir": "/data/runs",
            },
            "model": {"model": "/models/Qwen2.5-1.5B"},
            "data": {"dataset": [{"path": "/data/gsm8k.jsonl", "ratio": 1.0, "source": "jsonl"}], "max_prompt_tokens": 512},
            "sampling": {"num_generations": self.answers, "temperature": 1.0, "max_new_tokens": 2048},
            "inference": {"name": "vllm", "num_inferencer": self.producers, "dtype": "bfloat16"},
            "training": {
                "name": "torch",
                "num_trainers": self.trainers,
                "train_batch_size": self.groups,
                "learning_rate": self.learning_rate,
            },
            "algorithm": {"name": "dapo", "kl_coeff": 0.0, "options": {"clip_eps_low": 0.2, "clip_eps_high": 0.28}},
            "rewards": [{"name": "boxed", "weight": 1.0}, {"name": "brevity", "weight": 0.1}],
            "eval": {"eval_interval": self.eval_every, "eval_dataset": {self.task: "/data/gsm8k-test.jsonl"}},
            "log": {"rollout_interval": self.logged_every, "trackers": []},
        }

    def manifest(self) -> dict[str, Any]:
        """``manifest.json``."""
        plugin = {
            "distribution": "rlcore-plugin-dapo",
            "kind": "algo",
            "name": "dapo",
            "source_sha256": "ab" * 32,
            "spec_sha256": "cd" * 32,
            "version": "0.1.0",
        }
        times = [{"time": f"2026-01-31T1{number}:00:00+0000", "step": step, "settings": {}} for number, step in enumerate(self.resumes)]
        return {
            "rlcore": "0.1.0",
            "python": "3.11.7",
            "platform": "Linux-6.8-x86_64",
            "packages": {"torch": "2.9.0", "transformers": "5.1.0", "vllm": "0.12.0"},
            "seed": self.seed,
            "data": {"train": "ef" * 32},
            "plugins": [plugin],
            "origins": {
                "run.seed": "command line",
                "training.learning_rate": "run.toml",
                "algorithm.options": "recipe dapo",
                "model.model": "command line",
            },
            "command": ["rlcore", "train", "run.toml", "--seed", str(self.seed)],
            **({"resumes": times} if times else {}),
        }

    def summary(self) -> dict[str, Any]:
        """``summary.json``."""
        return {
            "steps": self.steps,
            "train_seconds": 9.5 * self.steps,
            "interrupted": self.ends == "interrupted",
            "tokens_per_second": 21_400.0,
            "remarks": [],
        }

    # --- figures ---------------------------------------------------------------------------------------------------------

    def skill(self, step: int) -> float:
        """The chance of a right answer."""
        return 0.31 + 0.47 * (1 - math.exp(-step / (0.4 * self.steps + 1e-9))) + 0.01 * math.sin(step / 9 + self.seed)

    def update(self, step: int) -> dict[str, Any]:
        """A line of ``metrics.jsonl``."""
        right = min(1.0, max(0.0, self.draw.gauss(self.skill(step), 0.03)))
        length = 420 + 2.2 * step + self.draw.gauss(0, 18)
        entropy = 0.32 + 0.5 * math.exp(-step / 60) + self.draw.gauss(0, 0.01)
        malformed = 0.08 * math.exp(-step / 25)
        clipped = abs(self.draw.gauss(0.0011, 0.0004))
        return {
            "step": step,
            "reward/mean": right - 0.02 * self.draw.random(),
            "reward/std": math.sqrt(right * (1 - right)),
            "reward/group_std": 0.30 - 0.1 * step / self.steps,
            "reward/accuracy": right,
            "reward/format": 1 - malformed,
            "reward/part/boxed": right,
            "reward/part/brevity": -0.2 + 0.15 * step / self.steps,
            "groups": float(self.groups),
            "groups/masked": 2.0,
            "groups/zero_spread": 0.1 + 0.25 * step / self.steps,
            "outcome/ok": right,
            "outcome/wrong": max(0.0, 1 - right - malformed),
            "outcome/malformed": malformed,
            "response_length/mean": length,
            "response_length/max": 2048.0,
            "response_length/p10": length * 0.55,
            "response_length/p50": length * 0.93,
            "response_length/p90": length * 1.6,
            "response_tokens": length * self.groups * self.answers,
            "truncated": 0.02,
            "entropy/sampled": entropy,
            "loss": self.draw.gauss(0, 0.01),
            "loss/clip_low": clipped,
            "loss/clip_high": clipped * 1.7,
            "ratio_mean": self.draw.gauss(1.0, 0.0008),
            "ratio_outside": abs(self.draw.gauss(0.012, 0.003)),
            "sampler_gap": abs(self.draw.gauss(0.011, 0.001)),
            "effective_sample_size": 0.97,
            "grad_norm": abs(self.draw.gauss(0.21, 0.04)),
            "learning_rate": self.learning_rate * min(1.0, step / 10),
            "staleness/mean": 0.9,
            "staleness/max": 1.0,
            "tokens_per_second": 21_000 + self.draw.gauss(0, 600),
            "mfu": 0.31,
            "loss/odd": None,
            "seconds": 9.5 + abs(self.draw.gauss(0, 0.5)) + (6 if step % self.eval_every == 0 else 0),
        }

    def evaluation(self, step: int) -> dict[str, Any]:
        """The line of one evaluation."""
        name, value = f"eval/{self.task}", self.skill(step) + 0.02
        row: dict[str, Any] = {"step": step, f"{name}/reward": value, f"{name}/length": 430.0 + 2 * step, f"{name}/truncated": 0.01}
        figures = {name: value}
        for k in (2, 4):
            figures |= {f"{name}/pass@{k}": 1 - (1 - value) ** (1 + 0.4 * k / 2), f"{name}/maj@{k}": min(1.0, value + 0.012 * k)}
        for key, share in figures.items():
            row |= {key: share, f"{key}/low": share - 0.025, f"{key}/high": min(1.0, share + 0.024)}
        return row

    def workers(self, step: int) -> dict[str, dict[str, float]]:
        """The seconds of one step."""
        zero = dict.fromkeys(
            ("compute", "waiting_for_data", "waiting_for_weights", "blocked_by_rewards", "back_pressure", "wasted", "other"), 0.0
        )
        trainer = {**zero, "compute": 6.5, "waiting_for_data": 2.0 + math.sin(step / 5), "waiting_for_weights": 0.4, "other": 0.3}
        producer = {
            **zero,
            "compute": 7.2,
            "waiting_for_weights": 0.5,
            "blocked_by_rewards": 0.7,
            "back_pressure": 0.9,
            "wasted": 0.2,
            "other": 0.1,
        }
        return {f"trainer-{number}": trainer for number in range(self.trainers)} | {
            f"producer-{number}": producer for number in range(self.producers)
        }

    # --- rollouts --------------------------------------------------------------------------------------------------------

    def rollout_rows(self, step: int) -> list[dict[str, Any]]:
        """Of one update, group by group."""
        rows = []
        for group in range(self.groups):
            number = ((step - 1) * self.groups + group) % (12 * self.groups)
            right = [self.draw.random() < self.skill(step) for _ in range(self.answers)]
            mean = sum(right) / self.answers
            rows += [self._rollout(step, number, index, one, mean) for index, one in enumerate(right)]
        return [self.edit(row) for row in rows] if self.edit else rows

    def _rollout(self, step: int, number: int, index: int, right: bool, mean: float) -> dict[str, Any]:
        answer = _gold(number) if right else str(self.draw.randint(1, 400))
        brevity = round(-0.3 * self.draw.random(), 3)
        text, length = self._text(number, step, answer)
        return a_rollout(
            index,
            step=step,
            prompt_id=f"train:{number}",
            prompt_index=number,
            episode=(step - 1) // 12,
            prompt=[{"role": "user", "content": _question(number)}],
            gold=_gold(number),
            text=text,
            length=length,
            version=max(0, step - 2),
            reward=float(right) + 0.1 * brevity,
            accuracy=float(right),
            parsed=answer,
            parts={"boxed": float(right), "brevity": brevity},
            outcome="ok" if right else "wrong",
            reason="" if right else f"{answer} is not {_gold(number)}",
            advantage=round((float(right) - mean) / (math.sqrt(mean * (1 - mean)) + 1e-4), 4),
            masked=mean in (0.0, 1.0),
        )

    def evaluation_rows(self, step: int) -> list[dict[str, Any]]:
        """Of one evaluation."""
        rows = []
        for number in range(self.eval_prompts):
            for index in range(self.eval_answers):
                right = self.draw.random() < self.skill(step) + 0.02
                answer = _gold(number) if right else str(self.draw.randint(1, 400))
                text, length = self._text(number, step, answer)
                about = {
                    "prompt_id": f"{self.task}:{number}",
                    "prompt": [{"role": "user", "content": _question(number)}],
                    "gold": _gold(number),
                }
                rows.append(an_answer(number, float(right), index, **about, prediction=text, parsed=answer, response_length=length))
        return rows

    def _text(self, number: int, step: int, answer: str) -> tuple[str, int]:
        """An answer that stays like itself from step to step, and its tokens."""
        same = random.Random(number)
        words = [same.choice(_WORDS) for _ in range(max(4, int(same.gauss(self.words, self.words / 4))))]
        changed = [self.draw.choice(_WORDS) if self.draw.random() < 0.12 else word for word in words]
        text = f"Let n = {number}. {' '.join(changed).capitalize()}.\n\nThe answer is \\boxed{{{answer}}}."
        return text, len(words) + 12 + step % 7


def _question(number: int) -> str:
    stops = f"At each of {number % 5 + 2} stops {number % 4 + 1} more get on."
    return f"A train leaves with {number + 3} passengers. {stops} How many are on it at the end?"


def _gold(number: int) -> str:
    return str(number + 3 + (number % 5 + 2) * (number % 4 + 1))


def _summed(rows: list[dict[str, dict[str, float]]]) -> dict[str, dict[str, float]]:
    return (
        {worker: {category: sum(row[worker][category] for row in rows) for category in rows[0][worker]} for worker in rows[0]}
        if rows
        else {}
    )
