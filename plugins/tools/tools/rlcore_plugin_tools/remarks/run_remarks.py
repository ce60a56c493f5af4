"""Remarks on a legal configuration that the user should read. The run continues."""

from __future__ import annotations

from collections.abc import Iterator

from rlcore.api import LossSpec
from rlcore.api.commands import RunConfig
from rlcore.api.settings import BACKENDS, DEADLINE_SETTINGS, AlgorithmSection, RuleContext, ScheduleSection, in_one_process, ratio_is_one
from rlcore_plugin_tools.remarks.scale_remarks import scale_remarks

__all__ = ["remarks"]


def remarks(facts: RuleContext) -> Iterator[str]:
    """Yield a sentence for each legal but noteworthy choice."""
    config = facts.config
    if config.sampling.num_generations == 1 and facts.estimator is not None and facts.estimator.group_baseline:
        yield (
            f"{facts.cite('sampling.num_generations')}: estimator {facts.estimator.name} compares the completions of a prompt, so a group "
            f"of one has no advantage; {_more(facts, '2 or more')}"
        )
    if config.sampling.oversampling:
        kept, extra = config.sampling.num_generations, config.sampling.oversampling
        much = f", and {extra} are discarded: a larger -g would train them" if extra > kept else ""
        yield (
            f"{facts.cite('sampling.oversampling')}: of {kept + extra} completions per prompt, the first {kept} to finish are scored and "
            f"trained{much}; so long answers, and those that reach max_new_tokens, are under-represented; the metric cut_share is the "
            f"share of tokens that is discarded; each of the -imbs prompts generates {kept + extra}"
        )
    off = "no effect at max_staleness 0" if config.schedule.alternating else ""
    if config.schedule.partial_rollouts:
        bound = f"updates wait for no rollout, and tokens do not train that are more than {config.schedule.max_staleness} versions old"
        yield f"{facts.cite('schedule.partial_rollouts')}: {off or bound}"
    if off and int(config.inference.max_in_flight) > int(config.inference.inference_batch_size):
        yield f"{facts.cite('inference.max_in_flight')}: {off}"
    sampler = facts.chosen.spec("data.sampler")
    if not off and sampler is not None and sampler.observes:
        yield (
            f"{facts.cite('data.sampler')} draws by results; above max_staleness 0 these arrive as timing decides, so two runs may draw "
            "differently"
        )
    splits, batch = config.algorithm.updates_per_batch, config.training.train_batch_size
    if splits > batch:
        yield (
            f"{facts.cite('algorithm.updates_per_batch')}: a batch of {batch} prompts makes {batch} optimizer steps, because each takes at "
            "least one prompt"
        )
    filters = config.algorithm.filter_range is not None or bool(config.algorithm.filters)
    if not filters and config.algorithm.filter_limit != AlgorithmSection().filter_limit:
        yield f"{facts.cite('algorithm.filter_limit')}: no filter is set, so nothing counts towards it; --filter-range sets one"
    if config.algorithm.filter_range is not None and not _reachable(config):
        yield (
            f"{facts.cite('algorithm.filter_range')}: if every answer is either right or wrong, no group of "
            f"{config.sampling.num_generations} is within the range; {_more(facts, config.sampling.num_generations + 2)} or a wider range"
        )
    if filters and not config.algorithm.dynamic_batching:
        yield "filtered groups are masked; --dynamic-batching replaces them with new ones"
    if config.algorithm.kl_coeff > 0:
        reference = "the reference is the model without its adapters" if config.training.lora_rank else "a reference model is loaded"
        yield f"{facts.cite('algorithm.kl_coeff')}: {reference}"
    if config.algorithm.skip_threshold is not None and ratio_is_one(config):
        yield (
            f"{facts.cite('algorithm.skip_threshold')} and clipping have no effect: with one optimizer step per batch and the trainer's "
            "own log probabilities as the old ones, every ratio is 1"
        )
    if ratio_is_one(config) and not config.schedule.alternating and config.algorithm.mismatch_correction == "none":
        yield (
            f"{facts.cite('schedule.max_staleness')}: stale data is trained as if it were fresh, because one optimizer step with "
            f"{facts.cite('algorithm.old_logprobs')} makes every ratio 1; {_weighing(facts)}"
        )
    if config.algorithm.dynamic_batching and config.run.max_steps is None:
        yield (
            "the schedules of learning rate and temperature_end cover as many updates as there are prompts for; replaced groups use up "
            "prompts, so the run ends before the schedules do; --max-steps sets the number of updates"
        )
    ranks = config.training.data_parallel_size
    if ranks > 1:
        batch = config.training.train_batch_size
        yield (
            f"{facts.cite('training.train_batch_size')} counts prompts over all trainers; in ColossalChat it counts them per data-parallel "
            f"rank, so a command copied from there needs -tbs {batch * ranks} to mean the same ({ranks} ranks)"
        )
    for spec in map(facts.chosen.spec, BACKENDS):
        if spec is not None and spec.capabilities is None:
            yield f"the spec of backend {spec.name} declares no capabilities, so its limits are known only when it is built"
    yield from _without_use(facts)
    yield from scale_remarks(facts)


def _without_use(facts: RuleContext) -> Iterator[str]:
    """Yield a sentence for each choice that has no effect in this run."""
    config = facts.config
    for name, plain in (("lora_alpha", 32.0), ("lora_targets", ())):
        if not config.training.lora_rank and getattr(config.training, name) != plain:
            yield f"{facts.cite(f'training.{name}')} is not used, because no adapters are trained; --lora-rank 16 trains them"
    if config.run.master_address is not None and config.run.ray_dir is not None:
        yield f"{facts.cite('run.ray_dir')} is not used: the cluster that the run joins chose the folder of its files when it started"
    for path in DEADLINE_SETTINGS:
        name, spec = path.removeprefix("schedule."), facts.runtime
        if spec is None or getattr(config.schedule, name) == getattr(ScheduleSection(), name):
            continue
        alone = in_one_process(config, spec, facts.chosen.spec("weights.transport"))
        why = "is one process, in which nothing is restarted" if alone else "does not read it"
        if path not in spec.settings or (alone and name != "producer_deadline"):
            yield f"{facts.cite(path)} is not used: the runtime {config.run.runtime} {why}"


def _weighing(facts: RuleContext) -> str:
    """Return advice that names a correction which the rules would accept."""
    spec = facts.chosen.spec("algorithm.loss")
    if facts.config.sampling.truncates:
        return "a sampler without top-p and top-k could be corrected for (--mismatch-correction)"
    kind = "sequence_truncated" if isinstance(spec, LossSpec) and spec.sequence_ratio else "decoupled"
    return f"--mismatch-correction {kind} weighs it"


def _more(facts: RuleContext, number: int | str) -> str:
    """Return how to get a larger group. A flag does not reach a source that sets its own size."""
    owner = facts.draft.owner("sampling.num_generations")
    in_source = owner is not None and owner.moved.get("sampling", "").startswith("sources.")
    return f"write num_generations = {number}" if in_source else f"type -g {number}"


def _reachable(config: RunConfig) -> bool:
    """Return whether some number of correct answers in a group passes the filter."""
    group, bounds = config.sampling.num_generations, config.algorithm.filter_range
    return bounds is None or any(bounds[0] < right / group < bounds[1] for right in range(group + 1))
