"""Build the parts of a run that its configuration alone determines.

These are the schedule, judge, jobs, filter watch, evaluator and ends of the weight transfer. Nothing expensive is built here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

from rlcore.config import Plan
from rlcore.config.data_source import order_of
from rlcore.config.plan_record import SourcePlan
from rlcore.config.resolve import fitting_transfers
from rlcore.contracts.errors import ConfigError, PluginError, RunError
from rlcore.contracts.interfaces import InferenceBackend
from rlcore.contracts.lease import Lease
from rlcore.contracts.sampler import Sampler, SamplerContext
from rlcore.contracts.snapshots import Snapshot
from rlcore.contracts.specs import PluginKind, WeightTransferSpec
from rlcore.contracts.types import Group, Prompt, RolloutKind, Sampling
from rlcore.contracts.weight_transfer import OnFailure, Publisher, Receiver
from rlcore.data import DataSet, EndlessPrompts, Prompts, prompt_at, prompt_count
from rlcore.registry.error_context import close_part, error_context
from rlcore.registry.plugin_registry import CORE
from rlcore.registry.sandboxes import sandboxes_in
from rlcore.registry.targets import described
from rlcore.rewards.judge import Judge
from rlcore.rewards.reward_entry import routed_entries
from rlcore.rewards.worker_protocol import WorkerLimits
from rlcore.roles.evaluator import Evaluator, HeldOut
from rlcore.roles.producer import GroupJob, ProducedGroup
from rlcore.runtime.filter_monitor import FilterMonitor
from rlcore.runtime.group_filters import GroupFilters, make_group_filters
from rlcore.runtime.known_data import check_name, is_good, keep_good
from rlcore.runtime.loading import GOLD_ANSWERS, Texts, counting_rows, stop_strings
from rlcore.schedule import ChosenSampler, Coordinator, Delivery, GroupSummary, ScheduleSettings, SourceSchedule

__all__ = [
    "AnnealedSampling",
    "JobMaker",
    "SourceJobs",
    "check_reach",
    "filter_by",
    "first_version",
    "make_coordinator",
    "make_evaluator",
    "make_filter_monitor",
    "make_jobs",
    "make_judge",
    "make_publisher",
    "make_receiver",
    "newer_weights",
    "open_judge",
    "schedule_settings",
    "used_plugins",
]


def make_judge(plan: Plan) -> Judge:
    """Build a judge with its worker processes. The caller closes it."""
    settings = plan.config.schedule
    entries, routes = routed_entries(plan)
    return Judge(
        entries,
        routes=routes,
        sources=plan.source_names if plan.sources else (),
        workers=int(settings.reward_workers),  # the plan has already resolved auto
        error_budget=settings.reward_error_budget,
        limits=WorkerLimits(
            items=settings.reward_worker_items, growth=settings.reward_worker_growth_mb << 20, call=settings.reward_call_memory_mb << 20
        ),
    )


def open_judge(plan: Plan, data: Mapping[str, DataSet], closing: ExitStack, say: Callable[[str], None]) -> Judge:
    """Return a judge that has checked every gold answer of the data. ``closing`` closes it, and ``say`` receives its notices.

    Raises DataError, with its place, for a row that no reward can score."""
    judge = make_judge(plan)
    closing.callback(judge.close)
    for notice in judge.notices:
        say(notice)
    if plan.unscorable is None:  # otherwise every row was checked, and bad ones are left out
        for name, data_set in data.items():
            if not is_good(known := check_name(plan.of_data(name), data_set)):
                judge.check(data_set.prompts, counting_rows(say, GOLD_ANSWERS, data_set))
                keep_good(known)
    return judge


def filter_by(plan: Plan) -> str:
    """Of a run or of a source: return ``accuracy``, or the name of the chosen reward's spec, regardless of its typed spelling."""
    typed = plan.config.algorithm.filter_by
    return next((spec.name for reward, spec in zip(plan.config.rewards, plan.reward_specs(), strict=True) if reward.name == typed), typed)


