"""Every data set of the real reasoning-gym: its rows, its own answers, and a run. Its packages come from the index."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rlcore_plugin_adapters import _NO_ANSWER
from rlcore_plugin_adapters.gym_rows import _BY_HASH
from rlcore_plugin_workers.environment_folders import build, folder_of
from rlcore_plugin_workers.environment_locks import Lock

from rlcore.testing import RunTester
from tests.quickstart_folder import quickstart_of

ALL = """
import json
from rlcore.api import DataError, RewardInput
from rlcore_plugin_adapters.gym_reward import GymReward, _dataset, _entry
from rlcore_plugin_adapters.gym_rows import GymRows
from reasoning_gym.factory import DATASETS

found, reward = {}, GymReward()
for name in sorted(DATASETS):
    try:
        rows = [row for _, row in GymRows().rows(f"gym:{name}?size={2 if name == 'knight_swap' else 8}&seed=1")]
    except DataError as error:
        found[name] = {"error": str(error), "rows": [], "values": []}
        continue
    values = []
    for row in rows:
        place = row["reasoning_gym"]
        own = _entry(_dataset(name, json.dumps(place["settings"], sort_keys=True)), place["index"])["answer"]
        said = [f"<answer>{text}</answer>" for text in (own, "not an answer")]
        values.append([reward.score(RewardInput(messages=(), columns=row, text=text)).value for text in said])
    found[name] = {"rows": rows, "values": values}
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def packages() -> Path:
    """The folder of the packages of reasoning-gym, which no run has by itself."""
    lock = Lock("test-reasoning-gym", "the tests", Path(__file__).with_name("reasoning_gym.lock"))
    build(lock, print)
    (site,) = folder_of(lock).glob("lib/python*/site-packages")
    return site


