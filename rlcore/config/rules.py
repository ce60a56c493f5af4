"""Rules between settings: one function and one message for each rule. Validation refuses; it never edits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rlcore.config.algorithm_rules import (
    dynamic_needs_filter,
    filter_has_accuracy,
    filter_range_order,
    rewards_named_exist,
    trainer_has_entropies,
)
from rlcore.config.layers import Draft, get_path
from rlcore.config.plugin_selection import PluginSelection, unsupported
from rlcore.config.resolve import in_one_process
from rlcore.config.run_config import RunConfig
from rlcore.contracts.errors import ConfigError
from rlcore.contracts.metric_names import metric_of
from rlcore.contracts.specs import RUNTIME_SETTINGS, AdvantageSpec, CorrectionSpec, LossSpec, RewardSpec, RuntimeSpec, WeightTransferSpec
from rlcore.host.terminal_text import escape_control

__all__ = ["PLAIN_WORD", "RULES", "RULES_OF_A_SOURCE", "RULES_OF_THE_RUN", "RuleContext", "check_required", "check_rules", "is_folder_name"]


@dataclass(frozen=True, kw_only=True)
class RuleContext:
    """The input of the rules: the resolved configuration, the specs of the chosen plugins, and the draft that cites typed text."""

    config: RunConfig
    chosen: PluginSelection
    draft: Draft

    def cite(self, path: str) -> str:
        """Return the setting and its value as the user knows them."""
        return self.draft.cite(path, get_path(self.config, path))

    def cite_cut(self) -> str:
        """Return the setting that truncates the sampler, with the verb "truncates" or "may truncate"."""
        name = self.config.sampling.cut[0]
        return f"{self.cite(f'sampling.{name}')} {'may truncate' if name == 'extra' else 'truncates'}"

    @property
    def estimator(self) -> AdvantageSpec | None:
        """The estimator's spec, None if it is not installed."""
        spec = self.chosen.spec("algorithm.estimator")
        return spec if isinstance(spec, AdvantageSpec) else None

    @property
    def correction(self) -> CorrectionSpec | None:
        """The mismatch correction's spec, None if the run has none or if it is not installed."""
        spec = self.chosen.spec("algorithm.mismatch_correction")
        return spec if isinstance(spec, CorrectionSpec) else None

    @property
    def runtime(self) -> RuntimeSpec | None:
        """The runtime's spec, None if it is not installed."""
        spec = self.chosen.spec("run.runtime")
        return spec if isinstance(spec, RuntimeSpec) else None

    def rewards(self) -> Iterator[tuple[str, RewardSpec]]:
        """Yield the chosen name and the spec of every installed reward."""
        for part in self.chosen:
            if isinstance(part.spec, RewardSpec):
                yield part.name, part.spec

    @property
    def all_rewards_known(self) -> bool:
        """False if a chosen reward is not installed, so that nothing is known about it."""
        return len(list(self.rewards())) == len(self.config.rewards)


BACKENDS = ("training.name", "inference.name")
Rule = Callable[[RuleContext], str | None]


def _slice_within_batch(facts: RuleContext) -> str | None:
    training = facts.config.training
    if training.train_batch_size >= int(training.train_minibatch_size):
        return None
    return (
        f"{facts.cite('training.train_minibatch_size')} is more than {facts.cite('training.train_batch_size')}: the prompts passed to the "
        f"backend at a time cannot exceed the prompts of one update; type -tMbs {training.train_batch_size} or -tbs "
        f"{training.train_minibatch_size}"
    )


def _forward_within_slice(facts: RuleContext) -> str | None:
    training, generations = facts.config.training, facts.config.sampling.num_generations
    most = int(training.train_minibatch_size) * generations
    if most >= int(training.train_microbatch_size):
        return None
    return (
        f"{facts.cite('training.train_microbatch_size')} is more than {facts.cite('training.train_minibatch_size')} times "
        f"{facts.cite('sampling.num_generations')}: one forward cannot hold more rollouts than are passed to the backend; type -tmbs {most}"
    )