def schedule_settings(plan: Plan, prompts: int | Sequence[int | None] | None) -> ScheduleSettings:
    """Return the numbers that the coordinator depends on.

    :param prompts: the number of prompts of each source of the run (``Texts.counts``), None if they have no end; one number for a run
        without ``[[sources]]``."""
    config = plan.config
    counts = prompts if isinstance(prompts, Sequence) else (prompts,)
    parts = tuple(_source_schedule(part, count) for part, count in zip(plan.parts, counts, strict=True))
    own = {"sources": parts} if plan.sources else {name: getattr(parts[0], name) for name in _OF_ONE_SOURCE}
    return ScheduleSettings(
        train_batch_size=config.training.train_batch_size,
        buffer_limit=int(config.schedule.data_actor_buffer_size_limit),
        episodes=config.run.num_episodes,
        max_steps=config.run.max_steps,
        max_staleness=int(config.schedule.max_staleness),
        partial_rollouts=config.schedule.continuing,
        dynamic_batching=config.algorithm.dynamic_batching,
        seed=config.run.seed,
        shuffle=config.data.shuffle,
        **own,
    )


_OF_ONE_SOURCE = ("prompts", "n_sampled", "n_greedy", "filter_range")


def _source_schedule(source: SourcePlan, prompts: int | None) -> SourceSchedule:
    config, registry = source.plan.config, source.plan.registry
    estimator = registry.load(PluginKind.ESTIMATOR, config.algorithm.estimator)
    return SourceSchedule(
        name=source.name,
        weight=source.weight,
        prompts=prompts,
        n_sampled=config.sampling.num_generations,
        n_greedy=int(getattr(estimator, "needs_greedy", False)),
        filter_range=config.algorithm.filter_range,
    )


def first_version(plan: Plan) -> int:
    """Return the policy version at which the run begins: 0, or that of the checkpoint that it resumes from."""
    return plan.resume.step if plan.resume is not None else 0


def make_coordinator(plan: Plan, texts: Texts) -> Coordinator:
    """Build the coordinator, new or from the checkpoint. Raises ConfigError if the run cannot resume with these prompts."""
    settings = schedule_settings(plan, texts.counts)
    samplers, among = [_sampler_of(part, prompts) for part, prompts in zip(plan.parts, texts.sources, strict=True)], None
    if plan.sources:
        shares = [source.weight / sum(source.weight for source in settings.sources) for source in settings.sources]
        context = SamplerContext(items=len(shares), ids=plan.source_names, weights=shares, seed=plan.config.run.seed)
        among = _sampler(plan, context, "the sampler of the sources: ")
    if plan.resume is None:
        return Coordinator(settings, samplers, among)
    return Coordinator.restored(settings, plan.resume.state["coordinator"], samplers, among)


def _sampler_of(source: SourcePlan, prompts: Prompts) -> ChosenSampler:
    """Build the sampler of a source with these prompts."""
    items, known = prompt_count(prompts), () if isinstance(prompts, EndlessPrompts) else prompts
    context = SamplerContext(
        items=items,
        ids=[prompt.prompt_id for prompt in known],
        weights=(1.0 / items,) * items if items else (),
        seed=source.plan.config.run.seed,
        levels=prompts.levels if isinstance(prompts, EndlessPrompts) else 1,
        rows=lambda: [deepcopy(prompt.columns) for prompt in known],  # a sampler that writes into them would change the rewards
    )
    return _sampler(source.plan, context, source.label)


def _sampler(plan: Plan, context: SamplerContext, label: str) -> ChosenSampler:
    """Build the sampler that a plan names. Raises ConfigError, with the setting, if it refuses the items.

    :param label: the beginning of that message, which says whose sampler it is."""
    name, registry = order_of(plan.config, plan.registry), plan.registry
    try:
        made: Sampler = registry.make(PluginKind.SAMPLER, name, context, options=plan.sampler_options)
    except ConfigError as error:
        raise ConfigError(f"{label}{plan.cite('data.sampler')}: {error}") from error
    spec, owner = registry.spec(PluginKind.SAMPLER, name), registry.owner(PluginKind.SAMPLER, name)
    return ChosenSampler(made, spec.name, f"sampler {spec.name!r} of {owner}", context.items, context.levels)


