"""A plugin module that offers ``fake`` for every kind but runtimes and commands, and backends ``faulty`` and ``paced``.

It has no entry point: only tests activate it.
"""

from __future__ import annotations

from dataclasses import replace

from rlcore.contracts.hookspecs import hookimpl
from rlcore.contracts.specs import (
    AdvantageSpec,
    AggregationSpec,
    AlgorithmSpec,
    ConversationSpec,
    CorrectionSpec,
    DataSourceSpec,
    InferenceBackendSpec,
    InferenceCapabilities,
    InFlight,
    KlSpec,
    LossSpec,
    RewardSpec,
    RowFormatSpec,
    SandboxSpec,
    TrackerSpec,
    TrainingBackendSpec,
    TrainingCapabilities,
    WeightTransferSpec,
)

rlcore_api = "2.0"

FAKE_INFERENCE = InferenceCapabilities(
    in_flight=InFlight.FINISH,
    sleeps=True,
    counter_noise=True,
    layouts=frozenset({"single", "tensor"}),
    kinds=frozenset({"full", "adapter", "delta"}),
    sampling=frozenset({"min_p", "banned"}),
    reproducible="bitwise",
    implementation="fake",
)
FAKE_TRAINING = TrainingCapabilities(
    sleeps=True,
    layouts=frozenset({"single", "data"}),
    exports=frozenset({"float16"}),
    reproducible="bitwise",
    implementation="fake",
)
FAKE_TENSOR_INFERENCE = InferenceCapabilities(
    in_flight=InFlight.RESUME,
    sleeps=True,
    counter_noise=True,
    layouts=frozenset({"single", "tensor"}),
    transfers=frozenset({"host", "fake_collective"}),
    reproducible="bitwise",
    implementation="fake",
)
FAKE_JOINING_INFERENCE = replace(FAKE_TENSOR_INFERENCE, transfers=frozenset({"fake_collective"}))
PACED_INFERENCE = InferenceCapabilities(in_flight=InFlight.RESUME, counter_noise=True, implementation="fake")
PIPELINE_TRAINING = TrainingCapabilities(
    layouts=frozenset({"single", "pipeline"}), dtypes=frozenset({"float32", "float64"}), reproducible="bitwise", implementation="fake"
)

FAKE_REWARD = RewardSpec(
    name="fake",
    target="rlcore.testing.judging:FakeReward",
    config="rlcore.testing.judging:FakeRewardOptions",
    summary="Right where the text equals gt_answer; a text that starts with ! is a script.",
    requires=("gt_answer",),
)
FAKE_TOKEN_REWARD = RewardSpec(
    name="fake_tokens",
    target="rlcore.testing.judging:FakeTokenReward",
    config="rlcore.testing.judging:FakeRewardOptions",
    summary="As fake, and a reward for each token: 1 if its id is even.",
    requires=("gt_answer",),
    reads_tokens=True,
)
FAKE_CREDIT = AdvantageSpec(
    name="fake_credit",
    target="rlcore.testing.algorithms:FakeCredit",
    summary="Token rewards within a turn, reward parts and the sampler's surprise.",
    per="token",
)
FAKE_LOSS = LossSpec(name="fake", target="rlcore.testing.algorithms:FakeLoss", summary="-advantage * ratio, not clipped.", on_policy=False)
FAKE_CORRECTION = CorrectionSpec(
    name="fake",
    target="rlcore.testing.algorithms:FakeCorrection",
    summary="The geometric mean of the ratios over a rollout, held within the range.",
    per="rollout",
    usual_range=(0.5, 2.0),
)


@hookimpl
def rlcore_register_rewards() -> list[RewardSpec]:
    """One reward, and one that judges tokens too."""
    return [FAKE_REWARD, FAKE_TOKEN_REWARD]


@hookimpl
def rlcore_register_inference_backends() -> list[InferenceBackendSpec]:
    """The fake, one with a fault, one whose speed is set, and one of several processes."""
    return [
        InferenceBackendSpec(
            name=name,
            target=f"rlcore.testing.{module}:{cls}",
            config=f"rlcore.testing.{module}:{cls if module != 'tensor_parallel' else 'FakeTensorParallel'}Options",
            summary=summary,
            tokenizer="rlcore.testing.tokens:load_fake_tokenizer",
            capabilities=capabilities,
        )
        for name, module, cls, capabilities, summary in (
            ("fake", "fake_inference", "FakeInference", FAKE_INFERENCE, "A table of logits, in numpy."),
            ("faulty", "faulty", "FaultyInference", FAKE_INFERENCE, "The fake with one fault, chosen by option."),
            (
                "paced",
                "paced",
                "PacedInference",
                PACED_INFERENCE,
                "Sleeps as long as an engine of the given speed would take; computes nothing.",
            ),
            (
                "fake-tensor",
                "tensor_parallel",
                "FakeTensorParallel",
                FAKE_TENSOR_INFERENCE,
                "The fake in several processes, tensor parallel.",
            ),
            (
                "fake-joining",
                "tensor_parallel",
                "FakeJoining",
                FAKE_JOINING_INFERENCE,
                "As fake-tensor, with weights by a transfer of its own alone.",
            ),
        )
    ]