def _cache_within_response(facts: RuleContext) -> str | None:
    algorithm, limit = facts.config.algorithm, facts.config.sampling.max_new_tokens
    cache = int(algorithm.cache_length)
    if limit == 1 and (cache >= limit or algorithm.soft_over_length_punishment):
        return f"{facts.cite('sampling.max_new_tokens')} leaves no token before the limit to penalize; type -mnt 4 or more"
    if cache >= limit:
        return (
            f"{facts.cite('algorithm.cache_length')} is not below {facts.cite('sampling.max_new_tokens')}: only the last tokens before the "
            f"limit are penalized; type --cache-length {max(1, limit // 4)}"
        )
    if algorithm.soft_over_length_punishment and cache < 1:
        return (
            f"{facts.cite('algorithm.soft_over_length_punishment')} needs a cache_length of at least 1, and "
            f"{facts.cite('algorithm.cache_length')} is less; type --cache-length {max(1, limit // 4)}"
        )
    return None


def _buffer_holds_batch(facts: RuleContext) -> str | None:
    batch = facts.config.training.train_batch_size
    if int(facts.config.schedule.data_actor_buffer_size_limit) >= batch:
        return None
    return (
        f"{facts.cite('schedule.data_actor_buffer_size_limit')} is less than {facts.cite('training.train_batch_size')}: the buffer must "
        f"hold one batch, or training waits forever; type -cbsl {batch}"
    )


def _kl_in_reward(facts: RuleContext) -> str | None:
    algorithm, estimator = facts.config.algorithm, facts.estimator
    if algorithm.kl_in != "reward" or not algorithm.kl_coeff or estimator is None or estimator.accepts_kl:
        return None
    return (
        f"{facts.cite('algorithm.kl_in')} needs an advantage estimator that accepts KL, and {estimator.name} does not; type --kl-in loss, "
        "or -kl 0"
    )


def _backends_offer_it(facts: RuleContext) -> str | None:
    specs = [spec for path in BACKENDS if (spec := facts.chosen.spec(path)) and spec.capabilities]
    way = getattr(facts.chosen.spec("weights.transport"), "way", "host")
    said = [unsupported(spec.capabilities, spec.name, facts.config, facts.cite, way) for spec in specs]
    return next(filter(None, said), None)


def _trainers_divisible(facts: RuleContext) -> str | None:
    training, shards = facts.config.training, facts.config.training.replica_size
    if training.num_trainers % shards == 0:
        return None
    context = f" times {facts.cite('training.context_parallel_size')}" if training.context_parallel_size > 1 else ""
    return (
        f"{facts.cite('training.num_trainers')} is not divisible by {facts.cite('training.tensor_parallel_size')} times "
        f"{facts.cite('training.pipeline_parallel_size')}{context}: every model replica takes {shards} trainers; type -t "
        f"{-(-training.num_trainers // shards) * shards}"
    )


def _correction_has_two_policies(facts: RuleContext) -> str | None:
    algorithm, cut = facts.config.algorithm, facts.config.sampling.cut
    if algorithm.mismatch_correction == "none":
        return None
    if cut[0]:
        return (
            f"{facts.cite_cut()} the sampler, whose log probabilities are then not the policy's, and "
            f"{facts.cite('algorithm.mismatch_correction')} compares with them; type {cut[1]}--mismatch-correction none"
        )
    if algorithm.old_logprobs == "rollout":
        return (
            f"{facts.cite('algorithm.mismatch_correction')} compares the trainer's old log probabilities with the sampler's, and "
            f"{facts.cite('algorithm.old_logprobs')} makes them the same; type --old-logprobs trainer"
        )
    return None


def _mismatch_range_acts(facts: RuleContext) -> str | None:
    algorithm, spec = facts.config.algorithm, facts.correction
    bounds, usual = algorithm.mismatch_range, " ".join(f"{bound:g}" for bound in spec.usual_range) if spec else ""
    if not isinstance(bounds, tuple):
        if spec is not None and spec.masks and bounds is None:
            return f"{facts.cite('algorithm.mismatch_correction')} masks values outside a range; type --mismatch-range {usual}"
        return None
    if spec is None and algorithm.mismatch_correction != "none":
        return None
    if not usual:
        return (
            f"{facts.cite('algorithm.mismatch_range')} has nothing to bound with {facts.cite('algorithm.mismatch_correction')}; type "
            "--mismatch-correction truncated, or leave the range out"
        )
    if bounds[0] <= 1.0 <= bounds[1] and bounds[0] < bounds[1]:
        return None
    low, high = sorted(bounds)
    example = f"{low:g} {high:g}" if low <= 1.0 <= high and low < high else usual
    return (
        f"{facts.cite('algorithm.mismatch_range')} must reach from a low end to a high end with 1, the weight of fresh data, between them; "
        f"type --mismatch-range {example}"
    )


