"""Files, modules and Python objects in place of packaged plugins."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest

from rlcore.api import AdvantageEstimator, Need, PluginError, Reward, RewardBatch, RewardInput, Score
from rlcore.registry.plugin_registry import Registry
from rlcore.testing.plugin_folder import PluginFolder

MY = '''
"""Mine."""
import numpy as np
from pydantic import BaseModel, ConfigDict
from rlcore.api import AdvantageEstimator, AlgorithmSpec, Loss, Need, Reward, Score

BONUS = 0.5

class Options(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    scale: float = 2.0

class Scaled(Reward):
    """Right answers earn the scale.

    And more text.
    """
    requires = ("gt_answer",)
    Options = Options

    def __init__(self, options):
        self.options = options

    def score(self, item):
        return Score(value=self.options.scale * (item.text == item.columns["gt_answer"]) + BONUS)

class MyLoss(Loss):
    def per_token(self, logprobs, batch):
        return -logprobs

class Unfinished(Reward):
    pass

class Wrong:
    pass

def length(item):
    """Long is good."""
    return len(item.text)

def judged(item) -> Score:
    return Score(value=1.0, accuracy=1.0)

judged.requires = ("gt_answer",)

def plain_loss(logprobs, batch):
    return -logprobs

plain_loss.needs = {Need.ENTROPY}

def centred(batch):
    return batch.rewards - batch.rewards.mean()

def two(a, b, c):
    return 0.0

def tuple_forgotten(item):
    return 0.0

tuple_forgotten.requires = ("gt_answer")

RECIPE = AlgorithmSpec(name="mine", summary="Mine", estimator="group_mean", loss="clipped")
NUMBER = 3
'''


@pytest.fixture
def my(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.py").write_text(MY)
    return tmp_path / "my.py"


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    with PluginFolder(tmp_path / "site") as folder:
        yield folder.discover()


def _item(text: str, **columns: Any) -> RewardInput:
    return RewardInput(messages=(), columns=columns, text=text)


def test_a_class_in_a_file(my: Path, registry: Registry) -> None:
    name = "./my.py:Scaled"
    spec = registry.spec("reward", name)
    assert (spec.name, spec.summary, spec.requires) == ("scaled", "Right answers earn the scale.", ("gt_answer",))  # type: ignore[attr-defined]
    assert registry.owner("reward", name) == str(my)
    model = registry.options_model("reward", name)
    assert model is not None
    reward = registry.load("reward", name)(model())
    assert reward.score(_item("7", gt_answer="7")).value == 2.5
    assert registry.has("reward", f"{my}:Scaled")
    assert not registry.has("reward", "./my.py:Nothing")
    assert registry.names("reward") == []


def test_functions_are_wrapped(my: Path, registry: Registry) -> None:
    assert registry.load("reward", "./my.py:length")().score(_item("abc")) == Score(value=3.0)
    assert registry.load("loss", "./my.py:plain_loss")().needs == {Need.ENTROPY}
    batch = RewardBatch(
        rewards=np.array([1.0, 3.0]),
        group=np.zeros(2, np.int64),
        in_statistics=np.ones(2, bool),
        in_loss=np.ones(2, bool),
        lengths=np.ones(2, np.int64),
        offsets=np.arange(3),
    )
    np.testing.assert_array_equal(registry.load("estimator", "./my.py:centred")().estimate(batch), [-1.0, 1.0])


def test_a_function_declares_by_attributes_and_annotation(my: Path, registry: Registry) -> None:
    judged, length = registry.spec("reward", "./my.py:judged"), registry.spec("reward", "./my.py:length")
    assert (judged.requires, judged.gives_accuracy) == (("gt_answer",), True)  # type: ignore[attr-defined]
    assert (length.requires, length.gives_accuracy) == ((), False)  # type: ignore[attr-defined]


def test_a_reward_function_that_returns_neither_score_nor_number_is_refused(my: Path, registry: Registry) -> None:
    registry.add("reward", lambda item: "good", name="words")
    with pytest.raises(TypeError, match="returned str, it must return a Score or a number"):
        registry.load("reward", "words")().score(_item("abc"))


def test_an_annotation_counts_in_either_form_and_the_attribute_wins(tmp_path: Path, registry: Registry) -> None:
    from rlcore.registry.unpackaged import gives_accuracy

    def text(item: RewardInput) -> Score:
        return Score(value=0.0)

    def real(item: RewardInput) -> float:
        return 0.0

    assert text.__annotations__["return"] == "Score"
    assert gives_accuracy(text)
    assert not gives_accuracy(real)
    real.__annotations__["return"] = Score
    assert gives_accuracy(real)
    real.gives_accuracy = False  # type: ignore[attr-defined]
    assert not gives_accuracy(real)


def test_a_file_is_compiled_without_the_futures_of_the_host(my: Path, registry: Registry) -> None:
    my.write_text("KIND = 3\ndef annotated(item) -> KIND:\n    return 1.0\n")
    loaded = registry.load("reward", "./my.py:annotated")
    assert loaded.function.__annotations__ == {"return": 3}


def test_a_recipe_in_a_file(my: Path, registry: Registry) -> None:
    assert registry.spec("algo", "./my.py:RECIPE").estimator == "group_mean"  # type: ignore[attr-defined]


def test_a_module_on_the_import_path(my: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = my.parent / "pkg"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "mod.py").write_text(MY)
    monkeypatch.syspath_prepend(my.parent)
    assert registry.load("loss", "pkg.mod:MyLoss").__module__ == "pkg.mod"
    assert registry.owner("loss", "pkg.mod:MyLoss") == str(folder / "mod.py")
    del sys.modules["pkg.mod"], sys.modules["pkg"]


@pytest.mark.parametrize(
    ("kind", "name", "words"),
    [
        ("loss", "./none.py:MyLoss", "there is no file"),
        ("loss", "./my.py:MyLos", "./my.py has no 'MyLos', did you mean 'MyLoss'"),
        ("loss", "./my.py:", "must read ./file.py:NAME or package.module:NAME"),
        ("loss", ":MyLoss", "must read ./file.py:NAME"),
        ("loss", "./my.py", "./my.py:NAME"),
        ("loss", "./syntax.py:MyLoss", "cannot be read as Python: SyntaxError: invalid syntax (syntax.py, line 2)"),
        ("loss", "./raises.py:MyLoss", "running ./raises.py raised ZeroDivisionError: division by zero (raises.py, line 1)"),
        ("loss", "./exits.py:MyLoss", "running ./exits.py raised SystemExit: 3 (exits.py, line 2)"),
        ("loss", "./my.py:Wrong", "is the class Wrong, it must be a class derived from rlcore.api.Loss, or a function fn(logprobs, batch)"),
        ("loss", "./my.py:NUMBER", "is of type int"),
        ("loss", "./my.py:length", "cannot be called as fn(logprobs, batch)"),
        ("reward", "./my.py:Unfinished", "does not define score(), which every Reward must"),
        ("reward", "./my.py:MyLoss", "is the class MyLoss"),
        ("reward", "./my.py:tuple_forgotten", "requires = 'gt_answer' must be a tuple of strings"),
        ("inference", "./my.py:length", "must be a class derived from rlcore.api.InferenceBackend"),
        (
            "runtime",
            "./crew.py:Far",
            "runtime './crew.py:Far': RuntimeSpec 'far': settings holds 'run.seed', it may hold run.master_address",
        ),
        ("algo", "./my.py:MyLoss", "a recipe must be an AlgorithmSpec"),
        ("loss", "no_such_package.mod:MyLoss", "there is no module 'no_such_package' on the import path"),
        ("loss", "./my.py:MyLoss.Inner", "./my.py has no 'MyLoss.Inner'"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_sentence(my: Path, registry: Registry, kind: str, name: str, words: str) -> None:
    (my.parent / "syntax.py").write_text("x = 1\nclass class\n")
    (my.parent / "raises.py").write_text("1 / 0\n")
    crew = (
        "from rlcore.api.runtime import Runtime\nclass Far(Runtime):\n    settings = ('run.seed',)\nFar.__abstractmethods__ = frozenset()\n"
    )
    (my.parent / "crew.py").write_text(crew)
    (my.parent / "exits.py").write_text("import sys\nsys.exit(3)\n")
    before = set(sys.modules)
    with pytest.raises(PluginError) as caught:
        registry.load(kind, name)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not {module for module in set(sys.modules) - before if "raises" in module or "exits" in module}


def test_options_of_an_unpackaged_class_must_be_strict_too(my: Path, registry: Registry) -> None:
    my.write_text(MY.replace('model_config = ConfigDict(extra="forbid", frozen=True)', "pass"))
    with pytest.raises(PluginError, match="must set model_config"):
        registry.options_model("reward", "./my.py:Scaled")


def test_an_edited_file_is_another_object_with_another_attestation(my: Path, registry: Registry) -> None:
    first = registry.attest("reward", "./my.py:Scaled")
    my.write_text(MY.replace("BONUS = 0.5", "BONUS = 0.7"))  # same size, same second: only the content differs
    fresh = Registry([])
    second = fresh.attest("reward", "./my.py:Scaled")
    assert first.source_sha256 != second.source_sha256
    assert first.distribution == second.distribution == str(my)
    model = fresh.options_model("reward", "./my.py:Scaled")
    assert model is not None
    assert fresh.load("reward", "./my.py:Scaled")(model()).score(_item("7", gt_answer="7")).value == 2.7
    with pytest.raises(PluginError, match="source_sha256"):
        fresh.check_attestations([first])


def test_two_files_of_one_name_do_not_meet(my: Path, registry: Registry) -> None:
    (my.parent / "other").mkdir()
    (my.parent / "other" / "my.py").write_text(MY.replace("BONUS = 0.5", "BONUS = 0.7"))
    one, two = registry.load("reward", "./my.py:Scaled"), registry.load("reward", "./other/my.py:Scaled")
    assert one.__module__ != two.__module__
    (my.parent / "other" / "my.py").write_text(MY)
    same = Registry([]).load("reward", "./other/my.py:Scaled")
    assert same.__module__ not in (one.__module__, two.__module__), "a file may read what lies beside it"


RECEIVER = """
import pickle, sys
from rlcore.api import RewardInput
target, options = pickle.load(sys.stdin.buffer)
reward = pickle.loads(target)(*pickle.loads(options))
print(reward.score(RewardInput(messages=(), columns={"gt_answer": "7"}, text="7")).value)
"""


def _score_elsewhere(payload: bytes | None, folder: Path, *options: object) -> float:
    """In a process that has neither the file nor the module."""
    assert payload is not None
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    sent = pickle.dumps((payload, cloudpickle.dumps(options)))
    command = [sys.executable, "-c", RECEIVER]
    return float(subprocess.run(command, input=sent, cwd=folder, env=environment, capture_output=True, check=True).stdout)


def test_a_file_is_shipped_by_value_with_its_options(my: Path, registry: Registry) -> None:
    model = registry.options_model("reward", "./my.py:Scaled")
    assert model is not None
    payload = registry.payload("reward", "./my.py:Scaled")
    options = model(scale=4.0)
    my.unlink()
    elsewhere = my.parent / "elsewhere"
    elsewhere.mkdir()
    assert _score_elsewhere(payload, elsewhere, options) == 4.5


def test_a_local_function_an_instance_and_a_function_of_a_file_are_shipped(my: Path, registry: Registry) -> None:
    bonus = 7.0

    class Generous(Reward):
        def __init__(self, value: float) -> None:
            self.value = value

        def score(self, item: RewardInput) -> Score:
            return Score(value=self.value)

    registry.add("reward", lambda item: bonus, name="flat")
    registry.add("reward", Generous(8.0), name="generous")
    for name, value in (("flat", 7.0), ("generous", 8.0), ("./my.py:length", 1.0)):
        target = registry.load("reward", name)
        assert issubclass(target, Reward)
        assert target().score(_item("x")).value == value
        assert _score_elsewhere(registry.payload("reward", name), my.parent) == value


def test_what_is_packaged_is_not_shipped(registry: Registry) -> None:
    assert registry.payload("loss", "clipped") is None


def test_what_cannot_be_pickled_is_refused_in_one_sentence(registry: Registry) -> None:
    lock = threading.Lock()
    registry.add("reward", lambda item: float(lock.locked()), name="locked")
    with pytest.raises(PluginError, match=r"reward 'locked' of .* cannot be sent to worker processes: TypeError"):
        registry.payload("reward", "locked")


def test_an_estimator_function_says_by_an_attribute_what_its_advantages_belong_to(registry: Registry) -> None:
    def spread(batch: RewardBatch) -> np.ndarray:
        return np.repeat(batch.rewards, batch.lengths)

    assert registry.spec("estimator", registry.add("estimator", spread, name="plain")).per == "rollout"  # type: ignore[attr-defined]
    spread.per = "token"  # type: ignore[attr-defined]
    registry.add("estimator", spread, name="each")
    assert (registry.spec("estimator", "each").per, registry.load("estimator", "each").per) == ("token", "token")  # type: ignore[attr-defined]
    spread.per = "tokens"  # type: ignore[attr-defined]
    with pytest.raises(PluginError, match=r"per is 'tokens', it must be one of rollout, token"):
        registry.add("estimator", spread, name="odd")


class _Centred(AdvantageEstimator):
    needs_greedy = True

    def estimate(self, batch: RewardBatch) -> np.ndarray:
        return batch.rewards


def test_add_takes_a_reference_a_class_and_names(my: Path, registry: Registry) -> None:
    assert registry.add("loss", "./my.py:MyLoss") == "./my.py:MyLoss"
    assert registry.add("estimator", _Centred) == "centred"
    assert registry.add("estimator", _Centred, name="Mine") == "mine"
    assert registry.spec("estimator", "mine").needs_greedy is True  # type: ignore[attr-defined]
    assert registry.attest("estimator", "mine").source_sha256 != ""
    assert registry.names("estimator") == ["centred", "group_mean", "group_norm", "mine"]
    with pytest.raises(PluginError):
        registry.add("estimator", _Centred, name="no good")
