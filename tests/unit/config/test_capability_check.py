"""What a run asks of its backends is held against what they declare."""

from __future__ import annotations

from typing import Any

import pytest

from rlcore.config import RunConfig
from rlcore.config.plugin_selection import unsupported
from rlcore.contracts.specs import InferenceCapabilities, InFlight, TrainingBackendSpec, TrainingCapabilities

SINGLE = frozenset({"single"})


def refused(offered: InferenceCapabilities | TrainingCapabilities, **sections: dict[str, Any]) -> str:
    return unsupported(offered, "mine", RunConfig.model_validate(sections), lambda path: f"<{path}>") or ""


def trainer(*layouts: str, dtypes: tuple[str, ...] = ("float32",)) -> TrainingCapabilities:
    return TrainingCapabilities(layouts=SINGLE | set(layouts), dtypes=frozenset(dtypes))


def test_data_parallel_ranks_need_the_layout() -> None:
    assert not refused(trainer("data"), training={"num_trainers": 4})
    assert refused(trainer(), training={"num_trainers": 4}) == (
        "<training.num_trainers> asks for 4 data-parallel ranks, and training backend mine does not offer the layout data "
        "(it offers single); type -t 1"
    )


def test_ranks_that_hold_one_replica_together_are_not_data_parallel() -> None:
    sizes = {"tensor_parallel_size": 2, "pipeline_parallel_size": 2}
    assert not refused(trainer("tensor", "pipeline"), training={"num_trainers": 4, **sizes})
    assert "asks for 2 data-parallel ranks" in refused(trainer("tensor", "pipeline"), training={"num_trainers": 8, **sizes})
    assert refused(trainer("tensor", "pipeline"), training={"num_trainers": 8, **sizes}).endswith("; type -t 4")


@pytest.mark.parametrize(
    ("setting", "value", "layout", "advice"),
    [
        ("tensor_parallel_size", 2, "tensor", "-tp 1"),
        ("pipeline_parallel_size", 2, "pipeline", "-pp 1"),
        ("context_parallel_size", 2, "context", "--context-parallel-size 1"),
        ("expert_parallel_size", 2, "expert", "--expert-parallel-size 1"),
        ("zero_stage", 1, "zero", "-zero 0"),
    ],
)
def test_a_layout_that_the_trainer_does_not_offer_is_named_with_its_flag(setting: str, value: int, layout: str, advice: str) -> None:
    asked = {"num_trainers": 2, setting: value}
    assert not refused(trainer("data", layout), training=asked)
    said = refused(trainer("data"), training=asked)
    assert said == f"<training.{setting}>: training backend mine does not offer the layout {layout} (it offers data, single); type {advice}"


def test_a_trainer_without_adapters_is_asked_for_none() -> None:
    said = refused(trainer(), training={"lora_rank": 8})
    assert said == "<training.lora_rank>: training backend mine does not train adapters (capabilities.lora is False); type --lora-rank 0"
    assert not refused(TrainingCapabilities(lora=True), training={"lora_rank": 8})


def test_a_trainer_that_cannot_move_its_reference_is_not_asked_to() -> None:
    said = refused(trainer(), model={"reference_sync_steps": 2})
    assert said == (
        "<model.reference_sync_steps>: training backend mine does not move its reference (capabilities.syncs_reference is False); "
        "type --reference-sync-steps 0"
    )
    assert not refused(TrainingCapabilities(syncs_reference=True), model={"reference_sync_steps": 2})
    assert not refused(trainer(), model={"reference": "elsewhere"})


def test_a_trainer_without_model_hooks_is_given_none() -> None:
    said = refused(trainer(), training={"model_hook": "frozen"})
    assert said.startswith("<training.model_hook>: training backend mine does not take model hooks (capabilities.model_hooks is False)")
    assert not refused(TrainingCapabilities(model_hooks=True), training={"model_hook": "frozen"})


def test_an_engine_on_one_device_is_not_split_over_two() -> None:
    asked = {"producer_tensor_parallel_size": 2}
    assert not refused(InferenceCapabilities(in_flight=InFlight.FINISH, layouts=SINGLE | {"tensor"}), inference=asked)
    assert refused(InferenceCapabilities(in_flight=InFlight.FINISH), inference=asked).endswith(
        "layout tensor (it offers single); type -ptp 1"
    )


def test_the_dtypes_that_are_advised_are_those_that_the_configuration_takes() -> None:
    said = refused(trainer(dtypes=("float16", "float32", "bfloat16")), training={"dtype": "float64"})
    assert said == "<training.dtype>: training backend mine does not offer it; type --training-dtype bfloat16 or float32"
    assert refused(trainer(dtypes=("float16",))).endswith("does not offer it; name another backend")


def test_a_device_of_a_kind_that_is_not_offered_is_refused_whatever_its_number() -> None:
    assert not refused(trainer(), training={"device": "cpu:1"})
    assert refused(trainer(), training={"device": "gpu:1"}).endswith("type --training-device auto or cpu")
    assert refused(InferenceCapabilities(in_flight=InFlight.FINISH), inference={"device": "cuda"}).startswith(
        "<inference.device>: inference "
    )


