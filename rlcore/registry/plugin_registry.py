"""The registry: name -> spec for each kind of plugin, and the facts about it: the object, its options, its owner, how to install it.

Discovery imports no plugin target; ``load`` and ``options_model`` do, on first use. This module knows nothing of a run's configuration.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import pickle
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from importlib.metadata import Distribution
from importlib.util import find_spec
from typing import Any

import pluggy
from pydantic import BaseModel

from rlcore.contracts.errors import DataError, PluginError, RlcoreError
from rlcore.contracts.specs import LABELS, SPEC_OF_KIND, EnvironmentSpec, PluginKind, Spec
from rlcore.registry.discovery import Plugin, PluginRow, find_plugins, overlooked, switch_notes, why_unusable
from rlcore.registry.error_context import closest, reason, stdout_to_stderr
from rlcore.registry.install import NEEDS_EXTRA, install_line
from rlcore.registry.known_plugins import NotInstalledError, distribution_of, known_names
from rlcore.registry.targets import BASES, class_problem, described, disagreement, load_target, missing_target, wrong_call
from rlcore.registry.unpackaged import PARAMETERS, UnpackagedPlugin, describe_unpackaged, is_reference, load_reference, shipped

__all__ = ["CORE", "Attestation", "NotInstalledError", "PluginRow", "Registry"]

CORE = "rlcore"
"""The distribution that owns the built-in parts."""

_CLASSES = (PluginKind.INFERENCE, PluginKind.TRAINING, PluginKind.COMMAND)
"""Kinds whose targets must be classes, because rlcore reads or checks the class before it makes an instance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attestation:
    """The resolution of a name in one process. Two processes that work on one run must agree on every field.

    ``distribution`` is the path for an unpackaged file. ``source_sha256`` is the hash of that file, "" for packaged plugins.
    """

    kind: PluginKind
    name: str
    distribution: str
    version: str
    spec_sha256: str
    source_sha256: str = ""


@dataclass(frozen=True, kw_only=True)
class _Offer:
    """One name and its owner. ``adopted`` is set for unpackaged objects."""

    spec: Spec
    owner: str
    version: str
    adopted: UnpackagedPlugin | None = None