def make_jobs(plan: Plan, texts: Texts) -> JobMaker:
    """Build the maker that turns leases into jobs."""
    horizon = schedule_settings(plan, texts.counts).horizon
    return JobMaker([_jobs_of(part, rows, horizon) for part, rows in zip(plan.parts, texts.sources, strict=True)], plan.config.run.seed)


def _jobs_of(source: SourcePlan, prompts: Prompts, horizon: int) -> SourceJobs:
    plan, section = source.plan, source.plan.config.sampling
    return SourceJobs(
        name=source.name,
        prompts=prompts,
        sampling=AnnealedSampling(sampling=_sampling(plan), end=section.temperature_end, updates=horizon),
        filter_by=filter_by(plan),
        spare=section.oversampling,
        filters=make_group_filters(plan),
    )


def make_filter_monitor(plan: Plan) -> FilterMonitor:
    """Build the watch that detects starvation by the group filter. It resumes with the checkpoint's budgets, if there is a checkpoint."""
    plans = [part.plan for part in plan.parts]
    filtering = next((one for one in plans if one.config.algorithm.filter_range is not None), plans[0])
    names = [one.registry.spec(PluginKind.FILTER, name).name for one in plans for name in one.config.algorithm.filters]
    watch = FilterMonitor(
        bounds=filtering.config.algorithm.filter_range,
        by=filter_by(filtering),
        batch_size=plan.config.training.train_batch_size,
        limit=plan.config.algorithm.filter_limit,
        filters=tuple(dict.fromkeys(names)),
        sources={part.name: part.plan.config.algorithm.filter_range for part in plan.sources},
    )
    if plan.resume is not None:
        watch.restore(plan.resume.state["watch"])
    return watch


def make_evaluator(plan: Plan, texts: Texts) -> Evaluator:
    """Build the evaluator, which makes jobs of the held-out tasks."""
    return Evaluator({task: _held_out(plan.of_data(f"eval/{task}"), rows) for task, rows in texts.held_out.items()}, plan.config.run.seed)


def _held_out(plan: Plan, prompts: Sequence[Prompt]) -> HeldOut:
    training, section = _sampling(plan), plan.config.eval
    sampling = Sampling(
        temperature=section.eval_temperature, max_new_tokens=section.eval_max_new_tokens or training.max_new_tokens, stop=training.stop
    )
    return HeldOut(prompts, sampling, section.eval_samples)


def make_publisher(plan: Plan, closing: ExitStack, *, device: str = "cpu", on_failure: OnFailure | None = None) -> tuple[Publisher, Any]:
    """Return the trainer's end of the weight transfer and its address; see ``WeightTransfer.publisher``. ``closing`` closes it."""
    bucket_bytes = plan.config.weights.bucket_mb << 20
    publisher: Publisher = _end(plan, closing, Publisher, bucket_bytes=bucket_bytes, device=device, on_failure=on_failure)
    with error_context(publisher.who, "returning the address of its publisher"):
        return publisher, publisher.address()


def make_receiver(
    plan: Plan, closing: ExitStack, *, name: str, address: Any, on_news: Callable[[], None], engine: InferenceBackend | None = None
) -> Receiver:
    """Return a producer's end of the weight transfer; see ``WeightTransfer.receiver``. ``closing`` closes it.

    :param engine: the engine that it feeds. An engine's own transfer must know it."""
    receiver: Receiver = _end(plan, closing, Receiver, name=name, address=address, on_news=on_news)
    if engine is not None:
        _introduce(receiver, engine)
    return receiver


