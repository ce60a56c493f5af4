"""``max_staleness = "auto"``: when it is 1, when 0, why, and that it never refuses a run; and how far two runs agree."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from importlib.metadata import distribution, distributions
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlcore.config import Plan, plan_run
from rlcore.config import resolve as module
from rlcore.config.resolve import staleness_choice
from rlcore.config.run_config import RunConfig
from rlcore.contracts.errors import UsageError
from rlcore.host import devices
from rlcore.registry.plugin_registry import Registry
from rlcore.testing import PluginFolder

SOURCE = """
from rlcore.api import (
    AlgorithmSpec, ConversationSpec, InferenceBackendSpec, InferenceCapabilities, InFlight, LossSpec, RewardSpec, RuntimeSpec,
    TrainingBackendSpec, TrainingCapabilities, WeightTransferSpec, hookimpl,
)
rlcore_api = "2.0"

@hookimpl
def rlcore_register_rewards():
    return [RewardSpec(name="right", target="rlcore.testing.rewards.fake_reward:FakeReward", summary="")]

@hookimpl
def rlcore_register_conversations():
    return [ConversationSpec(name="talks", target="json:load", summary="")]

@hookimpl
def rlcore_register_inference_backends():
    def spec(name, **given):
        capabilities = InferenceCapabilities(in_flight=InFlight.RESUME, **given)
        return InferenceBackendSpec(name=name, target="json:load", summary="", capabilities=capabilities)
    both = frozenset({"cpu", "cuda"})
    return [
        InferenceBackendSpec(name="silent", target="json:load", summary=""),
        spec("seeded", counter_noise=True),
        spec("noisy", reproducible="bitwise"),
        spec("cores", reproducible="bitwise", implementation="acme", counter_noise=True, sleeps=True),
        spec("cards", reproducible="bitwise", implementation="acme", counter_noise=True, sleeps=True, devices=both),
        spec("own_way", transfers=frozenset({"card_to_card"})),
        spec("unknown_way", transfers=frozenset({"no_such"})),
    ]

@hookimpl
def rlcore_register_training_backends():
    def spec(name, **given):
        capabilities = TrainingCapabilities(layouts=frozenset({"single", "data"}), **given)
        return TrainingBackendSpec(name=name, target="json:load", summary="", capabilities=capabilities, preference=-1)
    both = frozenset({"cpu", "cuda"})
    delta, either = frozenset({"delta"}), frozenset({"full", "adapter"})
    exact = {"reproducible": "bitwise", "implementation": "acme"}
    return [
        spec("seeded"), spec("cores", **exact), spec("cards", **exact, devices=both),
        spec("deltas", kinds=delta, implementation="acme"), spec("adapters", kinds=either, implementation="acme"),
    ]

@hookimpl
def rlcore_register_runtimes():
    far = RuntimeSpec(name="far", target="json:load", summary="", reach="cluster", preference=-1)
    return [RuntimeSpec(name="alone", target="json:load", summary="", preference=-1), far]

@hookimpl
def rlcore_register_weight_transfers():
    return [
        WeightTransferSpec(name="wire", target="json:load", summary="", reach="cluster", runtimes=("far",)),
        WeightTransferSpec(name="card_to_card", target="json:load", summary="", reach="host", way="card_to_card"),
        WeightTransferSpec(name="elsewhere", target="json:load", summary="", reach="host", preference=99, unusable="it needs Plan 9"),
    ]

@hookimpl
def rlcore_register_losses():
    target = "rlcore.learning.losses:ClippedSurrogate"
    return [
        LossSpec(name="no_ratio", target=target, summary="", on_policy=True),
        LossSpec(name="whole", target=target, summary="", on_policy=False, sequence_ratio=True),
        LossSpec(name="silent", target=target, summary=""),
    ]

@hookimpl
def rlcore_register_algorithms():
    pinned = {"schedule.max_staleness": (0, "section 2")}
    return [
        AlgorithmSpec(name="plain", estimator="group_norm", loss="clipped", summary=""),
        AlgorithmSpec(name="bare", estimator="group_norm", loss="no_ratio", summary=""),
        AlgorithmSpec(name="pinned", estimator="group_norm", loss="clipped", summary="", defaults=pinned),
    ]

@hookimpl
def rlcore_check_run(config):
    return ["stale data brings bad luck"] if config.run.seed == 13 and config.schedule.max_staleness else []
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PluginFolder]:
    with PluginFolder(tmp_path_factory.mktemp("plugins")) as folder:
        folder.install("acme", SOURCE)
        yield folder