def test_an_engine_that_never_sleeps_is_refused_where_devices_are_shared() -> None:
    sleepless, sleeper = (InferenceCapabilities(in_flight=InFlight.FINISH, sleeps=sleeps) for sleeps in (False, True))
    assert not refused(sleeper, run={"placement": "colocated"})
    assert not refused(sleepless, run={"placement": "split"})
    said = refused(sleepless, run={"placement": "colocated"})
    assert "inference backend mine never gives its device back" in said
    assert said.endswith("type --placement split, or name another --backend")


def test_an_engine_that_sleeps_on_one_device_is_refused_where_another_one_is_shared() -> None:
    devices = frozenset({"cpu", "cuda"})
    card = InferenceCapabilities(in_flight=InFlight.FINISH, sleeps=True, sleeps_on=frozenset({"cuda"}), devices=devices)
    assert not refused(card, run={"placement": "colocated"}, inference={"device": "cuda:1"})
    assert not refused(card, run={"placement": "split"}, inference={"device": "cpu"})
    said = refused(card, run={"placement": "colocated"}, inference={"device": "cpu"})
    assert "inference backend mine gives back only cuda, not cpu (capabilities.sleeps_on)" in said


@pytest.mark.parametrize(
    ("field", "words"),
    [
        (
            {"transfers": "host"},
            r"InferenceCapabilities: transfers is 'host', it must be a frozenset of strings such as frozenset\(\['host'\]\)",
        ),
        ({"layouts": ("tensor", "single")}, r"layouts is \('tensor', 'single'\), .* such as frozenset\(\['single', 'tensor'\]\)"),
        ({"reproducible": "exact"}, "InferenceCapabilities: reproducible is 'exact', it must be one of bitwise, seeded"),
        ({"sleeps": 1}, "InferenceCapabilities: sleeps is 1, it must be True or False"),
        ({"in_flight": "finish"}, "InferenceCapabilities: in_flight is 'finish', it must be an InFlight"),
    ],
)
def test_capabilities_are_of_the_types_that_they_are_declared_with(field: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        InferenceCapabilities(**{"in_flight": InFlight.FINISH, **field})


def test_a_trainer_declares_how_far_two_runs_agree() -> None:
    assert TrainingCapabilities().reproducible == InferenceCapabilities(in_flight=InFlight.FINISH).reproducible == "seeded"
    with pytest.raises(ValueError, match="TrainingCapabilities: reproducible is 1, it must be one of bitwise, seeded"):
        TrainingCapabilities(reproducible=1)  # type: ignore[arg-type]


def test_a_spec_takes_no_other_record_for_its_capabilities() -> None:
    with pytest.raises(ValueError, match=r"capabilities is .*, it must be a TrainingCapabilities"):
        TrainingBackendSpec(name="mine", target="a:b", summary="s", capabilities={"layouts": ["single"]})  # type: ignore[arg-type]


def test_what_only_some_engines_understand_of_a_request_is_refused_by_name() -> None:
    base = InferenceCapabilities(in_flight=InFlight.FINISH)
    more = InferenceCapabilities(in_flight=InFlight.FINISH, sampling=frozenset({"min_p", "penalty"}))
    assert not refused(base, sampling={"top_p": 0.5, "top_k": 3, "min_p": 0.0})
    assert not refused(more, sampling={"min_p": 0.1, "extra": {"penalty": 1.2}})
    assert refused(base, sampling={"min_p": 0.1}) == (
        "<sampling.min_p>: inference backend mine does not understand min_p (capabilities.sampling: nothing); type --min-p 0"
    )
    assert refused(more, sampling={"extra": {"penalty": 1.2, "bias": 2}}) == (
        "<sampling.extra.bias>: inference backend mine does not understand bias (capabilities.sampling: min_p, penalty); "
        "leave it out, or name another --backend"
    )


def test_context_parallel_ranks_share_a_replica_and_expert_parallel_ones_do_not() -> None:
    context, expert = {"context_parallel_size": 2}, {"expert_parallel_size": 2}
    assert not refused(trainer("context"), training={"num_trainers": 2, **context})
    assert "asks for 2 data-parallel ranks" in refused(trainer("context"), training={"num_trainers": 4, **context})
    assert "asks for 2 data-parallel ranks" in refused(trainer("expert"), training={"num_trainers": 2, **expert})


def test_weights_that_the_engine_does_not_take_are_refused_with_both_ways() -> None:
    def said(way: str, *ways: str) -> str:
        offered = InferenceCapabilities(in_flight=InFlight.FINISH, transfers=frozenset(ways))
        return unsupported(offered, "mine", RunConfig(), lambda path: f"<{path}>", way) or ""

    assert not said("host", "wire", "host")
    assert not said("wire", "wire")
    assert said("host", "wire", "ipc") == (
        "<weights.transport> delivers weights by host, and inference backend mine accepts them by ipc, wire (capabilities.transfers); name "
        "a --transport that does so (rlcore plugins lists the installed ones), or another --backend"
    )
    assert said("wire", "host").startswith("<weights.transport> delivers weights by wire, and inference backend mine accepts them by host")
