"""The core's own offers, registered through the same hooks as any plugin: the parts that recipes of every family share."""

from __future__ import annotations

from collections.abc import Mapping

from rlcore.contracts.hookspecs import hookimpl
from rlcore.contracts.specs import (
    AdvantageSpec,
    AggregationSpec,
    CommandSpec,
    ConversationSpec,
    CorrectionSpec,
    DataSourceSpec,
    KlSpec,
    LearningRateScheduleSpec,
    LossSpec,
    OptimizerSpec,
    RuntimeSpec,
    SamplerSpec,
    WeightTransferSpec,
)

rlcore_api = "2.0"


@hookimpl
def rlcore_register_advantage_estimators() -> list[AdvantageSpec]:
    """Return baselines within a group."""
    return [
        AdvantageSpec(
            name="group_norm",
            target="rlcore.learning.advantages:GroupNorm",
            summary="Reward minus the group's mean, over the group's unbiased standard deviation + 1e-4",
            source="DeepSeekMath (arXiv 2402.03300), section 4.1.2, outcome supervision",
        ),
        AdvantageSpec(
            name="group_mean",
            target="rlcore.learning.advantages:GroupMean",
            summary="Reward minus the group's mean",
            source="Understanding R1-Zero-Like Training (arXiv 2503.20783), section 3.2, Dr. GRPO",
        ),
    ]


@hookimpl
def rlcore_register_losses() -> list[LossSpec]:
    """Return PPO's clipped surrogate, with separate bounds."""
    return [
        LossSpec(
            name="clipped",
            target="rlcore.learning.losses:ClippedSurrogate",
            config="rlcore.learning.losses:ClippedOptions",
            summary="Probability ratio times advantage, clipped to [1 - clip_eps_low, 1 + clip_eps_high]",
            source="PPO (arXiv 1707.06347), equation 7; separate bounds: DAPO (arXiv 2503.14476), section 3.1",
            on_policy=False,
        )
    ]


@hookimpl
def rlcore_register_aggregations() -> list[AggregationSpec]:
    """Return means over tokens, over rollouts, and with a constant length."""
    return [
        AggregationSpec(name=name, target=f"rlcore.learning.aggregation:{target}", summary=summary, source=source)
        for name, target, summary, source in (
            ("sample_level", "SampleLevel", "Mean over the tokens of a rollout, then over rollouts", "GRPO (arXiv 2402.03300), equation 3"),
            ("token_level", "TokenLevel", "Mean over all tokens of the step", "DAPO (arXiv 2503.14476), section 3.3"),
            (
                "constant_length",
                "ConstantLength",
                "Sum over a rollout / max_new_tokens, then mean",
                "Dr. GRPO (arXiv 2503.20783), appendix A",
            ),
        )
    ]


@hookimpl
def rlcore_register_kl_estimators() -> list[KlSpec]:
    """Return Schulman's three estimators, and the absolute log ratio."""
    return [
        KlSpec(name=name, target=f"rlcore.learning.kl:{target}", summary=f"{summary}, with d = reference - policy", source=source)
        for name, target, summary, source in (
            ("k1", "K1", "-d", "Schulman, Approximating KL divergence (2020); as a penalty with the gradient of k2"),
            ("k2", "K2", "d^2 / 2", "Schulman, Approximating KL divergence (2020)"),
            ("k3", "K3", "exp(d) - 1 - d", "Schulman, Approximating KL divergence (2020); GRPO (arXiv 2402.03300), equation 4"),
            ("absolute", "AbsoluteKl", "|d|", ""),
        )
    ]


_SEQUENCE = "Liu et al. 2025; range as for truncated"
CORRECTIONS: Mapping[str, CorrectionSpec] = {
    name: CorrectionSpec(
        name=name,
        target=f"rlcore.learning.correction:{target}",
        summary=summary,
        source=source,
        per="rollout" if name.startswith("sequence_") else "token",
        usual_range=usual_range,
        masks=name.endswith("masked"),
    )
    for name, target, summary, source, usual_range in (
        ("decoupled", "Decoupled", "w as it is", "Hilton et al., arXiv 2110.00641; AReaL, arXiv 2505.24298", ()),
        ("truncated", "Truncated", "w, held within the range", "truncated importance sampling, Yao et al. 2025", (0.0, 2.0)),
        ("masked", "Masked", "w within the range, 0 outside", "IcePop, arXiv 2510.18855", (0.5, 5.0)),
        ("sequence_truncated", "SequenceTruncated", "W, held within the range", _SEQUENCE, (0.0, 2.0)),
        ("sequence_masked", "SequenceMasked", "W within the range, 0 outside", _SEQUENCE, (0.0, 2.0)),
    )
}
"""The ratio old / sampler of a token (w) or of a rollout (W): as it is, held, or masked. The classes take their facts from here."""


