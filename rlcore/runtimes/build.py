"""From a plan to the parts of a run on this machine.

The order is deliberate: what can be refused cheaply comes first, and the reward workers start before torch and threads.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np

from rlcore.config import Plan
from rlcore.data import DataSet, check_prompt_lengths, load_eval, load_prompts, with_system_prompt
from rlcore.data.tokenizer import load_tokenizer
from rlcore.errors import ConfigError, RlcoreError
from rlcore.interfaces import InferenceBackend, InferenceContext, OptimizerSettings, Tokenizer, TrainingBackend, TrainingContext
from rlcore.rewards import Judge
from rlcore.roles.consumer import Consumer
from rlcore.roles.evaluator import Evaluator
from rlcore.roles.producer import Producer
from rlcore.runtimes.algorithm import build_algorithm
from rlcore.runtimes.annealing import AnnealedSampling
from rlcore.runtimes.capabilities import check_inference, check_training
from rlcore.runtimes.delivery import JobMaker
from rlcore.runtimes.feed import Feed, SequentialFeed
from rlcore.runtimes.starvation import FilterWatch
from rlcore.runtimes.threaded_feed import ThreadedFeed
from rlcore.schedule import Coordinator, ScheduleSettings, TimeAccount
from rlcore.scoring.choice import reward_entries
from rlcore.specs import InferenceBackendSpec, PluginKind
from rlcore.types import Prompt, Sampling
from rlcore.weights import LocalChannel, probe_tolerance

__all__ = ["Parts", "build"]

_PROBE_TOKENS = 64
_log = logging.getLogger("rlcore")
_MANY_ROWS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The roles of one run, built and wired. ``accounts``: whose seconds are counted, by worker."""

    data: Mapping[str, DataSet]
    judge: Judge
    tokenizer: Tokenizer
    consumer: Consumer
    producer: Producer
    coordinator: Coordinator
    feed: Feed
    schedule: ScheduleSettings
    accounts: Mapping[str, TimeAccount]
    probe_ids: np.ndarray | None
    probe_tolerance: float


def build(plan: Plan, closing: ExitStack, say: Callable[[str], None] = lambda line: None) -> Parts:
    """Build everything; what must be closed is pushed on ``closing`` as soon as it exists. ``say`` receives what takes long."""
    data = _load_data(plan)
    rows = sum(len(data_set) for data_set in data.values())
    if rows >= _MANY_ROWS:
        say(f"checking {rows} rows: gold answers, then prompt lengths …")
    judge = _judge(plan)
    closing.callback(judge.close)
    for notice in judge.notices:
        say(notice)
    for data_set in data.values():
        judge.check(data_set.prompts)
    with _loading(f"the tokenizer {plan.config.model.tokenizer_path or plan.config.model.model}"):
        tokenizer = _tokenizer(plan)
    with _loading(f"the chat template of {plan.config.model.tokenizer_path or plan.config.model.model}"):
        prompts = {name: _rendered_prompts(plan, data_set, tokenizer) for name, data_set in data.items()}
    schedule = _schedule(plan, len(prompts["train"]))
    accounts = {"producer": TimeAccount(), "trainer": TimeAccount()}
    consumer = _consumer(plan, schedule, accounts["trainer"], closing)
    producer = Producer("producer-0", _engine(plan, tokenizer, closing), tokenizer, judge, accounts["producer"])
    coordinator = Coordinator(schedule)
    probe_ids = tokenizer.render(prompts["train"][0].messages)[:_PROBE_TOKENS]
    return Parts(
        data=data,
        judge=judge,
        tokenizer=tokenizer,
        consumer=consumer,
        producer=producer,
        coordinator=coordinator,
        feed=_feed(plan, coordinator, producer, prompts, accounts["trainer"], closing, say),
        schedule=schedule,
        accounts=accounts,
        probe_ids=probe_ids if len(probe_ids) > 1 else None,
        probe_tolerance=probe_tolerance(plan.config.inference.dtype, plan.config.training.dtype),
    )


def _judge(plan: Plan) -> Judge:
    settings = plan.config.schedule
    return Judge(
        reward_entries(plan),
        workers=int(settings.reward_workers),  # the plan has resolved auto
        error_budget=settings.reward_error_budget,
        max_items=settings.reward_worker_items,
        max_growth=settings.reward_worker_growth_mb << 20,
    )


def _filter_by(plan: Plan) -> str:
    """``accuracy``, or the name that the chosen reward goes by, however it was typed."""
    typed = plan.config.algorithm.filter_by
    return next((spec.name for reward, spec in zip(plan.config.rewards, plan.reward_specs(), strict=True) if reward.name == typed), typed)


def _load_data(plan: Plan) -> dict[str, DataSet]:
    """``train`` and the held-out tasks by name."""
    specs = plan.reward_specs()
    tasks = {f"eval/{task}": load_eval(path, specs) for task, path in plan.config.eval.eval_dataset.items()}
    return {"train": load_prompts(plan.config, specs), **tasks}


def _tokenizer(plan: Plan) -> Tokenizer:
    config = plan.config
    path = config.model.tokenizer_path or config.model.model
    spec = plan.registry.spec(PluginKind.INFERENCE, config.inference.name)
    if isinstance(spec, InferenceBackendSpec) and spec.tokenizer:
        module, _, function = spec.tokenizer.partition(":")
        loaded: Tokenizer = getattr(import_module(module), function)(path)
        return loaded
    return load_tokenizer(path, model=config.model.model)


