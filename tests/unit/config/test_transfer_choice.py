"""Which weight transfer ``auto`` takes: reach first, then preference; never one that the runtime cannot use."""

from __future__ import annotations

from typing import Any

import pytest

from rlcore.config.layers import Draft, combine, python_layer
from rlcore.config.plugin_selection import Part, PluginSelection
from rlcore.config.resolve import Decided, fitting_transfers, in_one_process, transfer_name
from rlcore.config.rules import RuleContext, _transport_fits_runtime
from rlcore.config.run_config import RunConfig
from rlcore.contracts.specs import (
    InferenceBackendSpec,
    InferenceCapabilities,
    InFlight,
    PluginKind,
    RuntimeSpec,
    TrackerSpec,
    WeightTransferSpec,
)
from rlcore.registry.plugin_registry import Registry

TRANSFERS: list[dict[str, Any]] = [
    {"name": "far", "reach": "cluster", "preference": 99},
    {"name": "near", "reach": "host", "preference": 1},
    {"name": "liked", "reach": "host", "preference": 2, "runtimes": ("many",)},
    {"name": "never", "reach": "host", "preference": -1},
    {"name": "inside", "reach": "process"},
    {"name": "others", "reach": "cluster", "preference": 100, "runtimes": ("other",)},
]


@pytest.fixture
def registry() -> Registry:
    made = Registry([])
    for values in TRANSFERS:
        made.add("transfer", WeightTransferSpec(target="a.b:C", summary="", **values))
    for name in ("many", "other"):
        made.add("runtime", RuntimeSpec(name=name, target="a.b:C", summary="", reach="cluster", settings=("run.master_address",)))
    made.add("runtime", RuntimeSpec(name="anywhere", target="a.b:C", summary="", reach="cluster"))
    made.add("runtime", RuntimeSpec(name="together", target="a.b:C", summary="", reach="host"))
    made.add("runtime", RuntimeSpec(name="one", target="a.b:C", summary=""))
    return made


@pytest.mark.parametrize(
    ("runtime", "address", "chosen"),
    [
        ("one", None, ("inside", "one process")),
        ("many", None, ("liked", "a Many cluster on this host")),
        ("MANY", None, ("liked", "a Many cluster on this host")),
        ("other", None, ("near", "an Other cluster on this host")),
        ("many", "10.0.0.1", ("far", "producers and trainers may be on several hosts")),
        ("other", "10.0.0.1", ("others", "producers and trainers may be on several hosts")),
        ("anywhere", None, ("far", "producers and trainers may be on several hosts")),
        ("together", None, ("near", "producers and trainers are processes of this host")),
        ("absent", None, ("near", "an Absent cluster on this host")),
    ],
)
def test_auto(runtime: str, address: str | None, chosen: tuple[str, str], registry: Registry) -> None:
    config = RunConfig.model_validate({"run": {"master_address": address}})
    assert transfer_name(config, runtime, registry) == chosen


def test_what_is_named_is_taken_and_of_none_that_fits_one_to_install(registry: Registry) -> None:
    named = RunConfig.model_validate({"weights": {"transport": "never"}})
    assert transfer_name(named, "many", registry) == ("never", "")
    assert transfer_name(RunConfig(), "one", Registry([]))[0] == "shared"
    far = RunConfig.model_validate({"run": {"master_address": "10.0.0.1"}})
    assert transfer_name(far, "one", Registry([]))[0] == "auto"


def test_all_that_fit_come_in_their_order(registry: Registry) -> None:
    assert [spec.name for spec in fitting_transfers(registry, "many", "host")] == ["liked", "near", "far"]


def test_what_leaves_the_process_is_not_for_a_runtime_of_one() -> None:
    registry = Registry([])
    registry.add("runtime", RuntimeSpec(name="one", target="a.b:C", summary=""))
    registry.add("transfer", WeightTransferSpec(name="near", target="a.b:C", summary="", reach="host"))
    assert transfer_name(RunConfig(), "one", registry)[0] == "auto"


@pytest.mark.parametrize(
    ("runtime", "transport", "said"),
    [
        ("other", "liked", "transport = liked (Python) is for the runtime many, and the runtime is other; type --transport auto"),
        ("one", "liked", "is for several processes, the runtime is one; type --transport auto or --runtime many"),
        ("many", "inside", "is for one process, and the runtime is many; type --transport auto or --runtime one"),
        ("many", "liked", ""),
        ("one", "inside", ""),
    ],
)
def test_what_does_not_fit_the_runtime_is_refused(runtime: str, transport: str, said: str, registry: Registry) -> None:
    draft = combine([python_layer({"runtime": runtime, "transport": transport})])
    config = RunConfig.model_validate(draft.data)
    chosen = _chosen(config, registry, draft)
    assert said in (_transport_fits_runtime(RuleContext(config=config, chosen=chosen, draft=draft)) or "")


