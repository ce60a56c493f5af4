"""``rlcore.train``: the Python entry plans as the command line does, with objects for names."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import datasets
import pandas
import pytest
from rlcore_plugin_tools.run_record import RunRecord

import rlcore
from rlcore.api import RewardInput, RunInfo, Sampler, SamplerContext, Tracker
from rlcore.api.display import Progress
from rlcore.api.runtime import OneProcess
from rlcore.config import Plan, RunConfig
from rlcore.contracts.errors import ConfigError, DataError, PluginError, UsageError
from rlcore.entry import make_plan
from rlcore.registry.plugin_registry import Registry
from rlcore.testing import FakeInference, FakeTraining, RunTester
from rlcore.testing.run_tester import QUIET


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    tester = RunTester(tmp_path).with_fakes()
    monkeypatch.chdir(tmp_path)
    with tester.plugins:
        yield tester.fake_run()


def my_loss(logprobs: Any, batch: Any) -> Any:
    return -batch.advantages * logprobs


def test_a_run_from_python_without_the_plugin_that_plans_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlcore.registry.plugin_registry.Registry.discover", lambda: Registry([]))
    said = "a run from Python needs rlcore-plugin-tools, which is not installed; type: pip install "
    with pytest.raises(PluginError, match=said):
        rlcore.train(max_steps=1)


def test_a_run_from_python_names_the_switch_that_excludes_the_plugin_that_plans_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLCORE_PLUGINS", "grpo")
    said = "a run from Python needs rlcore-plugin-tools, which RLCORE_PLUGINS excludes; change that variable"
    with pytest.raises(PluginError, match=said):
        rlcore.train(max_steps=1)


class BackToFront(Sampler):
    """Draws the prompts from the last to the first."""

    def __init__(self, context: SamplerContext) -> None:
        assert context.items is not None
        self._items, self._drawn = context.items, 0

    def next(self) -> int:
        self._drawn += 1
        return -self._drawn % self._items

    def state(self) -> Mapping[str, Any]:
        return {"drawn": self._drawn}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._drawn = state["drawn"]


def test_a_sampler_may_be_a_class(run: str, tmp_path: Path) -> None:
    summary = rlcore.train(run, sampler=BackToFront, max_steps=1)
    rows = RunRecord(summary.run).rollouts(1)
    assert list(dict.fromkeys(row["prompt_index"] for row in rows)) == [5, 4, 3]


def test_it_trains_from_a_file_with_overrides(run: str, tmp_path: Path) -> None:
    summary = rlcore.train(run, max_steps=2, **{"run.run_dir": str(tmp_path / "here")})
    assert summary.steps == 2
    assert summary.run.is_relative_to(tmp_path / "here")


def test_it_looks_at_this_machine_before_anything_is_made(run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlcore.runtime.run", lambda *arguments: pytest.fail("the run was started"))
    with pytest.raises(ConfigError) as refused:
        rlcore.train(run, run_dir=f"{run}/runs")
    said = re.match(r"run_dir = (.*?)(…?) \(Python\): the folder cannot be created, because (.*) is a file", str(refused.value))
    assert said is not None, refused.value
    shown, shortened, blamed = said.groups()
    assert f"{run}/runs".startswith(shown) if shortened else shown == f"{run}/runs"
    assert blamed == run


def test_objects_go_by_their_names(run: str) -> None:
    plan = make_plan(run, loss=my_loss, reward=["fake"], estimator="group_mean")
    assert plan.config.algorithm.loss == "my_loss"
    assert plan.config.algorithm.estimator == "group_mean"
    assert plan.origins["algorithm.loss"].layer == "python"
    assert not plan.missing


class Kept(Tracker):
    """Keeps the steps that it is told of."""

    steps: ClassVar[list[int]] = []

    def open(self, run: RunInfo) -> None:
        self.steps.clear()

    def log(self, record: Mapping[str, Any]) -> None:
        self.steps.append(record["step"])


class Own(OneProcess):
    """A runtime of one process."""


def test_a_runtime_and_trackers_that_are_objects_run(run: str) -> None:
    summary = rlcore.train(run, runtime=Own, trackers=[Kept, "fake"], max_steps=2)
    assert set(Kept.steps) == {1, 2}
    manifest = json.loads((summary.run / "manifest.json").read_text())
    assert {"own", "kept"} <= {plugin["name"] for plugin in manifest["plugins"]}
    assert make_plan(run, trackers=Kept()).config.log.trackers == ("kept",)
    assert make_plan(run, runtime="local").config.run.runtime == "local"
    backends: dict[str, Any] = {"inference.name": FakeInference, "training.name": FakeTraining}
    planned = make_plan(run, model="org/model", **backends)
    assert (planned.config.inference.name, planned.config.training.name) == ("fakeinference", "faketraining")
    assert not planned.missing


def test_a_kind_that_must_be_installed_is_refused_with_what_to_do(run: str) -> None:
    with pytest.raises(PluginError, match="weight transfer 'Own' must be installed: make it a plugin, and type the name that it registers"):
        make_plan(run, transport=Own)
    assert make_plan(run, transport="memory").config.weights.transport == "memory"


def test_every_form_of_a_configuration(run: str) -> None:
    assert make_plan(Path(run)).config.run.max_steps == 3
    assert make_plan([run, run]).config.run.max_steps == 3
    nested = {"model": {"model": "org/x"}, "data": {"dataset": "hf:x"}, "rewards": [{"name": "fake"}], "algorithm": {"name": "fake"}}
    assert make_plan(nested).config.model.model == "org/x"
    assert make_plan(RunConfig.model_validate(nested), seed=4).config.run.seed == 4
    with pytest.raises(ConfigError, match="config is a int"):
        make_plan(3)  # type: ignore[arg-type]
    for wrong in (run.encode(), [3], [run, run.encode()]):
        with pytest.raises(ConfigError, match=r"^config is a (bytes|list); pass a RunConfig, nested mappings, or the path of a TOML file$"):
            make_plan(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("key", ["run.max_steps.", "", "..", ".seed", "run..seed"])
def test_a_key_that_names_no_setting_is_one_sentence(run: str, key: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(repr(key))} is not the key of a setting; write a key such as 'run.seed'$"):
        make_plan(run, **{key: 1})


def test_an_unknown_override_gets_the_closest_match(run: str) -> None:
    with pytest.raises(ConfigError, match="train_batchsize is not a setting"):
        make_plan(run, train_batchsize=3)


def test_what_is_missing_is_refused_before_anything_is_written(run: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"data set absent\.jsonl is not found here"):
        rlcore.train(run, dataset="absent.jsonl")
    assert not (tmp_path / "runs").exists()


ROWS = [{"question": f"What is {number} + 1?", "answer": str(number + 1)} for number in range(6)]


def first_letter(item: RewardInput) -> float:
    return float(item.text.startswith(item.columns["answer"]))


def rows_in(plan: Plan) -> list[Any]:
    path = plan.config.data.sources[0].path
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def test_rows_are_written_once_by_content_and_their_columns_are_guessed(run: str, tmp_path: Path) -> None:
    plan = make_plan(run, dataset=ROWS, reward=first_letter, run_dir="here", project="sums")
    assert rows_in(plan) == ROWS
    assert plan.config.data.columns == {"messages": "question"}
    again = make_plan(run, dataset=tuple(dict(row) for row in ROWS), reward=first_letter, run_dir="here", project="sums")
    assert again.config.data.sources == plan.config.data.sources
    assert [path.name for path in (tmp_path / "here/sums/data").iterdir()] == [Path(plan.config.data.sources[0].path).name]
    assert make_plan(run, dataset=[{"messages": {"role": "user", "content": "a"}}]).config.data.columns == {}
    assert make_plan(run, dataset=ROWS, columns={"messages": "answer"}, reward=first_letter).config.data.columns == {"messages": "answer"}


def test_a_run_of_rows_trains_and_resumes_on_them(run: str) -> None:
    summary = rlcore.train(run, dataset=ROWS, eval_dataset={"sums": ROWS[:2]}, reward=first_letter, train_batch_size=2, max_steps=1)
    assert summary.steps == 1
    assert list((summary.run / "eval").iterdir()) == [summary.run / "eval/sums"]
    resumed = rlcore.train(resume=summary.run, reward=first_letter, max_steps=2)
    assert (resumed.run, resumed.steps) == (summary.run, 2)


@pytest.mark.parametrize("table", ["pandas", "datasets", "streamed"])
def test_tables_and_data_sets_are_rows(run: str, table: str) -> None:
    rows: list[dict[str, Any]] = [*ROWS, {"question": "What is 9 + 9?", "answer": None}]
    given: Any = pandas.DataFrame(rows)
    if table != "pandas":
        given = datasets.Dataset.from_pandas(given)
    if table == "streamed":
        given = given.to_iterable_dataset()
        with pytest.raises(DataError, match=r"^dataset is of type IterableDataset and has no length; pass max_rows=N, or list\(…\) of it$"):
            make_plan(run, dataset=given)
    plan = make_plan(run, dataset=given, max_rows=7)
    assert rows_in(plan) == rows


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "dataset is empty; it needs at least one row"),
        (5, "dataset is of type int; pass a list of dicts, a DataFrame, a Hugging Face data set, or a path"),
        ({"train": ROWS}, "dataset is of type dict with the keys 'train'; pass a list of dicts, one for each row, or one of its values"),
        ([*ROWS, 3], "dataset[6] is of type int; a row must be a dict, such as {'prompt': '1 + 2?', 'answer': '3'}"),
        (
            [{"prompt": "a", "image": object()}],
            "dataset[0]['image']: a column holds a Python object; columns may hold text, numbers, true, false, lists and dicts",
        ),
    ],
)
def test_what_cannot_be_rows_is_refused_and_nothing_is_written(run: str, tmp_path: Path, given: Any, said: str) -> None:
    with pytest.raises(DataError) as refused:
        make_plan(run, dataset=given)
    assert str(refused.value) == said
    assert not (tmp_path / "runs").exists()


def test_rows_need_a_folder_that_can_be_made(run: str) -> None:
    with pytest.raises(ConfigError, match=r"/data: the folder cannot be created \(Not a directory\); choose another with run_dir=…$"):
        make_plan(run, dataset=ROWS, run_dir=f"{run}/runs")


def test_a_bad_row_is_named_by_its_place_and_two_readings_are_asked_for(run: str) -> None:
    with pytest.raises(
        DataError, match=r'^dataset\[0\]: the row has no "messages" .*; if "prompt" holds the prompt, pass columns={"messages": "'
    ):
        rlcore.train(run, dataset=[{"prompt": "a", "question": "b"}])
    with pytest.raises(DataError, match=r"^dataset\[1\]: the last message is empty"):
        rlcore.train(run, dataset=[{"prompt": "a", "answer": "3"}, {"prompt": " ", "answer": "4"}])
    with pytest.raises(DataError, match=r'^dataset\[0\]: .* if "answer" holds the answer, pass columns={"gt_answer": "answer"}'):
        rlcore.train(run, dataset=[{"prompt": "a", "answer": "3", "label": 4}])
    columns = make_plan(run, dataset=[{"prompt": "a", "answer": "3", "label": 4}], columns={"gt_answer": "answer"}).config.data.columns
    assert columns == {"messages": "prompt", "gt_answer": "answer"}


def test_all_problems_of_a_call_are_one_message_that_names_arguments(run: str) -> None:
    with pytest.raises(ConfigError) as refused:
        make_plan(run, dataset=[3], reward="boxd", loss=3, learning_rat=1, tempratur=2)
    parts = str(refused.value).split("; ")
    told = [
        "loss 'int' is of type int",
        "learning_rat is not a setting of rlcore (core), did you mean 'learning_rate'",
        "tempratur is not a setting of rlcore (core), did you mean 'temperature'",
        "there is no reward 'boxd'",
        "dataset[0] is of type int",
    ]
    assert [wanted for wanted in told if not any(wanted in part for part in parts)] == []


def test_the_algorithm_has_two_names(run: str) -> None:
    assert make_plan(run, algo="grpo").config.algorithm.name == make_plan(run, algorithm="grpo").config.algorithm.name == "grpo"


def test_held_out_rows_and_paths(run: str) -> None:
    plan = make_plan(run, dataset=ROWS, eval_dataset=ROWS[:2], eval_interval=1, reward=first_letter)
    assert list(plan.config.eval.eval_dataset) == ["heldout"]
    assert make_plan(run, eval_dataset="a/held.out.jsonl").config.eval.eval_dataset == {"held": "a/held.out.jsonl"}
    two = make_plan(run, eval_dataset={"one": Path("x.jsonl"), "two": ROWS[:1]}, reward=first_letter).config.eval.eval_dataset
    assert (two["one"], list(two)) == ("x.jsonl", ["one", "two"])


def test_functions_of_one_name_keep_apart_and_have_their_deadline(run: str) -> None:
    rewards = make_plan(run, reward=[lambda item: 1.0, lambda item: 0.0, first_letter], reward_deadline=3.0).config.rewards
    assert [(entry.name, entry.deadline) for entry in rewards] == [("lambda", 3.0), ("lambda_2", 3.0), ("first_letter", 3.0)]

    def step2(item: RewardInput) -> float:
        return 1.0

    assert make_plan(run, reward=step2).config.rewards[0].name == "step2"


def test_a_summary_names_the_objects_that_a_resume_needs(run: str) -> None:
    summary = rlcore.train(run, dataset=ROWS, reward=first_letter, train_batch_size=2, max_steps=1)
    assert summary.objects == ("reward",)
    assert f"rlcore.train(resume={str(summary.run)!r}, reward=…, max_steps=2)" in repr(summary)
    with pytest.raises(
        PluginError, match=r"there is no reward 'first_letter' .*; if it was an object of a Python program, pass it again, or"
    ):
        rlcore.train(resume=summary.run, max_steps=2)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"deadline": 1.0}, "deadline is not a setting of rlcore (core); it belongs to [weights] or [rewards]"),
        ({"lr": 1.0}, "lr is not a setting of rlcore (core), did you mean 'learning_rate'"),
    ],
)
def test_a_short_or_ambiguous_name_gets_its_setting(run: str, given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        make_plan(run, **given)
    assert said in str(refused.value)


def test_a_wrong_column_is_named(run: str) -> None:
    with pytest.raises(DataError, match=r"^dataset\[0\]: the row has no \"qestion\", .*, did you mean 'question'; "):
        rlcore.train(run, dataset=ROWS, reward=first_letter, columns={"messages": "qestion"})


def test_functions_of_commands_are_those_of_their_plugin(run: str) -> None:
    assert rlcore.evaluate.__doc__.startswith("Measure a model on held-out tasks")
    assert {"evaluate", "score", "load_run", "train"} <= set(dir(rlcore))
    with pytest.raises(AttributeError, match="module 'rlcore' has no attribute 'evaluat'"):
        _ = rlcore.evaluat


def test_importing_rlcore_imports_nothing_of_it() -> None:
    code = "import rlcore, sys; print([name for name in sys.modules if name.startswith('rlcore.')])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


class Heard(Progress):
    def __init__(self) -> None:
        self.steps: list[int] = []

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        self.steps.append(step)


def test_a_run_prints_lines_on_standard_error_and_no_outcome(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    rlcore.train(run, max_steps=2)
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert sum(line.startswith("step ") for line in lines) == 2
    assert any(line.startswith("run folder: ") for line in lines)
    assert lines[-1].startswith("step 2/2")
    assert any("derived from the others" in line for line in lines), "the notes of the plan"


def test_a_progress_hears_a_run_in_place_of_the_console(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    heard = Heard()
    rlcore.train(run, max_steps=2, progress=heard)
    assert heard.steps == [1, 2]
    rlcore.train(run, max_steps=2, progress=False)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("given", ["quiet", 0, Heard])
def test_a_progress_that_is_none_is_refused(run: str, given: Any) -> None:
    with pytest.raises(UsageError, match=r"progress is a \w+; pass a Progress of rlcore.api.display, or False"):
        rlcore.train(run, progress=given)
    assert not Path("runs").exists()


def test_a_script_stops_at_ctrl_c_and_has_its_summary(tmp_path: Path) -> None:
    tester = RunTester(tmp_path).with_fakes()
    config = tester.fake_run(run={"max_steps": 100_000, "num_episodes": 100_000})
    script = tester.write(
        "script.py", f"import rlcore\nsummary = rlcore.train({config!r})\nprint(summary.interrupted, summary.steps > 0)\n"
    )
    with subprocess.Popen(
        [sys.executable, script], cwd=tmp_path, env={**tester.plugins.environment, **QUIET}, stdout=-1, stderr=-1, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("step 2/"):
                process.send_signal(signal.SIGINT)
                break
        rest, said = process.communicate()
    assert (process.returncode, rest) == (0, "True True\n")
    assert "interrupted: this step is finished and saved" in said
