"""``mismatch_correction = "auto"``: ``truncated`` if the engine computes otherwise than the trainer, and never a reason to refuse a run."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import distribution, distributions
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlcore.config import Plan, plan_run
from rlcore.config import resolve as module
from rlcore.contracts.errors import UsageError
from rlcore.registry.plugin_registry import Registry
from rlcore.testing import PluginFolder

SOURCE = """
from rlcore.api import (
    AlgorithmSpec, InferenceBackendSpec, InferenceCapabilities, InFlight, LossSpec, RewardSpec, TrainingBackendSpec, TrainingCapabilities,
    hookimpl,
)
rlcore_api = "2.0"
dtypes = frozenset({"float32", "bfloat16"})
target = "rlcore.learning.losses:ClippedSurrogate"

@hookimpl
def rlcore_register_rewards():
    return [RewardSpec(name="right", target="rlcore.testing.rewards.fake_reward:FakeReward", summary="")]

@hookimpl
def rlcore_register_inference_backends():
    def spec(name, **given):
        capabilities = InferenceCapabilities(in_flight=InFlight.RESUME, dtypes=dtypes, sampling=frozenset({"min_p"}), **given)
        return InferenceBackendSpec(name=name, target="json:load", summary="", capabilities=capabilities)
    silent = InferenceBackendSpec(name="silent", target="json:load", summary="")
    return [silent, spec("same", implementation="acme"), spec("other", implementation="fast"), spec("mute")]

@hookimpl
def rlcore_register_training_backends():
    def spec(name, **given):
        capabilities = TrainingCapabilities(dtypes=dtypes, **given)
        return TrainingBackendSpec(name=name, target="json:load", summary="", capabilities=capabilities, preference=-1)
    return [spec("same", implementation="acme"), spec("mute")]

@hookimpl
def rlcore_register_losses():
    return [
        LossSpec(name="no_ratio", target=target, summary="", on_policy=True),
        LossSpec(name="whole", target=target, summary="", sequence_ratio=True),
    ]

@hookimpl
def rlcore_register_algorithms():
    masked = {"algorithm.mismatch_correction": ("masked", "section 3")}
    return [
        AlgorithmSpec(name="plain", estimator="group_norm", loss="clipped", summary=""),
        AlgorithmSpec(name="masking", estimator="group_norm", loss="clipped", summary="", defaults=masked),
    ]
"""
SECOND = """
from rlcore.api import CorrectionSpec, hookimpl
rlcore_api = "2.0"

@hookimpl
def rlcore_register_corrections():
    return [CorrectionSpec(name="truncated", target="rlcore.learning.correction:Truncated", summary="", usual_range=(0.0, 2.0))]
