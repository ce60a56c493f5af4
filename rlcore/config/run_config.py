"""The run configuration: one frozen pydantic model with a class for each section. A TOML key is the long flag with underscores.

Every leaf declares its flags, default, bounds and one line of help. The command line, ``--help`` and ``show config`` are generated from
these. Rules between settings are in ``rules.py``. This module does not know about files, typed flags or plugins.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, Field

from rlcore.config.section import (
    AMONG_SOURCES,
    AboveOne,
    Accident,
    Auto,
    Count,
    Decay,
    Dtype,
    Finite,
    Folder,
    Fraction,
    Lax,
    Listed,
    Name,
    NonNegative,
    Partial,
    PathKind,
    PluginName,
    Policy,
    Positive,
    Seconds,
    Section,
    Share,
    Source,
    TrainingDtype,
    Whole,
    Workers,
    of_a_source,
    setting,
)

__all__ = [
    "AlgorithmSection",
    "DataSection",
    "DataSource",
    "EvalSection",
    "InferenceSection",
    "LogSection",
    "ModelSection",
    "PathKind",
    "Policy",
    "RewardBudget",
    "RewardEntrySection",
    "RewardPolicy",
    "RunConfig",
    "RunSection",
    "SamplingSection",
    "ScheduleSection",
    "Section",
    "SourceSection",
    "TrainingSection",
    "WeightsSection",
]


class RunSection(Section):
    """[run]: which run this is, where it runs, and for how long."""

    project: Name = setting("rlcore", "-p", help="project; its folder is in --run-dir")
    seed: Annotated[int, Field(ge=0, lt=2**63)] = setting(0, help="seed of all random numbers")
    runtime: PluginName = setting("auto", help="where the roles run; auto: one process, or several for more producers or trainers")
    num_episodes: Count = setting(1, "-e", help="passes over the data set")
    max_steps: Count | None = setting(None, help="stop after this many updates")
    run_dir: Folder = setting("runs", help="folder that holds all runs")
    placement: Literal["split", "colocated"] = setting(
        "split", help="split: producers and trainers have separate devices; colocated: they alternate on the same devices"
    )
    master_address: Name | None = setting(None, help="address of the head node of a cluster to join")
    master_port: Annotated[int, Field(ge=1, le=65535)] | None = setting(None, help="port for the collectives of the trainers")
    ray_dir: Folder | None = setting(None, help="folder for the temporary files of the runtime")
    enable_profiling: bool = setting(False, help="write a profile of every role")
    controllers: Listed[PluginName] = setting((), help="controllers, which may stop the run, evaluate, save and change settings")
    controller_options: dict[str, dict[str, Any]] = Field(
        default={}, description="options of each controller, by its name: [run.controller_options.NAME]"
    )
    controller_deadline: Seconds = setting(60.0, help="seconds for one call of a controller")
    options: dict[str, Any] = Field(default={}, description="options of the runtime")


class ModelSection(Section):
    """[model]: the policy to start from."""

    model: Annotated[str, PathKind.PERHAPS] = setting("", "-m", help="checkpoint folder, or org/name of the hub (required)")
    tokenizer_path: Source | None = setting(None, help="folder of the tokenizer, if it is not the model's")
    reference: Source | None = setting(None, help="model that the KL penalty compares with, a folder or org/name; none: the first policy")
    reference_sync_steps: Whole = setting(0, help="updates after which the reference becomes the policy, again and again; 0: never")
    reference_mixup_alpha: Fraction = setting(1.0, help="share of the policy in the reference that a sync makes; 1: the policy itself")
    trust_remote_code: bool = setting(False, help="run Python code that comes with the model or tokenizer (auto_map); off: refuse them")


class DataSource(Section):
    """One of several data sets: its path, how many times its rows count (``repeat``, or its older name ``ratio``), and its data source.
    "auto" follows the path's prefix or suffix."""

    path: Source
    repeat: Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False, validation_alias=AliasChoices("repeat", "ratio"))] = 1.0
    source: PluginName = "auto"
    options: dict[str, Any] = Field(default={}, description="options of the data source")


