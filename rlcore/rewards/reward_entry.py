"""The rewards of a plan, and how a worker process builds one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import cloudpickle
from pydantic import BaseModel

from rlcore.contracts.errors import PluginError
from rlcore.contracts.reward_interface import AsyncReward, Reward
from rlcore.contracts.specs import PluginKind, RewardSpec
from rlcore.contracts.types import Outcome
from rlcore.registry.plugin_registry import Attestation, Registry
from rlcore.registry.sandboxes import SandboxBundle, bundle_sandboxes, load_sandboxes
from rlcore.registry.targets import class_problem, disagreement, load_target
from rlcore.registry.unpackaged import FunctionReward, wrap

if TYPE_CHECKING:  # a worker needs none of the configuration
    from rlcore.config import Plan
    from rlcore.config.run_config import Policy

__all__ = ["RewardEntry", "RewardRecipe", "Traits", "reward_entries", "routed_entries"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardEntry:
    """A reward as the run uses it.

    ``weight`` multiplies its value. ``deadline`` is in seconds for one rollout. ``options`` is an instance of the model that the spec
    names, or None. ``payload`` is the cloudpickled class or function of a reward that is not packaged, else None. ``policy`` maps outcomes
    to their effect, if it is not the usual one (a verdict trains, a failure is masked). ``budget`` is the share of this reward's verdicts
    that may end with an outcome before the run stops, in addition to the budget of the run.
    """

    name: str
    spec: RewardSpec
    label: str = ""
    """Its name in metrics and messages, distinct in the run: ``NAME@SOURCE`` if two sources use it differently."""
    weight: float = 1.0
    deadline: float = 10.0
    options: BaseModel | None = None
    payload: bytes | None = None
    attestation: Attestation | None = None
    """The plugin that the driver resolved the name to. Every worker must resolve it to the same one."""
    sandboxes: tuple[SandboxBundle, ...] = ()
    """The sandboxes that the options name. Every worker must resolve them to the same ones, too."""
    policy: Mapping[Outcome, Policy] = field(default_factory=dict)
    budget: Mapping[Outcome, float] = field(default_factory=dict)

    def action(self, outcome: Outcome) -> Policy:
        """Return the effect of a verdict with this outcome."""
        return self.policy.get(outcome, "train" if outcome.judged else "mask")

    def __post_init__(self) -> None:
        if not self.label:
            object.__setattr__(self, "label", self.name)
        if not self.deadline > 0:
            raise ValueError(f"reward {self.name}: deadline is {self.deadline}; it must be above 0 seconds")

    def recipe(self) -> RewardRecipe:
        """Return the values from which any fresh interpreter can build the reward."""
        named = self.options is not None and bool(self.spec.config)
        return RewardRecipe(
            name=self.name,
            target=self.spec.target,
            payload=self.payload,
            # An unpackaged reward travels whole, so the other side has nothing to resolve.
            attestation=self.attestation if self.payload is None else None,
            sandboxes=self.sandboxes,
            config=self.spec.config,
            options=self.options.model_dump() if named and self.options is not None else None,
            pickled_options=cloudpickle.dumps(self.options) if self.options is not None and not named else None,
        )


def reward_entries(plan: Plan) -> tuple[RewardEntry, ...]:
    """Return the rewards of a plan, or of one source, in order, as a run uses them.

    Raises PluginError, with the distribution to install, if a reward, or a sandbox that its options name, is not installed."""
    specs: list[RewardSpec] = []
    for reward in plan.config.rewards:
        spec = plan.registry.spec(PluginKind.REWARD, reward.name)
        assert isinstance(spec, RewardSpec)  # the registry keeps kinds apart
        specs.append(spec)
    return tuple(
        RewardEntry(
            name=spec.name,
            spec=spec,
            weight=reward.weight,
            deadline=float(reward.deadline),  # the plan has already resolved auto
            options=options,
            payload=plan.registry.payload(PluginKind.REWARD, reward.name),
            attestation=plan.registry.attest(PluginKind.REWARD, reward.name),
            sandboxes=bundle_sandboxes(options, plan.registry),
            policy={Outcome(outcome): action for outcome, action in reward.policy},
            budget={Outcome(outcome): share for outcome, share in reward.budget if share is not None},
        )
        for reward, spec, options in zip(plan.config.rewards, specs, plan.reward_options, strict=True)
    )


def routed_entries(plan: Plan) -> tuple[tuple[RewardEntry, ...], tuple[tuple[int, ...], ...]]:
    """Return the rewards of all sources, equal ones once, and the places of those of each source."""
    entries: list[RewardEntry] = []
    routes = []
    for part in plan.parts:
        route = []
        for entry in reward_entries(part.plan):
            same = next((place for place, known in enumerate(entries) if replace(known, label=entry.label) == entry), None)
            if same is None:
                taken = any(entry.name == known.label for known in entries)
                entries.append(replace(entry, label=f"{entry.name}@{part.name}") if taken else entry)
            route.append(len(entries) - 1 if same is None else same)
        routes.append(tuple(route))
    return tuple(entries), tuple(routes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """Properties of a built reward.

    ``requires`` is None if it needs every column of the row. ``concurrency`` is that of an asynchronous reward, 0 for a synchronous one.
    ``notice`` is its notice about this machine."""

    requires: tuple[str, ...] | None
    group_level: bool
    checks: bool
    concurrency: int = 0
    notice: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardRecipe:
    """Plain values from which ``build`` makes the reward. They are pickled for the worker."""

    name: str
    target: str
    payload: bytes | None
    config: str
    options: dict[str, Any] | None
    pickled_options: bytes | None
    attestation: Attestation | None = None
    sandboxes: tuple[SandboxBundle, ...] = ()

    def build(self) -> Reward:
        """Import and construct the reward. Raises whatever its own code raises.

        Raises PluginError if its name, or the name of a sandbox that it uses, resolves to another plugin or version than on the driver."""
        spec = None
        if self.attestation is not None:
            registry = Registry.discover()
            registry.check_attestations([self.attestation])
            registry.load(PluginKind.REWARD, self.name)
            spec = registry.spec(PluginKind.REWARD, self.name)
        load_sandboxes(self.sandboxes)
        target = cloudpickle.loads(self.payload) if self.payload is not None else load_target(self.target, f"its target {self.target!r}")
        options = self._options()
        if callable(target) and not isinstance(target, type):
            target = wrap(PluginKind.REWARD, target)
        if problem := class_problem(PluginKind.REWARD, target, function=", or a function of one RewardInput"):
            raise PluginError(f"its target {self.target!r} {problem}")
        reward: Reward = target() if options is None else target(options)
        if isinstance(reward, AsyncReward):
            _check_async(reward)
        if spec is not None and not isinstance(reward, FunctionReward) and (problem := disagreement(PluginKind.REWARD, spec, reward)):
            raise PluginError(problem)
        return reward

    def _options(self) -> Any:
        if self.pickled_options is not None:
            return cloudpickle.loads(self.pickled_options)
        return load_target(self.config, f"its options model {self.config!r}")(**(self.options or {})) if self.config else None

    def traits(self, reward: Reward, *, notice: str = "") -> Traits:
        """Return the properties that the judge needs: columns, group level, whether rows can be checked in advance, and concurrency."""
        undeclared = not reward.requires and (self.payload is not None or isinstance(reward, FunctionReward))
        return Traits(
            requires=None if undeclared else tuple(reward.requires),
            group_level=bool(reward.group_level),
            checks=type(reward).check is not Reward.check,
            concurrency=reward.concurrency if isinstance(reward, AsyncReward) else 0,
            notice=" ".join(str(notice).split()),
        )


def _check_async(reward: AsyncReward) -> None:
    """Raise ValueError if a declared value is not valid."""
    rules = (
        (reward.group_level, "group_level is set; an AsyncReward scores single rollouts"),
        (not (isinstance(reward.concurrency, int) and reward.concurrency >= 1), f"concurrency is {reward.concurrency!r}, not 1 or more"),
        (not (isinstance(reward.retries, int) and reward.retries >= 0), f"retries is {reward.retries!r}, not 0 or more"),
        (not reward.backoff >= 0, f"backoff is {reward.backoff!r}, not 0 seconds or more"),
        (reward.rate_limit is not None and not reward.rate_limit > 0, f"rate_limit is {reward.rate_limit!r}, not above 0 or None"),
    )
    for broken, sentence in rules:
        if broken:
            raise ValueError(sentence)