def _correction_of_a_sequence(facts: RuleContext) -> str | None:
    spec, correction = facts.chosen.spec("algorithm.loss"), facts.correction
    if not isinstance(spec, LossSpec) or not spec.sequence_ratio or correction is None or correction.per == "rollout":
        return None
    return (
        f"{facts.cite('algorithm.mismatch_correction')} weighs tokens, and the loss {spec.name} has one ratio for a whole response; type "
        f"--mismatch-correction sequence_{'masked' if correction.masks else 'truncated'}"
    )


def _one_advantage_a_response(facts: RuleContext) -> str | None:
    spec, algorithm, estimator = facts.chosen.spec("algorithm.loss"), facts.config.algorithm, facts.estimator
    if not isinstance(spec, LossSpec) or not spec.one_advantage or estimator is None or estimator.per != "token":
        return None
    if algorithm.kl_in != "reward" or not algorithm.kl_coeff:
        return None
    return (
        f"{facts.cite('algorithm.kl_in')}: estimator {estimator.name} gives each token its own advantage, and the loss {spec.name} takes "
        "one for a whole response; type --kl-in loss, or -kl 0, or choose another --loss"
    )


def _loss_without_ratio(facts: RuleContext) -> str | None:
    spec, algorithm = facts.chosen.spec("algorithm.loss"), facts.config.algorithm
    if not isinstance(spec, LossSpec) or not spec.on_policy:
        return None
    for path in ("algorithm.updates_per_batch", "algorithm.epochs_per_batch"):
        steps = get_path(facts.config, path)
        if (min(steps, facts.config.training.train_batch_size) if path.endswith("updates_per_batch") else steps) > 1:
            flag = "--" + path.partition(".")[2].replace("_", "-")
            return (
                f"{facts.cite(path)}: the loss {spec.name} has no ratio to the policy that sampled, so every optimizer step after the "
                f"first would be wrong; type {flag} 1, or choose another --loss"
            )
    if not facts.config.schedule.alternating and algorithm.mismatch_correction == "none":
        cut = facts.config.sampling.truncates  # no correction can undo this
        return (
            f"{facts.cite('schedule.max_staleness')}: the loss {spec.name} has no ratio to the policy that sampled, so stale data would be "
            f"wrong; type --max-staleness 0{'' if cut else ', or --mismatch-correction truncated'}"
        )
    return None


def _truncated_sampler(facts: RuleContext) -> str | None:
    if facts.config.algorithm.old_logprobs != "rollout" or not facts.config.sampling.truncates:
        return None
    return (
        f"{facts.cite_cut()} the sampler, so that its log probabilities are not the policy's and "
        f"{facts.cite('algorithm.old_logprobs')} would be wrong; type --old-logprobs trainer"
    )


def _splits_within_batch(facts: RuleContext) -> str | None:
    algorithm, batch = facts.config.algorithm, facts.config.training.train_batch_size
    if algorithm.updates_per_batch <= batch or algorithm.updates_per_batch == _of_recipe(facts, "algorithm.updates_per_batch"):
        return None
    return (
        f"{facts.cite('algorithm.updates_per_batch')} is more than {facts.cite('training.train_batch_size')}: each optimizer step takes at "
        f"least one prompt; type --updates-per-batch {batch}"
    )


def _of_recipe(facts: RuleContext, path: str) -> object:
    """Return the recipe's own value, None if it has none. The user did not ask for this value."""
    return next((get_path(layer.data, path) for layer in facts.draft.layers if layer.name == "recipe"), None)


def _runtime_is_one_process(facts: RuleContext) -> str | None:
    if facts.runtime is None or facts.runtime.several:
        return None
    least = {"training.num_trainers": (1, "-t 1"), "inference.num_inferencer": (1, "-i 1"), "training.zero_stage": (0, "-zero 0")}
    if facts.runtime.alternating:
        least["schedule.max_staleness"] = (0, "--max-staleness 0")
    for path, (most, flag) in least.items():
        if get_path(facts.config, path) > most:
            several = facts.chosen.decided.several
            return f"{facts.cite('run.runtime')} is one process, and {facts.cite(path)} needs more; type --runtime {several} or {flag}"
    return None