@hookimpl
def rlcore_register_corrections() -> list[CorrectionSpec]:
    """Return ``CORRECTIONS``."""
    return list(CORRECTIONS.values())


@hookimpl
def rlcore_register_lr_schedules() -> list[LearningRateScheduleSpec]:
    """Return the usual courses of the learning rate."""
    return [
        LearningRateScheduleSpec(
            name=name,
            target=f"rlcore.learning.lr_schedule:{target}",
            config=f"rlcore.learning.lr_schedule:{target}Options" if options else "",
            summary=summary,
            source=source,
            constant=name == "constant",
        )
        for name, target, options, summary, source in (
            ("constant", "Constant", False, "The peak, to the end", ""),
            ("linear", "Linear", False, "A straight line from the peak to the end of the run", ""),
            ("cosine", "Cosine", False, "Half a cosine from the peak to the end of the run", "SGDR (arXiv 1608.03983), equation 5"),
            ("wsd", "WarmupStableDecay", True, "The peak, then a straight line down at the end", "MiniCPM (arXiv 2404.06395), section 4"),
            (
                "inverse_sqrt",
                "InverseSquareRoot",
                True,
                "sqrt(timescale / (timescale + step))",
                "after Attention Is All You Need (arXiv 1706.03762), equation 3",
            ),
        )
    ]


@hookimpl
def rlcore_register_optimizers() -> list[OptimizerSpec]:
    """Return the optimizer that every trainer has."""
    return [
        OptimizerSpec(
            name="adamw",
            target="rlcore.learning.adamw:AdamW",
            summary="Adam with decoupled weight decay; vectors do not decay",
            source="Decoupled Weight Decay Regularization (arXiv 1711.05101), algorithm 2",
            elementwise=True,
        )
    ]


@hookimpl
def rlcore_register_samplers() -> list[SamplerSpec]:
    """Return the orders that need no results."""
    return [
        SamplerSpec(name=name, target=f"rlcore.schedule.prompt_order:{name.capitalize()}", summary=summary, observes=False, endless=endless)
        for name, summary, endless in (
            ("sequential", "Each episode in the order of the data", None),
            ("shuffled", "Each episode in a random order of its own", False),
            ("weighted", "Each source in proportion to its weight", False),
        )
    ]


@hookimpl
def rlcore_register_runtimes() -> list[RuntimeSpec]:
    """Return the simplest runtime; `rlcore-plugin-processes` and `rlcore-plugin-ray` have others."""
    return [
        RuntimeSpec(
            name="in_process",
            target="rlcore.runtime.one_process:OneProcess",
            summary="One producer and one trainer, alternating in one process",
            alternating=True,
            settings=("schedule.producer_deadline",),
        ),
    ]


@hookimpl
def rlcore_register_data_sources() -> list[DataSourceSpec]:
    """Return readers of JSON files; `rlcore-plugin-datasets` has other data sources."""
    return [
        DataSourceSpec(
            name="jsonl",
            target="rlcore.data.jsonl:JsonLines",
            summary="A JSON object a line, gzip or not; any file that no other data source claims",
            suffixes=(".jsonl", ""),
        ),
        DataSourceSpec(
            name="json",
            target="rlcore.data.jsonl:JsonFile",
            summary="One JSON list of objects, or an object a line",
            suffixes=(".json", ".json.gz"),
        ),
    ]


@hookimpl
def rlcore_register_conversations() -> list[ConversationSpec]:
    """Return the simplest conversation."""
    return [ConversationSpec(name="single_turn", target="rlcore.roles.single_turn:SingleTurn", summary="One answer to the prompt")]


@hookimpl
def rlcore_register_weight_transfers() -> list[WeightTransferSpec]:
    """Return the transfer within one process."""
    return [
        WeightTransferSpec(
            name="memory",
            target="rlcore.weights.memory:MemoryTransfer",
            summary="One copy, read as it is, within one process",
            reach="process",
            preference=10,
        ),
    ]


@hookimpl
def rlcore_register_commands() -> list[CommandSpec]:
    """Return the commands that every installation has. Plugins place their own between them by ``position``."""
    return [
        CommandSpec(name=name, target=f"rlcore.cli.{name}:{name.capitalize()}Command", summary=summary, position=position)
        for name, summary, position in (
            ("train", "train a model as TOML files and flags say", 20),
            ("resume", "resume a run from its newest checkpoint", 25),
            ("plugins", "list installed plugins, or why one does not work", 80),
        )
    ]
