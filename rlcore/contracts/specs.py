"""Specs: the declarations of plugins.

A spec holds a name, the place of the implementation, its options and its documentation; it imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import inf

from rlcore.contracts.algorithm_specs import (
    AdvantageSpec,
    AggregationSpec,
    AlgorithmSpec,
    CorrectionSpec,
    GroupFilterSpec,
    KlSpec,
    LearningRateScheduleSpec,
    LossSpec,
    OptimizerSpec,
)
from rlcore.contracts.capabilities import InferenceCapabilities, InFlight, TrainingCapabilities
from rlcore.contracts.model_hook import ModelHookSpec
from rlcore.contracts.spec_base import Gold, PluginKind, Reach, Spec

__all__ = [
    "DEADLINE_SETTINGS",
    "LABELS",
    "REGISTERING_HOOKS",
    "RUNTIME_SETTINGS",
    "AdvantageSpec",
    "AggregationSpec",
    "AlgorithmSpec",
    "CommandSpec",
    "ControllerSpec",
    "ConversationSpec",
    "CorrectionSpec",
    "DataSourceSpec",
    "EnvironmentSpec",
    "GroupFilterSpec",
    "InFlight",
    "InferenceBackendSpec",
    "InferenceCapabilities",
    "KlSpec",
    "LearningRateScheduleSpec",
    "LossSpec",
    "ModelHookSpec",
    "OptimizerSpec",
    "PluginKind",
    "RewardSpec",
    "RowFormatSpec",
    "RuntimeSpec",
    "SamplerSpec",
    "SandboxSpec",
    "Spec",
    "TrackerSpec",
    "TrainingBackendSpec",
    "TrainingCapabilities",
    "WeightTransferSpec",
]


_ADDRESS = ("run.master_address", "run.master_port", "run.ray_dir")
DEADLINE_SETTINGS = (
    *("schedule.producer_restarts", "schedule.producer_deadline", "schedule.producer_load_deadline"),
    *("schedule.heartbeat_deadline", "schedule.lease_deadline", "schedule.trainer_deadline"),
)
_ENVIRONMENTS = ("inference.environment", "training.environment")
RUNTIME_SETTINGS = (*_ADDRESS, *DEADLINE_SETTINGS, *_ENVIRONMENTS)
"""The core settings that only some runtimes read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardSpec(Spec):
    """A reward.

    ``requires``: the columns that a row must have.
    ``gives_accuracy``: whether its scores have ``accuracy``; a group filter needs that.
    ``system_prompt``, ``stop``: defaults for the user's settings.
    ``full_value_option``: the option that holds the value of a right answer; it scales the punishment of overlong responses. "": a right
        answer is worth 1.
    ``deadline``: the default of seconds for one response.
    ``reads_tokens``: whether its ``RewardInput`` has the ids of the sampled tokens.
    ``gold``: what ``gt_answer`` is to the reward. "answer": one answer, so a JSON list of one text is read as that text, and of several is
        refused. "text": any text. "": not declared. A word that stands for an absent answer ("notfound") is refused, except as "text".
    ``pure_check``: whether the answer of ``check`` depends only on the row, the options and the code of the plugin and its libraries. Then
        it is not asked again about a large data set that it has accepted.
    ``audit``: ``"package.module:function"``. The function returns the ``AuditCase`` list on which ``rlcore audit`` runs the reward. Only
        that command imports it.
    """

    on_class = ("requires", "stop", "system_prompt", "gives_accuracy", "reads_tokens", "gold")

    requires: tuple[str, ...] = ()
    gives_accuracy: bool = True
    system_prompt: str = ""
    stop: tuple[str, ...] = ()
    full_value_option: str = ""
    deadline: float = 10.0
    reads_tokens: bool = False
    gold: Gold = ""
    pure_check: bool = False
    audit: str = ""

    def __post_init__(self) -> None:
        Spec.__post_init__(self)
        if not 0 < self.deadline < inf:
            raise ValueError(f"RewardSpec {self.name!r}: deadline is {self.deadline}, it must be a number of seconds above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceBackendSpec(Spec):
    """An inference backend.

    ``requires_module``: the engine that must be importable; the distribution installs without it.
    ``install``: how to install the engine, for messages.
    ``tokenizer``: ``"module:function"``, called with the model's path, if the engine does not use a Hugging Face tokenizer.
    ``capabilities``: those of the class. Without them a dry run cannot check whether the backend supports the plan.
    """

    on_class = ("capabilities",)

    requires_module: str = ""
    install: str = ""
    tokenizer: str = ""
    capabilities: InferenceCapabilities | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingBackendSpec(Spec):
    """A training backend. ``requires_module``, ``install`` and ``capabilities`` are as for inference.

    ``preference``: ``name = "auto"`` selects, among the backends that support the run, the one with the highest preference. A backend with
    a preference below 0 is never selected automatically.
    """

    on_class = ("capabilities",)

    requires_module: str = ""
    install: str = ""
    capabilities: TrainingCapabilities | None = None
    preference: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackerSpec(Spec):
    """A tracker of metrics. Its options are in ``[log.options.NAME]``, so its name contains no dot.

    ``requires_module`` and ``install`` are as for inference.
    """

    requires_module: str = ""
    install: str = ""

    def __post_init__(self) -> None:
        Spec.__post_init__(self)
        _check_without_dot(self, "log.options")


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSpec(Spec):
    """A controller, which steers a run. Its options are in ``[run.controller_options.NAME]``, so its name contains no dot. Since 2.0.

    ``sets``: the settings that it may set, such as ``algorithm.kl_coeff``, or ``algorithm.options.clip`` for an option of the loss.
    ``scales``: the settings that it multiplies by a factor, so that a schedule or another controller may set them, too.
    """

    on_class = ("sets", "scales")

    sets: tuple[str, ...] = ()
    scales: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        Spec.__post_init__(self)
        _check_without_dot(self, "run.controller_options")
        if both := set(self.sets) & set(self.scales):
            raise ValueError(f"ControllerSpec {self.name!r}: {min(both)} is in sets and in scales; leave it out of one")


def _check_without_dot(spec: Spec, table: str) -> None:
    if "." in spec.name:
        raise ValueError(f"{type(spec).__name__} name {spec.name!r}: leave the dot out, for the options stand in [{table}.NAME]")


def _check_among(spec: Spec, label: str, known: Collection[str]) -> None:
    for value in getattr(spec, label):
        if value not in known:
            raise ValueError(f"{type(spec).__name__} {spec.name!r}: {label} holds {value!r}, it may hold {', '.join(known)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeSpec(Spec):
    """A runtime, which decides where the roles of a run execute.

    The target is called as ``target(plan, closing, say)`` and returns a ``Runtime`` (``rlcore.api.runtime``).

    ``reach``: how far apart its processes can be: ``process`` (one process, with one producer and one trainer rank), ``host`` (processes on
        one host), ``cluster`` (processes on any hosts). A runtime that reads ``run.master_address`` stays on this host if the setting is
        absent.
    ``alternating``: whether one producer and one trainer rank share a process if they alternate (``max_staleness`` 0), neither has an
        environment, and the weights go through host memory. This holds for any reach. A runtime whose reach is ``process`` accepts no other
        ``max_staleness``.
    ``settings``: the paths of the core settings that this runtime reads and others may not: ``run.master_address``, ``run.master_port``,
        ``run.ray_dir``, ``schedule.producer_restarts``, ``schedule.producer_deadline``, ``schedule.producer_load_deadline``,
        ``schedule.heartbeat_deadline``, ``schedule.lease_deadline``, ``schedule.trainer_deadline``, ``inference.environment``,
        ``training.environment``.
    ``requires_module``, ``install``: as for inference.
    ``config``: the model of ``[run.options]``. The runtime finds its instance as ``plan.runtime_options``.
    ``preference``: ``runtime = "auto"`` selects, among the runtimes that can place the roles, the one with the highest preference. A
        runtime with a preference below 0 is never selected automatically.
    """

    on_class = ("reach", "settings")

    reach: Reach = "process"
    alternating: bool = False
    preference: int = 0
    settings: tuple[str, ...] = ()
    requires_module: str = ""
    install: str = ""

    def __post_init__(self) -> None:
        Spec.__post_init__(self)
        _check_among(self, "settings", RUNTIME_SETTINGS)

    @property
    def several(self) -> bool:
        """Whether it can place more than one producer or trainer rank."""
        return self.reach != "process"


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightTransferSpec(Spec):
    """A way to transfer weights from the trainer to the engines; ``target`` is an ``rlcore.api.weights.WeightTransfer``.

    ``reach``: how far apart the two ends can be: ``process`` (the same process; published weights are available as soon as ``publish`` has
        returned), ``host`` (two processes of one user on one host), ``cluster`` (processes on any hosts).
    ``runtimes``: the names of the runtimes in which it works, () for all.
    ``preference``: ``transport = "auto"`` selects, among the transfers that fit, those with the shortest sufficient reach, then the one
        with the highest preference. A transfer with a preference below 0 is never selected automatically.
    ``way``: how the bytes reach the engine, as in ``InferenceCapabilities.transfers``: ``host``, or an engine transfer, which the engines
        join themselves.
    ``unusable``: half a sentence on why this machine cannot use it ("this Python has no os.memfd_create"), "" if it can.
    """

    reach: Reach
    runtimes: tuple[str, ...] = ()
    preference: int = 0
    way: str = "host"
    unusable: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSpec(Spec):
    """A sandbox, which runs untrusted programs.

    ``levels``: the values of ``rlcore.api.sandbox.Level`` that it can give, strongest first. A user who asks for another level is refused
    before the run starts. Empty: the level is known only once the sandbox is open.
    """

    levels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        Spec.__post_init__(self)
        from rlcore.contracts.sandboxing import Level  # here: it brings pydantic, which the list of commands does without

        _check_among(self, "levels", [level.value for level in Level])


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSpec(Spec):
    """A command of the ``rlcore`` command line.

    ``name``: the word that users type.
    ``summary``: its line in ``rlcore --help``.
    ``target``: a class derived from ``rlcore.api.commands.Command``, imported when the user types the command.
    ``position``: ``rlcore --help`` lists commands by rising position, then by name.
    ``function``: the address of the function for Python that does the same, for the names that ``rlcore`` has. Since 2.0.
    """

    position: int = 100
    function: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSourceSpec(Spec):
    """A reader of data sets; ``target`` is an ``rlcore.api.data.RowSource``.

    ``prefix``: the beginning of the paths that it reads ("hf:"). The rest of the path need not be a file.
    ``suffixes``: the ends of the file names that it reads (".jsonl"). The longest suffix wins. "" matches any file that no other data
        source claims.
    ``folders``: whether it reads folders.
    ``remote``: whether its rows come from another machine. A dry run does not read them.
    ``endless``: whether it makes rows without end; ``target`` is then an ``rlcore.api.data.RowGenerator``. Since 2.0.

    A data source without any of these is used only by its name (``source = "…"``), and may give the path any meaning.
    """

    on_class = ("endless",)

    suffixes: tuple[str, ...] = ()
    prefix: str = ""
    folders: bool = False
    remote: bool = False
    endless: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFormatSpec(Spec):
    """A conversion of the rows of a published data set to rows of rlcore.

    ``target`` is an ``rlcore.api.data.RowFormat``, which has no options. The format is selected by ``data.format``, or because it is the
    only one that recognises the first row of a file.
    """

    def __post_init__(self) -> None:
        Spec.__post_init__(self)
        if self.config:
            raise ValueError(f"RowFormatSpec {self.name!r}: config is {self.config!r}, and a row format has no options")


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerSpec(Spec):
    """An order of the prompts, or of the sources of a run: the value of ``data.sampler``, with a table ``…_options``. Since 2.0.

    ``observes``: whether the draws depend on results, so that above ``max_staleness`` 0 they depend on timing.
    ``endless``: True if it draws only from data without end, False if only from data that ends and from sources; None: from any.
    """

    observes: bool = True
    endless: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationSpec(Spec):
    """A way to produce a rollout from a prompt, an ``rlcore.api.conversations.Conversation``. Its options are in ``[sampling.options]``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentSpec(Spec):
    """An environment, which plays episodes with the policy; ``target`` is an ``rlcore.api.environments.Environment``. Since 2.0.

    Its options are in ``[sampling.environment_options]``.

    ``environment``: the folder of the virtual environment in which it runs, or the name that ``rlcore env build`` knows it by; "" for
        that of the run.
    ``deterministic``: whether the same answers of the policy always lead to the same episode. Otherwise two runs of one plan may differ.
    ``episodes_per_process``: how many episodes one process may play at the same time.
    """

    on_class = ("environment", "deterministic", "episodes_per_process")

    environment: str = ""
    deterministic: bool = False
    episodes_per_process: int = 1


_KINDS: Mapping[PluginKind, tuple[type[Spec], str, str]] = {
    PluginKind.REWARD: (RewardSpec, "reward", "rewards"),
    PluginKind.INFERENCE: (InferenceBackendSpec, "inference backend", "inference_backends"),
    PluginKind.TRAINING: (TrainingBackendSpec, "training backend", "training_backends"),
    PluginKind.ESTIMATOR: (AdvantageSpec, "advantage estimator", "advantage_estimators"),
    PluginKind.LOSS: (LossSpec, "loss", "losses"),
    PluginKind.AGGREGATION: (AggregationSpec, "aggregation", "aggregations"),
    PluginKind.KL: (KlSpec, "KL estimator", "kl_estimators"),
    PluginKind.CORRECTION: (CorrectionSpec, "mismatch correction", "corrections"),
    PluginKind.ALGORITHM: (AlgorithmSpec, "algorithm", "algorithms"),
    PluginKind.TRACKER: (TrackerSpec, "tracker", "trackers"),
    PluginKind.RUNTIME: (RuntimeSpec, "runtime", "runtimes"),
    PluginKind.TRANSFER: (WeightTransferSpec, "weight transfer", "weight_transfers"),
    PluginKind.SANDBOX: (SandboxSpec, "sandbox", "sandboxes"),
    PluginKind.COMMAND: (CommandSpec, "command", "commands"),
    PluginKind.DATA: (DataSourceSpec, "data source", "data_sources"),
    PluginKind.CONVERSATION: (ConversationSpec, "conversation", "conversations"),
    PluginKind.ENVIRONMENT: (EnvironmentSpec, "environment", "environments"),
    PluginKind.FORMAT: (RowFormatSpec, "row format", "row_formats"),
    PluginKind.LR_SCHEDULE: (LearningRateScheduleSpec, "learning-rate schedule", "lr_schedules"),
    PluginKind.CONTROLLER: (ControllerSpec, "controller", "controllers"),
    PluginKind.FILTER: (GroupFilterSpec, "group filter", "filters"),
    PluginKind.MODEL_HOOK: (ModelHookSpec, "model hook", "model_hooks"),
    PluginKind.OPTIMIZER: (OptimizerSpec, "optimizer", "optimizers"),
    PluginKind.SAMPLER: (SamplerSpec, "sampler", "samplers"),
}
SPEC_OF_KIND: Mapping[PluginKind, type[Spec]] = {kind: spec for kind, (spec, _, _) in _KINDS.items()}
LABELS: Mapping[PluginKind, str] = {kind: label for kind, (_, label, _) in _KINDS.items()}
"""The name of each kind in a sentence."""
REGISTERING_HOOKS: Mapping[str, PluginKind] = {f"rlcore_register_{many}": kind for kind, (_, _, many) in _KINDS.items()}
"""The hook that offers things of a kind; ``hookspecs.py`` writes each of them out."""