"""
SAME = "inference and training both compute as acme in float32, so their log probabilities are the same"
OTHER = "inference backend other and training backend same compute differently, or do not declare how"


OURS = ("rlcore-plugin-processes", "rlcore-plugin-processes")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PluginFolder]:
    with PluginFolder(tmp_path_factory.mktemp("plugins")) as folder:
        folder.install("acme", SOURCE)
        yield folder


@pytest.fixture(scope="module")
def registry(folder: PluginFolder) -> Registry:
    return Registry.discover([*distributions(path=[str(folder.root)]), *map(distribution, OURS)])


@pytest.fixture(autouse=True)
def _two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "cores", lambda: 2)


def plan(registry: Registry, **values: Any) -> Plan:
    base = {"model": "org/model", "dataset": "hf:x", "algorithm.name": "plain", "rewards": [{"name": "right"}]}
    backends = {"inference.name": "same", "training.name": "same"}
    return plan_run([], {}, registry, overrides={**base, **backends, **values})


def chosen(found: Plan) -> tuple[Any, str]:
    return found.config.algorithm.mismatch_correction, found.origins["algorithm.mismatch_correction"].detail.removeprefix("auto: ")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, ("none", SAME)),
        ({"mismatch_correction": "auto"}, ("none", SAME)),
        ({"max_staleness": 3}, ("none", SAME)),
        ({"inference.name": "other"}, ("truncated", OTHER)),
        ({"inference.name": "OTHER"}, ("truncated", OTHER.replace("other", "OTHER"))),
        ({"inference.name": "other", "max_staleness": 0}, ("truncated", OTHER)),
        ({"inference.name": "silent"}, ("truncated", OTHER.replace("other", "silent"))),
        (
            {"inference.name": "mute", "training.name": "mute"},
            ("truncated", "inference backend mute and training backend mute compute differently, or do not declare how"),
        ),
        (
            {"inference.dtype": "bfloat16"},
            ("truncated", "inference in bfloat16: its rounding makes the log probabilities of sampler and trainer differ"),
        ),
        (
            {"inference.dtype": "bfloat16", "training.dtype": "bfloat16"},
            (
                "truncated",
                "inference in bfloat16 and training in bfloat16: its rounding makes the log probabilities of sampler and trainer differ",
            ),
        ),
        ({"inference.name": "other", "loss": "no_ratio"}, ("truncated", OTHER)),
        (
            {"inference.name": "other", "loss": "whole"},
            (
                "none",
                f"{OTHER}, but loss whole has one ratio for a whole response, and the product over a long response soon leaves any range; "
                "--mismatch-correction sequence_truncated suits short responses",
            ),
        ),
        (
            {"inference.name": "other", "min_p": 0.1},
            ("none", f"{OTHER}, but min_p truncates the sampler, whose log probabilities are not the policy's"),
        ),
        (
            {"inference.name": "other", "old_logprobs": "rollout"},
            ("none", f"{OTHER}, but with old_logprobs rollout, the loss already has the ratio to the sampler"),
        ),
        ({"inference.name": "vllm"}, ("none", "inference backend vllm is not known here")),
    ],
)
def test_an_engine_that_differs_is_weighed_by_token_if_something_can_weigh_it(
    values: dict[str, Any], expected: tuple[str, str], registry: Registry
) -> None:
    found = plan(registry, **values)
    assert chosen(found) == expected
    assert f"algorithm.mismatch_correction = {expected[0]} ({expected[1]})" in found.derived


def test_what_follows_from_it_is_resolved_with_it(registry: Registry) -> None:
    found = plan(registry, **{"inference.name": "other"})
    assert found.config.algorithm.old_logprobs == "trainer"
    assert found.config.algorithm.mismatch_range == (0.0, 2.0)
    assert found.config.schedule.max_staleness == 1
    assert found.origins["schedule.max_staleness"].detail == "auto: 2 cores; stale data is weighed by mismatch_correction truncated"
    exact = plan(registry)
    assert (exact.config.algorithm.old_logprobs, exact.config.algorithm.mismatch_range) == ("rollout", None)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"inference.name": "other", "max_staleness": 0}, "trainer"),
        ({"inference.dtype": "bfloat16", "max_staleness": 0}, "trainer"),
        ({"inference.name": "other", "max_staleness": 1}, "rollout"),
        ({"inference.name": "other", "max_staleness": 0, "old_logprobs": "rollout"}, "rollout"),
        ({"max_staleness": 0}, "rollout"),
    ],
)
def test_a_ratio_to_fresh_data_holds_no_rounding_of_the_engine(values: dict[str, Any], expected: str, registry: Registry) -> None:
    found = plan(registry, loss="whole", updates_per_batch=4, **values)
    assert found.config.algorithm.mismatch_correction == "none"
    assert found.config.algorithm.old_logprobs == expected


def test_what_a_recipe_or_a_user_sets_is_kept(registry: Registry) -> None:
    other = {"inference.name": "other"}
    assert chosen(plan(registry, **other, **{"algorithm.name": "masking"})) == ("masked", "recipe masking")
    for kind in ("none", "decoupled", "sequence_masked"):
        assert plan(registry, **other, mismatch_correction=kind).config.algorithm.mismatch_correction == kind


def test_a_name_that_two_plugins_claim_is_not_chosen(tmp_path: Path) -> None:
    with PluginFolder(tmp_path) as folder:
        folder.install("acme", SOURCE)
        folder.install("twice", SECOND)
        both = Registry.discover([*distributions(path=[str(folder.root)]), *map(distribution, OURS)])
        assert chosen(plan(both, **{"inference.name": "other"})) == ("none", f"{OTHER}, but truncated is not available here")


def test_what_is_written_out_plans_the_same_run(registry: Registry, tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text(plan(registry, **{"inference.name": "other"}).to_toml(), encoding="utf-8")
    again = plan_run([file], {}, registry)
    assert again.config.algorithm.mismatch_correction == "truncated"
    assert not any(note.startswith("algorithm.mismatch_correction") for note in again.derived)


LEVERS: dict[str, tuple[Any, ...]] = {
    "inference.name": ("same", "other", "silent", "vllm"),
    "training.name": ("same", "mute"),
    "inference.dtype": ("float32", "bfloat16"),
    "loss": ("auto", "clipped", "no_ratio", "whole"),
    "old_logprobs": ("auto", "trainer", "rollout"),
    "mismatch_range": ("auto", None, [0.5, 2.0], [2.0, 0.5]),
    "updates_per_batch": (1, 4),
    "epochs_per_batch": (1, 2),
    "max_staleness": ("auto", 0, 2),
    "top_p": (1.0, 0.9),
    "min_p": (0.0, 0.1),
}


@given(st.fixed_dictionaries({key: st.sampled_from(values) for key, values in LEVERS.items()}))
@settings(max_examples=150, deadline=None)
def test_it_is_never_refused_if_none_is_accepted(registry: Registry, values: dict[str, Any]) -> None:
    try:
        without = plan(registry, **values, mismatch_correction="none")
    except UsageError:
        return
    by_auto = plan(registry, **values)
    assert by_auto.missing == without.missing
    assert by_auto.config.algorithm.mismatch_correction in ("none", "truncated")