@hookimpl
def rlcore_register_training_backends() -> list[TrainingBackendSpec]:
    """The fake, one with a fault, one whose speed is set, and the two-stage pipeline in torch."""
    return [
        TrainingBackendSpec(
            name="fake",
            target="rlcore.testing.fake_training:FakeTraining",
            config="rlcore.testing.fake_training:FakeTrainingOptions",
            summary="The policy gradient of a table of logits, in numpy; takes no objective.",
            capabilities=FAKE_TRAINING,
        ),
        TrainingBackendSpec(
            name="faulty",
            target="rlcore.testing.faulty:FaultyTraining",
            config="rlcore.testing.faulty:FaultyTrainingOptions",
            summary="The fake with one fault, chosen by option.",
            capabilities=FAKE_TRAINING,
        ),
        TrainingBackendSpec(
            name="paced",
            target="rlcore.testing.paced:PacedTraining",
            config="rlcore.testing.paced:PacedTrainingOptions",
            summary="Sleeps through every optimizer step; learns nothing.",
            capabilities=FAKE_TRAINING,
        ),
        TrainingBackendSpec(
            name="fake-pipeline",
            target="rlcore.testing.pipeline:FakePipeline",
            summary="A tiny torch model in two stages, micro-batches one forward, one backward.",
            requires_module="torch",
            install="pip install torch",
            capabilities=PIPELINE_TRAINING,
            preference=-1,
        ),
    ]


@hookimpl
def rlcore_register_advantage_estimators() -> list[AdvantageSpec]:
    """The plainest estimator, one that keeps a state, and one that reads all there is."""
    return [
        AdvantageSpec(name="fake", target="rlcore.testing.algorithms:FakeEstimator", summary="Reward minus the group's mean."),
        AdvantageSpec(
            name="fake_baseline",
            target="rlcore.testing.algorithms:FakeBaseline",
            summary="Reward minus a running mean of its prompt.",
            group_baseline=False,
        ),
        FAKE_CREDIT,
    ]


@hookimpl
def rlcore_register_losses() -> list[LossSpec]:
    """One loss."""
    return [FAKE_LOSS]


@hookimpl
def rlcore_register_aggregations() -> list[AggregationSpec]:
    """One aggregation."""
    return [AggregationSpec(name="fake", target="rlcore.testing.algorithms:FakeAggregation", summary="Mean over groups.")]


@hookimpl
def rlcore_register_kl_estimators() -> list[KlSpec]:
    """One KL estimator, with an option."""
    return [
        KlSpec(
            name="fake",
            target="rlcore.testing.algorithms:FakeKl",
            config="rlcore.testing.algorithms:FakeKlOptions",
            summary="Huber's: a parabola, then a straight line.",
        )
    ]


@hookimpl
def rlcore_register_corrections() -> list[CorrectionSpec]:
    """One correction."""
    return [FAKE_CORRECTION]


@hookimpl
def rlcore_register_algorithms() -> list[AlgorithmSpec]:
    """The recipe of the two."""
    return [AlgorithmSpec(name="fake", estimator="fake", loss="fake", summary="The fake estimator with the fake loss.")]


@hookimpl
def rlcore_register_trackers() -> list[TrackerSpec]:
    """One tracker."""
    return [
        TrackerSpec(
            name="fake",
            target="rlcore.testing.tracking:FakeTracker",
            config="rlcore.testing.tracking:FakeTrackerOptions",
            summary="Keeps records in memory; raises on demand.",
        )
    ]


@hookimpl
def rlcore_register_sandboxes() -> list[SandboxSpec]:
    """One sandbox."""
    return [
        SandboxSpec(
            name="fake",
            target="rlcore.testing.fake_sandbox:FakeSandbox",
            config="rlcore.testing.fake_sandbox:FakeSandboxOptions",
            summary="Runs nothing; answers as its options say.",
            levels=("none",),
        )
    ]


@hookimpl
def rlcore_register_weight_transfers() -> list[WeightTransferSpec]:
    """One for the memory of a process, and one that the workers of an engine join."""
    return [
        WeightTransferSpec(
            name="fake",
            target="rlcore.testing.fake_rows:FakeTransfer",
            summary="Hands over the snapshot itself, as memory does.",
            reach="process",
            preference=-1,
        ),
        WeightTransferSpec(
            name="fake_collective",
            target="rlcore.testing.fake_collective:FakeCollective",
            summary="From the trainer to the workers of engines, which join a group.",
            reach="host",
            way="fake_collective",
        ),
    ]


@hookimpl
def rlcore_register_data_sources() -> list[DataSourceSpec]:
    """One data source."""
    return [DataSourceSpec(name="fake", target="rlcore.testing.fake_rows:FakeRows", summary="fake:abc: one row a letter.", prefix="fake:")]


@hookimpl
def rlcore_register_row_formats() -> list[RowFormatSpec]:
    """One row format."""
    return [RowFormatSpec(name="fake", target="rlcore.testing.fake_rows:FakeFormat", summary="Rows of a letter, {fake: a}.")]


@hookimpl
def rlcore_register_conversations() -> list[ConversationSpec]:
    """The fake, and one with a fault."""
    return [
        ConversationSpec(
            name=name,
            target=f"rlcore.testing.fake_conversation:{name.capitalize()}Conversation",
            config=f"rlcore.testing.fake_conversation:{name.capitalize()}ConversationOptions",
            summary=summary,
        )
        for name, summary in (("fake", "Asks, says the same, asks again."), ("faulty", "Two turns with one fault, chosen by option."))
    ]
