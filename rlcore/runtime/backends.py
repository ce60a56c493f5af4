"""Build the algorithm, the backends and the conversation of a plan, checked and ready for consumers and producers.

A backend's declared capabilities are checked against the run's requirements before any part of it is built.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any

import numpy as np

from rlcore.config import Plan
from rlcore.config.control_rules import OF_LOSS
from rlcore.config.plugin_selection import unsupported
from rlcore.contracts.conversation import Conversation, ConversationContext
from rlcore.contracts.environment import ChosenEnvironment
from rlcore.contracts.errors import ConfigError, PluginError
from rlcore.contracts.interfaces import (
    AdvantageEstimator,
    InferenceBackend,
    InferenceContext,
    Loss,
    Need,
    Tokenizer,
    TrainingBackend,
    TrainingContext,
)
from rlcore.contracts.loss_wrappers import Correction, KlEstimator
from rlcore.contracts.model_hook import ModelHook
from rlcore.contracts.specs import EnvironmentSpec, InferenceCapabilities, PluginKind, RewardSpec, TrainingCapabilities
from rlcore.contracts.training_settings import LoraSettings, OptimizerFactory, OptimizerSettings
from rlcore.host.allocator import keep_freed_memory
from rlcore.learning.assemble import BatchSettings
from rlcore.learning.objective import PolicyObjective
from rlcore.learning.overlong_punishment import SoftOverlong
from rlcore.registry.error_context import close_part, error_context
from rlcore.roles.algorithm import Algorithm, MixedAlgorithm
from rlcore.roles.consumer import Consumer
from rlcore.runtime.loading import loading
from rlcore.runtime.steering import with_settings
from rlcore.schedule import ScheduleSettings, TimeAccount

__all__ = ["build_algorithm", "check_backend", "inference_notes", "make_consumer", "make_conversation", "make_engine"]


def make_consumer(
    plan: Plan, schedule: ScheduleSettings, account: TimeAccount, closing: ExitStack, *, rank: int = 0, rendezvous: str = ""
) -> Consumer:
    """Build the consumer of one rank, new or from the checkpoint that the run resumes from. ``closing`` closes its backend.

    Raises ConfigError if the backend does not support the run or cannot load the model.

    :param rendezvous: the address where several ranks meet.
    """
    keep_freed_memory()
    config, training, resume, lora = plan.config, plan.config.training, plan.resume, _lora(plan)
    algorithm, optimizer = _algorithm(plan), optimizer_settings(plan, schedule.horizon)
    context = TrainingContext(
        model=config.model.model if resume is None or lora else str(resume.checkpoint / "model"),
        reference=config.model.reference or config.model.model,
        optimizer=optimizer,
        rollouts_per_forward=int(training.train_microbatch_size),
        tokens_per_forward=training.tokens_per_forward,
        prompts_per_slice=int(training.train_minibatch_size),
        needs=algorithm.needs,
        dtype=training.dtype,
        device=training.device,
        rank=rank,
        world_size=training.num_trainers,
        rendezvous=rendezvous,
        tensor_parallel=training.tensor_parallel_size,
        pipeline_parallel=training.pipeline_parallel_size,
        context_parallel=training.context_parallel_size,
        expert_parallel=training.expert_parallel_size,
        zero_stage=training.zero_stage,
        seed=config.run.seed,
        trust_remote_code=config.model.trust_remote_code,
        lora=lora,
        model_hook=_model_hook(plan),
        resumed=resume is not None and lora is None,
    )
    check_backend(plan, PluginKind.TRAINING, training.name)
    owner = plan.registry.owner(PluginKind.TRAINING, training.name)
    what = f"model {context.model} for the training backend {training.name} of {owner}"
    backend: TrainingBackend = plan.registry.make(
        PluginKind.TRAINING, training.name, context, options=plan.training_options, guard=loading(what)
    )
    closing.callback(close_part, backend, f"backend {training.name}")
    with loading(what):
        backend.setup(context)
    sleeps = config.run.placement == "colocated" and backend.capabilities.sleeps
    skips, export = training.max_skipped_steps, config.log.export_dtype
    sync = config.model.reference_sync_steps, config.model.reference_mixup_alpha
    consumer = Consumer(
        backend,
        algorithm,
        account,
        config.weights.bucket_mb << 20,
        rank,
        sleeps=sleeps,
        max_skipped_steps=skips,
        export=export,
        retuned=partial(_retuned, plan, optimizer),
        sync=sync,
    )
    if resume is not None:
        consumer.load(resume.checkpoint, model_alone=lora is None)
    return consumer


def make_engine(plan: Plan, tokenizer: Tokenizer, closing: ExitStack, producer: int = 0) -> InferenceBackend:
    """Build the engine of producer number ``producer``. ``closing`` closes it. Raises ConfigError if it does not support the run or cannot
    load the model."""
    keep_freed_memory()
    config, inference = plan.config, plan.config.inference
    context = InferenceContext(
        model=config.model.model,
        tokenizer=tokenizer,
        prompts_per_forward=int(inference.inference_microbatch_size),
        max_tokens=max(part.plan.config.max_context_tokens for part in plan.parts),
        dtype=inference.dtype,
        device=inference.device,
        tensor_parallel=inference.producer_tensor_parallel_size,
        seed=config.run.seed,
        trust_remote_code=config.model.trust_remote_code,
        adapter_rank=lora.rank if (lora := _lora(plan)) and lora.adapter_only else 0,
        producer=producer,
        producers=inference.num_inferencer,
    )
    check_backend(plan, PluginKind.INFERENCE, inference.name)
    owner = plan.registry.owner(PluginKind.INFERENCE, inference.name)
    what = f"model {config.model.model} for the inference backend {inference.name} of {owner}"
    engine: InferenceBackend = plan.registry.make(
        PluginKind.INFERENCE, inference.name, context, options=plan.inference_options, guard=loading(what)
    )
    closing.callback(close_part, engine, f"backend {inference.name}")
    return engine


def _lora(plan: Plan) -> LoraSettings | None:
    """Return the LoRA settings. Adapters travel unmerged if the engine accepts them and weights travel through host memory."""
    training = plan.config.training
    if not training.lora_rank:
        return None
    offered = getattr(plan.registry.usable(PluginKind.INFERENCE, plan.config.inference.name), "capabilities", None)
    adapter_only = "adapter" in getattr(offered, "kinds", ()) and _way(plan) == "host"
    return LoraSettings(rank=training.lora_rank, alpha=training.lora_alpha, targets=training.lora_targets, adapter_only=adapter_only)


def _model_hook(plan: Plan) -> ModelHook | None:
    name = plan.config.training.model_hook
    if name == "none":
        return None
    made: ModelHook = plan.registry.make(PluginKind.MODEL_HOOK, name, options=plan.update_options.get("model_hook"))
    return made


def _way(plan: Plan) -> str:
    """Return the route by which the run's transfer delivers weights."""
    return str(getattr(plan.registry.spec(PluginKind.TRANSFER, plan.config.weights.transport), "way", "host"))


