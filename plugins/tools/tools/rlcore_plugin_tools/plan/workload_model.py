"""The simulated workload: lengths, speeds, sizes and failures, as a typed model that a TOML file and flags fill.

The defaults are a 7B model on H100-class devices, and several of them are guesses: measure your own. The number of devices and their split
are not part of a workload but of a ``Scenario``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from rlcore.api.settings import Section, setting
from rlcore.testing import LengthKind, Lengths

__all__ = [
    "MOST_RESPONSES",
    "FaultSection",
    "GenerationSection",
    "GroupSection",
    "OverheadSection",
    "RewardSection",
    "SimulatedSource",
    "TransferSection",
    "UpdateSection",
    "Workload",
]

MOST_RESPONSES = 262_144
"""The most responses of one update: their simulation takes a minute or two and a gigabyte."""

# Bounds that no cluster reaches; sums of numbers between them stay far from the limits of floats.
Positive = Annotated[float, Field(ge=1e-6, le=1_000_000_000, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, le=1_000_000_000, allow_inf_nan=False)]
Milli = Annotated[float, Field(ge=0.001, le=1_000_000_000, allow_inf_nan=False)]
Cut = Annotated[float, Field(gt=1, le=1_000_000, allow_inf_nan=False)]
Spread = Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)]
Tokens = Annotated[float, Field(ge=1e-9, le=10_000_000, allow_inf_nan=False)]
Several = Annotated[int, Field(ge=1, le=65_536)]


class _OneGroup(Section):
    """The settings of a group that each source may have."""

    prompt_tokens: Tokens = setting(512.0, help="tokens of a prompt, on average")
    prompt_sigma: Spread = setting(0.0, help="spread of prompt lengths (lognormal); 0: all equal")
    response_tokens: Tokens = setting(2048.0, help="tokens of a response, on average")
    response_sigma: Spread = setting(1.0, help="spread of response lengths (lognormal); 0: all equal")
    length_cut: Cut = setting(4.0, help="longest prompt or response, as a multiple of the average")
    num_generations: Several = setting(16, "-g", help="responses per prompt")
    filtered: Annotated[float, Field(ge=0, le=0.9, allow_inf_nan=False)] = setting(
        0.0, help="share of groups that the filter removes and that are replaced"
    )

    @property
    def prompts(self) -> Lengths:
        """Lengths of prompts."""
        return lengths(self.prompt_tokens, self.prompt_sigma, self.length_cut)

    @property
    def responses(self) -> Lengths:
        """Lengths of responses."""
        return lengths(self.response_tokens, self.response_sigma, self.length_cut)


class GroupSection(_OneGroup):
    """[group]: the size of one group, and the number of prompts in an update."""

    train_batch_size: Annotated[int, Field(ge=1, le=1_000_000)] = setting(512, "-tbs", help="prompts per update")


class SimulatedSource(_OneGroup):
    """[[sources]]: the groups of one source. What a source leaves out is that of [group] and [rewards]."""

    name: Annotated[str, Field(min_length=1)]
    weight: Positive = 1.0
    accuracy: Annotated[float, Field(ge=0.001, le=0.999, allow_inf_nan=False)] = 0.5
    reward_seconds: NonNegative = 0.05


class GenerationSection(Section):
    """[generation]: one producer. A decode step takes ``step_seconds + request_seconds x running requests`` and gives each a token."""

    producer_devices: Several = setting(1, help="devices of one producer (-ptp)")
    slots: Several = setting(256, help="requests that one producer decodes at a time")
    step_seconds: Positive = setting(0.007, help="seconds of a decode step, without the part of each request")
    request_seconds: NonNegative = setting(0.000066, help="seconds that each running request adds to a decode step")
    prefill_tokens_per_second: Positive = setting(32000.0, help="speed of prefill; decoding stalls meanwhile, once per group")
    batching: Literal["continuous", "batch"] = setting(
        "continuous", help="continuous: a free slot is refilled at once; batch: a producer waits for its longest response"
    )

    def step(self, running: int) -> float:
        """Return the seconds of a decode step with so many running requests."""
        return self.step_seconds + self.request_seconds * running


class UpdateSection(Section):
    """[update]: one optimizer step of all trainers."""

    trainer_devices: Several = setting(1, help="devices of one data-parallel trainer (-tp x -pp)")
    update_seconds: NonNegative = setting(2.0, help="seconds of an update that do not shrink with more trainers")
    token_seconds: NonNegative = setting(0.00012, help="seconds that one trainer needs for a token, prompt or response")


class TransferSection(Section):
    """[weights]: from the trainers to the engines, one version at a time; ``WeightUpdate`` says which role stalls for which part."""

    weights_gb: Annotated[float, Field(ge=0, le=100_000, allow_inf_nan=False)] = setting(15.2, help="size of a version, GB")
    transport: Literal["auto", "shared", "object_store", "collective", "vllm_nccl", "direct"] = setting(
        "auto",
        help="as in rlcore train; auto: shared on one node, object_store on several; direct: planned, from the trainers' devices",
    )
    devices_per_node: Several = setting(8, help="devices of a node")
    device_bandwidth: Milli = setting(400.0, help="GB/s from device to device inside a node")
    copy_bandwidth: Milli = setting(6.0, help="GB/s from the trainer's device into the buffer of its host; the trainers stall")
    hash_bandwidth: Milli = setting(12.0, help="GB/s of checksums, by one thread at each end")
    network_bandwidth: Milli = setting(25.0, help="GB/s of a node's network adapter")
    store_bandwidth: Milli = setting(3.2, help="object_store: GB/s that leave the trainer's node")
    collective_bandwidth: Milli = setting(2.0, help="collective: GB/s that leave one process (gloo)")
    collect_bandwidth: Milli = setting(3.0, help="GB/s at which an engine copies weights into its own host memory")
    load_bandwidth: Milli = setting(50.0, help="GB/s between host memory and one device; the engine stalls")
    engine_process: Literal["auto", "inside", "own"] = setting(
        "auto",
        help="inside: the engine stalls while it copies; own: it does not; auto: own with several devices per producer",
    )
    transfer_seconds: NonNegative = setting(0.05, help="seconds of a transfer that do not depend on the size")
    weights_taken: Literal["live", "between"] = setting(
        "live", help="live: between decode steps; between: when a producer has finished its groups"
    )


class RewardSection(Section):
    """[rewards]: judging, in parallel with generation."""

    reward_seconds: NonNegative = setting(0.05, help="seconds to judge a response, on average")
    reward_sigma: Spread = setting(1.0, help="spread of these seconds (lognormal, cut at 8 x the average); 0: all equal")
    reward_workers: Annotated[int, Field(ge=1, le=4096)] = setting(8, help="processes that judge, for each producer")

    def seconds(self, mean: float) -> Lengths | None:
        """Return the seconds of a verdict of a source with this mean; None if it takes no time."""
        return lengths(mean, self.reward_sigma, 8.0) if mean > 0 else None


class FaultSection(Section):
    """[faults]: producers that die."""

    device_hours: Milli | None = setting(None, help="device hours between failures of producers; none: they never fail")
    restart_seconds: NonNegative = setting(120.0, help="seconds until a failed producer generates again, with the newest weights")

    def seconds_between(self, devices: int) -> float | None:
        """Return the mean seconds between failures of a producer with so many devices."""
        return None if self.device_hours is None else self.device_hours * 3600.0 / devices


class OverheadSection(Section):
    """[overheads]: seconds that the runtime itself takes, rough guesses.

    On a machine of 2 cores 28 ms (lease), 19 ms (deliver) and 16 ms (handover) were measured.
    """

    lease_seconds: NonNegative = setting(0.002, help="from asking for prompts to generating them")
    deliver_seconds: NonNegative = setting(0.002, help="from a judged group to the coordinator")
    handover_seconds: NonNegative = setting(0.005, help="from a full batch to the start of its update; the trainers wait")
    publish_seconds: NonNegative = setting(0.0, help="publishing, beyond gathering and copying; the trainers wait")
    swap_seconds: NonNegative = setting(0.01, help="a producer's pause for new weights beyond copying and loading: probe, caches")
    switch_seconds: NonNegative = setting(
        5.0, help="colocated only: seconds of each of the two switches of an update, when one role sleeps and the other wakes"
    )


class Workload(Section):
    """The whole file: one table a section, and every key of these also a flag of ``rlcore plan``.

    ``sources``: the parts of a run with several; ``sampler`` draws among them.
    """

    group: GroupSection = Field(default_factory=GroupSection)
    generation: GenerationSection = Field(default_factory=GenerationSection)
    update: UpdateSection = Field(default_factory=UpdateSection)
    weights: TransferSection = Field(default_factory=TransferSection)
    rewards: RewardSection = Field(default_factory=RewardSection)
    faults: FaultSection = Field(default_factory=FaultSection)
    overheads: OverheadSection = Field(default_factory=OverheadSection)
    sampler: Annotated[str, Field(min_length=1)] = "weighted"
    sampler_options: dict[str, Any] = Field(default_factory=dict)
    sources: Annotated[tuple[SimulatedSource, ...], Field(strict=False)] = ()

    @model_validator(mode="before")
    @classmethod
    def _inherit(cls, data: Any) -> Any:
        """Give each source the settings of [group] and [rewards] that it leaves out."""
        if not isinstance(data, Mapping) or not isinstance(data.get("sources"), list):
            return data
        tables = [table for name in ("group", "rewards") if isinstance(table := data.get(name), Mapping)]
        known = {key: value for table in tables for key, value in table.items() if key in SimulatedSource.model_fields}
        return {**data, "sources": [{**known, **source} if isinstance(source, Mapping) else source for source in data["sources"]]}

    @property
    def parts(self) -> tuple[SimulatedSource, ...]:
        """The sources, at least one. Without [[sources]] it is that of [group], without a name."""
        group = self.group.model_dump(exclude={"train_batch_size"})
        one = {**group, "name": "", "weight": 1.0, "accuracy": 0.5, "reward_seconds": self.rewards.reward_seconds}
        return self.sources or (SimulatedSource.model_construct(**one),)

    @property
    def drawn(self) -> tuple[tuple[float, SimulatedSource], ...]:
        """The sources, each after its share of the prompts by weight."""
        parts = self.parts
        whole = sum(part.weight for part in parts)
        return tuple((part.weight / whole, part) for part in parts)

    @property
    def passing(self) -> float:
        """The share of all groups that the filter keeps, by weight."""
        return sum(share * (1 - part.filtered) for share, part in self.drawn)

    @property
    def trained(self) -> tuple[tuple[float, SimulatedSource], ...]:
        """The sources, each after its share of the groups of an update, by weight."""
        return tuple((share * (1 - part.filtered) / self.passing, part) for share, part in self.drawn)

    def plain(self) -> dict[str, Any]:
        """Return plain values; without [[sources]], the tables only."""
        return self.model_dump(mode="json", exclude=None if self.sources else {"sampler", "sampler_options", "sources"})


def lengths(mean: float, sigma: float, cut: float) -> Lengths:
    """Return the distribution that a mean, a spread and a cut describe; constant if the spread is 0."""
    if sigma == 0:
        return Lengths(kind=LengthKind.CONSTANT, mean=mean)
    return Lengths(kind=LengthKind.LOGNORMAL, mean=mean, sigma=sigma, cut=cut)