def judged(packages: Path, seed: str) -> dict[str, Any]:
    """Return what a process with this hash seed finds of each data set."""
    environment = {**os.environ, "PYTHONPATH": str(packages), "PYTHONHASHSEED": seed}
    done = subprocess.run([sys.executable, "-c", ALL], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_every_data_set_makes_rows_and_all_but_five_give_their_own_answer_1(packages: Path) -> None:
    one, other = judged(packages, "1"), judged(packages, "2")
    assert len(one) == 106
    assert {name: found["error"] for name, found in one.items() if "error" in found} == {
        "composite": "gym:composite?size=8&seed=1: reasoning-gym refuses it: Must specify at least one dataset"
    }
    assert {name for name in one if one[name]["rows"] != other[name]["rows"]} == set(_BY_HASH)
    assert {name for name, found in one.items() if any(own != 1.0 for own, _ in found["values"])} == set(_NO_ANSWER)
    junk = [wrong for found in one.values() for _, wrong in found["values"]]
    print(f"{len(one) - 1} data sets, {len(junk)} rows, the mean of a wrong answer {sum(junk) / len(junk):.3f}, the highest {max(junk)}")
    assert {name for name, found in one.items() if any(wrong == 1.0 for _, wrong in found["values"])} == {"game_of_life_halting"}


@pytest.mark.nightly
@pytest.mark.interpreter
@pytest.mark.timeout(600)
@pytest.mark.parametrize("rows", ["gym:leg_counting?size=32&seed=1", 'gym:composite?size=32&datasets={"leg_counting":2,"word_ladder":1}'])
def test_a_run_of_a_few_steps(tmp_path: Path, packages: Path, rows: str) -> None:
    tester = RunTester(tmp_path).with_fakes()
    tester.fake_run()
    tester.write("more.toml", '[[rewards]]\nname = "reasoning_gym"\noptions = { extract = { by = ["text"] } }\n')
    variables = {"PYTHONPATH": f"{tester.plugins.environment['PYTHONPATH']}{os.pathsep}{packages}", "PYTHONHASHSEED": "0"}
    tester.run("train", "run.toml", "more.toml", "-d", rows, "--max-prompt-tokens", "4000", env=variables).assert_ok()
    (path,) = tester.folder.rglob("metrics.jsonl")
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert len(records) > 1
    assert all("reward/mean" in record for record in records)


ENDLESS = """
import json
from rlcore.api import DataError
from rlcore_plugin_adapters.gym_reward import GymReward
from rlcore_plugin_adapters.gym_rows import EndlessGym, gym_levels
from reasoning_gym.factory import DATASETS

made, levels, refused, reward = {}, {}, [], GymReward()
for name in sorted(set(DATASETS) - {"composite"}):
    rows = [EndlessGym().row(f"gym-endless:{name}?seed=1", number, 0) for number in (0, 499, 500, 100_000)]
    made[name] = [row["messages"][0]["content"] for row in rows]
    assert all(reward.check(row) is None for row in rows), name
    if (known := gym_levels(name)) > 1:
        levels[name] = known
        try:
            EndlessGym().levels(f"gym-endless:{name}?levels={known}")
        except DataError:
            refused.append(name)
print(json.dumps([made, levels, refused]))
"""


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_every_data_set_makes_rows_without_end_and_all_but_three_have_levels(packages: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(packages), "PYTHONHASHSEED": "0"}
    done = subprocess.run([sys.executable, "-c", ENDLESS], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    made, levels, refused = json.loads(done.stdout.splitlines()[-1])
    assert len(made) == 105
    assert set(made) - set(levels) == {"acre", "gsm_symbolic", "list_functions"}
    assert refused == ["caesar_cipher", "knight_swap", "modulo_grid", "rubiks_cube", "survo"]


WARM_START = """
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlcore_plugin_adapters.gym_rows import EndlessGym
from rlcore_plugin_quickstart.digits_tokenizer import build_tokenizer
from rlcore_plugin_quickstart.warmstart import WarmStartSettings, save_model, warm_start


@dataclass
class Lesson:
    lesson: Any

    @property
    def solution(self):
        return self.lesson


rows = [EndlessGym().row("gym-endless:spell_backward?seed=900000&levels=5", number, number % 2) for number in range(2048)]
lessons = [Lesson([*row["messages"], {"role": "assistant", "content": row["gt_answer"]}]) for row in rows]
tokenizer = build_tokenizer()
save_model(warm_start(lessons, tokenizer, 0, WarmStartSettings(target=0.45), print).model, Path(sys.argv[1]))
tokenizer.save_pretrained(sys.argv[1])
"""


@pytest.mark.nightly
@pytest.mark.interpreter
@pytest.mark.timeout(600)
def test_200_updates_without_end_at_a_level_that_rises(tmp_path: Path, packages: Path) -> None:
    """A tiny model spells words of three letters backward, and words of three to five once half of its answers are right."""
    tester = RunTester(tmp_path)
    environment = {**os.environ, **tester.plugins.environment, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(packages)}
    subprocess.run([sys.executable, "-c", WARM_START, str(tmp_path / "base")], env=environment, check=True)
    sections = {
        "run": {"max_steps": 200},
        "model": {"model": "base"},
        "data": {
            "dataset": "gym-endless:spell_backward?levels=5",
            "sampler": "rising_level",
            "sampler_options": {"window": 64, "rise": 0.5, "fall": 0.05},
            "system_prompt": "",
            "max_prompt_tokens": 90,
        },
        "sampling": {"num_generations": 8, "max_new_tokens": 16},
        "inference": {"name": "transformers"},
        "training": {"name": "torch", "train_batch_size": 32, "learning_rate": 1e-3, "warmup_steps": 5, "min_lr_ratio": 0.5},
        "algorithm": {"name": "grpo"},
        "schedule": {"max_staleness": 0},
        "rewards": [{"name": "reasoning_gym", "options": {"extract": {"by": ["text"]}}}],
    }
    config = str(tester.write_toml("run.toml", sections))
    told = tester.run("train", config, "--json", env={"PYTHONPATH": str(packages)}, timeout=580).assert_ok().json
    rows = [json.loads(line) for line in (tester.folder / told["run"] / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    levels, right = [row["level/mean"] for row in rows], [row["reward/accuracy"] for row in rows]
    for start in range(0, 200, 20):
        of_level, of_right = sum(levels[start : start + 20]) / 20, sum(right[start : start + 20]) / 20
        print(f"updates {start + 1} to {start + 20}: level {of_level:.2f}, accuracy {of_right:.2f}")
    print("the level rose before the updates", [step + 1 for step in range(1, 200) if levels[step] > levels[step - 1]])
    assert (len(rows), levels[0]) == (200, 0.0)
    assert levels[-1] >= 1.0
    assert sum(right[-20:]) > 1.5 * sum(right[40:60]), "the share of right answers at the higher level did not rise by half"


OWN_SCORES = """
import json, sys
import reasoning_gym

data = reasoning_gym.create_dataset("letter_counting", size=32, seed=1)
rows = map(json.loads, open(sys.argv[1]))
print(json.dumps([[row["reward"], data.score_answer(row["prediction"], data[number])] for number, row in enumerate(rows)]))
"""


@pytest.mark.nightly
@pytest.mark.interpreter
@pytest.mark.timeout(600)
def test_32_answers_of_a_tiny_model_have_the_scores_of_reasoning_gym(
    tmp_path: Path, packages: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """No answer of the quickstart's model is right, but some contain the right digit, which letter_counting rewards in part."""
    tester = RunTester(tmp_path)
    sections = {
        "data": {"system_prompt": "", "max_prompt_tokens": 240},
        "sampling": {"max_new_tokens": 16},
        "rewards": [{"name": "reasoning_gym", "options": {"extract": {"by": ["text"]}}}],
        "eval": {"eval_temperature": 1.0},
    }
    model, config = quickstart_of("sort", tmp_path_factory) / "base", str(tester.write_toml("run.toml", sections))
    words = ("-d", "gym:letter_counting?size=32&seed=1", "--out", "rows.jsonl", "--json")
    environment = {"PYTHONPATH": str(packages)}
    told = tester.run("eval", str(model), config, *words, env=environment, timeout=500).assert_ok().json
    (task,) = told["tasks"].values()
    assert (task["completions"], task["failed"], sum(task["outcomes"].values())) == (32, 0, 32)
    done = subprocess.run(
        [sys.executable, "-c", OWN_SCORES, str(tester.folder / "rows.jsonl")],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    scores = json.loads(done.stdout.splitlines()[-1])
    print(f"32 answers, {task['cost']['sampled_tokens']} tokens, reward {sum(ours for ours, _ in scores) / 32:.3f}")
    assert len({own for _, own in scores}) > 1
    assert all(ours == pytest.approx(own) for ours, own in scores)