def _runtime_reads_address(facts: RuleContext) -> str | None:
    spec = facts.runtime
    if spec is None:
        return None
    for path in (path for path in RUNTIME_SETTINGS if not path.startswith("schedule.")):
        if path not in spec.settings and get_path(facts.config, path) is not None:
            one = "is one process and " if not spec.several else ""
            able = facts.chosen.decided.several if path.startswith("run.") else facts.chosen.decided.apart
            other = f"type --runtime {able} or leave it out" if able != spec.name else "leave it out"
            return f"{facts.cite('run.runtime')} {one}does not use {facts.cite(path)}; {other}"
    return None


def _transport_fits_runtime(facts: RuleContext) -> str | None:
    transfer, runtime, name = facts.chosen.spec("weights.transport"), facts.runtime, facts.config.run.runtime
    if runtime is None:
        return None
    if not isinstance(transfer, WeightTransferSpec):
        if facts.config.weights.transport != "auto":
            return None
        return f"{facts.cite('run.runtime')}: no weight transfer that fits it is installed; type --runtime {facts.chosen.decided.single}"
    cited = facts.cite("weights.transport")
    if transfer.unusable:
        return (
            f"{cited} cannot be used here, because {transfer.unusable}; type --transport auto and, for one process, "
            "--max-staleness 0 -i 1 -t 1"
        )
    alone = in_one_process(facts.config, runtime, transfer)
    if alone and transfer.reach != "process":
        other = transfer.runtimes[0] if transfer.runtimes else facts.chosen.decided.several
        return f"{cited} is for several processes, the runtime is {name}; type --transport auto or --runtime {other}"
    if not alone and transfer.reach == "process":
        one = facts.chosen.decided.single
        why, other = (", which starts several processes here", "") if runtime.name == one else ("", f" or --runtime {one}")
        return f"{cited} is for one process, and the runtime is {name}{why}; type --transport auto{other}"
    if transfer.runtimes and runtime.name not in transfer.runtimes:
        return f"{cited} is for the runtime {transfer.runtimes[0]}, and the runtime is {name}; type --transport auto"
    return None


def _colocated_takes_turns(facts: RuleContext) -> str | None:
    if facts.config.run.placement != "colocated" or facts.config.schedule.alternating:
        return None
    return (
        f"{facts.cite('run.placement')}: producers and trainers alternate, so generation cannot run ahead as "
        f"{facts.cite('schedule.max_staleness')} requires; type --max-staleness 0 or --placement split"
    )


def _rewards_differ(facts: RuleContext) -> str | None:
    specs = {name: spec.name for name, spec in facts.rewards()}
    names = [specs.get(reward.name, reward.name.lower()) for reward in facts.config.rewards]
    twice = next((name for name in names if names.count(name) > 1), None)
    return (
        f"[[rewards]] names {twice} twice: rows and metrics refer to a reward by its name; keep one and raise its weight" if twice else None
    )


def _eval_has_data(facts: RuleContext) -> str | None:
    section = facts.config.eval
    if not section.eval_interval or section.eval_dataset:
        return None
    example = '-ed \'{"heldout": "heldout.jsonl"}\''
    return f"{facts.cite('eval.eval_interval')} needs an evaluation data set, and there is none; add {example}, or type -ei 0"


def _samples_differ(facts: RuleContext) -> str | None:
    section = facts.config.eval
    if section.eval_samples == 1 or section.eval_temperature > 0 or not section.eval_dataset:
        return None
    samples, greedy = facts.cite("eval.eval_samples"), facts.cite("eval.eval_temperature")
    return f"{samples} asks for several completions per prompt, and {greedy} makes them all the same; type --eval-temperature 0.6"


def _best_is_a_metric(facts: RuleContext) -> str | None:
    by, evaluated = facts.config.log.best_by, [f"eval/{task}" for task in facts.config.eval.eval_dataset]
    name, samples = by.removeprefix("min:"), facts.config.eval.eval_samples
    known_of_task = {f"{task}{end}" for task in evaluated for end in ("", "/low", "/high", "/reward", "/length", "/truncated")}
    told = tuple(f"{task}/conversation/" for task in evaluated)
    if (
        name in known_of_task
        or by == "accuracy"
        or (told and name.startswith(told))
        or (metric_of(name) is not None and not name.startswith(("eval/", "source/")))
        or (metric_of(name) is not None and name.startswith(tuple(f"source/{source.name}/" for source in facts.config.sources)))
    ):
        return None
    task, _, at = name.rpartition("/")
    word, _, k = at.partition("@")
    if task in evaluated and word in ("pass", "maj") and k.isdecimal():
        if 1 < int(k) <= samples and (int(k) == samples or int(k).bit_count() == 1):
            return None
        return (
            f"{facts.cite('log.best_by')} is not measured with eval_samples {samples}; type --eval-samples {k}, or a power of two below it"
        )
    known = ", ".join(["reward/mean", *evaluated])
    return (
        f"{facts.cite('log.best_by')} is not a metric of this run; type --best-by and accuracy, or one of docs/reference/metrics.md, "
        f"such as {known}"
    )