def seen(folder: PluginFolder, *installed: str) -> Registry:
    return Registry.discover([*distributions(path=[str(folder.root)]), *map(distribution, installed)])


@pytest.fixture(scope="module")
def registry(folder: PluginFolder) -> Registry:
    return seen(folder, "rlcore-plugin-processes", "rlcore-plugin-ray")


@pytest.fixture(autouse=True)
def _two_cores_and_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, cores=2, gpus=0)


def machine(monkeypatch: pytest.MonkeyPatch, *, cores: int, gpus: int | None) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr(module, "cores", lambda: cores)
    for place in (module, devices):
        monkeypatch.setattr(place, "cuda_devices", lambda: gpus)


def plan(registry: Registry, **values: Any) -> Plan:
    base = {"model": "org/model", "dataset": "hf:x", "algorithm.name": "plain", "rewards": [{"name": "right"}]}
    backends = {"inference.name": "cores", "training.name": "cores"}
    return plan_run([], {}, registry, overrides={**base, **backends, **{key.replace("__", "."): value for key, value in values.items()}})


def chosen(plan: Plan) -> tuple[Any, str]:
    origin = plan.origins["schedule.max_staleness"]
    return plan.config.schedule.max_staleness, origin.detail.removeprefix("auto: ")


RATIO = "; stale data is weighed by the ratio of loss clipped"
CARDS = {"inference.name": "cards", "training.name": "cards"}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, (1, f"2 cores{RATIO}")),
        ({"max_staleness": "auto"}, (1, f"2 cores{RATIO}")),
        ({"loss": "no_ratio"}, (0, "loss no_ratio has no ratio")),
        ({"algorithm.name": "bare"}, (0, "loss no_ratio has no ratio")),
        ({"loss": "silent"}, (0, "loss silent does not declare whether it has a ratio (on_policy)")),
        (
            {"loss": "silent", "mismatch_correction": "truncated"},
            (1, "2 cores; stale data is weighed by mismatch_correction truncated"),
        ),
        (
            {"training.name": "deltas"},
            (0, "training backend deltas publishes weights of kind delta, and an engine must not miss a version of these"),
        ),
        (
            {"training.name": "adapters"},
            (1, f"2 cores{RATIO}"),
        ),
        (
            {"loss": "no_ratio", "mismatch_correction": "truncated"},
            (1, "2 cores; stale data is weighed by mismatch_correction truncated"),
        ),
        ({"placement": "colocated"}, (0, "placement colocated")),
        ({"top_p": 0.9}, (0, "top_p truncates the sampler, so no ratio weighs stale data")),
        ({"old_logprobs": "trainer"}, (0, "old_logprobs trainer: no ratio weighs stale data")),
        ({"old_logprobs": "trainer", "updates_per_batch": 2}, (0, "old_logprobs trainer: no ratio weighs stale data")),
        (
            {"old_logprobs": "trainer", "mismatch_correction": "decoupled"},
            (1, "2 cores; stale data is weighed by mismatch_correction decoupled"),
        ),
        ({"runtime": "alone"}, (0, "runtime alone is one process")),
        ({"runtime": "far"}, (1, f"producers may be on other hosts{RATIO}")),
        ({"runtime": "ray"}, (1, f"2 cores{RATIO}")),
        ({"runtime": "ray", "master_address": "10.0.0.1:6379"}, (1, f"producers may be on other hosts{RATIO}")),
        ({"weights.transport": "memory"}, (0, "transport memory does not leave the process")),
        ({"weights.transport": "shared"}, (1, f"2 cores{RATIO}")),
        ({"seed": 13}, (0, "1 is refused: rlcore-plugin-acme: stale data brings bad luck")),
    ],
)
def test_it_is_1_if_stale_data_is_weighed_and_can_be_made(values: dict[str, Any], expected: tuple[int, str], registry: Registry) -> None:
    found = plan(registry, **values)
    assert chosen(found) == expected
    assert f"schedule.max_staleness = {expected[0]} ({expected[1]})" in found.derived
    assert not expected[0] or "in one process" not in " ".join(found.derived)


def test_what_a_recipe_or_a_user_sets_is_kept(registry: Registry) -> None:
    assert chosen(plan(registry, **{"algorithm.name": "pinned"})) == (0, "recipe pinned")
    assert plan(registry, max_staleness=0).config.schedule.max_staleness == 0
    assert plan(registry, max_staleness=3).config.schedule.max_staleness == 3