def _rendered_prompts(plan: Plan, data: DataSet, tokenizer: Tokenizer) -> tuple[Prompt, ...]:
    """The prompts with their system prompt; refused where one is longer than ``-mpt`` allows."""
    specs = {spec.name: spec for spec in reversed(plan.reward_specs())}
    default = plan.reward_specs()[0]

    def system_prompt(prompt: Prompt) -> str:
        chosen = plan.config.data.system_prompt
        return chosen if chosen is not None else specs.get(prompt.reward or "", default).system_prompt

    prompts = tuple(replace(prompt, messages=with_system_prompt(prompt.messages, system_prompt(prompt))) for prompt in data.prompts)
    check_prompt_lengths(prompts, [len(tokenizer.render(prompt.messages)) for prompt in prompts], plan.config.data.max_prompt_tokens)
    return prompts


def _schedule(plan: Plan, prompts: int) -> ScheduleSettings:
    config = plan.config
    estimator = plan.registry.load(PluginKind.ESTIMATOR, config.algorithm.estimator)
    return ScheduleSettings(
        prompts=prompts,
        train_batch_size=config.training.train_batch_size,
        n_sampled=config.sampling.num_generations,
        n_greedy=int(getattr(estimator, "needs_greedy", False)),
        buffer_limit=int(config.schedule.data_actor_buffer_size_limit),
        episodes=config.run.num_episodes,
        max_steps=config.run.max_steps,
        max_staleness=config.schedule.max_staleness,
        filter_range=config.algorithm.filter_range,
        dynamic_batching=config.algorithm.dynamic_batching,
        seed=config.run.seed,
        shuffle=config.data.shuffle,
    )


def _consumer(plan: Plan, schedule: ScheduleSettings, account: TimeAccount, closing: ExitStack) -> Consumer:
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
        world_size=training.num_trainers,
        tensor_parallel=training.tensor_parallel_size,
        pipeline_parallel=training.pipeline_parallel_size,
        zero_stage=training.zero_stage,
        seed=config.run.seed,
    )
    target = plan.registry.load(PluginKind.TRAINING, training.name)
    check_training(target, context, training.name)
    with _loading(f"model {config.model.model} for the training backend {training.name}"):
        backend = _made(target, context, plan.training_options)
        closing.callback(_close, backend, training.name)
        backend.setup(context)
    return Consumer(backend, algorithm, account)


def _engine(plan: Plan, tokenizer: Tokenizer, closing: ExitStack) -> InferenceBackend:
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
    )
    target = plan.registry.load(PluginKind.INFERENCE, inference.name)
    check_inference(target, context, inference.name)
    with _loading(f"model {config.model.model} for the inference backend {inference.name}"):
        engine: InferenceBackend = _made(target, context, plan.inference_options)
    closing.callback(_close, engine, inference.name)
    return engine


@contextmanager
def _loading(what: str) -> Iterator[None]:
    """Whatever a library raises over a damaged model, tokenizer or template becomes one sentence, before anything is written."""
    try:
        yield
    except RlcoreError:
        raise
    except Exception as error:
        first = (str(error).strip().splitlines() or [""])[0][:200]
        raise ConfigError(
            f"{what} cannot be loaded ({type(error).__name__}: {first}); check the files in the folder, or name another -m"
        ) from error


def _made(target: Any, context: Any, options: Any) -> Any:
    return target(context) if options is None else target(context, options)


def _close(backend: InferenceBackend | TrainingBackend, name: str) -> None:
    """Close a backend; an error in that is reported and must not hide the one that ended the run."""
    try:
        backend.close()
    except Exception as error:
        _log.warning("backend %s failed while closing: %s: %s", name, type(error).__name__, error)


def _feed(
    plan: Plan,
    coordinator: Coordinator,
    producer: Producer,
    prompts: Mapping[str, Sequence[Prompt]],
    account: TimeAccount,
    closing: ExitStack,
    say: Callable[[str], None],
) -> Feed:
    config = plan.config
    specs = plan.reward_specs()
    stop = config.sampling.stop if config.sampling.stop is not None else tuple(dict.fromkeys(text for spec in specs for text in spec.stop))
    sampling = Sampling(
        temperature=config.sampling.temperature,
        top_p=config.sampling.top_p,
        top_k=config.sampling.top_k,
        max_new_tokens=config.sampling.max_new_tokens,
        stop=tuple(stop),
    )
    held_out = Sampling(
        temperature=config.eval.eval_temperature,
        max_new_tokens=config.eval.eval_max_new_tokens or sampling.max_new_tokens,
        stop=sampling.stop,
    )
    tasks = {name.removeprefix("eval/"): tuple(rows) for name, rows in prompts.items() if name != "train"}
    annealed = AnnealedSampling(sampling=sampling, end=config.sampling.temperature_end, updates=coordinator.settings.horizon)
    jobs = JobMaker(tuple(prompts["train"]), annealed, config.run.seed, _filter_by(plan))
    watch = FilterWatch(
        bounds=config.algorithm.filter_range,
        by=jobs.filter_by,
        batch_size=config.training.train_batch_size,
        limit=config.algorithm.filter_limit,
    )
    evaluator = Evaluator(tasks, held_out, config.run.seed)
    in_flight = int(config.inference.inference_batch_size)
    if config.schedule.max_staleness == 0:
        return SequentialFeed(coordinator, producer, jobs, evaluator, LocalChannel(), in_flight, watch, say)
    feed = ThreadedFeed(coordinator, producer, jobs, evaluator, LocalChannel(), in_flight, watch, say, account)
    closing.callback(feed.stop)
    return feed
