"""Opens the sandbox that ``SandboxOptions`` name, and brings it to the worker processes that open it.

Rewards open sandboxes themselves, in their workers; a run knows of those whose ``SandboxOptions`` stand in a reward's options. Their
names are checked and attested in the driver, before anything starts.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from rlcore.contracts.errors import ConfigError, PluginError, SandboxError
from rlcore.contracts.sandboxing import Level, Sandbox, SandboxOptions
from rlcore.contracts.specs import PluginKind, SandboxSpec
from rlcore.registry.known_plugins import NotInstalledError
from rlcore.registry.plugin_registry import Attestation, Registry
from rlcore.registry.unpackaged import is_reference

__all__ = ["SHARED_OPTIONS", "SandboxBundle", "bundle_sandboxes", "load_sandboxes", "open_sandbox", "sandbox_argument", "sandboxes_in"]

SHARED_OPTIONS = ("level", "readable")
"""Fields of ``SandboxOptions`` that the options model of a sandbox may have, too."""
_ARRIVED: dict[str, Any] = {}
"""Unpackaged sandboxes of the driver, in a worker process: what ``SandboxOptions.backend`` calls each, and its class."""


def open_sandbox(options: SandboxOptions | None = None) -> Sandbox:
    """Open the sandbox of these options. The sandboxes of rlcore's own plugins run a program before they are returned.

    :raises SandboxError: no sandbox of that name or level can be made here; says why and what to type.
    """
    options = options or SandboxOptions()
    called = f"sandbox.backend {options.backend!r}"
    registry = Registry.discover()
    if options.backend in _ARRIVED:
        registry.add(PluginKind.SANDBOX, _ARRIVED[options.backend], name="arrived")
    name = "arrived" if options.backend in _ARRIVED else options.backend
    try:
        sandbox: Sandbox = registry.make(PluginKind.SANDBOX, name, sandbox_argument(options, registry, name))
    except (NotInstalledError, ConfigError) as error:
        raise SandboxError(str(error)) from error
    except PluginError as error:
        form = "" if registry.has(PluginKind.SANDBOX, name) else "; it must read package.module:Class, or name an installed sandbox"
        raise SandboxError(f"{called} cannot be used ({error}){form}") from error
    except ValidationError as error:
        raise SandboxError(f"sandbox.backend_options of {options.backend}: {_first(error)}") from error
    level = getattr(sandbox, "level", None)
    if level not in tuple(Level):
        raise SandboxError(f"{called} cannot be used: its level is {level!r}, and its constructor must set a rlcore.api.sandbox.Level")
    if options.level not in ("auto", level):
        sandbox.close()
        raise SandboxError(f'{called} gives level {level} here, and sandbox.level asks for {options.level}; type "auto"')
    return sandbox


def sandbox_argument(options: SandboxOptions, registry: Registry, name: str = "") -> BaseModel | Mapping[str, Any]:
    """What the sandbox's target is called with. ``name``: what the registry calls it, if not ``options.backend``.

    :raises PluginError: the registry has no such sandbox, or its options model is broken.
    :raises ConfigError: the options ask for what the sandbox cannot give; the sentence names the key below ``sandbox``.
    :raises pydantic.ValidationError: its options model refuses ``backend_options``.
    """
    name = name or options.backend
    spec, model = registry.spec(PluginKind.SANDBOX, name), registry.options_model(PluginKind.SANDBOX, name)
    fields = model.model_fields if model is not None else {}
    who = f"sandbox {options.backend} of {registry.owner(PluginKind.SANDBOX, name)}"
    levels = spec.levels if isinstance(spec, SandboxSpec) else ()
    if levels and options.level not in ("auto", *levels):
        raise ConfigError(f'sandbox.level = "{options.level}" is no level of {who}; it gives {", ".join(levels)}')
    if options.readable and "readable" not in fields:
        raise ConfigError(f"sandbox.readable names folders of this machine, and {who} cannot show any to programs; leave it out")
    asked = {key: getattr(options, key) for key in SHARED_OPTIONS if key in fields}
    for key in asked:
        if key in options.backend_options:
            raise ConfigError(f"sandbox.backend_options holds {key}, which is set as sandbox.{key}; write it there")
    return model.model_validate({**options.backend_options, **asked}) if model is not None else dict(options.backend_options)


def _first(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}".removeprefix(": ")


# --- what a run knows of ------------------------------------------------------------------------------------------------


def sandboxes_in(options: Any, path: str = "") -> Iterator[tuple[str, SandboxOptions]]:
    """(dotted path below ``options``, value) of every ``SandboxOptions`` inside a reward's options, at any depth."""
    if isinstance(options, SandboxOptions):
        yield path, options
    elif isinstance(options, BaseModel):
        for name in type(options).model_fields:
            yield from sandboxes_in(getattr(options, name), f"{path}.{name}".lstrip("."))
    elif isinstance(options, Mapping):
        for key, value in options.items():
            yield from sandboxes_in(value, f"{path}.{key}".lstrip("."))
    elif isinstance(options, list | tuple):
        for index, value in enumerate(options):
            yield from sandboxes_in(value, f"{path}.{index}".lstrip("."))


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxBundle:
    """A sandbox that a reward's options name, on its way to a worker. ``payload``: the pickled class of one that a worker could not find:
    it stands in a file or was added from Python; None for others, which the worker resolves itself and compares."""

    attestation: Attestation
    payload: bytes | None


def bundle_sandboxes(options: Any, registry: Registry) -> tuple[SandboxBundle, ...]:
    """Shipments of the sandboxes that a reward's options name, each once. :raises PluginError: one of them is not there."""
    names = dict.fromkeys(found.backend for _, found in sandboxes_in(options))
    return tuple(
        SandboxBundle(
            attestation=registry.attest(PluginKind.SANDBOX, name),
            payload=registry.payload(PluginKind.SANDBOX, name) if not is_reference(name) or ".py:" in name else None,
        )
        for name in names
    )


def load_sandboxes(bundles: Iterable[SandboxBundle]) -> None:
    """In a worker: make shipped classes known to ``open_sandbox``. :raises PluginError: a name means something else here."""
    resolved = []
    for shipment in bundles:
        if shipment.payload is None:
            resolved.append(shipment.attestation)
        else:
            _ARRIVED[shipment.attestation.name] = pickle.loads(shipment.payload)
    if resolved:
        Registry.discover().check_attestations(resolved)
