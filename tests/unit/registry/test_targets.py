"""``"package.module:attribute"``: imported with one sentence for an error, and looked for without an import."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from rlcore.contracts.errors import PluginError
from rlcore.contracts.interfaces import Loss
from rlcore.contracts.specs import SPEC_OF_KIND, LossSpec, PluginKind, RewardSpec
from rlcore.registry.targets import BASES, disagreement, load_target, missing_target
from rlcore.rewards.reward_entry import RewardRecipe

LABEL = "reward 'mine': its target 'm:a'"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Writes the source of ``targets_probe``."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(source: str) -> None:
        (tmp_path / "targets_probe.py").write_text(source, encoding="utf-8")

    yield write
    sys.modules.pop("targets_probe", None)


def test_a_target_may_be_dotted(module: Callable[[str], None]) -> None:
    module("class Outer:\n    class Inner: ...")
    assert load_target("targets_probe:Outer.Inner", LABEL).__qualname__ == "Outer.Inner"


@pytest.mark.parametrize(
    ("source", "address", "said"),
    [
        ("", "targets_probe.nowhere:a", "cannot be imported: ModuleNotFoundError: No module named"),
        ("1 / 0", "targets_probe:a", r"cannot be imported: ZeroDivisionError: division by zero \(targets_probe.py, line 1\)"),
        ("raise SystemExit(3)", "targets_probe:a", "cannot be imported: SystemExit: 3"),
        ("judge = 1", "targets_probe:jugde", "does not exist, did you mean 'judge'"),
        ("class Outer: ...", "targets_probe:Outer.Inner", "does not exist"),
    ],
)
def test_what_cannot_be_loaded_is_one_sentence(module: Callable[[str], None], source: str, address: str, said: str) -> None:
    module(source)
    with pytest.raises(PluginError, match=rf"^{LABEL} {said}") as told:
        load_target(address, LABEL)
    assert "\n" not in str(told.value)


def test_the_module_of_a_target_is_looked_for_without_an_import(module: Callable[[str], None]) -> None:
    module("1 / 0")
    assert missing_target("targets_probe:judge", LABEL) == "", "only an import could tell what is in it"
    assert missing_target("targets_prob:judge", LABEL) == f"{LABEL} does not exist: there is no module 'targets_prob'"
    assert missing_target("targets_probe.inner:judge", LABEL) == f"{LABEL} does not exist: there is no module 'targets_probe.inner'"
    assert "targets_probe" not in sys.modules


def test_in_a_module_that_is_imported_the_target_itself_is_looked_for() -> None:
    assert missing_target("json:loads", LABEL) == ""
    assert missing_target("json:JSONDecoder.decode", LABEL) == ""
    assert missing_target("json:lods", LABEL) == f"{LABEL} does not exist, did you mean 'loads'"


@pytest.mark.parametrize("name", ["on_policy", "sequence_ratio", "one_advantage"])
def test_what_a_class_of_a_loss_says_must_be_what_its_spec_says(name: str) -> None:
    spec = LossSpec(name="mine", target="a.b:C", summary="", on_policy=False)
    assert disagreement(PluginKind.LOSS, spec, type("Mine", (Loss,), {})) == ""
    said = disagreement(PluginKind.LOSS, spec, type("Mine", (Loss,), {name: True}))
    assert said == f"{name} is True on its class and False in its spec; they must agree"


class Base(Loss):
    def per_token(self, logprobs: Any, batch: Any) -> Any:
        return logprobs


STALE = LossSpec(name="stale", target="a.b:C", summary="", on_policy=False, sequence_ratio=True)
FRESH = LossSpec(name="fresh", target="a.b:C", summary="", on_policy=True, sequence_ratio=True)


def test_a_class_takes_the_facts_of_its_spec() -> None:
    class Mine(Base, spec=STALE):
        reads_tokens = False

    class Derived(Mine, spec=FRESH):
        pass

    class Silent(Mine):
        pass

    assert (Mine.on_policy, Mine.sequence_ratio, Mine.one_advantage) == (False, True, False)
    assert (Derived.on_policy, Derived.sequence_ratio) == (True, True)
    assert (Silent.on_policy, Silent.sequence_ratio) == (False, True)
    assert (Base.on_policy, Base.sequence_ratio) == (None, False)
    assert disagreement(PluginKind.LOSS, STALE, Mine) == disagreement(PluginKind.LOSS, FRESH, Derived) == ""
    assert disagreement(PluginKind.LOSS, FRESH, Mine) == "on_policy is False on its class and True in its spec; they must agree"


def test_a_class_that_takes_a_fact_does_not_state_it() -> None:
    with pytest.raises(TypeError, match="Mine states on_policy, which it takes from its spec 'stale'; leave it out of the class"):

        class Mine(Base, spec=STALE):
            on_policy = False


def test_a_class_takes_no_facts_from_a_spec_of_another_kind() -> None:
    reward = RewardSpec(name="boxed", target="a.b:C", summary="")
    with pytest.raises(TypeError, match="Mine takes facts from the RewardSpec 'boxed'; spec must be a LossSpec"):

        class Mine(Base, spec=reward):
            pass


def test_a_class_does_not_lose_a_fact_that_it_inherits() -> None:
    class Base(Loss, spec=LossSpec(name="base", target="a:B", summary="s", sequence_ratio=True)):
        pass

    with pytest.raises(
        TypeError, match=r"^Mine inherits sequence_ratio = True, and its spec 'mine' leaves it at False; write sequence_ratio"
    ):

        class Mine(Base, spec=LossSpec(name="mine", target="a:B", summary="s", on_policy=False)):
            pass


@pytest.mark.parametrize("given", [LossSpec, "mine"])
def test_a_spec_that_is_not_one_is_refused(given: object) -> None:
    with pytest.raises(TypeError, match=r"^Mine takes facts from .*; spec must be a LossSpec$"):

        class Mine(Loss, spec=given):  # type: ignore[arg-type]
            pass


@pytest.mark.parametrize("kind", [kind for kind, spec in SPEC_OF_KIND.items() if spec.on_class])
def test_the_defaults_of_base_class_and_spec_agree(kind: PluginKind) -> None:
    defaults = {field.name: field.default for field in fields(SPEC_OF_KIND[kind])}
    assert set(SPEC_OF_KIND[kind].on_class) <= set(defaults)
    for name in SPEC_OF_KIND[kind].on_class:
        assert getattr(BASES[kind], name, defaults[name]) == defaults[name], name


def test_a_worker_names_what_is_not_there() -> None:
    recipe = RewardRecipe(name="mine", target="json:lods", payload=None, config="", options=None, pickled_options=None)
    with pytest.raises(PluginError, match=r"^its target 'json:lods' does not exist, did you mean 'loads'"):
        recipe.build()