@pytest.mark.parametrize(
    ("cores", "gpus", "values", "expected"),
    [
        (1, 0, {}, (0, "one core")),
        (1, 0, {"runtime": "ray"}, (0, "one core")),
        (1, 0, {"runtime": "far"}, (1, f"producers may be on other hosts{RATIO}")),
        (8, 1, {}, (1, f"8 cores{RATIO}")),
        (2, 0, {"num_trainers": 2}, (0, "2 cores for 2 trainers and a producer")),
        (1, 0, {"num_trainers": 2}, (0, "one core for 2 trainers and a producer")),
        (2, 0, {"num_trainers": 2, "num_inferencer": 2}, (0, "2 cores for 2 trainers and a producer")),
        (3, 0, {"num_trainers": 2}, (1, f"3 cores for 2 trainers and a producer{RATIO}")),
        (2, 0, {"num_inferencer": 2}, (1, f"2 cores{RATIO}")),
        (8, 1, CARDS, (0, "1 CUDA device for 2 roles")),
        (8, 2, CARDS, (1, f"2 CUDA devices for 2 roles{RATIO}")),
        (8, 4, {**CARDS, "num_trainers": 4}, (0, "4 CUDA devices for 5 roles")),
        (1, 1, {**CARDS, "training.device": "cpu"}, (1, f"the producer computes on cuda, the trainer on cpu{RATIO}")),
        (
            1,
            2,
            {**CARDS, "inference.device": "cuda:1", "training.device": "cuda:0"},
            (1, f"the producer computes on cuda:1, the trainer on cuda:0{RATIO}"),
        ),
        (
            8,
            2,
            {**CARDS, "inference.device": "cuda:1", "training.device": "cuda:1"},
            (0, "the producer computes on cuda:1, the trainer on cuda:1"),
        ),
        (8, None, CARDS, (0, "the producer may share the trainer's device")),
        (8, 2, {**CARDS, "inference.device": "cpu", "training.device": "cpu"}, (1, f"8 cores{RATIO}")),
    ],
)
def test_the_producer_needs_a_core_a_device_or_a_node_of_its_own(
    cores: int, gpus: int | None, values: dict[str, Any], expected: tuple[int, str], registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(monkeypatch, cores=cores, gpus=gpus)
    assert chosen(plan(registry, **values)) == expected


def test_a_bare_install_trains_in_one_process_and_nothing_is_missing(folder: PluginFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("rlcore_plugin_processes.rlcore_register_weight_transfers")  # a runtime that brings no transfer
    assert chosen(plan(seen(folder, "rlcore-plugin-processes"))) == (0, "no weight transfer between processes is installed")
    found = plan(seen(folder))
    assert chosen(found) == (0, "runtime in_process is one process")
    assert [item.what for item in found.missing] == ["data source hub is not installed"]
    assert found.config.weights.transport == "memory"


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"max_staleness": 1}, "max_staleness is 1"),
        ({"inference.environment": "env"}, "environment is env"),
        ({"num_inferencer": 2}, "num_inferencer is 2"),
    ],
)
def test_what_one_process_cannot_do_names_the_package_of_processes(folder: PluginFolder, values: dict[str, Any], why: str) -> None:
    found = plan(seen(folder), **values)
    assert str(found.origins["run.runtime"]) == f"auto: {why}"
    (lacking,) = (item for item in found.missing if "runtime" in item.what)
    assert lacking.what == "runtime local is not installed"
    assert lacking.command.startswith("pip install ")
    assert "processes" in lacking.command


def test_one_process_that_is_asked_for_takes_no_stale_data(folder: PluginFolder) -> None:
    said = r"^runtime = in_process \(Python\) is one process, and max_staleness = 1 \(Python\) needs more; type --runtime {} or --max-"
    for installed, able in (((), "local"), (("rlcore-plugin-ray",), "ray")):
        with pytest.raises(UsageError, match=said.format(able)):
            plan(seen(folder, *installed), runtime="in_process", max_staleness=1)


