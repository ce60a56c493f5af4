"""What was typed becomes rewards, by the plugin's own model; what cannot be is refused in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
from rlcore_plugin_tools.score.choice import RewardChoice, choose_rewards

from rlcore.api import Outcome, RewardSpec, RlcoreError, UsageError
from rlcore.testing import Registry

SOURCE = """
from pydantic import BaseModel, ConfigDict, model_validator
from rlcore.api import Reward, Score

class Limits(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    cpu: float = 1.0
    label: str = ""

    @model_validator(mode="after")
    def rule(self):
        if self.cpu < 0:
            raise ValueError("cpu must not be negative")
        return self

class Options(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    scale: float = 1.0
    exact: bool = False
    limits: Limits = Limits()
    columns: tuple[str, ...] = ()

    @model_validator(mode="after")
    def rule(self):
        if self.scale < 0:
            raise ValueError("scale must not be negative")
        return self

class Needy(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    url: str

class Mine(Reward):
    Options = Options
    requires = ("gold",)

    def __init__(self, options):
        self.options = options

    def score(self, item):
        return Score(value=self.options.scale)

class Judge(Mine):
    Options = Needy
"""


@pytest.fixture
def name(tmp_path: Path) -> str:
    (tmp_path / "mine.py").write_text(SOURCE, encoding="utf-8")
    return f"{tmp_path / 'mine.py'}:Mine"


def chosen(name: str, *options: str) -> RewardChoice:
    return choose_rewards(name, Registry.discover([]), options=options)


def test_options_are_read_as_the_plugins_model_says(name: str) -> None:
    (entry,) = chosen(name, "scale=2", "exact=yes", "limits.cpu=0.5", "limits.label=7up").entries
    assert entry.options is not None
    assert entry.options.model_dump() == {"scale": 2.0, "exact": True, "limits": {"cpu": 0.5, "label": "7up"}, "columns": ()}
    assert entry.payload is not None


def test_workers_and_deadline(name: str) -> None:
    choice = choose_rewards(name, Registry.discover([]), deadline="2.5", workers="3")
    assert (choice.workers, choice.entries[0].deadline) == (3, 2.5)


def test_without_a_deadline_it_is_the_reward_s_own() -> None:
    registry = Registry.discover([])
    registry.add("reward", RewardSpec(name="slow", target="json:load", summary="", deadline=77.0))
    assert choose_rewards("SLOW", registry).entries[0].deadline == 77.0


def test_a_run_file_brings_weights_and_several_rewards(name: str, tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text(f'[[rewards]]\nname = "{name}"\nweight = 0.5\n[rewards.options]\nscale = 3.0\n', encoding="utf-8")
    (entry,) = choose_rewards(None, Registry.discover([]), config=file).entries
    assert entry.weight == 0.5
    assert entry.options is not None
    assert entry.options.model_dump()["scale"] == 3.0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["scale"], "write --option key=value"),
        (["=2"], "write --option key=value"),
        (["scal=2"], "did you mean 'scale'"),
        (["scale=two"], "must be a finite number"),
        (["limits=1", "limits.cpu=2"], "as a whole and by its parts"),
        (["limits.cpu=1", "limits.cpu.x=2"], "as a value and as a table"),
        (["limits.cpu.x=1", "limits.cpu=2"], "as a value and as a table"),
        (["limits.cp=1"], "cp"),
    ],
    ids=str,
)
def test_a_wrong_option_is_refused(name: str, options: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        chosen(name, *options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["scale=two"], '--option scale=two: scale = "two" (reward MINE of HERE) must be a finite number'),
        (["limits.cpu=x", "scale=2"], '--option limits.cpu=x: limits.cpu = "x" (reward MINE of HERE) must be a finite number'),
        (["limits=7"], "--option limits=7: limits = 7 (reward MINE of HERE) must be a table, written [limits]"),
        (["scale=-1"], "--option scale=-1: scale must not be negative"),
    ],
    ids=str,
)
def test_a_refused_option_is_shown_as_it_was_typed(name: str, options: list[str], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        chosen(name, *options)
    assert str(caught.value) == said.replace("MINE", name).replace("HERE", name.rpartition(":")[0])


def test_an_option_that_must_be_given_can_be_given_and_is_asked_for(name: str, tmp_path: Path) -> None:
    judge = name.replace(":Mine", ":Judge")
    (entry,) = chosen(judge, "url=http://127.0.0.1:1/").entries
    assert entry.options is not None
    assert entry.options.model_dump() == {"url": "http://127.0.0.1:1/"}
    with pytest.raises(UsageError) as caught:
        chosen(judge)
    assert str(caught.value) == f"--reward {judge}: option url is required; type --option url=VALUE"
    file = tmp_path / "run.toml"
    file.write_text(f'[[rewards]]\nname = "{judge}"\n', encoding="utf-8")
    with pytest.raises(UsageError, match=r"run.toml, line \d: reward .* option url is required; type --option url=VALUE"):
        choose_rewards(None, Registry.discover([]), config=file)
    file.write_text(f'[[rewards]]\nname = "{judge}"\noptions = {{ url = "http://there/" }}\n', encoding="utf-8")
    (entry,) = choose_rewards(None, Registry.discover([]), config=file).entries
    assert entry.options is not None
    assert entry.options.model_dump() == {"url": "http://there/"}


def test_an_option_of_a_reward_that_is_not_installed_says_what_to_install() -> None:
    with pytest.raises(RlcoreError, match="pip install"):
        choose_rewards("boxed", Registry.discover([]), options=["format_score=1"])


@pytest.mark.parametrize(
    ("name", "said"),
    [(None, "no reward is named"), ("boxd", "there is no reward 'boxd'"), ("boxed", "pip install"), ("./absent.py:f", "no file")],
)
def test_a_reward_that_is_not_there_is_refused(name: str | None, said: str) -> None:
    with pytest.raises(RlcoreError, match=said) as caught:
        choose_rewards(name, Registry.discover([]))
    assert caught.value.exit_code == 2


def test_a_run_file_without_rewards_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text("[run]\nseed = 1\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"has no \[\[rewards\]\]"):
        choose_rewards(None, Registry.discover([]), config=file)


def test_a_run_file_brings_policies_and_budgets(name: str, tmp_path: Path) -> None:
    """As a run has them: both read the same function."""
    file = tmp_path / "run.toml"
    file.write_text(f'[[rewards]]\nname = "{name}"\npolicy = {{ error = "stop" }}\nbudget = {{ infra = 0.25 }}\n', encoding="utf-8")
    (entry,) = choose_rewards(None, Registry.discover([]), config=file).entries
    assert (entry.action(Outcome.ERROR), entry.action(Outcome.WRONG), entry.action(Outcome.INFRA)) == ("stop", "train", "mask")
    assert entry.budget == {Outcome.INFRA: 0.25}


def test_a_rule_that_a_table_breaks_is_said(name: str) -> None:
    for typed in ('limits={"cpu": -1}', "limits.cpu=-1"):
        with pytest.raises(RlcoreError, match=r"limits.*cpu must not be negative"):
            chosen(name, typed)


@pytest.mark.parametrize(("typed", "meant"), [('["a", "b"]', ["a", "b"]), ("a", ["a"]), ("[]", []), ("[a", ["[a"])])
def test_a_list_may_be_typed_as_a_file_has_it(name: str, typed: str, meant: list[str]) -> None:
    assert chosen(name, f"columns={typed}").as_json()["rewards"][0]["options"]["columns"] == meant