def make_conversation(
    plan: Plan, tokenizer: Tokenizer, producer: str, closing: ExitStack, say: Callable[[str], None]
) -> tuple[Conversation, ...]:
    """Build and open the conversation of each source of the run, which turns a prompt into a rollout. ``closing`` closes them. Their errors
    name their plugins."""
    names = [f"{producer}-{part.name}" if part.name else producer for part in plan.parts]
    return tuple(_conversation(part.plan, tokenizer, name, closing, say) for part, name in zip(plan.parts, names, strict=True))


def _conversation(plan: Plan, tokenizer: Tokenizer, producer: str, closing: ExitStack, say: Callable[[str], None]) -> Conversation:
    config, name = plan.config, plan.config.sampling.conversation
    made: Conversation = plan.registry.make(PluginKind.CONVERSATION, name, options=plan.conversation_options)
    made.who = f"conversation {name!r} of {plan.registry.owner(PluginKind.CONVERSATION, name)}"
    made.max_context_tokens = config.max_context_tokens
    closing.callback(close_part, made, made.who)
    with error_context(made.who, "being opened"):
        made.open(
            ConversationContext(
                producer=producer,
                tokenizer=tokenizer,
                seed=config.run.seed,
                max_context_tokens=config.max_context_tokens,
                max_new_tokens=config.sampling.max_new_tokens,
                lease_deadline=config.schedule.lease_deadline,
                environment=_environment(plan),
                say=say,
            )
        )
    return made