def test_a_runtime_that_no_transfer_fits_is_refused(registry: Registry) -> None:
    alone = Registry([])
    alone.add("runtime", RuntimeSpec(name="one", target="a.b:C", summary=""))
    draft = combine([python_layer({"runtime": "one"})])
    config = RunConfig.model_validate(draft.data)
    said = _transport_fits_runtime(RuleContext(config=config, chosen=_chosen(config, alone, draft), draft=draft)) or ""
    assert "no weight transfer that fits it is installed" in said


def _chosen(config: RunConfig, registry: Registry, draft: Draft) -> PluginSelection:
    """The runtime and the transfer only."""
    named = {"run.runtime": (PluginKind.RUNTIME, config.run.runtime), "weights.transport": (PluginKind.TRANSFER, config.weights.transport)}
    parts = {
        path: Part(kind=kind, path=path, name=name, options_path="", spec=registry.spec(kind, name), owner="acme", model=None)
        for path, (kind, name) in named.items()
        if registry.has(kind, name)
    }
    return PluginSelection(parts=parts, missing=(), decided=Decided(autos={}, single="one", several="many", apart="one"))


def test_specs_say_what_they_may(registry: Registry) -> None:
    with pytest.raises(ValueError, match="reach is 'far', it must be one of process, host, cluster"):
        WeightTransferSpec(name="x", target="a.b:C", summary="", reach="far")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="RuntimeSpec 'x': reach is 'far', it must be one of process, host, cluster"):
        RuntimeSpec(name="x", target="a.b:C", summary="", reach="far")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"TrackerSpec name 'a\.b': leave the dot out"):
        TrackerSpec(name="a.b", target="a.b:C", summary="")


def engine(registry: Registry, *ways: str) -> None:
    capabilities = InferenceCapabilities(in_flight=InFlight.FINISH, transfers=frozenset(ways))
    registry.add("inference", InferenceBackendSpec(name="mine", target="a.b:C", summary="", capabilities=capabilities))


def joining(registry: Registry, **values: Any) -> None:
    registry.add("transfer", WeightTransferSpec(name="joined", target="a.b:C", summary="", way="wire", **{"reach": "host", **values}))


OF_MINE = RunConfig.model_validate({"inference": {"name": "mine"}, "schedule": {"max_staleness": 0}})


def test_auto_takes_what_the_engine_takes(registry: Registry) -> None:
    """By preference if it takes both; a transfer of its own is the only one that an engine without host memory gets, with the reason."""
    joining(registry, preference=1)
    assert transfer_name(OF_MINE, "together", registry)[0] == "near"  # an engine that says nothing
    engine(registry, "wire", "host")
    assert transfer_name(OF_MINE, "together", registry)[0] == "joined"
    assert transfer_name(OF_MINE, "many", registry)[0] == "liked"
    alone = Registry([])
    alone.add("runtime", RuntimeSpec(name="together", target="a.b:C", summary="", reach="host"))
    alone.add("transfer", WeightTransferSpec(name="near", target="a.b:C", summary="", reach="host", preference=9))
    engine(alone, "wire")
    why = "producers and trainers are processes of this host, and mine accepts weights by wire"
    assert transfer_name(OF_MINE, "together", alone) == ("near", why)  # refused by name
    joining(alone)
    assert transfer_name(OF_MINE, "together", alone) == ("joined", why)


def test_an_engine_that_leaves_the_process_makes_processes_where_roles_could_take_turns(registry: Registry) -> None:
    turns = RuntimeSpec(name="turns", target="a.b:C", summary="", reach="host", alternating=True)
    registry.add("runtime", turns)
    engine(registry, "wire")
    assert transfer_name(OF_MINE, "turns", registry)[0] == "inside"  # refused by name
    joining(registry)
    assert transfer_name(OF_MINE, "turns", registry) == ("joined", "processes of this host, and mine accepts weights by wire")
    assert transfer_name(OF_MINE, "one", registry)[0] == "inside"  # a runtime of one process has no other
    ends = {spec.name: spec for spec in registry.specs(PluginKind.TRANSFER)}
    assert in_one_process(OF_MINE, turns, ends["inside"])
    assert in_one_process(OF_MINE, turns, ends["near"])  # is refused, as before
    assert not in_one_process(OF_MINE, turns, ends["joined"])
    registry.add("transfer", WeightTransferSpec(name="here", target="a.b:C", summary="", way="wire", reach="process"))
    assert transfer_name(OF_MINE, "turns", registry)[0] == "here"
