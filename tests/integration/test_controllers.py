"""Runs that controllers steer: what they decide applies from the next update, in every runtime, and a resumed run decides the same."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlcore.testing import RunOutcome, RunTester

STEPS = 8
CODE = '''
import time
import numpy as np
from pydantic import BaseModel, ConfigDict
from rlcore.api import Controller, Decision


class Cools(Controller):
    """The temperature falls by a tenth with each update, and the filter becomes wider."""

    sets = ("sampling.temperature", "algorithm.filter_range")

    def step_finished(self, step, figures):
        return Decision(set={"sampling.temperature": 1.0 - step / 10, "algorithm.filter_range": (-1.0, 1.0 + step)})


class Rates(Controller):
    """Another rate after each update, and a checkpoint and an evaluation after the third."""

    sets = ("training.learning_rate",)

    def step_finished(self, step, figures):
        return Decision(set={"training.learning_rate": 0.4 - step / 100}, evaluate=step == 3, save=step == 3)


class Follows(Controller):
    """A rate that follows the held-out accuracy, with a state."""

    scales = ("training.learning_rate",)

    def __init__(self):
        self.seen = np.zeros(0)

    def evaluated(self, step, figures):
        self.seen = np.append(self.seen, [step, figures["eval/letters"]])

    def step_finished(self, step, figures):
        return Decision(set={"training.learning_rate": 1.0 / (1.0 + self.seen.sum())}, evaluate=step == 5)

    def state(self):
        return {"seen": self.seen}

    def restore(self, state):
        self.seen = state["seen"]


class Raises(Controller):
    def step_finished(self, step, figures):
        if step == 2:
            return 1 / 0


class Exits(Controller):
    def evaluated(self, step, figures):
        raise SystemExit(0)


class Hangs(Controller):
    def step_finished(self, step, figures):
        time.sleep(3600)


class Undeclared(Controller):
    def step_finished(self, step, figures):
        return Decision(set={"algorithm.kl_coeff": 0.1})


class Negative(Controller):
    sets = ("sampling.temperature",)

    def step_finished(self, step, figures):
        return Decision(set={"sampling.temperature": -1.0})


class Text(Controller):
    def step_finished(self, step, figures):
        return "stop"


class Numpy(Controller):
    sets = ("training.learning_rate", "algorithm.filter_range")

    def step_finished(self, step, figures):
        return Decision(set={"training.learning_rate": np.float32(0.25), "algorithm.filter_range": np.array([-1.0, 2.0])})


class ScalesByNumpy(Controller):
    scales = ("training.learning_rate",)

    def step_finished(self, step, figures):
        return Decision(set={"training.learning_rate": np.float32(0.5)})


class Yes(Controller):
    scales = ("training.learning_rate",)

    def step_finished(self, step, figures):
        return Decision(set={"training.learning_rate": True})


class Backwards(Controller):
    sets = ("algorithm.filter_range",)

    def step_finished(self, step, figures):
        return Decision(set={"algorithm.filter_range": (1.0, 0.0)})


class ScalesRange(Controller):
    scales = ("algorithm.filter_range",)


class Listed(Controller):
    def step_finished(self, step, figures):
        return Decision(set=["training.learning_rate"])


class HangsInState(Controller):
    def state(self):
        time.sleep(3600)


class OfNumpy(Controller):
    """Values of numpy, and a new one after each update, while the checkpoint of the last one is written."""

    scales = ("training.learning_rate",)

    def step_finished(self, step, figures):
        return Decision(set={"training.learning_rate": np.float32(1 / step)}, stop="enough" if step == 6 else "")


class SlowStart(Controller):
    def __init__(self):
        time.sleep(3600)


class Interrupts(Controller):
    def step_finished(self, step, figures):
        raise KeyboardInterrupt


class Seeds(Controller):
    sets = ("run.seed",)


class Loses(Controller):
    sets = ("algorithm.options.clip",)


class Coefficient(Controller):
    sets = ("algorithm.kl_coeff",)
'''


@pytest.fixture
def tester(tmp_path: Path) -> RunTester:
    made = RunTester(tmp_path, in_process=True).with_fakes()
    made.write("mine.py", CODE)
    return made


def a_run(tester: RunTester, **sections: dict[str, Any]) -> str:
    usual: dict[str, dict[str, Any]] = {
        "run": {"num_episodes": 50, "max_steps": STEPS},
        "log": {"save_interval": 1, "keep_checkpoints": 20, "rollout_interval": 1},
        "training": {"learning_rate": 0.4, "lr_schedule": "constant"},
    }
    return tester.fake_run(**{name: {**usual.get(name, {}), **sections.get(name, {})} for name in usual | sections})


def held_out(tester: RunTester, interval: int = 2) -> dict[str, dict[str, Any]]:
    return {"eval": {"eval_dataset": {"letters": str(tester.fake_data("held.jsonl", "abcd"))}, "eval_interval": interval}}


def trained(tester: RunTester, config: str, *words: str) -> tuple[Path, RunOutcome]:
    done = tester.run("train", config, *words, "--json").assert_ok()
    return tester.folder / done.json["run"], done


def rows(folder: Path) -> list[dict[str, float]]:
    return [row for line in (folder / "metrics.jsonl").read_text().splitlines() if "loss" in (row := json.loads(line))]


def column(folder: Path, name: str) -> list[float]:
    return [row[name] for row in rows(folder) if name in row]


def weights(folder: Path, step: int) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((folder / f"checkpoints/step-{step}/model").glob("*.safetensors")))


def test_a_factor_and_a_stop(tester: RunTester) -> None:
    folder, done = trained(tester, a_run(tester, **held_out(tester, 0)), "--controllers", "fake", "--stop-at", "5")
    assert (done.json["steps"], done.json["stopped"], done.json["interrupted"]) == (5, "fake: enough", False)
    assert done.json["accuracy_after"] is not None
    assert done.json["checkpoint"].endswith("step-5")
    assert "Stopped by fake: enough." in done.stderr
    assert column(folder, "learning_rate") == pytest.approx([0.4, 0.2, 0.1, 0.05, 0.025], rel=1e-12)
    assert column(folder, "control/training.learning_rate") == pytest.approx([0.2, 0.1, 0.05, 0.025, 0.0125], rel=1e-12)
    assert column(folder, "control/stop") == [1.0]
    attested = {(row["kind"], row["name"]) for row in json.loads((folder / "manifest.json").read_text())["plugins"]}
    assert ("controller", "fake") in attested


def test_a_run_that_was_stopped_is_finished_and_can_be_trained_further(tester: RunTester) -> None:
    folder, _ = trained(tester, a_run(tester), "--controllers", "fake", "--stop-at", "3")
    tester.run("resume", str(folder)).assert_refused(
        "is finished, after 3 updates, because fake: enough; to train further, type --controllers none"
    )
    further = tester.run("resume", str(folder), "--max-steps", "9", "--json").assert_ok()
    assert (further.json["steps"], further.json["stopped"]) == (9, "")
    assert column(folder, "learning_rate")[-1] == pytest.approx(0.4 / 2**8)


def test_a_finished_run_repeats_the_updates_after_an_earlier_checkpoint(tester: RunTester) -> None:
    folder, _ = trained(tester, a_run(tester), "--controllers", "fake")
    before = rows(folder)[-1]["loss"]
    done = tester.run("resume", str(folder), "--step", "5", "--json").assert_ok()
    assert (done.json["steps"], rows(folder)[-1]["loss"]) == (STEPS, before)


def test_a_run_that_was_stopped_goes_on_without_the_controller(tester: RunTester) -> None:
    folder, _ = trained(tester, a_run(tester), "--controllers", "fake", "--stop-at", "3")
    further = tester.run("resume", str(folder), "--controllers", "none", "--json").assert_ok()
    assert (further.json["steps"], further.json["stopped"]) == (STEPS, "")
    assert column(folder, "learning_rate")[-1] == 0.4


def test_values_that_are_set_and_a_checkpoint_and_an_evaluation(tester: RunTester) -> None:
    sections = {**held_out(tester, 0), "log": {"save_interval": 0, "keep_checkpoints": 20}}
    folder, _ = trained(tester, a_run(tester, **sections), "--controllers", "./mine.py:Rates")
    assert column(folder, "learning_rate") == pytest.approx([0.4, *(0.4 - step / 100 for step in range(1, STEPS))], rel=1e-12)
    assert [step for step in range(1, STEPS + 1) if (folder / f"checkpoints/step-{step}").exists()] == [3, STEPS]
    evaluated = [json.loads(line)["step"] for line in (folder / "metrics.jsonl").read_text().splitlines() if '"eval/' in line]
    assert evaluated == [0, 3, STEPS]
    assert [(row["step"], row["control/seen_evaluation"]) for row in rows(folder) if "control/seen_evaluation" in row] == [(1, 0), (4, 3)]


@pytest.mark.parametrize("staleness", [0, 2])
def test_a_temperature_applies_to_leases_of_later_versions(tester: RunTester, staleness: int) -> None:
    """And each rollout is trained at the temperature that its lease has; with staleness, producers are processes."""
    config = a_run(
        tester, schedule={"max_staleness": staleness}, algorithm={"name": "fake", "filter_range": [-1.0, 1.5], "dynamic_batching": True}
    )
    folder, _ = trained(tester, config, "--controllers", "./mine.py:Cools")
    lines = [line for path in folder.glob("rollouts/step-*") for line in gzip.decompress(path.read_bytes()).splitlines()]
    assert len(lines) >= STEPS * 8
    for row in map(json.loads, lines):
        due = 1.0 - max(row["version"] - 1, 0) / 10
        assert row["temperature"] == pytest.approx(due) or (staleness and row["temperature"] > due), row  # a lease may be older


LOSS = "changes algorithm.options.clip, and loss fake of rlcore-plugin-fakes has no such option"
RATE = "changes training.learning_rate, and so does --lr-schedule cosine; type --lr-schedule constant"
REFUSED: Sequence[tuple[Sequence[str], Sequence[str]]] = [
    (["--controllers", "fakes"], ["there is no controller 'fakes', did you mean 'fake'"]),
    (
        ["--controllers", "./mine.py:Rates", "--lr-schedule", "cosine"],
        ["Rates", RATE],
    ),
    (["--controllers", "./mine.py:Seeds"], ["changes run.seed, which cannot change while a run trains; these can: training.learning_rate"]),
    (["--controllers", "./mine.py:Loses"], [LOSS]),
    (["--controllers", "./mine.py:Coefficient"], ["changes algorithm.kl_coeff", "loads no reference model; type --kl-coeff 0.001"]),
    (["--controllers", "./mine.py:Cools"], ["changes algorithm.filter_range", "type --filter-range"]),
    (
        ["--controllers", "./mine.py:Cools", "--temperature-end", "0.5"],
        ["changes sampling.temperature", "--temperature-end 0.5 does so, too"],
    ),
    (["--controllers", "./mine.py:Negative", "./mine.py:Cools", "--filter-range", "0", "1"], ["both set sampling.temperature", "keep one"]),
    (["--controllers", "./mine.py:ScalesRange", "--filter-range", "0", "1"], ["scales algorithm.filter_range, which is a pair"]),
    (["--controllers", "fake", "--stop-at", "x"], ["--stop-at x", "must be a whole number of at least 0"]),
]


@pytest.mark.parametrize(("words", "said"), REFUSED)
def test_a_plan_refuses(tester: RunTester, words: Sequence[str], said: Sequence[str]) -> None:
    tester.run("train", a_run(tester), *words).assert_refused(*said)


LATE = "did not return in 0.5 s from deciding after update 1; mend it, leave it out of --controllers, or raise --controller-deadline"
FAILED: Sequence[tuple[str, Sequence[str]]] = [
    ("Raises", ["failed while deciding after update 2: ZeroDivisionError: division by zero; the last checkpoint is", "step-1"]),
    ("Exits", ["failed while seeing the evaluation of step 0: SystemExit: 0; nothing was saved yet"]),
    (
        "Hangs",
        [LATE],
    ),
    ("Undeclared", ["changed algorithm.kl_coeff, which it does not declare; name it in sets or scales of its class"]),
    ("Backwards", ["mine.py set algorithm.filter_range to 1.0 0.0, which lets no group pass"]),
    ("HangsInState", ["did not return in 0.5 s from returning its state"]),
    ("Negative", ["mine.py set sampling.temperature to -1.0; it must be a finite number above 0"]),
    ("Yes", ["scaled training.learning_rate by True; a factor must be a finite number"]),
    ("Listed", ["set=['training.learning_rate']) from step_finished; stop must be a text, and set values by path"]),
    ("Interrupts", ["failed while deciding after update 1: RuntimeError: it raised KeyboardInterrupt()"]),
    ("Text", ["returned a str from step_finished; it must return a Decision or None"]),
]


@pytest.mark.parametrize(("name", "said"), FAILED)
def test_an_error_of_a_controller_ends_the_run(tester: RunTester, name: str, said: Sequence[str]) -> None:
    words = ("--controllers", f"./mine.py:{name}", "--controller-deadline", "0.5", *["--filter-range", "0", "1"] * (name == "Backwards"))
    done = tester.run("train", a_run(tester, **held_out(tester)), *words)
    assert done.exit_code in (1, 2)
    sentence = done.stderr.strip().splitlines()[-1]
    assert "controller '" in sentence
    for words in said:
        assert words in sentence


def test_a_controller_that_hangs_as_it_is_made_ends_the_run(tmp_path: Path) -> None:
    tester = RunTester(tmp_path).with_fakes()  # a process of its own, because the thread stays
    tester.write("mine.py", CODE)
    done = tester.run("train", a_run(tester), "--controllers", "./mine.py:SlowStart", "--controller-deadline", "0.5")
    assert done.exit_code == 1
    assert "did not return in 0.5 s from being made; mend it" in done.stderr


def test_a_run_resumed_at_any_step_decides_the_same(tester: RunTester) -> None:
    """Also if the evaluation of the checkpoint's step, which a controller asked for, was lost with the process."""
    words = ("--controllers", "./mine.py:Follows", "plateau", "--patience", "1")
    config = a_run(tester, **held_out(tester, 3))
    folder, _ = trained(tester, config, *words)
    expected, last = [(row["loss"], row["learning_rate"]) for row in rows(folder)], weights(folder, STEPS)
    assert len({rate for _, rate in expected}) >= 4
    for step in range(1, STEPS):
        (folder / "summary.json").unlink()
        tester.run("resume", str(folder), "--step", str(step)).assert_ok()
        assert [(row["loss"], row["learning_rate"]) for row in rows(folder)] == expected, f"resumed at step {step}"
        assert weights(folder, STEPS) == last