def _end(plan: Plan, closing: ExitStack, base: Any, **given: Any) -> Any:
    registry, name, method = plan.registry, plan.config.weights.transport, base.__name__.lower()
    transfer, owner = registry.make(PluginKind.TRANSFER, name, options=plan.transfer_options), registry.owner(PluginKind.TRANSFER, name)
    who = f"weight transfer {name!r} of {owner}"
    with error_context(who, f"making its {method}", raised=RunError if owner == CORE else PluginError):
        end = getattr(transfer, method)(deadline=plan.config.weights.deadline, **given)
        if not isinstance(end, base):
            raise TypeError(f"the result of {method}() is {described(end)}, it must be a {base.__name__}")
        end.who = who
    closing.callback(close_part, end, who)
    return end


def _introduce(receiver: Receiver, engine: InferenceBackend) -> None:
    with error_context(f"the inference backend {type(engine).__name__} of producer {receiver.name}", "describing itself"):
        said = engine.describe()
    with error_context(receiver.who, "receiving the description of its engine"):
        receiver.introduce(said)


def newer_weights(receiver: Receiver, version: int) -> Snapshot | None:
    """Call ``newer_than``. Raises RunError, naming the transfer, if it raises or returns another type."""
    with error_context(receiver.who, "receiving weights"):
        found: Any = receiver.newer_than(version)
        if not isinstance(found, Snapshot | None):
            raise TypeError(f"the result of newer_than() is {described(found)}, it must be a Snapshot or None")
        return found


def check_reach(plan: Plan, hosts: int) -> None:
    """Raise ConfigError if trainers and producers are placed on several hosts, and the weight transfer of the plan reaches only one."""
    config = plan.config
    spec = plan.registry.spec(PluginKind.TRANSFER, config.weights.transport)
    if hosts > 1 and isinstance(spec, WeightTransferSpec) and spec.reach != "cluster":
        better = fitting_transfers(plan.registry, config.run.runtime, "cluster")
        other = f"type --transport {better[0].name}" if better else "install one that reaches several"
        raise ConfigError(
            f"weights.transport {spec.name} reaches one {spec.reach}, and producers and trainers are on {hosts} hosts; {other}"
        )


def used_plugins(plan: Plan) -> Iterable[tuple[PluginKind, str]]:
    """Return (kind, name) of every plugin in the run, including the sandboxes that options of rewards and of the conversation name."""
    asking = [options for part in plan.parts for options in (*part.plan.reward_options, part.plan.conversation_options)]
    sandboxes = dict.fromkeys(asked.backend for _, asked in sandboxes_in(asking))
    return [*plan.plugins(), *((PluginKind.SANDBOX, name) for name in sandboxes)]