class DataSection(Section):
    """[data]: the prompts."""

    dataset: Annotated[str, PathKind.PERHAPS] | Listed[Source | DataSource] = setting(
        "", "-d", help="data files (required); in TOML also {path, repeat, …}"
    )
    format: PluginName = setting(
        "auto",
        "--data-format",
        help="row format of the data, by name; none: rows as they are; auto: the format that recognises the first row",
    )
    columns: dict[str, Name] = setting(
        {}, "--columns", help='names of columns in the data, if they differ, as JSON: {"gt_answer": "reward_model.ground_truth"}'
    )
    template: dict[str, Any] = setting(
        {}, "--template", help='variables of the chat template, in [data.template] or as JSON: {"enable_thinking": false}'
    )
    chat_template: Folder | None = setting(None, "--chat-template", help="file of a chat template (Jinja); none: the tokenizer's own")
    tools: Folder | None = setting(None, "--tools", help="JSON file with the tools of rows that have no column tools; none: no tools")
    control_tokens: Literal["special", "text"] = setting(
        "special", "--control-tokens", help="special tokens that stand in a prompt's text: encode them as such, or as plain text"
    )
    system_prompt: str | None = setting(None, "-s", help="system prompt before every prompt; none: the reward's own")
    max_prompt_tokens: Count = setting(512, "-mpt", help="longest prompt, in tokens")
    overlong: Literal["refuse", "drop"] = setting("refuse", help="longer prompts: refuse the data, or drop them and report how many")
    bad_rows: Literal["refuse", "drop"] = setting("refuse", help="bad rows: refuse the data, or drop them and report how many")
    max_rows: Count | None = setting(None, help="read at most so many rows of each data set; none: all")
    shuffle: bool = setting(True, help="shuffle the prompts in every episode")
    sampler: PluginName = setting(
        "auto", help="what decides which prompt is next (beside [[sources]]: which source); auto: shuffled, or sequential"
    )
    sampler_options: dict[str, Any] = Field(default={}, description="options of the sampler")

    @property
    def order(self) -> str:
        """The sampler, with "auto" resolved."""
        return self.sampler if self.sampler != "auto" else "shuffled" if self.shuffle else "sequential"

    @property
    def sources(self) -> tuple[DataSource, ...]:
        """The data sets as a tuple, each with its number of repeats."""
        items = (self.dataset,) if isinstance(self.dataset, str) else self.dataset
        return tuple(DataSource(path=item) if isinstance(item, str) else item for item in items if item)


class SamplingSection(Section):
    """[sampling]: how completions are drawn for training."""

    num_generations: Count = setting(8, "-g", help="completions per prompt")
    oversampling: Whole = setting(0, help="extra completions per prompt: the last to finish are cut, so short answers are favoured")
    temperature: Positive = setting(1.0, "-temp", help="sampling temperature")
    temperature_end: Positive | None = setting(None, help="temperature at the last update, reached in equal steps; none: constant")
    top_k: Whole = setting(0, "-topk", help="keep the k most likely tokens; 0: all")
    top_p: Fraction = setting(1.0, "-topp", help="keep the most likely tokens up to this probability mass; 1: all")
    min_p: Annotated[float, Field(ge=0, lt=1)] = setting(
        0.0, help="keep tokens with at least this fraction of the top token's probability; 0: all"
    )
    max_new_tokens: Count = setting(512, "-mnt", help="longest response, all turns together")
    stop: Listed[Name] | None = setting(None, help="strings that end a response; none: the reward's own")
    max_context_tokens: Count | None = setting(None, help="longest context with its answer; none: longest prompt and response together")
    conversation: PluginName = setting("single_turn", help="how a prompt becomes a rollout; with an environment: agent")
    environment: PluginName = setting("none", "--environment", help="what plays episodes with the policy; none: it answers the prompt")
    environment_options: dict[str, Any] = Field(default={}, description="options of the environment")
    extra: dict[str, Any] = Field(default={}, description="further request parameters that the inference backend understands")
    options: dict[str, Any] = Field(default={}, description="options of the conversation")

    @property
    def truncates(self) -> bool:
        """Whether the sampler's distribution differs, or may differ, from the policy's."""
        return bool(self.cut[0])

    @property
    def cut(self) -> tuple[str, str]:
        """The setting that truncates the sampler, or may do so, and the start of an advice that undoes it, such as "-topp 1 or "."""
        cuts = (
            ("top_p", self.top_p < 1.0, "-topp 1 or "),
            ("top_k", self.top_k > 0, "-topk 0 or "),
            ("min_p", self.min_p > 0, "--min-p 0 or "),
            ("extra", bool(self.extra), ""),
        )
        return next(((name, whole) for name, acts, whole in cuts if acts), ("", ""))