@pytest.mark.parametrize("staleness", [0, 2])
def test_a_stop_while_others_work_and_a_checkpoint_is_written(tester: RunTester, staleness: int) -> None:
    """A checkpoint holds the decisions up to its step, although later ones come before it is written."""
    config = a_run(
        tester,
        run={"num_episodes": 50, "max_steps": 30},
        training={"options": {"save_seconds": 0.4}},
        schedule={"max_staleness": staleness},
        log={"save_interval": 2},
        **held_out(tester, 0),
    )
    folder, done = trained(tester, config, "--controllers", "./mine.py:OfNumpy")
    assert (done.json["steps"], done.json["stopped"], done.json["ledger"]["trained"]) == (6, "ofnumpy: enough", 18)
    assert done.json["accuracy_after"] is not None
    for step in (2, 4, 6):
        state = json.loads((folder / f"checkpoints/step-{step}/state.json").read_text())
        assert state["control"]["chosen"]["ofnumpy"]["training.learning_rate"] == pytest.approx(1 / step)
    assert column(folder, "learning_rate")[:4] == pytest.approx([0.4, 0.4, 0.2, 0.4 / 3])


def temperatures(folder: Path) -> list[set[float]]:
    lines = [gzip.decompress((folder / f"rollouts/step-{step}.jsonl.gz").read_bytes()).splitlines() for step in range(1, STEPS + 5)]
    return [{json.loads(line)["temperature"] for line in of_step} for of_step in lines]


