"""The backends of a plan, made, checked and ready: what a consumer trains with, what a producer generates with.

What a backend says it can do is held against what the run asks of it before anything of it is built.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

from rlcore.config import Plan
from rlcore.contracts.errors import ConfigError
from rlcore.contracts.interfaces import (
    InferenceBackend,
    InferenceCapabilities,
    InferenceContext,
    OptimizerSettings,
    Tokenizer,
    TrainingBackend,
    TrainingCapabilities,
    TrainingContext,
)
from rlcore.contracts.snapshots import Probe, Snapshot, Tensor
from rlcore.contracts.specs import PluginKind
from rlcore.roles.consumer import Consumer
from rlcore.runtime.algorithm import build_algorithm
from rlcore.runtime.loading import loading
from rlcore.schedule import ScheduleSettings, TimeAccount

__all__ = ["Seal", "check_inference", "check_sleeps", "check_training", "inference_notes", "make_consumer", "make_engine"]

Seal = Callable[[int, Mapping[str, Tensor], Probe | None], Snapshot]
"""Makes a snapshot of a version, its tensors and its probe."""

_log = logging.getLogger("rlcore")


def make_consumer(
    plan: Plan,
    schedule: ScheduleSettings,
    account: TimeAccount,
    closing: ExitStack,
    *,
    rank: int = 0,
    rendezvous: str = "",
    seal: Seal = Snapshot.of,
) -> Consumer:
    """The consumer of one rank; its backend is closed by ``closing``. ConfigError for what the backend cannot do or load.

    ``rendezvous``: the address where several ranks meet. ``seal``: how tensors become a snapshot: ``Snapshot.of``, which computes checksums
    at once, or ``Snapshot.sealed_late``, if the publisher computes them while it sends.
    """
    config, training = plan.config, plan.config.training
    algorithm = build_algorithm(plan)
    context = TrainingContext(
        model=config.model.model,
        optimizer=OptimizerSettings(
            learning_rate=training.learning_rate,
            betas=training.betas,
            weight_decay=training.weight_decay,
            max_grad_norm=training.max_grad_norm,
            warmup_steps=training.warmup_steps,
            min_lr_ratio=training.min_lr_ratio,
            total_steps=schedule.horizon * algorithm.optimizer_steps,
        ),
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
        zero_stage=training.zero_stage,
        seed=config.run.seed,
        trust_remote_code=config.model.trust_remote_code,
    )
    check_training(plan.registry.load(PluginKind.TRAINING, training.name), context, training.name)
    owner = plan.registry.owner(PluginKind.TRAINING, training.name)
    what = f"model {config.model.model} for the training backend {training.name} of {owner}"
    backend: TrainingBackend = plan.registry.make(
        PluginKind.TRAINING, training.name, context, options=plan.training_options, guard=loading(what)
    )
    closing.callback(_close, backend, training.name)
    with loading(what):
        backend.setup(context)
    return Consumer(backend, algorithm, account, seal)


def make_engine(plan: Plan, tokenizer: Tokenizer, closing: ExitStack) -> InferenceBackend:
    """The engine of one producer, closed by ``closing``. ConfigError for what it cannot do or load."""
    config, inference = plan.config, plan.config.inference
    context = InferenceContext(
        model=config.model.model,
        tokenizer=tokenizer,
        prompts_per_forward=int(inference.inference_microbatch_size),
        max_tokens=config.data.max_prompt_tokens + max(config.sampling.max_new_tokens, config.eval.eval_max_new_tokens or 0),
        dtype=inference.dtype,
        device=inference.device,
        tensor_parallel=inference.producer_tensor_parallel_size,
        seed=config.run.seed,
        trust_remote_code=config.model.trust_remote_code,
    )
    target = plan.registry.load(PluginKind.INFERENCE, inference.name)
    check_inference(target, context, inference.name)
    check_sleeps(target, config.run.placement, inference.name)
    owner = plan.registry.owner(PluginKind.INFERENCE, inference.name)
    what = f"model {config.model.model} for the inference backend {inference.name} of {owner}"
    engine: InferenceBackend = plan.registry.make(
        PluginKind.INFERENCE, inference.name, context, options=plan.inference_options, guard=loading(what)
    )
    closing.callback(_close, engine, inference.name)
    return engine


def _close(backend: InferenceBackend | TrainingBackend, name: str) -> None:
    """Close a backend; an error in that is reported and must not hide the one that ended the run."""
    try:
        backend.close()
    except Exception as error:
        _log.warning("backend %s failed while closing: %s: %s", name, type(error).__name__, error)


def check_training(target: Any, context: TrainingContext, name: str) -> None:
    """Raise ConfigError for a dtype, device or layout that the backend does not declare."""
    capabilities = getattr(target, "capabilities", None)
    if not isinstance(capabilities, TrainingCapabilities):
        raise ConfigError(f"training backend {name} declares no TrainingCapabilities; its class needs the attribute capabilities")
    _check("training", name, capabilities.dtypes, capabilities.devices, context.dtype, context.device)
    asked = {
        "tensor": ("-tp", context.tensor_parallel > 1),
        "pipeline": ("-pp", context.pipeline_parallel > 1),
        "zero": ("-zero", context.zero_stage > 0),
    }
    for layout, (flag, wanted) in asked.items():
        if wanted and layout not in capabilities.layouts:
            have = ", ".join(sorted(capabilities.layouts))
            raise ConfigError(f"training backend {name} has no layout {layout!r} (it has {have}); leave {flag} at its default")
    replica = context.tensor_parallel * context.pipeline_parallel
    if context.world_size // replica > 1 and "data" not in capabilities.layouts:
        raise ConfigError(
            f"training backend {name} has no layout 'data' (it has {', '.join(sorted(capabilities.layouts))}), and -t {context.world_size} "
            f"asks for {context.world_size // replica} data-parallel ranks; use -t {replica}"
        )


def check_inference(target: Any, context: InferenceContext, name: str) -> None:
    """Raise ConfigError for a dtype or device that the backend does not declare."""
    capabilities = getattr(target, "capabilities", None)
    if not isinstance(capabilities, InferenceCapabilities):
        raise ConfigError(f"inference backend {name} declares no InferenceCapabilities; its class needs the attribute capabilities")
    _check("inference", name, capabilities.dtypes, capabilities.devices, context.dtype, context.device)


def check_sleeps(backend: Any, placement: str, name: str) -> None:
    """ConfigError where ``placement`` is colocated and the inference backend does not give its device back.

    ``backend``: a class or an instance, with ``capabilities``; ``name``: what the user calls it.
    """
    if placement == "colocated" and not backend.capabilities.sleeps:
        raise ConfigError(
            f"placement colocated lets generation and training take turns on one device, and inference backend {name} never gives its "
            "device back (capabilities.sleeps is False); type --placement split, or another --backend"
        )


def inference_notes(engine: InferenceBackend, name: str, *, probe: bool) -> list[str]:
    """What of the run's wishes this engine leaves unfulfilled without harm: one sentence each. ``probe``: whether the run asks for one."""
    if not probe or engine.capabilities.scores:
        return []
    return [f"inference backend {name} cannot score, so what it serves is checked by version and checksum, and not by a probe"]


def _check(section: str, name: str, dtypes: frozenset[str], devices: frozenset[str], dtype: str, device: str) -> None:
    if dtype not in dtypes:
        raise ConfigError(f"--{section}-dtype {dtype} is not served by backend {name}; use {' or '.join(sorted(dtypes))}")
    if device != "auto" and device.partition(":")[0] not in devices:
        raise ConfigError(f"--{section}-device {device} is not served by backend {name}; use auto or {' or '.join(sorted(devices))}")