class Registry:
    """All parts that are installed, built in, or added from Python. One per process or run; not shared between threads.

    ``rows``: the plugins, as ``rlcore plugins`` lists them. ``notes``: sentences on RLCORE_PLUGINS and RLCORE_DISABLE that the user should
    read.
    """

    def __init__(self, plugins: Sequence[Plugin], notes: Sequence[str] = (), found: Sequence[Distribution] | None = None) -> None:
        self._plugins, self._found = tuple(plugins), found
        self.rows: tuple[PluginRow, ...] = tuple(plugin.row for plugin in plugins)
        self.notes: tuple[str, ...] = tuple(notes)
        self._offers: dict[PluginKind, dict[str, list[_Offer]]] = {kind: {} for kind in PluginKind}
        self._by_hand: dict[tuple[PluginKind, str], _Offer] = {}
        for plugin in plugins:
            for kind, spec in plugin.specs:
                offer = _Offer(spec=spec, owner=plugin.row.distribution, version=plugin.row.version)
                for word in dict.fromkeys((spec.name, *spec.aliases)):
                    self._offers[kind].setdefault(word, []).append(offer)

    @classmethod
    def discover(cls, distributions: Iterable[Distribution] | None = None) -> Registry:
        """Read the entry points of every installed distribution (or of the given ones) and import their light modules."""
        found = None if distributions is None else list(distributions)
        plugins = find_plugins(found)
        return cls(plugins, switch_notes(plugin.row for plugin in plugins), found)

    @cached_property
    def overlooked(self) -> tuple[list[PluginRow], list[str]]:
        """Distributions that are not plugins because they lack an entry point: see ``discovery.overlooked``."""
        return overlooked(self._found)

    # --- names ---------------------------------------------------------------------------------------------------------

    def add(self, kind: PluginKind | str, obj_or_spec: Any, name: str | None = None) -> str:
        """Add a class, function, instance, spec, or ``./my.py:NAME``, and return its name in this registry.

        :param name: the default is the object's own name in lower case.
        :raises PluginError: the name is taken, or the object does not fit the kind.
        """
        kind = PluginKind(kind)
        if isinstance(obj_or_spec, str):
            self.spec(kind, obj_or_spec)
            return obj_or_spec
        if isinstance(obj_or_spec, SPEC_OF_KIND[kind]):
            offer = _Offer(spec=obj_or_spec, owner="python", version="")
        else:
            called = name or getattr(obj_or_spec, "__qualname__", type(obj_or_spec).__name__)
            adopted = describe_unpackaged(kind, obj_or_spec, label=f"{LABELS[kind]} {called!r}", adapted=self._adapted)
            offer = _Offer(spec=adopted.spec, owner=adopted.owner, version="", adopted=adopted)
        if name is not None:
            offer = replace(offer, spec=_renamed(offer.spec, name))
        word = offer.spec.name
        if word in self._offers[kind]:
            owner = self._offers[kind][word][0].owner
            raise PluginError(f"the name {word!r} is taken by the {LABELS[kind]} of {owner}; give yours another: add(…, name=…)")
        self._by_hand[kind, word] = offer
        return word

    def names(self, kind: PluginKind | str) -> list[str]:
        """Return every name of a kind, sorted, without aliases."""
        kind = PluginKind(kind)
        offered = {offer.spec.name for offers in self._offers[kind].values() for offer in offers}
        return sorted(offered | {name for of_kind, name in self._by_hand if of_kind is kind and not is_reference(name)})

    def specs(self, kind: PluginKind | str, *, claimed: bool = False) -> list[Spec]:
        """Return the spec of every name of a kind, in order of the names. A name that two plugins claim cannot be used and is left out.

        :param claimed: include every spec of such names, for a choice that must not silently select another name. ``spec`` then refuses the
            name.
        """
        kind = PluginKind(kind)
        found: list[Spec] = []
        for name in self.names(kind):
            offers = [self._by_hand[kind, name]] if (kind, name) in self._by_hand else self._offers[kind][name]
            found += [offer.spec for offer in offers if len(offers) == 1 or (claimed and offer.spec.name == name)]
        return found

    def has(self, kind: PluginKind | str, name: str) -> bool:
        """Return whether ``spec`` would find the name. A name that two plugins claim counts as found, although it cannot be used."""
        kind = PluginKind(kind)
        if (kind, name) in self._by_hand or (kind, name.lower()) in self._by_hand or name.lower() in self._offers[kind]:
            return True
        try:
            self._offer(kind, name)
        except PluginError:
            return False
        return True

    def spec(self, kind: PluginKind | str, name: str) -> Spec:
        """Return the spec of a name or alias (any case), ``./my.py:MyLoss`` or ``pkg.mod:Attr``.

        :raises PluginError: no plugin, or more than one plugin, offers the name.
        :raises NotInstalledError: a known distribution offers the name, but is not installed.
        """
        return self._offer(PluginKind(kind), name).spec

    def usable(self, kind: PluginKind | str, name: str) -> Spec | None:
        """Return the spec; None if nothing, or more than one plugin, offers the name, or if its target is not there."""
        try:
            return None if self.missing_target(kind, name) else self.spec(kind, name)
        except PluginError:
            return None

    def owner(self, kind: PluginKind | str, name: str) -> str:
        """Return the distribution that offers the name, or the path of an unpackaged file."""
        return self._offer(PluginKind(kind), name).owner

    def version(self, kind: PluginKind | str, name: str) -> str:
        """Return the version of the distribution that offers the name, "" for unpackaged objects."""
        return self._offer(PluginKind(kind), name).version

    # --- objects -------------------------------------------------------------------------------------------------------

    def load(self, kind: PluginKind | str, name: str) -> Any:
        """Import and return the target: a complete class of its kind, or a function that makes one. ``make`` calls it.

        :raises PluginError: the target cannot be imported, does not exist, or is neither. The message names plugin, distribution, kind and
            target.
        """
        kind, offer, label = self._named(kind, name)
        if offer.adopted is not None and offer.adopted.target is not None:
            return offer.adopted.target
        if not offer.spec.target:
            raise PluginError(f"{label} is a recipe and has no code to load; its parts are its estimator and its loss")
        target = load_target(offer.spec.target, f"{label}: its target {offer.spec.target!r}")
        by_class = isinstance(target, type) or not callable(target) or kind in _CLASSES
        if by_class and (problem := class_problem(kind, target)):
            raise PluginError(f"{label}: its target {offer.spec.target!r} {problem}")
        if isinstance(target, type):
            self._check_class(kind, name, target)
        return target

    def _check_class(self, kind: PluginKind, name: str, target: type) -> None:
        """Raise PluginError if a class contradicts its spec."""
        _, offer, label = self._named(kind, name)
        if problem := disagreement(kind, offer.spec, target):
            raise PluginError(f"{label}: {problem}")
        own = getattr(target, "Options", None)
        if isinstance(own, type) and issubclass(own, BaseModel) and own is not (named := self.options_model(kind, name)):
            said = f"{named.__module__}:{named.__qualname__}" if named else "nothing"
            raise PluginError(
                f"{label}: Options of its class is {own.__module__}:{own.__qualname__}, but config of its spec names "
                f"{said}; they must agree"
            )

    def make(
        self, kind: PluginKind | str, name: str, *arguments: Any, options: Any = None, guard: AbstractContextManager[None] | None = None
    ) -> Any:
        """Load the target and call it with the arguments, and with ``options`` unless they are None.

        A defect of rlcore itself is not hidden.

        :param guard: a context around the call, which sees its exceptions first.
        :raises PluginError: as for ``load``; also if the call raises an exception that is not an ``RlcoreError``, or returns an object of
            the wrong type.
        """
        (kind, offer, label), target = self._named(kind, name), self.load(kind, name)
        given = arguments if options is None else (*arguments, options)
        try:
            with (
                guard or nullcontext(),
                nullcontext() if kind is PluginKind.RUNTIME else stdout_to_stderr(),
            ):  # a runtime prints what it starts
                made = target(*given)
        except RlcoreError:
            raise
        except (Exception, SystemExit) as error:
            if offer.owner == CORE:
                raise
            raise PluginError(f"{label} cannot be made: {reason(error)}{wrong_call(target, given)}") from error
        if not isinstance(made, BASES[kind]):
            wanted = BASES[kind].__name__
            raise PluginError(
                f"{label}: the object that its target {offer.spec.target!r} makes is {described(made)}, it must be a {wanted}"
            )
        if kind is PluginKind.ESTIMATOR and (problem := disagreement(kind, offer.spec, made)):
            raise PluginError(f"{label}: {problem}")
        return made

    def missing_target(self, kind: PluginKind | str, name: str) -> str:
        """Return a sentence if the target does not exist; "" if it does, or if only an import could tell. Imports nothing."""
        _, offer, label = self._named(kind, name)
        if offer.adopted is not None or not offer.spec.target:
            return ""
        return missing_target(offer.spec.target, f"{label}: its target {offer.spec.target!r}")

    def options_model(self, kind: PluginKind | str, name: str) -> type[BaseModel] | None:
        """Return the pydantic model of the options, None if there is none. Raise PluginError if it is not a strict, frozen model."""
        _, offer, label = self._named(kind, name)
        if offer.adopted is not None:
            model, called = offer.adopted.options, f"{name if is_reference(name) else offer.spec.target}.Options"
        else:
            called = offer.spec.config
            model = load_target(called, f"{label}: its options model {called!r}") if called else None
        if model is None:
            return None
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            raise PluginError(f"{label}: its options model {called!r} is not a pydantic BaseModel")
        if model.model_config.get("extra") != "forbid" or not model.model_config.get("frozen"):
            raise PluginError(f'{label}: its options model {called!r} must set model_config = ConfigDict(extra="forbid", frozen=True)')
        try:
            model.model_rebuild()
        except (Exception, SystemExit) as error:
            raise PluginError(
                f"{label}: its options model {called!r} has an annotation that cannot be resolved: {reason(error)}"
            ) from error
        return model

    def payload(self, kind: PluginKind | str, name: str) -> bytes | None:
        """Return bytes that ``pickle.loads`` turns into the target of an unpackaged object in another process; None for a packaged one.

        The target is always a class, made with or without options like any other. An instance of its options must travel by
        ``cloudpickle``, not by plain pickle.
        """
        _, offer, label = self._named(kind, name)
        if offer.adopted is None or offer.adopted.target is None:
            return None
        return shipped(offer.adopted.target, offer.adopted.module, label)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the parts that were added from Python. The receiving process discovers the installed ones itself."""
        added = []
        for (kind, name), offer in self._by_hand.items():
            bundle = None
            if offer.adopted is not None:
                label = f"{LABELS[kind]} {name!r}"
                bundle = shipped((offer.adopted.target, offer.adopted.options), offer.adopted.module, label)
                offer = replace(offer, adopted=replace(offer.adopted, target=None, options=None))
            added.append((kind, name, offer, bundle))
        return _arrived, (tuple(added),)

    def check_portable(self) -> None:
        """Raise PluginError if a part that was added from Python cannot be sent to another process."""
        self.__reduce__()

    # --- identity ------------------------------------------------------------------------------------------------------

    def attest(self, kind: PluginKind | str, name: str) -> Attestation:
        """Return the resolution of a name in this process."""
        kind, offer, _ = self._named(kind, name)
        return Attestation(
            kind=kind,
            name=name,
            distribution=offer.owner,
            version=offer.version,
            spec_sha256=_spec_hash(offer),
            source_sha256=offer.adopted.source_sha256 if offer.adopted else "",
        )

    def check_attestations(self, expected: Iterable[Attestation]) -> None:
        """Raise PluginError if this process resolves a name differently from the driver. The message names the field."""
        for theirs in expected:
            ours = self.attest(theirs.kind, theirs.name)
            for field in fields(Attestation):
                here, there = getattr(ours, field.name), getattr(theirs, field.name)
                if here != there:
                    label = f"{LABELS[theirs.kind]} {theirs.name!r}"
                    raise PluginError(f"{label} differs between processes: {field.name} is {there!r} in the driver and {here!r} here")

    # --- hooks ---------------------------------------------------------------------------------------------------------

    def hooks(self) -> list[tuple[str, pluggy.PluginManager]]:
        """Return (distribution, hooks) of every working plugin."""
        return [(plugin.row.distribution, plugin.manager) for plugin in self._plugins if plugin.manager is not None]

    def objects(self) -> tuple[str, ...]:
        """Return the kinds of plugins that are objects of this program, which another program does not have."""
        return tuple(dict.fromkeys(str(kind) for kind, name in self._by_hand if not is_reference(name)))

    def _adapted(self, kind: PluginKind, function: Any) -> Any:
        """Return the class that a plugin makes of another library's function, or the object itself."""
        if not inspect.isroutine(function):
            return function
        made = (made for _, manager in self.hooks() for made in manager.hook.rlcore_adapt_function(kind=kind, function=function))
        return next(made, function)

    def observed(self, hook: str) -> bool:
        """Return whether a plugin implements an observer hook. If none does, data that only observers receive need not be sent."""
        return any(getattr(manager.hook, hook).get_hookimpls() for _, manager in self.hooks())

    def check_run(self, config: Any, hook: str = "rlcore_check_run", **more: Any) -> list[str]:
        """Return the sentences of every plugin's hook about the configuration, preceded by the plugin's name.

        A hook that fails is a problem too; a DataError is passed on. ``more``: further arguments of the hook.
        """
        problems: list[str] = []
        for owner, manager in self.hooks():
            try:
                with stdout_to_stderr():
                    answers = getattr(manager.hook, hook)(config=config, **more)
            except DataError:
                raise
            except (Exception, SystemExit) as error:
                problems.append(f"{owner}: {hook} raised {reason(error)}")
                continue
            for answer in answers:
                if not isinstance(answer, list | tuple) or not all(isinstance(item, str) for item in answer):
                    problems.append(f"{owner}: {hook} returned {type(answer).__name__}, it must return a list of sentences")
                else:
                    problems += [f"{owner}: {item}" for item in answer]
        return problems

    def name_conflicts(self) -> list[str]:
        """Return one sentence for every name that more than one plugin registered."""
        return [
            _clash(kind, word, offers) for kind, words in self._offers.items() for word, offers in sorted(words.items()) if len(offers) > 1
        ]

    def faults(self, *, imported: bool = False) -> dict[tuple[PluginKind, str], list[str]]:
        """Return (kind, name) -> the reasons why an offer cannot work that discovery does not check.

        Options models are imported, because they must be light. Targets are located without an import, unless ``imported`` is set, the
        engine that they need is installed, and they do not run in another virtual environment.
        """
        found: dict[tuple[PluginKind, str], list[str]] = {}
        for kind in PluginKind:
            for name in self.names(kind):
                try:
                    spec, problems = self.spec(kind, name), [self.missing_target(kind, name)]
                except PluginError:  # a clash, which ``problems`` reports
                    continue
                engine = getattr(spec, "requires_module", "").partition(".")[0]
                loaded = imported and spec.target and not problems[0] and (not engine or find_spec(engine) is not None)
                loaded = loaded and not (isinstance(spec, EnvironmentSpec) and spec.environment)
                for check in (self.options_model, *([self.load] if loaded else [])):
                    try:
                        check(kind, name)
                    except PluginError as error:
                        problems.append(str(error))
                found[kind, name] = [problem for problem in dict.fromkeys(problems) if problem]
        return found

    def left_out(self) -> list[str]:
        """Return the broken plugins and the disabled ones, half a sentence each, and the notes of ``overlooked``.

        Return [] if every installed plugin works.
        """
        strays, notes = self.overlooked
        refused = sorted({row.distribution for row in (*self.rows, *strays) if row.problems})
        kept_out = sorted({row.distribution for row in self.rows if row.disabled})
        parts = [f"broken: {', '.join(refused)}, see rlcore plugins"] if refused else []
        return parts + ([f"switched off: {', '.join(kept_out)}"] if kept_out else []) + notes

    # --- looking up ----------------------------------------------------------------------------------------------------

    def _named(self, kind: PluginKind | str, name: str) -> tuple[PluginKind, _Offer, str]:
        """Return the kind, the offer of the name, and its label in messages."""
        kind = PluginKind(kind)
        offer = self._offer(kind, name)
        return kind, offer, f"{LABELS[kind]} {name!r} of {offer.owner}"

    def _offer(self, kind: PluginKind, name: str) -> _Offer:
        by_hand = self._by_hand.get((kind, name)) or self._by_hand.get((kind, name.lower()))
        if by_hand is not None:
            return by_hand
        if is_reference(name):
            adopted = load_reference(kind, name, self._adapted)
            self._by_hand[kind, name] = _Offer(spec=adopted.spec, owner=adopted.owner, version="", adopted=adopted)
            return self._by_hand[kind, name]
        offers = self._offers[kind].get(name.lower(), [])
        if len(offers) > 1:
            raise PluginError(_clash(kind, name.lower(), offers))
        return offers[0] if offers else self._missing(kind, name)

    def _missing(self, kind: PluginKind, name: str) -> _Offer:
        label = f"{LABELS[kind]} {name!r}"
        distribution = distribution_of(kind, name)
        row = next((row for row in self.rows if row.distribution == distribution), None)
        if distribution and row is None:
            line = install_line(NEEDS_EXTRA.get(distribution, distribution))
            raise NotInstalledError(f"{label} is not installed: {line} ({self._installed(kind)})", line)
        if distribution and (why := why_unusable(distribution, self.rows)):
            raise PluginError(f"{label} belongs to {distribution}, {why}")
        if row is not None:
            line = install_line(row.distribution, upgrade=True)
            raise NotInstalledError(f"{label} is not in {row.distribution} {row.version} yet: {line} ({self._installed(kind)})", line)
        if name.endswith(".py") or "/" in name:
            raise PluginError(f"{label} must name an object in the file: {name}:NAME")
        known = [*self._offers[kind], *(word for of_kind, word in self._by_hand if of_kind is kind), *known_names(kind)]
        near = closest(name, known)
        own = (
            ""
            if near or kind not in PARAMETERS
            else "; if it was an object of a Python program, pass it again, or name its file: ./my.py:NAME"
        )
        raise PluginError(f"there is no {label}{near} ({self._installed(kind)}){own}")

    def _installed(self, kind: PluginKind) -> str:
        return "; ".join([f"installed: {', '.join(self.names(kind)) or 'none'}", *self.left_out()])