@pytest.mark.parametrize("others", [("none",), ("./mine.py:Rates",)])
def test_what_a_controller_had_set_returns_to_the_plan_without_it(tester: RunTester, others: Sequence[str]) -> None:
    config = a_run(tester, schedule={"max_staleness": 0}, algorithm={"name": "fake", "filter_range": [-1.0, 1.5]})
    folder, _ = trained(tester, config, "--controllers", "./mine.py:Cools")
    tester.run("resume", str(folder), "--controllers", *others, "--max-steps", str(STEPS + 4)).assert_ok()
    assert temperatures(folder)[STEPS + 1 :] == [{1.0}] * 3


def test_numbers_of_numpy_are_values_and_factors(tester: RunTester) -> None:
    config = a_run(tester, algorithm={"name": "fake", "filter_range": [-1.0, 1.5]})
    folder, _ = trained(tester, config, "--controllers", "./mine.py:Numpy", "./mine.py:ScalesByNumpy")
    assert column(folder, "learning_rate") == [0.4, *[0.125] * (STEPS - 1)]
    assert column(folder, "control/algorithm.filter_range/1") == [2.0] * STEPS


def test_runs_without_controllers_have_no_trace_of_them(tester: RunTester) -> None:
    folder, _ = trained(tester, a_run(tester))
    assert not [name for row in rows(folder) for name in row if name.startswith("control/")]
    assert not (folder / f"checkpoints/step-{STEPS}/control").exists()
    assert "control" not in json.loads((folder / f"checkpoints/step-{STEPS}/state.json").read_text())