def _environment(plan: Plan) -> ChosenEnvironment | None:
    name, registry, kind = plan.config.sampling.environment, plan.registry, PluginKind.ENVIRONMENT
    if name == "none":
        return None
    spec = registry.spec(kind, name)
    assert isinstance(spec, EnvironmentSpec)
    options, payload = plan.environment_options, registry.payload(kind, name)
    return ChosenEnvironment(name=name, owner=registry.owner(kind, name), spec=spec, payload=payload, options=options)


def check_backend(plan: Plan, kind: PluginKind, name: str) -> None:
    """Raise PluginError if the class declares no capabilities. Raise ConfigError if it does not support the run."""
    declared = getattr(plan.registry.load(kind, name), "capabilities", None)
    record = InferenceCapabilities if kind is PluginKind.INFERENCE else TrainingCapabilities
    if not isinstance(declared, record):
        owner = plan.registry.owner(kind, name)
        raise PluginError(f"{kind} backend {name!r} of {owner} declares no {record.__name__}; its class needs the attribute capabilities")
    for part in plan.parts:
        if sentence := unsupported(declared, name, part.plan.config, part.plan.cite, _way(plan)):
            raise ConfigError(f"{part.label}{sentence}")


def inference_notes(engine: InferenceBackend, name: str, *, probe: bool) -> list[str]:
    """Return one sentence for each request of the run that this engine cannot meet, if that does no harm.

    :param probe: whether the run asks for a probe."""
    if not probe or engine.capabilities.scores:
        return []
    return [f"inference backend {name} cannot score, so its weights are checked by version and checksum, and not by a probe"]


def optimizer_settings(plan: Plan, updates: int) -> OptimizerSettings:
    """Return the settings of the optimizer for a run of this many updates."""
    training, algorithm = plan.config.training, plan.config.algorithm
    return OptimizerSettings(
        learning_rate=training.learning_rate,
        betas=training.betas,
        weight_decay=training.weight_decay,
        max_grad_norm=training.max_grad_norm,
        warmup_steps=training.warmup_steps,
        min_lr_ratio=training.min_lr_ratio,
        optimizer=_optimizer(plan),
        schedule=plan.registry.make(PluginKind.LR_SCHEDULE, training.lr_schedule, options=plan.update_options.get("lr_schedule")),
        total_steps=updates * min(algorithm.updates_per_batch, training.train_batch_size) * algorithm.epochs_per_batch,
    )


def _optimizer(plan: Plan) -> OptimizerFactory | None:
    """Return the chosen optimizer, or None for AdamW, which is part of each backend."""
    if not plan.config.training.chooses_optimizer:
        return None
    options = plan.update_options.get("optimizer")
    made: OptimizerFactory = plan.registry.make(PluginKind.OPTIMIZER, plan.config.training.optimizer, options=options)
    return made


def _algorithm(plan: Plan) -> Algorithm | MixedAlgorithm:
    """Build the algorithm of a run: that of each source if it has ``[[sources]]``."""
    if not plan.sources:
        return build_algorithm(plan)
    return MixedAlgorithm(plan.source_names, tuple(build_algorithm(source.plan) for source in plan.sources))