def _arrived(added: Iterable[tuple[PluginKind, str, _Offer, bytes | None]]) -> Registry:
    """Return the registry of a process that received a pickled one."""
    registry = Registry.discover()
    for kind, name, offer, bundle in added:
        if offer.adopted is not None and bundle is not None:
            target, options = pickle.loads(bundle)
            offer = replace(offer, adopted=replace(offer.adopted, target=target, options=options))
        registry._by_hand[kind, name] = offer
    return registry


def _renamed(spec: Spec, name: str) -> Spec:
    try:
        return replace(spec, name=name.lower())
    except ValueError as error:
        raise PluginError(str(error)) from error


def _clash(kind: PluginKind, word: str, offers: Sequence[_Offer]) -> str:
    owners = sorted(offer.owner for offer in offers)
    if len(set(owners)) == 1:
        return f"{LABELS[kind]} {word!r} is registered {len(owners)} times by {owners[0]}; it must keep one"
    together = " and ".join(dict.fromkeys(owners))
    strangers = [owner for owner in owners if owner != CORE]  # the core's own parts cannot be switched off
    return f"{LABELS[kind]} {word!r} is registered by {together}; switch one off: RLCORE_DISABLE={strangers[-1]}"


def _spec_hash(offer: _Offer) -> str:
    values = {field.name: getattr(offer.spec, field.name) for field in fields(offer.spec)}
    if offer.adopted is not None:
        del values["target"], values["config"]  # the place of a file is not part of its identity
    text = json.dumps([type(offer.spec).__name__, values], sort_keys=True, default=_plain)
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return dict(value) if isinstance(value, Mapping) else sorted(value) if isinstance(value, set | frozenset) else repr(value)