def test_the_fake_controller_s_state_is_an_array_in_the_checkpoint(tester: RunTester) -> None:
    folder, _ = trained(tester, a_run(tester), "--controllers", "fake")
    with np.load(folder / "checkpoints/step-3/control/fake.npz") as state:
        assert state["factor"] == 1 / 8


WATCH = """
from rlcore.api import hookimpl

rlcore_api = "2.0"
SEEN = []


@hookimpl
def rlcore_check_run(config):
    options = config.log.observers.get("rlcore-plugin-watch", {})
    return [f"log.observers.rlcore-plugin-watch has no option {name}; it has: every" for name in options if name != "every"]


@hookimpl
def rlcore_run_started(run):
    run.note(f"watching every {run.config['log']['observers']['rlcore-plugin-watch']['every']} updates")
"""


def test_an_observer_has_options(tester: RunTester) -> None:
    """Its plugin checks them; options for what observes nothing are refused."""
    tester.plugins.install("watch", WATCH)
    done = tester.run("train", a_run(tester, log={"observers": {"rlcore-plugin-watch": {"every": 3}}})).assert_ok()
    assert "watching every 3 updates" in done.stdout + done.stderr
    wrong = a_run(tester, log={"observers": {"rlcore-plugin-watch": {"evry": 3}}})
    tester.run("train", wrong).assert_refused("log.observers.rlcore-plugin-watch has no option evry; it has: every")
    absent = a_run(tester, log={"observers": {"rlcore-plugin-wach": {"every": 3}}})
    tester.run("train", absent).assert_refused(
        "[log.observers.rlcore-plugin-wach]: no observer has this distribution, did you mean 'rlcore-plugin-watch'"
    )