_LONGEST_NAME = 255
"""Bytes of one component of a path."""


PLAIN_WORD = "without slashes, invisible characters and a dot at its beginning"
"""What ``is_folder_name`` asks for, apart from the length."""


def is_folder_name(name: str) -> bool:
    """Return whether a name can be a component of a path and can be printed. Control characters affect a terminal, and direction marks are
    invisible."""
    plain = bool(name) and name.isprintable() and not name.startswith(".") and "/" not in name and "\\" not in name
    return plain and len(name.encode()) <= _LONGEST_NAME


def _tasks_are_folders(facts: RuleContext) -> str | None:
    bad = next((task for task in facts.config.eval.eval_dataset if not is_folder_name(task)), None)
    if bad is None:
        return None
    return f'the evaluation task {bad!r} names a folder of the run: use a plain word; type -ed \'{{"heldout": "heldout.jsonl"}}\''


def _project_is_folder(facts: RuleContext) -> str | None:
    name = facts.config.run.project
    if is_folder_name(name):
        return None
    return f"{escape_control(facts.cite('run.project'))} names a folder: use a plain word; type -p my-project"


def _folders_can_be_paths(facts: RuleContext) -> str | None:
    run, log = facts.config.run, facts.config.log
    places = {
        "run.run_dir": run.run_dir,
        "run.ray_dir": run.ray_dir,
        "log.save_dir": log.save_dir,
        "log.rollout_save_dir": log.rollout_save_dir,
        "eval.eval_save_dir": facts.config.eval.eval_save_dir,
    }
    bad = next((path for path, place in places.items() if place and not place.isprintable()), None)
    return f"{escape_control(facts.cite(bad))} has an invisible character; name a folder without it" if bad else None


RULES: tuple[Rule, ...] = (
    _slice_within_batch,
    _forward_within_slice,
    filter_range_order,
    dynamic_needs_filter,
    filter_has_accuracy,
    trainer_has_entropies,
    rewards_named_exist,
    _cache_within_response,
    _buffer_holds_batch,
    _kl_in_reward,
    _backends_offer_it,
    _trainers_divisible,
    _correction_has_two_policies,
    _mismatch_range_acts,
    _correction_of_a_sequence,
    _one_advantage_a_response,
    _loss_without_ratio,
    _truncated_sampler,
    _splits_within_batch,
    _runtime_is_one_process,
    _runtime_reads_address,
    _transport_fits_runtime,
    _colocated_takes_turns,
    _rewards_differ,
    _eval_has_data,
    _samples_differ,
    _best_is_a_metric,
    _tasks_are_folders,
    _project_is_folder,
    _folders_can_be_paths,
)


RULES_OF_THE_RUN: tuple[Rule, ...] = (_forward_within_slice, dynamic_needs_filter, _eval_has_data, _best_is_a_metric)
"""Rules about settings of the whole run that read settings of its sources."""
RULES_OF_A_SOURCE = tuple(rule for rule in RULES if rule not in RULES_OF_THE_RUN)


def check_rules(facts: RuleContext, *, left_out: Sequence[Rule] = ()) -> None:
    """Raise ConfigError for the first rule that is broken."""
    for rule in RULES:
        if rule not in left_out and (sentence := rule(facts)):
            raise ConfigError(sentence)


def check_required(facts: RuleContext, *, of_source: bool) -> None:
    """Raise ConfigError if the model, the data set or the reward is not given.

    :param of_source: whether these are the settings of one of ``[[sources]]``."""
    config = facts.config
    if not config.model.model:
        raise ConfigError("no model is given: type -m and the folder of a Hugging Face checkpoint, or set model in [model]")
    if not config.data.sources:
        advice = "set dataset in [sources.data]" if of_source else "type -d and the path of a JSONL file, or set dataset in [data]"
        raise ConfigError(f"no data set is given: {advice}")
    if not config.rewards:
        advice = "add [[sources.rewards]], or [[rewards]] for all sources" if of_source else "add [[rewards]]"
        raise ConfigError(f"no reward is given: type -rt and its name (rlcore plugins lists them), or {advice}")