def _sampling(plan: Plan) -> Sampling:
    config = plan.config
    return Sampling(
        temperature=config.sampling.temperature,
        top_p=config.sampling.top_p,
        top_k=config.sampling.top_k,
        min_p=config.sampling.min_p,
        extra=config.sampling.extra,
        max_new_tokens=config.sampling.max_new_tokens,
        stop=stop_strings(plan),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnealedSampling:
    """Sampling settings for training by policy version. The temperature is constant, or changes from one value to another in equal steps.

    A rollout is trained at the temperature that it was sampled at, whatever its age. ``sampling`` applies at version 0. ``end`` is the
    temperature at version ``updates - 1``, which the last update trains on, and at any later version (None: constant). ``updates`` is the
    horizon of the run."""

    sampling: Sampling
    end: float | None
    updates: int

    def at(self, version: int) -> Sampling:
        """Return the sampling settings for leases of this policy version."""
        start, last = self.sampling.temperature, max(1, self.updates - 1)
        if self.end is None or version <= 0:
            return self.sampling
        # Return the end itself, because the sum may round differently.
        reached = self.end if version >= last else start + (self.end - start) * (version / last)
        return replace(self.sampling, temperature=reached)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceJobs:
    """How the prompts of a source become jobs and groups. ``spare``: sampled rollouts in addition to those of the lease."""

    prompts: Prompts
    sampling: AnnealedSampling
    filter_by: str = "accuracy"
    spare: int = 0
    filters: GroupFilters = field(default_factory=lambda: GroupFilters(()))
    name: str = ""


class JobMaker:
    """Makes jobs from leases, and remembers the leases in flight."""

    def __init__(self, sources: Sequence[SourceJobs], seed: int) -> None:
        self._sources = sources
        self._seed = seed
        self._leases: dict[int, Lease] = {}

    def job(self, lease: Lease) -> GroupJob:
        """Return the job of a lease: sampled rollouts first, then greedy ones. The lease's version determines the temperature."""
        self._leases[lease.lease_id] = lease
        source = self._sources[lease.source_index]
        sampling = source.sampling.at(lease.version)
        if (temperature := lease.settings.get("sampling.temperature")) is not None:
            sampling = replace(sampling, temperature=temperature)
        greedy = replace(sampling, temperature=0.0)
        return GroupJob(
            key=lease.lease_id,
            prompt=prompt_at(source.prompts, lease.prompt_index, lease.level),
            samplings=(sampling,) * (lease.n_sampled + source.spare) + (greedy,) * lease.n_greedy,
            noise=(self._seed, lease.episode + (lease.ordinal << 32), lease.prompt_index + (lease.source_index << 40)),
            spare=source.spare,
        )

    def finished(self, produced: ProducedGroup) -> tuple[GroupSummary, Group]:
        """Return the group of a finished job, and its report to the schedule. The lease is forgotten."""
        lease = self._leases.pop(produced.job.key)
        source = self._sources[lease.source_index]
        group = Group(
            prompt_id=produced.job.prompt.prompt_id,
            episode=lease.episode,
            prompt_index=lease.prompt_index,
            rollouts=produced.rollouts,
            scores=produced.scores,
            cut_tokens=produced.cut_tokens,
            source_index=lease.source_index,
            level=lease.level if isinstance(source.prompts, EndlessPrompts) else None,
            ordinal=lease.ordinal,
        )
        group, delivery = source.filters.applied(group, replace(_delivery(group, lease, source.filter_by), source=source.name))
        arrival = GroupSummary(
            delivery=delivery,
            prompt_id=group.prompt_id,
            tokens=sum(rollout.length for rollout in group.rollouts),
            cut_tokens=group.cut_tokens,
            reason=_reason(group, delivery, source.filter_by),
        )
        return arrival, group


def _delivery(group: Group, lease: Lease, filter_by: str) -> Delivery:
    """Return the coordinator's view of a group: its version, and its accuracy or the reason why none of it can train."""
    sampled = [score for rollout, score in zip(group.rollouts, group.scores, strict=True) if rollout.kind is RolloutKind.SAMPLED]
    counted = [score for score in sampled if score.in_statistics]
    versions = [rollout.version for rollout in group.rollouts if rollout.version is not None]
    accuracies = [score.accuracy if filter_by == "accuracy" else score.parts.get(f"{filter_by}/accuracy") for score in counted]
    known = [accuracy for accuracy in accuracies if accuracy is not None]
    return Delivery(
        lease_id=lease.lease_id,
        version=min(versions, default=lease.version),
        accuracy=sum(known) / len(known) if known else None,
        reward=sum(score.value for score in counted) / len(counted) if counted else None,
        failed="" if counted else sampled[0].outcome.value,
    )


def _reason(group: Group, delivery: Delivery, filter_by: str) -> str:
    """Return the reason with which the prompt would fail, or "". A scored group that has an accuracy cannot fail."""
    if not delivery.failed and delivery.accuracy is not None:
        return ""
    if not delivery.failed:
        return f"no accuracy to filter by (filter_by {filter_by})"
    reasons = [f"{score.outcome.value}: {score.reason}" for score in group.scores]
    return max(set(reasons), key=reasons.count)