MINE = "from rlcore.api import Loss\n\nclass Mine(Loss):\n    {}\n    def per_token(self, logprobs, batch): return -logprobs\n"


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("", (0, "loss ./mine.py:Mine does not declare whether it has a ratio (on_policy)")),
        ("on_policy = True", (0, "loss ./mine.py:Mine has no ratio")),
        ("on_policy = False", (1, "2 cores; stale data is weighed by the ratio of loss ./mine.py:Mine")),
    ],
)
def test_a_loss_that_is_not_packaged_says_on_its_class_whether_it_has_a_ratio(
    said: str, expected: tuple[int, str], folder: PluginFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(MINE.format(said))
    registry = seen(folder, "rlcore-plugin-processes", "rlcore-plugin-processes")
    assert chosen(plan(registry, loss="./mine.py:Mine")) == expected
    if said == "on_policy = True":
        with pytest.raises(UsageError, match=r"^max_staleness = 1 \(Python\): the loss mine has no ratio to the policy that sampled"):
            plan(registry, loss="./mine.py:Mine", max_staleness=1)


def test_every_loss_of_this_repository_says_whether_it_has_a_ratio() -> None:
    found = Registry.discover()
    owners = {spec.name: found.owner("loss", spec.name) for spec in found.specs("loss")}
    specs = [spec for spec in found.specs("loss") if owners[spec.name].startswith("rlcore") and not owners[spec.name].endswith("acme")]
    assert len(specs) > 5
    assert [spec.name for spec in specs if spec.on_policy is None] == []  # type: ignore[attr-defined]


def test_a_loss_that_says_it_in_another_type_is_refused(folder: PluginFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(MINE.format('on_policy = "no"'))
    with pytest.raises(UsageError, match=r"on_policy is 'no', it must be True or False"):
        plan(seen(folder, "rlcore-plugin-processes", "rlcore-plugin-processes"), loss="./mine.py:Mine")


def test_a_loss_that_is_a_function_says_it_by_an_attribute(folder: PluginFolder) -> None:
    registry = seen(folder, "rlcore-plugin-processes", "rlcore-plugin-processes")

    def mine(logprobs: Any, batch: Any) -> Any:
        return -logprobs

    assert chosen(plan(registry, loss=registry.add("loss", mine)))[0] == 0
    mine.on_policy = False  # type: ignore[attr-defined]
    assert chosen(plan(registry, loss=registry.add("loss", mine, name="other")))[0] == 1


def test_shared_is_not_taken_on_a_system_without_its_memory(folder: PluginFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on macOS."""
    monkeypatch.delattr("os.memfd_create")
    registry = seen(folder, "rlcore-plugin-processes", "rlcore-plugin-processes")
    why = "transport shared cannot be used here, because this Python has no os.memfd_create (Linux only)"
    for transport in ("auto", "shared"):
        assert staleness_of(registry, transport) == (0, why)
    found = plan(registry, **{"weights.transport": "auto"})
    assert found.config.weights.transport == "memory"
    said = (
        r"^transport = shared \(Python\) cannot be used here, because this Python has no os.memfd_create \(Linux only\); type --transport"
    )
    for staleness in ("auto", 0, 1):
        with pytest.raises(UsageError, match=said):
            plan(registry, **{"weights.transport": "shared"}, max_staleness=staleness)
    with pytest.raises(
        UsageError, match=r"^transport = shared \(auto: .*\) cannot be used here, because this Python has no os.memfd_create"
    ):
        plan(registry, max_staleness=1)


def staleness_of(registry: Registry, transport: str) -> tuple[Any, str]:
    config = RunConfig.model_validate({"weights": {"transport": transport}, "inference": {"name": "cores"}, "model": {"model": "x"}})
    return staleness_choice(config, registry, runtime="local", loss="clipped", training="cores")


def test_what_is_written_out_plans_the_same_run_with_fewer_cores(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "run.toml"
    file.write_text(plan(registry).to_toml(), encoding="utf-8")
    machine(monkeypatch, cores=1, gpus=0)
    assert plan_run([file], {}, registry).config.schedule.max_staleness == 1


def test_a_part_that_cannot_travel_stays_in_one_process(folder: PluginFolder) -> None:
    registry = seen(folder, "rlcore-plugin-processes", "rlcore-plugin-processes")
    lock = threading.Lock()

    def reward(item: Any) -> float:
        with lock:
            return 1.0

    found = plan(registry, rewards=[{"name": registry.add("reward", reward)}])
    value, why = chosen(found)
    assert value == 0
    assert why.startswith("1 is refused: reward 'reward'")
    assert found.config.weights.transport == "memory"


LEVERS: dict[str, tuple[Any, ...]] = {
    "algorithm.name": ("plain", "bare", "pinned"),
    "loss": ("auto", "clipped", "no_ratio", "whole", "silent"),
    "mismatch_correction": ("auto", "none", "truncated", "sequence_masked", "decoupled"),
    "old_logprobs": ("auto", "trainer", "rollout"),
    "updates_per_batch": (1, 4),
    "top_p": (1.0, 0.9),
    "placement": ("split", "colocated"),
    "runtime": ("auto", "in_process", "local", "ray", "alone", "far"),
    "weights.transport": ("auto", "memory", "shared", "collective", "object_store", "wire", "card_to_card", "elsewhere"),
    "num_trainers": (1, 2),
    "num_inferencer": (1, 2),
    "master_address": (None, "10.0.0.1:6379"),
    "inference.environment": (None, "/nowhere"),
    "inference.name": ("cores", "cards", "silent", "own_way", "unknown_way"),
    "training.name": ("cores", "cards", "deltas"),
    "seed": (0, 13),
    "data_actor_buffer_size_limit": ("auto", 32),
}
OURS = ("rlcore-plugin-processes", "rlcore-plugin-ray")
SETS = [names for count in range(3) for names in combinations(OURS, count)]


@given(st.fixed_dictionaries({key: st.sampled_from(values) for key, values in LEVERS.items()}), st.sampled_from(SETS), st.data())
@settings(max_examples=150, deadline=None)
def test_it_is_never_refused_if_0_is_accepted(
    folder: PluginFolder, values: dict[str, Any], installed: tuple[str, ...], data: st.DataObject
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        machine(patch, cores=data.draw(st.sampled_from([1, 2])), gpus=data.draw(st.sampled_from([None, 0, 1, 2])))
        registry = _SEEN.setdefault(installed, seen(folder, *installed))
        given_0 = outcome(lambda: plan(registry, max_staleness=0, **values))
        by_auto = outcome(lambda: plan(registry, max_staleness="auto", **values))
    if isinstance(given_0, Plan):
        assert isinstance(by_auto, Plan), f"0 is accepted, auto is refused: {by_auto}"
        assert set(by_auto.missing) <= set(given_0.missing), "auto asks for something to install that 0 does not"
        value, why = chosen(by_auto)
        assert value in (0, 1)
        assert not why.startswith("1 is refused") or values["seed"] == 13, f"no reason of its own: {why}"


_SEEN: dict[tuple[str, ...], Registry] = {}


def outcome(make: Callable[[], Plan]) -> Plan | str:
    try:
        return make()
    except UsageError as error:
        return str(error)


@pytest.mark.parametrize(
    ("values", "gpus", "said"),
    [
        ({"max_staleness": 0}, 0, "reproducible: bitwise (max_staleness 0, CPU, and both backends are bitwise reproducible)"),
        ({"max_staleness": 0, "num_inferencer": 2, "num_trainers": 2}, 0, "reproducible: bitwise"),
        ({"max_staleness": 0, "runtime": "ray"}, 0, "reproducible: bitwise"),
        ({}, 0, "reproducible: seeded (max_staleness above 0: timing decides which weights sample what)"),
        ({"max_staleness": 0, "inference.name": "seeded"}, 0, "reproducible: seeded (inference backend seeded does not promise more)"),
        ({"max_staleness": 0, "training.name": "seeded"}, 0, "reproducible: seeded (training backend seeded does not promise more)"),
        ({"max_staleness": 0, "inference.name": "silent"}, 0, "reproducible: seeded (inference backend silent does not promise more)"),
        (
            {"max_staleness": 0, "inference.name": "noisy"},
            0,
            "reproducible: seeded (the samples of inference backend noisy depend on timing)",
        ),
        ({"max_staleness": 0, "oversampling": 2}, 0, "reproducible: bitwise"),
        (
            {"max_staleness": 0, "oversampling": 2, "sampling.conversation": "talks"},
            0,
            "reproducible: seeded (sampling.oversampling: timing decides which conversations of several turns end first)",
        ),
        ({"max_staleness": 0, **CARDS}, 0, "reproducible: bitwise"),
        ({"max_staleness": 0, **CARDS}, 1, "reproducible: seeded (inference device cuda: on it the order of sums varies)"),
        (
            {"max_staleness": 0, **CARDS},
            None,
            "reproducible: seeded (inference device auto: it may be a GPU, where the order of sums varies)",
        ),
        ({"max_staleness": 0, "training.name": "cards", "training.device": "cuda:0"}, 1, "reproducible: seeded (training device cuda:0"),
        (
            {"max_staleness": 0, "training.name": "cards", "runtime": "ray", "master_address": "10.0.0.1:6379"},
            0,
            "reproducible: seeded (training device auto: it may be a GPU",
        ),
        ({"max_staleness": 0, **CARDS, "inference.device": "cpu", "training.device": "cpu"}, 1, "reproducible: bitwise"),
    ],
)
def test_a_plan_says_how_far_two_runs_agree_and_why(
    values: dict[str, Any], gpus: int | None, said: str, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(monkeypatch, cores=2, gpus=gpus)
    found = plan(registry, **values)
    assert str(found.reproducible).startswith(said)
    assert str(found.reproducible) in found.notes