class InferenceSection(Section):
    """[inference]: the producers."""

    name: PluginName = setting("transformers", "-b", "--backend", help="inference backend")
    num_inferencer: Workers = setting(1, "-i", help="number of producers")
    inference_batch_size: Count | Auto = setting("auto", "-ibs", help="prompts in flight per producer; auto: train_batch_size")
    max_in_flight: Count | Auto = setting(
        "auto",
        help="most prompts in flight per producer, if episodes leave its engine idle; auto: as staleness allows, with an environment",
    )
    inference_microbatch_size: Count | Auto = setting(
        "auto", "-imbs", help="prompts per forward on one producer; auto: inference_batch_size"
    )
    producer_tensor_parallel_size: Count = setting(1, "-ptp", help="devices that one producer's model is split over")
    dtype: Dtype = setting("float32", "--inference-dtype", help="number format of the producers")
    device: Name = setting("auto", "--inference-device", help="producers: auto, cpu, cuda:1 …")
    environment: Folder | None = setting(
        None, "--inference-environment", help="folder of the Python environment of the producers; none: this one"
    )
    options: dict[str, Any] = Field(default={}, description="options of the inference backend")


class TrainingSection(Section):
    """[training]: the trainers, their batches and the optimizer."""

    name: PluginName = setting("auto", "--trainer", help="training backend; auto: an installed one that supports the run")
    num_trainers: Workers = setting(1, "-t", help="number of trainer processes")
    train_batch_size: Count = setting(32, "-tbs", help="prompts per update, over all trainers")
    train_minibatch_size: Count | Auto = setting(
        "auto", "-tMbs", help="prompts passed to the backend at a time within one update; auto: train_batch_size"
    )
    train_microbatch_size: Count | Auto = setting("auto", "-tmbs", help="rollouts per forward on one trainer; auto: the mini-batch")
    tokens_per_forward: Count = setting(16384, help="upper bound of tokens in one forward, padding included")
    tensor_parallel_size: Count = setting(1, "-tp", help="trainers that one layer is split over")
    pipeline_parallel_size: Count = setting(1, "-pp", help="trainers that the layers are spread over")
    context_parallel_size: Count = setting(1, help="trainers that one sequence is split over")
    expert_parallel_size: Count = setting(1, help="trainers that the experts of a layer are spread over")
    zero_stage: Annotated[int, Field(ge=0, le=3)] = setting(0, "-zero", help="ZeRO stage; shards 1: moments, 2: gradients, 3: weights too")
    optimizer: PluginName = setting("adamw", help="rule that moves the weights")
    learning_rate: Positive = setting(1e-6, "-lr", help="peak learning rate")
    betas: Annotated[tuple[Decay, Decay], Lax] = setting((0.9, 0.95), help="decay of the first and second moment")
    weight_decay: NonNegative = setting(0.01, help="decoupled weight decay")
    warmup_steps: Whole = setting(0, help="optimizer steps of linear warm-up")
    lr_schedule: PluginName = setting("cosine", help="course of the learning rate after the warm-up")
    min_lr_ratio: Share = setting(0.1, help="lowest learning rate of the schedule, as a share of the peak")
    max_grad_norm: Positive = setting(1.0, help="gradients are clipped to this norm")
    max_skipped_steps: Whole = setting(10, help="optimizer steps in a row that may be skipped because their gradient is not finite")
    lora_rank: Annotated[int, Field(ge=0, le=16384)] = setting(0, help="rank of LoRA adapters; 0: full training")
    lora_alpha: Positive = setting(
        32.0, help="scale of the adapters: the product of their matrices is multiplied by lora_alpha / lora_rank"
    )
    lora_targets: Listed[Name] = setting(
        (), help="linear layers with adapters, by the end of their names; none: all except the output head"
    )
    dtype: TrainingDtype = setting("float32", "--training-dtype", help="number format of the trainers")
    device: Name = setting("auto", "--training-device", help="trainers: auto, cpu, cuda, …")
    environment: Folder | None = setting(
        None, "--training-environment", help="folder of the Python environment of the trainers; none: this one"
    )
    model_hook: PluginName = setting("none", help="what changes the model before it is trained, such as frozen parts; none: as it is")
    options: dict[str, Any] = Field(default={}, description="options of the training backend")
    lr_schedule_options: dict[str, Any] = Field(default={}, description="options of the learning-rate schedule")
    model_hook_options: dict[str, Any] = Field(default={}, description="options of the model hook")
    optimizer_options: dict[str, Any] = Field(default={}, description="options of the optimizer")

    @property
    def chooses_optimizer(self) -> bool:
        """Whether the optimizer is a plugin; otherwise it is AdamW, which each backend has."""
        return self.optimizer != "adamw"

    @property
    def data_parallel_size(self) -> int:
        """Number of data-parallel ranks: trainers divided by tensor x pipeline x context parallelism."""
        return max(1, self.num_trainers // self.replica_size)

    @property
    def replica_size(self) -> int:
        """Number of trainers that hold one model replica and compute the same share of a batch."""
        return self.tensor_parallel_size * self.pipeline_parallel_size * self.context_parallel_size


class AlgorithmSection(Section):
    """[algorithm]: the recipe, its parts, and the terms that the core applies around them."""

    name: PluginName = setting("grpo", "-a", "--algo", help="recipe: estimator, loss and defaults")
    estimator: PluginName = setting("auto", help="advantage estimator; auto: the recipe's")
    loss: PluginName = setting("auto", help="loss; auto: the recipe's")
    loss_variation: PluginName = setting("sample_level", help="aggregation: how token losses are averaged")
    kl_coeff: NonNegative = setting(0.0, "-kl", help="weight of the KL penalty; 0: no penalty")
    kl_kind: PluginName = setting("k3", help="estimator of the KL divergence")
    kl_in: Literal["loss", "reward"] = setting("loss", help="where the KL penalty is applied")
    filter_by: Name = setting("accuracy", help="value that the group filter uses: accuracy, or the name of a reward")
    filter_range: Annotated[tuple[Finite, Finite], Lax] | None = setting(
        None, help="train only groups whose accuracy is strictly between these"
    )
    dynamic_batching: bool = setting(False, help="replace filtered groups until the batch is full")
    filter_limit: Count | None = setting(10, help="most filtered groups for one update, in batches; more end the run; none: no limit")
    filters: Listed[PluginName] = setting((), help="filters of groups, in this order: which rollouts of a group train")
    skip_threshold: AboveOne | None = setting(None, help="drop rollouts with a token whose probability ratio exceeds this; none: keep all")
    soft_over_length_punishment: bool = setting(False, help="lower the reward of responses near the length limit")
    cache_length: Whole | Auto = setting(
        "auto", help="tokens before the limit in which the reward is lowered; auto: min(1024, max_new_tokens / 4)"
    )
    filter_truncated_response: bool = setting(False, help="do not train on truncated responses")
    updates_per_batch: Count = setting(1, help="optimizer steps that one batch is split into")
    epochs_per_batch: Count = setting(1, help="passes over one batch")
    entropy_coeff: Finite = setting(0.0, help="coefficient of the entropy bonus")
    old_logprobs: Literal["auto", "rollout", "trainer"] = setting("auto", help="source of the old log probabilities in the ratio")
    mismatch_correction: PluginName = setting(
        "auto",
        help="how tokens are weighted by old / sampler probability, for stale data and differing engines; auto: truncated if they differ",
    )
    mismatch_range: Annotated[tuple[NonNegative, NonNegative], Lax] | Auto | None = setting(
        "auto",
        help="range to which that weight is clipped, or outside which it is masked; auto: usual range of the correction; none: unbounded",
    )
    options: dict[str, Any] = Field(default={}, description="options of the loss and of the estimator, by field name")
    loss_options: dict[str, Any] = Field(default={}, description="options of the loss alone, for names that the estimator has too")
    estimator_options: dict[str, Any] = Field(default={}, description="options of the estimator alone, for names that the loss has too")
    loss_variation_options: dict[str, Any] = Field(default={}, description="options of the aggregation")
    kl_kind_options: dict[str, Any] = Field(default={}, description="options of the KL estimator")
    mismatch_correction_options: dict[str, Any] = Field(default={}, description="options of the correction")
    filter_options: dict[str, dict[str, Any]] = Field(
        default={}, description="options of each filter, by its name: [algorithm.filter_options.NAME]"
    )


class RewardPolicy(Section):
    """policy of [[rewards]]: the effect of each outcome. train: the score trains; mask: the response is left out; stop: the run ends."""

    wrong: Policy = setting("train", help="the answer is wrong")
    malformed: Policy = setting("train", help="the response does not have the required form")
    unparseable: Policy = setting("train", help="the answer cannot be read")
    timeout: Accident = setting("mask", help="the reward took longer than its deadline, twice")
    error: Accident = setting("mask", help="the reward raised an exception")
    infra: Accident = setting("mask", help="the machine around the reward failed, twice")


class RewardBudget(Section):
    """budget of [[rewards]]: share of this reward's verdicts that may fail this way before the run stops; none: only the total budget
    counts."""

    timeout: Share | None = setting(None, help="took longer than its deadline")
    error: Share | None = setting(None, help="raised an exception")
    infra: Share | None = setting(None, help="the machine around it failed")


class RewardEntrySection(Section):
    """[[rewards]]: one reward of the run."""

    name: PluginName
    weight: Finite = 1.0
    options: dict[str, Any] = Field(default={}, description="options of the reward")
    deadline: Seconds | Auto = setting("auto", help="seconds that a reward may take for one response; auto: the deadline that it declares")
    policy: RewardPolicy = Field(default_factory=RewardPolicy, description="what each outcome does: train, mask or stop")
    budget: RewardBudget = Field(default_factory=RewardBudget, description="share of its verdicts that may fail, by outcome")


class ScheduleSection(Section):
    """[schedule]: how far generation may run ahead of training."""

    max_staleness: Whole | Auto = setting(
        "auto", help="versions that a group may lag behind the policy; 0: none; auto: 1 if generation can run ahead, else 0"
    )
    partial_rollouts: bool = setting(
        False, help="updates do not wait for long rollouts, which continue; tokens that are older than max_staleness do not train"
    )
    data_actor_buffer_size_limit: Count | Auto = setting(
        "auto", "-cbsl", help="groups that may wait for the trainer; auto: (max_staleness + 1) x train_batch_size"
    )
    producer_restarts: Whole = setting(3, help="failures in a row after which the run continues without a producer")
    producer_deadline: Seconds = setting(600.0, help="seconds after which an engine that does not answer counts as dead")
    producer_load_deadline: Seconds = setting(1800.0, help="seconds that a producer or a trainer may take to load its model")
    heartbeat_deadline: Annotated[float, Field(ge=1, le=86400, allow_inf_nan=False)] = setting(
        60.0, help="seconds after which a process that does not answer counts as dead"
    )
    lease_deadline: Seconds = setting(3600.0, help="seconds without a group after which a producer with prompts counts as dead")
    trainer_deadline: Seconds = setting(3600.0, help="seconds that the trainers may take for one update or checkpoint")
    max_restores: Whole = setting(3, help="times in a row that a run restores its last checkpoint automatically; 0: the run ends instead")
    reward_workers: Annotated[int, Field(ge=1, le=1024)] | Auto = setting("auto", help="processes that score responses; auto: cores - 1")
    reward_error_budget: Share = setting(0.05, help="share of rewards that may fail before the run stops")
    reward_worker_items: Count = setting(10_000, help="calls after which a reward worker is replaced")
    reward_worker_growth_mb: Count = setting(1024, help="MiB that a reward worker may grow by before it is replaced")
    reward_call_memory_mb: Whole = setting(4096, help="MiB that one call of a reward may add to its worker before it is ended; 0: no limit")

    @property
    def alternating(self) -> bool:
        """True if the run alternates between generation and training, which is the meaning of ``max_staleness`` 0.

        Code asks this property and does not compare the number. It is False while ``max_staleness`` reads "auto".
        """
        return self.max_staleness == 0

    @property
    def continuing(self) -> bool:
        """True if rollouts continue over any number of updates: ``partial_rollouts``, which has no effect at ``max_staleness`` 0."""
        return self.partial_rollouts and not self.alternating


class WeightsSection(Section):
    """[weights]: how new weights reach the producers."""

    transport: PluginName = setting("auto", help="weight transfer; auto: the one with the shortest reach that is enough")
    probe: bool = setting(True, help="check after every update that the producer serves the trainer's weights")
    deadline: Seconds = setting(
        120.0, "--weights-deadline", help="seconds that a transfer of weights may stall, or a producer may keep old weights"
    )
    bucket_mb: Count = setting(256, "--weights-bucket-mb", help="MiB of weights that are gathered, copied and loaded at a time")
    options: dict[str, Any] = Field(default={}, description="options of the weight transfer")


class EvalSection(Section):
    """[eval]: held-out tasks."""

    eval_dataset: dict[str, Source] = setting({}, "-ed", help='held-out files by task, as JSON: {"task": "path.jsonl"}')
    eval_interval: Whole = setting(0, "-ei", help="updates between evaluations; 0: none")
    eval_samples: Count = setting(1, help="completions per held-out prompt: avg@k, and pass@k and maj@k up to this k")
    eval_temperature: NonNegative = setting(0.6, help="temperature of evaluation; 0: greedy")
    eval_max_new_tokens: Count | None = setting(None, help="longest response in evaluation; none: max_new_tokens")
    eval_save_dir: Folder | None = setting(None, "-esd", help="folder for evaluation logs, instead of the run folder")


class LogSection(Section):
    """[log]: logs, checkpoints and trackers."""

    save_interval: Whole | Auto = setting("auto", "-si", help="updates between checkpoints; 0: at the end; auto: every 10 minutes")
    keep_checkpoints: Count = setting(3, help="number of newest checkpoints to keep")
    keep_best: bool = setting(True, help="also save and keep the best checkpoint, whatever the save interval")
    best_by: Name = setting(
        "accuracy",
        help="figure that decides the best: accuracy (mean over held-out tasks), or a metric (eval/aime/pass@8); min:METRIC: the lowest",
    )
    export_dtype: Literal["bfloat16", "float16"] | None = setting(
        None, help="also save the model rounded to this dtype in each checkpoint, as export/; none: do not"
    )
    save_dir: Folder | None = setting(None, "-sd", help="folder for checkpoints, instead of the run folder")
    rollout_save_dir: Folder | None = setting(None, "-rsd", help="folder for rollout logs, instead of the run folder")
    private: bool = setting(False, help="let only the owner read the folders of the run (mode 0700); off: as the umask allows")
    rollout_interval: Whole = setting(1, help="updates between rollout logs, in addition to the first update; 0: none")
    rollout_share: Fraction = setting(1.0, help="share of the groups of a logged update that are written, chosen by the seed; 1: all")
    rollout_max_mb: Positive = setting(1024.0, help="most MB of rollout logs, and as many of evaluation logs; the oldest are removed")
    trackers: Listed[PluginName] = setting((), help="trackers that receive the metrics, too")
    observers: dict[str, dict[str, Any]] = setting({}, help="options of each observer, by its distribution: [log.observers.NAME], or JSON")
    options: dict[str, dict[str, Any]] = Field(default={}, description="options of each tracker, by its name: [log.options.NAME]")


class SourceSection(Section):
    """[[sources]]: a part of the run with its own data, rewards and algorithm. Settings that it leaves out are those of the run."""

    name: Name
    weight: Annotated[float, Field(ge=1e-6, le=1e6, allow_inf_nan=False)] = 1.0
    data: Annotated[dict[str, Any], Partial(DataSection)] = Field(default={}, description="its settings of [data]")
    sampling: Annotated[dict[str, Any], Partial(SamplingSection)] = Field(default={}, description="its settings of [sampling]")
    algorithm: Annotated[dict[str, Any], Partial(AlgorithmSection)] = Field(default={}, description="its settings of [algorithm]")
    rewards: Listed[RewardEntrySection] = ()
    eval: Annotated[dict[str, Any], Partial(EvalSection)] = Field(default={}, description="its settings of [eval]")


class RunConfig(Section):
    """The whole configuration of a run. Before ``plan_run``, some values may read "auto"; in a ``Plan``, only ``save_interval``,
    ``data.format`` and ``data.sampler`` do. With ``sources``, a setting that a source may set is in ``Plan.parts``, and not here."""

    run: RunSection = Field(default_factory=RunSection)
    model: ModelSection = Field(default_factory=ModelSection)
    data: DataSection = Field(default_factory=DataSection)
    sampling: SamplingSection = Field(default_factory=SamplingSection)
    inference: InferenceSection = Field(default_factory=InferenceSection)
    training: TrainingSection = Field(default_factory=TrainingSection)
    algorithm: AlgorithmSection = Field(default_factory=AlgorithmSection)
    rewards: Listed[RewardEntrySection] = Field(default=(), description="[[rewards]]: the rewards, added up with their weights")
    schedule: ScheduleSection = Field(default_factory=ScheduleSection)
    weights: WeightsSection = Field(default_factory=WeightsSection)
    eval: EvalSection = Field(default_factory=EvalSection)
    log: LogSection = Field(default_factory=LogSection)
    sources: Listed[SourceSection] = Field(default=(), description="[[sources]]: parts with their own data, rewards and algorithm")

    @property
    def data_sets(self) -> tuple[DataSource, ...]:
        """The data sets to read: those to train on, then those of the evaluation tasks."""
        return (*self.data.sources, *(DataSource(path=path) for path in self.eval.eval_dataset.values()))

    @property
    def max_context_tokens(self) -> int:
        """The longest context with its answer, in tokens, that an engine must hold."""
        response = max(self.sampling.max_new_tokens, self.eval.eval_max_new_tokens or 0)
        return self.sampling.max_context_tokens or self.data.max_prompt_tokens + response

    def plain(self) -> Mapping[str, Any]:
        """Return nested plain values, as TOML holds them. Plugin options may contain numbers that are not finite; these are kept."""
        plain = self.model_dump(mode="json")
        return {
            section: values
            if not self.sources or not isinstance(values, dict)
            else {key: value for key, value in values.items() if not of_a_source(path := f"{section}.{key}") or path in AMONG_SOURCES}
            for section, values in plain.items()
            if not (self.sources and section == "rewards")
        }