def _retuned(plan: Plan, optimizer: OptimizerSettings, algorithm: Any, settings: Mapping[str, Any]) -> Algorithm | MixedAlgorithm:
    """Return the algorithm with other values of settings, and set the factor of the learning rate. The estimator stays, and so does the
    loss; if its options change, a new one continues from its state. With ``[[sources]]``, only the learning rate may change."""
    other = with_settings(plan, settings)
    optimizer.factor.value = other.config.training.learning_rate / plan.config.training.learning_rate
    if isinstance(algorithm, MixedAlgorithm):
        return algorithm
    loss = algorithm.loss
    if any(path.startswith(OF_LOSS) for path in settings):
        loss = plan.registry.make(PluginKind.LOSS, plan.config.algorithm.loss, options=other.loss_options)
        if state := {name: np.asarray(value) for name, value in algorithm.loss.state().items()}:
            loss.restore(state)
    return replace(build_algorithm(other, loss, algorithm.estimator), kept_needs=algorithm.needs)


def build_algorithm(plan: Plan, loss: Loss | None = None, estimator: AdvantageEstimator | None = None) -> Algorithm:
    """Build estimator, loss and objective, with the core's settings around them.

    :param loss: the loss to keep, None for a new one; the same for ``estimator``."""
    config, settings = plan.config, plan.config.algorithm
    loss = loss or plan.registry.make(PluginKind.LOSS, settings.loss, options=plan.loss_options)
    estimator = estimator or plan.registry.make(PluginKind.ESTIMATOR, settings.estimator, options=plan.estimator_options)
    if not (isinstance(loss.needs, frozenset | set) and loss.needs <= set(Need)):
        raise PluginError(f"loss {settings.loss!r} needs {loss.needs!r}; needs must be a frozenset of {', '.join(Need)}")
    made = plan.update_options
    kl: KlEstimator = plan.registry.make(PluginKind.KL, settings.kl_kind, options=made.get("kl_kind"))
    in_loss = settings.kl_in == "loss"
    objective = PolicyObjective(
        loss=loss,
        name=settings.loss,
        kl_coeff=settings.kl_coeff if in_loss else 0.0,
        kl_kind=kl,
        entropy_coeff=settings.entropy_coeff,
        skip_threshold=settings.skip_threshold,
        correction=_correction(plan),
    )
    return Algorithm(
        estimator_name=settings.estimator,
        estimator=estimator,
        loss_name=settings.loss,
        loss=loss,
        objective=objective,
        whole_rollouts=objective.whole_rollouts,
        batch=BatchSettings(
            max_new_tokens=config.sampling.max_new_tokens,
            variation=plan.registry.make(PluginKind.AGGREGATION, settings.loss_variation, options=made.get("loss_variation")),
            filter_truncated=settings.filter_truncated_response,
            overlong=_overlong(plan),
            max_staleness=int(config.schedule.max_staleness) if config.schedule.continuing else None,
            rewards=tuple(spec.name for spec in plan.reward_specs()),
        ),
        seed=config.run.seed,
        updates_per_batch=min(settings.updates_per_batch, config.training.train_batch_size),
        epochs_per_batch=settings.epochs_per_batch,
        old_from_trainer=settings.old_logprobs == "trainer",
        kl_in_reward=0.0 if in_loss else settings.kl_coeff,
        kl_kind=kl,
    )


def _correction(plan: Plan) -> Correction | None:
    name, bounds = plan.config.algorithm.mismatch_correction, plan.config.algorithm.mismatch_range
    if name == "none":
        return None
    held, options = bounds if isinstance(bounds, tuple) else (0.0, inf), plan.update_options.get("mismatch_correction")
    made: Correction = plan.registry.make(PluginKind.CORRECTION, name, held, options=options)
    return made


def _full_value(spec: RewardSpec, options: Any) -> float:
    return float(getattr(options, spec.full_value_option)) if spec.full_value_option else 1.0


def _overlong(plan: Plan) -> SoftOverlong | None:
    """Return the overlong penalty in units of the reward, scaled by the value of a correct answer, summed over all rewards."""
    settings = plan.config.algorithm
    if not settings.soft_over_length_punishment:
        return None
    rewards = zip(plan.config.rewards, plan.reward_specs(), plan.reward_options, strict=True)
    scale = sum(abs(reward.weight) * _full_value(spec, options) for reward, spec, options in rewards)
    return SoftOverlong(max_new_tokens=plan.config.sampling.max_new_tokens, cache_length=int(settings.cache_length), correct_score=scale)
