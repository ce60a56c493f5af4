"""A plugin module that offers ``fake`` for each kind except runtimes and commands, and ``faulty`` backends.

It has no entry point: only tests activate it.
"""

from __future__ import annotations

from dataclasses import replace

from rlcore.contracts.hookspecs import hookimpl
from rlcore.contracts.specs import (
    AdvantageSpec,
    AggregationSpec,
    AlgorithmSpec,
    ControllerSpec,
    ConversationSpec,
    CorrectionSpec,
    DataSourceSpec,
    EnvironmentSpec,
    GroupFilterSpec,
    InferenceBackendSpec,
    InferenceCapabilities,
    InFlight,
    KlSpec,
    LearningRateScheduleSpec,
    LossSpec,
    ModelHookSpec,
    OptimizerSpec,
    RewardSpec,
    RowFormatSpec,
    SamplerSpec,
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
    syncs_reference=True,
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
PIPELINE_TRAINING = TrainingCapabilities(
    layouts=frozenset({"single", "pipeline"}),
    dtypes=frozenset({"float32", "float64"}),
    optimizers=True,
    syncs_reference=True,
    entropies=True,
    reproducible="bitwise",
    implementation="fake",
)

FAKE_REWARD = RewardSpec(
    name="fake",
    target="rlcore.testing.rewards.fake_reward:FakeReward",
    config="rlcore.testing.rewards.fake_reward:FakeRewardOptions",
    summary="Right where the text equals gt_answer; a text that starts with ! is a script.",
    requires=("gt_answer",),
)
FAKE_TOKEN_REWARD = RewardSpec(
    name="fake_tokens",
    target="rlcore.testing.rewards.fake_reward:FakeTokenReward",
    config="rlcore.testing.rewards.fake_reward:FakeRewardOptions",
    summary="As fake, and a reward for each token: 1 if its id is even.",
    requires=("gt_answer",),
    reads_tokens=True,
)
FAKE_CREDIT = AdvantageSpec(
    name="fake_credit",
    target="rlcore.testing.algorithms.fake_algorithms:FakeCredit",
    summary="Token rewards within a turn, reward parts and the sampler's surprise.",
    per="token",
)
FAKE_LOSS = LossSpec(
    name="fake", target="rlcore.testing.algorithms.fake_algorithms:FakeLoss", summary="-advantage * ratio, not clipped.", on_policy=False
)
FAKE_CONTROLLER = ControllerSpec(
    name="fake",
    target="rlcore.testing.control.fake_controller:FakeController",
    config="rlcore.testing.control.fake_controller:FakeControllerOptions",
    summary="Halves the learning rate after each update; stops on request.",
    scales=("training.learning_rate",),
)
FAKE_CORRECTION = CorrectionSpec(
    name="fake",
    target="rlcore.testing.algorithms.fake_algorithms:FakeCorrection",
    summary="The geometric mean of the ratios over a rollout, held within the range.",
    per="rollout",
    usual_range=(0.5, 2.0),
)
FAKE_OPTIMIZER = OptimizerSpec(
    name="fake",
    target="rlcore.testing.algorithms.fake_optimizer:FakeOptimizer",
    summary="SGD with momentum; vectors at twice the rate.",
    elementwise=True,
)


@hookimpl
def rlcore_register_rewards() -> list[RewardSpec]:
    """Return one reward, and one that judges tokens too."""
    return [FAKE_REWARD, FAKE_TOKEN_REWARD]


@hookimpl
def rlcore_register_inference_backends() -> list[InferenceBackendSpec]:
    """Return the fake, one with a fault, and two of several processes."""
    return [
        InferenceBackendSpec(
            name=name,
            target=f"rlcore.testing.inference.{module}:{cls}",
            config=f"rlcore.testing.inference.{module}:{cls if module != 'fake_tensor_parallel' else 'FakeTensorParallel'}Options",
            summary=summary,
            tokenizer="rlcore.testing.tokens:load_fake_tokenizer",
            capabilities=capabilities,
        )
        for name, module, cls, capabilities, summary in (
            ("fake", "fake_inference", "FakeInference", FAKE_INFERENCE, "A table of logits, in numpy."),
            ("faulty", "faulty_inference", "FaultyInference", FAKE_INFERENCE, "The fake with one fault, chosen by option."),
            (
                "fake-tensor",
                "fake_tensor_parallel",
                "FakeTensorParallel",
                FAKE_TENSOR_INFERENCE,
                "The fake in several processes, tensor parallel.",
            ),
            (
                "fake-joining",
                "fake_tensor_parallel",
                "FakeJoining",
                FAKE_JOINING_INFERENCE,
                "As fake-tensor, with weights by a transfer of its own alone.",
            ),
        )
    ]


@hookimpl
def rlcore_register_training_backends() -> list[TrainingBackendSpec]:
    """Return the fake, one with a fault, and the two-stage pipeline in torch."""
    return [
        TrainingBackendSpec(
            name="fake",
            target="rlcore.testing.training.fake_training:FakeTraining",
            config="rlcore.testing.training.fake_training:FakeTrainingOptions",
            summary="The policy gradient of a table of logits, in numpy; takes no objective.",
            capabilities=FAKE_TRAINING,
        ),
        TrainingBackendSpec(
            name="faulty",
            target="rlcore.testing.training.faulty_training:FaultyTraining",
            config="rlcore.testing.training.faulty_training:FaultyTrainingOptions",
            summary="The fake with one fault, chosen by option.",
            capabilities=FAKE_TRAINING,
        ),
        TrainingBackendSpec(
            name="fake-pipeline",
            target="rlcore.testing.training.fake_pipeline:FakePipeline",
            summary="A tiny torch model in two stages, micro-batches one forward, one backward.",
            requires_module="torch",
            install="pip install torch",
            capabilities=PIPELINE_TRAINING,
            preference=-1,
        ),
    ]


@hookimpl
def rlcore_register_advantage_estimators() -> list[AdvantageSpec]:
    """Return a simple estimator, one that keeps a state, and one that reads all details."""
    return [
        AdvantageSpec(
            name="fake", target="rlcore.testing.algorithms.fake_algorithms:FakeEstimator", summary="Reward minus the group's mean."
        ),
        AdvantageSpec(
            name="fake_baseline",
            target="rlcore.testing.algorithms.fake_algorithms:FakeBaseline",
            summary="Reward minus a running mean of its prompt.",
            group_baseline=False,
        ),
        FAKE_CREDIT,
    ]


@hookimpl
def rlcore_register_losses() -> list[LossSpec]:
    """Return one loss."""
    return [FAKE_LOSS]


@hookimpl
def rlcore_register_aggregations() -> list[AggregationSpec]:
    """Return one aggregation."""
    return [AggregationSpec(name="fake", target="rlcore.testing.algorithms.fake_algorithms:FakeAggregation", summary="Mean over groups.")]


@hookimpl
def rlcore_register_kl_estimators() -> list[KlSpec]:
    """Return one KL estimator, with an option."""
    return [
        KlSpec(
            name="fake",
            target="rlcore.testing.algorithms.fake_algorithms:FakeKl",
            config="rlcore.testing.algorithms.fake_algorithms:FakeKlOptions",
            summary="Huber's: a parabola, then a straight line.",
        )
    ]


@hookimpl
def rlcore_register_corrections() -> list[CorrectionSpec]:
    """Return one correction."""
    return [FAKE_CORRECTION]


@hookimpl
def rlcore_register_lr_schedules() -> list[LearningRateScheduleSpec]:
    """Return one learning-rate schedule."""
    return [
        LearningRateScheduleSpec(
            name="fake", target="rlcore.testing.algorithms.fake_algorithms:FakeLearningRateSchedule", summary="A parabola to the end."
        )
    ]


@hookimpl
def rlcore_register_controllers() -> list[ControllerSpec]:
    """Return one controller."""
    return [FAKE_CONTROLLER]


@hookimpl
def rlcore_register_model_hooks() -> list[ModelHookSpec]:
    """Return one model hook."""
    return [
        ModelHookSpec(name="fake", target="rlcore.testing.training.fake_model_hook:FakeModelHook", summary="Does not train the embedding.")
    ]


@hookimpl
def rlcore_register_filters() -> list[GroupFilterSpec]:
    """Return one filter of groups."""
    return [
        GroupFilterSpec(
            name="fake", target="rlcore.testing.algorithms.fake_algorithms:FakeGroupFilter", summary="The mean reward and above."
        )
    ]


@hookimpl
def rlcore_register_optimizers() -> list[OptimizerSpec]:
    """Return one optimizer."""
    return [FAKE_OPTIMIZER]


@hookimpl
def rlcore_register_samplers() -> list[SamplerSpec]:
    """Return one sampler."""
    return [
        SamplerSpec(
            name="fake", target="rlcore.testing.sampling.fake_sampler:FakeSampler", summary="In order; what was mostly wrong once more."
        )
    ]


@hookimpl
def rlcore_register_algorithms() -> list[AlgorithmSpec]:
    """Return the recipe of the fake estimator and the fake loss."""
    return [AlgorithmSpec(name="fake", estimator="fake", loss="fake", summary="The fake estimator with the fake loss.")]


@hookimpl
def rlcore_register_trackers() -> list[TrackerSpec]:
    """Return one tracker."""
    return [
        TrackerSpec(
            name="fake",
            target="rlcore.testing.trackers.fake_tracker:FakeTracker",
            config="rlcore.testing.trackers.fake_tracker:FakeTrackerOptions",
            summary="Keeps records in memory; raises on demand.",
        )
    ]


@hookimpl
def rlcore_register_sandboxes() -> list[SandboxSpec]:
    """Return one sandbox."""
    return [
        SandboxSpec(
            name="fake",
            target="rlcore.testing.sandboxes.fake_sandbox:FakeSandbox",
            config="rlcore.testing.sandboxes.fake_sandbox:FakeSandboxOptions",
            summary="Runs nothing; answers as its options say.",
            levels=("none",),
        )
    ]


@hookimpl
def rlcore_register_weight_transfers() -> list[WeightTransferSpec]:
    """Return a transfer in the memory of a process, and one that the workers of an engine join."""
    return [
        WeightTransferSpec(
            name="fake",
            target="rlcore.testing.transfers.fake_transfer:FakeTransfer",
            summary="Hands over the snapshot itself, as memory does.",
            reach="process",
            preference=-1,
        ),
        WeightTransferSpec(
            name="fake_collective",
            target="rlcore.testing.transfers.fake_collective:FakeCollective",
            summary="From the trainer to the workers of engines, which join a group.",
            reach="host",
            way="fake_collective",
        ),
    ]


@hookimpl
def rlcore_register_data_sources() -> list[DataSourceSpec]:
    """Return a data source that ends, and one that does not."""
    return [
        DataSourceSpec(name="fake", target="rlcore.testing.data.fake_data:FakeRows", summary="fake:abc: one row a letter.", prefix="fake:"),
        DataSourceSpec(
            name="fake_endless",
            target="rlcore.testing.data.fake_data:FakeGenerator",
            summary="fake-endless:abcd: letters without end.",
            prefix="fake-endless:",
            endless=True,
        ),
    ]


@hookimpl
def rlcore_register_row_formats() -> list[RowFormatSpec]:
    """Return one row format."""
    return [RowFormatSpec(name="fake", target="rlcore.testing.data.fake_data:FakeFormat", summary="Rows of a letter, {fake: a}.")]


@hookimpl
def rlcore_register_conversations() -> list[ConversationSpec]:
    """Return one conversation."""
    return [
        ConversationSpec(
            name="fake",
            target="rlcore.testing.conversations.fake_conversation:FakeConversation",
            config="rlcore.testing.conversations.fake_conversation:FakeConversationOptions",
            summary="Asks, says the same, asks again.",
        )
    ]


@hookimpl
def rlcore_register_environments() -> list[EnvironmentSpec]:
    """Return one environment."""
    target = "rlcore.testing.conversations.fake_environment:FakeEnvironment"
    return [EnvironmentSpec(name="fake", target=target, summary="Asks once, and compares.", deterministic=True)]
