"""A short run is killed before each of its events, one after the other, and goes on by ``resume="auto"``: what it leaves must be what the
run leaves that nobody killed. Children are forked from one process that has imported everything.
"""

from __future__ import annotations

import gc
import hashlib
import importlib
import json
import os
import re
import select
import signal
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from rlcore_plugin_tools.run_record import RunRecord

import rlcore
from rlcore.entry import make_plan
from rlcore.registry.plugin_registry import Registry
from rlcore.runlog import run_manifest
from rlcore.testing import RunTester
from tests.crash.events import Events
from tests.warm_programs import fork_programs

__all__ = ["BESIDE", "ENDS", "EPISODES", "SAMPLED", "SAMPLED_BESIDE", "STEERED", "CrashMatrix", "Point", "digest"]

_MEASURED = ("time/", "second", "latency", "memory")
BESIDE: Mapping[str, Mapping[str, Any]] = {
    "run": {"num_episodes": 4, "max_steps": 8, "runtime": "local"},
    "inference": {"name": "fake", "num_inferencer": 2},
    "schedule": {"max_staleness": 2, "reward_workers": 1},
    "log": {"rollout_max_mb": 1024.0},  # all rollouts stay: the prompts in them are counted
}
"""Sections of a run whose producers are processes that work beside the trainer."""
EPISODES: Mapping[str, Mapping[str, Any]] = {
    **BESIDE,
    "run": {"num_episodes": 2, "max_steps": 4, "runtime": "local"},
    "inference": {"name": "fake", "num_inferencer": 1},
    "sampling": {
        "environment": "./agent.py:play",
        "num_generations": 4,
        "max_new_tokens": 8,
        "max_context_tokens": 64,
        "options": {"workers": 1, "cancel_seconds": 1.0},
    },
    "rewards": {"name": "environment"},
}
"""Of a run whose rollouts are episodes that agents play in processes."""
_AGENT = """
import time

async def play(model, row):
    messages, reward = list(row["messages"]), 0.0
    for turn in range(2):
        answer = await model.chat(messages, max_tokens=2)
        reward += answer["content"].count(row["gt_answer"]) / 4
        messages += [{"role": "assistant", "content": answer["content"]}, *row["messages"]]
        time.sleep(0.01)
    return reward

play.episodes_per_process = 8
"""
ENDS: Mapping[str, Mapping[str, Any]] = {"eval": {"eval_interval": 0}}
"""Of a run that evaluates only before and after."""
STEERED: Mapping[str, Mapping[str, Any]] = {
    "run": {"num_episodes": 6, "max_steps": 9, "controllers": ["./steering.py:Steers"]},
    "model": {"reference_sync_steps": 2, "reference_mixup_alpha": 0.5},
    "training": {"name": "fake-pipeline", "learning_rate": 0.4, "lr_schedule": "wsd", "lr_schedule_options": {"decay_share": 0.5}},
    "algorithm": {"name": "fake", "loss": "./steering.py:Clipped", "kl_coeff": 0.1},
    "eval": {"eval_interval": 3},
}
"""Of a run with a schedule, a loss with a state, a reference that moves, and a controller that changes the rate and the loss, evaluates,
saves and stops."""
_STEERING = """
from rlcore.api import Controller, Decision
from rlcore.learning import ClippedOptions


class Clipped(AdaptiveKl):
    Options = ClippedOptions

    def __init__(self, options: ClippedOptions):
        super().__init__(options)


class Steers(Controller):
    sets, scales = ("algorithm.options.clip_eps_high",), ("training.learning_rate",)

    def __init__(self):
        self.seen = 0.0

    def evaluated(self, step, figures):
        self.seen += 1.0 + step + figures["eval/letters"]

    def step_finished(self, step, figures):
        changed = {"training.learning_rate": 1.0 / self.seen, "algorithm.options.clip_eps_high": 0.1 + 0.01 * self.seen}
        return Decision(stop="enough" * (step == 7), evaluate=step in (2, 5), save=step == 4, set=changed)

    def state(self):
        return {"seen": self.seen}

    def restore(self, state):
        self.seen = float(state["seen"])
"""
SAMPLED: Mapping[str, Mapping[str, Any]] = {
    "run": {"num_episodes": 6, "max_steps": 7},
    "data": {"sampler": "success_rate"},
    "training": {"name": "fake-pipeline", "learning_rate": 0.4, "train_batch_size": 4},
    "algorithm": {"name": "fake", "loss": "clipped", "filter_range": [0.0, 0.6], "dynamic_batching": True, "filter_limit": 100},
    "sources": {
        "low": {"data": {"sampler": "replay", "sampler_options": {"age": 1}}, "sampling": {"num_generations": 4}},
        "high": {"weight": 2.0, "data": {"sampler": "success_rate"}},
    },
}
"""Of a run with two sources, whose samplers observe, as does the one that draws among them; filtered groups are replaced."""
SAMPLED_BESIDE: Mapping[str, Mapping[str, Any]] = {
    **{name: BESIDE[name] for name in ("inference", "schedule", "log")},
    "run": {**SAMPLED["run"], "runtime": "local"},
    "training": SAMPLED["training"],
    "algorithm": {"name": "fake", "loss": "clipped"},
    "sources": SAMPLED["sources"],
}
"""The same without a filter, drawn by weight, with processes that work beside the trainer: each source has its share of the rollouts."""
_IN_ONE_PROCESS: Mapping[str, Any] = {"max_staleness": 0, "num_inferencer": 1}
_LIFE, _ENDS = "RLCORE_CRASH_LIFE", 30.0
"""The variable that the processes of a life inherit, and the seconds that they may outlive it."""
_HANGS = 300.0
"""Seconds after which a child that should have ended is taken to hang."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """What came of one kill: before which event, and what the run that went on differs in, "" if in nothing."""

    number: int
    event: str
    differs: str

    @property
    def kind(self) -> str:
        """The event without the name of its file."""
        words = self.event.split()
        return self.event if words[0] == "coordinator" else words[0]


class CrashMatrix:
    """One configuration, killed again and again. ``in_order`` is False for a run whose producers work beside the trainer: then no figures
    are compared, only that each prompt was trained exactly once."""

    def __init__(self, folder: Path, *, in_order: bool = True, **sections: Mapping[str, Any]) -> None:
        self._folder, self._in_order = folder, in_order
        self._tester = RunTester(folder).with_fakes()
        self._tester.write("agent.py", _AGENT)
        self._tester.write("steering.py", f"{_adaptive_kl()}\n{_STEERING}")
        sections = dict(sections)
        self._reward = dict(sections.pop("rewards", {})).get("name", "fake")
        held_out = {"letters": str(self._tester.fake_data("held.jsonl", "abcd"))}
        sources = sections.pop("sources", {})
        defaults: dict[str, Mapping[str, Any]] = {
            "run": {"num_episodes": 3, "max_steps": 5},
            "log": {"save_interval": 1, "rollout_interval": 1, "rollout_max_mb": 0.02, "keep_checkpoints": 2},
            "eval": {"eval_dataset": held_out, "eval_interval": 2},
            "schedule": {"max_staleness": 0, "reward_workers": 1},
            "algorithm": {"name": "fake"},
        }
        self._config = self._tester.fake_run(**{name: {**defaults.get(name, {}), **sections.get(name, {})} for name in defaults | sections})
        if sources:
            self._config = self._with_sources(sources)
        self._repeats = bool(sources)

    def _with_sources(self, sources: Mapping[str, Mapping[str, Any]]) -> str:
        """Write the configuration with these sources: each has three letters, and the first one the held-out task."""
        whole = tomllib.loads(Path(self._config).read_text(encoding="utf-8"))
        held_out = whole["eval"].pop("eval_dataset")
        del whole["data"]["dataset"]
        whole["sources"] = [
            {**table, "name": name, "data": {"dataset": str(self._tester.fake_data(f"{name}.jsonl", letters)), **table.get("data", {})}}
            for (name, table), letters in zip(sources.items(), ("abc", "def"), strict=True)
        ]
        whole["sources"][0]["eval"] = {"eval_dataset": held_out}
        return str(self._tester.write_toml("sources.toml", whole))

    @contextmanager
    def warmed(self) -> Iterator[None]:
        """Inside, children find plugins discovered, and imported whatever a run imports in any of its processes, which are forks."""
        with chdir(self._folder), self._tester.plugins:
            registry = Registry.discover()
            make_plan(self._config)
            seen = mock.patch.object(Registry, "discover", return_value=registry)
            versions = mock.patch.object(run_manifest, "_packages", return_value={})  # of each life they would be read anew
            with seen, versions:
                for module in json.loads(self._lived("in-one-process", **_IN_ONE_PROCESS))["modules"]:
                    with suppress(ModuleNotFoundError):  # torch.distributed makes a module that has no file
                        importlib.import_module(module)
                gc.freeze()  # what forks share stays shared
                yield

    def whole(self) -> tuple[dict[str, str], list[str]]:
        """The run that nobody kills: its digest, and its events."""
        found = json.loads(self._lived("whole"))
        return found["digest"], found["events"]

    def _lived(self, place: str, **overrides: Any) -> str:
        """What a life tells that nobody ends."""
        code, told = self._child(place, 0, **overrides)
        assert code == 0, f"the run that nobody kills ended with {code}: {told}"
        return told

    def points(
        self, numbers: Sequence[int], expected: Mapping[str, str], twice: Callable[[int], int] = lambda number: 0
    ) -> Iterator[Point]:
        """Kill before each of these events, go on, compare. ``twice``: before which event the second life of that number is killed as well,
        0 for none."""
        for number in numbers:
            place = f"at-{number}"
            code, event = self._child(place, number)
            if code != -signal.SIGKILL:
                yield Point(number=number, event=event or "none", differs=f"it was not killed, and ended with {code}")
                continue
            if again := twice(number):
                self._child(place, again)
            code, told = self._child(place, 0)
            yield Point(number=number, event=event, differs=self._difference(code, told, expected))

    def _difference(self, code: int, told: str, expected: Mapping[str, str]) -> str:
        if code != 0:
            return f"it did not go on (exit {code}): {told}"
        found = json.loads(told)["digest"]
        wrong = sorted(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))
        return ", ".join(f"{name}: {found.get(name)} and not {expected.get(name)}" for name in wrong)

    def _child(self, place: str, fatal: int, **overrides: Any) -> tuple[int, str]:
        """A life of the run in ``place``, killed before its event number ``fatal``: its exit code, and what it told."""
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            os.setsid()
            os._exit(self._live(place, fatal, writing, overrides))
        os.close(writing)
        with os.fdopen(reading) as pipe:
            told, _, _ = select.select([pipe], [], [], _HANGS)  # its words, or its end
            if not told:
                os.kill(child, signal.SIGKILL)
            text = pipe.read()
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if left := _left(f"{_LIFE}={child}".encode()):
            return 1, f"processes {left} did not end with it (exit {code}): {text}"
        return (code, text) if told else (124, f"it hangs for {_HANGS:.0f} s")

    def _live(self, place: str, fatal: int, answer: int, overrides: Mapping[str, Any]) -> int:
        runs, known = self._folder / place, set(sys.modules)

        def tell(text: str) -> None:
            os.write(answer, text.encode())

        silence = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(silence, stream)
        fork_programs()
        os.environ[_LIFE] = str(os.getpid())
        events = Events(runs, fatal, tell)
        try:
            events.watch()
            summary = rlcore.train(self._config, resume="auto", run_dir=str(runs), reward=self._reward, **overrides)
            found = digest(summary.run) if self._in_order else prompts_trained(summary.run, repeats=self._repeats)
            told = {"digest": found, "events": events.seen if place == "whole" else [], "modules": sorted(set(sys.modules) - known)}
            tell(json.dumps(told))
        except Exception as error:  # whatever it is, the parent tells
            tell(f"{type(error).__name__}: {error}")
            return 1
        return 0


def _adaptive_kl() -> str:
    """Return the example of docs/authors/algorithms.md: a loss with a state."""
    page = (Path(__file__).parents[2] / "docs" / "authors" / "algorithms.md").read_text(encoding="utf-8")
    return next(code for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "class AdaptiveKl" in code)


def _left(mark: bytes) -> list[int]:
    """The processes with this in their environment, once they have had time to end."""
    until = time.monotonic() + _ENDS
    while found := [int(entry.name) for entry in Path("/proc").glob("[0-9]*") if _has(entry, mark)]:
        if time.monotonic() > until:
            break
        time.sleep(0.05)
    return found


def _has(entry: Path, mark: bytes) -> bool:
    try:
        return mark in (entry / "environ").read_bytes().split(b"\0")
    except OSError:  # it has ended, or is another user's
        return False


def digest(run: Path) -> dict[str, str]:
    """What a run left, file by file, without what was measured: SHA-256 of its bytes, of metrics and summary of their figures."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    figures = [{name: value for name, value in row.items() if not any(part in name for part in _MEASURED)} for row in rows]
    summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    kept = {
        name: summary[name] for name in ("steps", "accuracy_before", "accuracy_after", "reward_last", "ledger", "interrupted", "stopped")
    }
    found = {"metrics.jsonl": _sha(json.dumps(figures).encode()), "summary.json": json.dumps(kept)}
    last = f"checkpoints/step-{summary['steps']}"
    for pattern in (
        "rollouts/*",
        "eval/*/*",
        f"{last}/model/*",
        f"{last}/state.json",
        f"{last}/trainer/*.json",
        f"{last}/trainer/*.npz",
        f"{last}/control/*",
    ):
        found |= {str(path.relative_to(run)): _sha(path.read_bytes()) for path in run.glob(pattern) if path.is_file()}
    found["steps in times.jsonl"] = _steps(run / "times.jsonl")
    found["checkpoints"] = " ".join(sorted(path.name for path in (run / "checkpoints").iterdir()))
    found["left over"] = " ".join(sorted(path.name for path in run.rglob("*.partial")))
    return found


def prompts_trained(run: Path, *, repeats: bool = False) -> dict[str, str]:
    """How often each prompt of each episode stands in the rollouts of an update; each update stands once in metrics.jsonl.

    ``repeats``: samplers issue prompts several times, as timing decides, so that only the number of rollouts of each source is known."""
    times: dict[str, int] = {}
    record = RunRecord(run)
    for step in record.rollout_steps():
        rows = record.rollouts(step)
        prompts = [row["source"] for row in rows] if repeats else {(row["episode"], row["prompt_id"]) for row in rows}
        for prompt in prompts:
            times[str(prompt)] = times.get(str(prompt), 0) + 1
    summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    found = {prompt: f"trained {count} times" for prompt, count in times.items()}
    found["ledger"], found["steps"] = json.dumps(summary["ledger"]), str(summary["steps"])
    found["steps in times.jsonl"] = _steps(run / "times.jsonl")
    return found


def _steps(log: Path) -> str:
    return " ".join(str(json.loads(line).get("step", "total")) for line in log.read_text(encoding="utf-8").splitlines())


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
