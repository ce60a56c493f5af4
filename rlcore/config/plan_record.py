"""A run of ``train``, resolved and checked, and its parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import BaseModel

from rlcore.config.data_source import order_of, source_of
from rlcore.config.layers import Origin, as_typed, get_path
from rlcore.config.plugin_selection import LISTS, OWN_TABLES, Missing
from rlcore.config.reproducibility import Reproducibility
from rlcore.config.run_config import RunConfig
from rlcore.config.toml_text import to_toml
from rlcore.contracts.resume_point import ResumePoint
from rlcore.contracts.specs import PluginKind, RewardSpec
from rlcore.registry.plugin_registry import Registry

__all__ = ["Plan", "SourcePlan", "named_format"]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A run of ``train``, resolved and checked.

    ``notes`` holds every resolved "auto" (also in ``derived``) and other notes for the user. ``missing`` lists the reasons why the plan
    cannot run here. ``reproducible`` tells how far two runs agree. ``resume`` is the point from which an earlier run resumes, None for a
    new run.

    ``unscorable``: rows that no reward can score and that bad_rows = "drop" leaves out: data set -> place -> reason. None until the rewards
    have checked them.

    Options are instances of the plugins' models, None if a plugin has none. ``reward_options`` has the order of ``config.rewards``.
    ``update_options``, for the small parts of an update, is keyed by the setting that names the plugin.
    """

    config: RunConfig
    origins: Mapping[str, Origin]
    notes: tuple[str, ...]
    missing: tuple[Missing, ...]
    registry: Registry
    reproducible: Reproducibility
    derived: tuple[str, ...] = ()
    runtime_options: BaseModel | None = None
    transfer_options: BaseModel | None = None
    conversation_options: BaseModel | None = None
    environment_options: BaseModel | None = None
    sampler_options: BaseModel | None = None
    tracker_options: tuple[BaseModel | None, ...] = ()
    controller_options: tuple[BaseModel | None, ...] = ()
    filter_options: tuple[BaseModel | None, ...] = ()
    inference_options: BaseModel | None = None
    training_options: BaseModel | None = None
    loss_options: BaseModel | None = None
    estimator_options: BaseModel | None = None
    update_options: Mapping[str, BaseModel | None] = field(default_factory=dict)
    reward_options: tuple[BaseModel | None, ...] = ()
    resume: ResumePoint | None = None
    bad_rows: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Data set -> reason -> number of rows that were left out, once they were read."""
    unscorable: Mapping[str, Mapping[str, str]] | None = None
    sources: tuple[SourcePlan, ...] = ()
    """The parts of a run with ``[[sources]]``. Its own ``config`` then holds the settings of the whole run, the evaluation tasks of all
    sources, and no training data."""

    @property
    def parts(self) -> tuple[SourcePlan, ...]:
        """The sources, by their number; the plan itself, as a source without a name, if the run has no ``[[sources]]``."""
        return self.sources or (SourcePlan(name="", weight=1.0, plan=self),)

    @property
    def source_names(self) -> tuple[str, ...]:
        """The names of ``[[sources]]``, by their number; () for a run without."""
        return tuple(source.name for source in self.sources)

    def of_data(self, name: str) -> Plan:
        """Return the plan of the source of a data set, by the set's name in the run: that of the run if it has no ``[[sources]]``."""
        task = name.removeprefix("eval/")
        owners = (part.plan for part in self.parts if name == part.data_name("train") or task in part.plan.config.eval.eval_dataset)
        return next(owners, self)

    def reward_specs(self) -> tuple[RewardSpec, ...]:
        """Return the spec of every installed reward, in order; of all sources, each once, if there are several."""
        if self.sources:
            return tuple({spec.name: spec for source in self.sources for spec in source.plan.reward_specs()}.values())
        specs = [self.registry.spec("reward", entry.name) for entry in self.config.rewards if self.registry.has("reward", entry.name)]
        return tuple(spec for spec in specs if isinstance(spec, RewardSpec))

    def cite(self, path: str) -> str:
        """Return a setting and its value as the user knows them; that of a source by its path ``sources.NAME.section.key``.

        A table of options is cited without an origin, because each option has its own."""
        if path.startswith("sources.") and path not in self.origins:
            _, name, own = path.split(".", 2)
            source = next(source for source in self.sources if source.name == name)
            return f"{source.label}{f'weight = {source.weight}' if own == 'weight' else source.plan.cite(own)}"
        value = get_path(self.config, path)
        return self.origins[path].cite(path, value) if path in self.origins else f"{path} = {as_typed(value)}"

    def named(self, path: str) -> str:
        """Return the path of a setting in ``origins``, with the name of its source in place of the number."""
        number, _, rest = path.removeprefix("sources.").partition(".")
        return f"sources.{self.sources[int(number)].name}.{rest}" if path.startswith("sources.") else path

    def plugins(self) -> list[tuple[PluginKind, str]]:
        """Return (kind, name) of every plugin that the configuration names, each data source once."""
        if self.sources:
            own = (PluginKind.SAMPLER, self.config.data.sampler)
            return list(dict.fromkeys([*(item for source in self.sources for item in source.plan.plugins()), own]))
        config = self.config
        return [
            (PluginKind.RUNTIME, config.run.runtime),
            (PluginKind.ALGORITHM, config.algorithm.name),
            (PluginKind.ESTIMATOR, config.algorithm.estimator),
            (PluginKind.LOSS, config.algorithm.loss),
            *((kind, name) for path, kind in OWN_TABLES.items() if (name := get_path(config, path)) != "none"),
            (PluginKind.INFERENCE, config.inference.name),
            (PluginKind.TRAINING, config.training.name),
            (PluginKind.TRANSFER, config.weights.transport),
            (PluginKind.CONVERSATION, config.sampling.conversation),
            (PluginKind.SAMPLER, order_of(config, self.registry)),
            *dict.fromkeys((PluginKind.DATA, source_of(source, self.registry)) for source in config.data_sets),
            *((PluginKind.FORMAT, name) for name in named_format(config)),
            *((PluginKind.REWARD, reward.name) for reward in config.rewards),
            *((kind, name) for path, (kind, _) in LISTS.items() for name in get_path(config, path)),
        ]

    def to_toml(self) -> str:
        """Return the resolved configuration as TOML that plans the same run.

        A setting that somebody set to none is written out. Otherwise a recipe's value would replace it."""
        unset = [path for path, origin in self.origins.items() if origin.layer != "core" and get_path(self.config, path) is None]
        return to_toml(self.config, unset)


@dataclass(frozen=True, kw_only=True)
class SourcePlan:
    """A source of a run: its name ("" for the only source of a run without ``[[sources]]``), its weight, and the plan of a run that has
    only this source."""

    name: str
    weight: float
    plan: Plan

    @property
    def label(self) -> str:
        """The beginning of a message about the source: "source NAME: ", or ""."""
        return f"source {self.name}: " if self.name else ""

    def data_name(self, name: str) -> str:
        """Return the name in the run of the source's data set ``name``, such as ``train/NAME``."""
        return f"train/{self.name}" if self.name and name == "train" else name


def named_format(config: RunConfig) -> list[str]:
    """Return the row format that the user names, if any. A format that is detected from the rows is not known before they are read."""
    return [config.data.format] if config.data.format not in ("auto", "none") else []
