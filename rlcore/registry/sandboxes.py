"""Opens the sandbox that ``SandboxOptions`` name, and sends it to the worker processes that open it.

Rewards open sandboxes themselves, in their workers, and so does a conversation. A run knows the sandboxes whose ``SandboxOptions`` are in
their options. The driver checks and attests their names before anything starts.
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
"""In a worker process: the driver's unpackaged sandboxes, by ``SandboxOptions.backend``, and their classes."""


def open_sandbox(options: SandboxOptions | None = None) -> Sandbox:
    """Open the sandbox of these options. The sandboxes of rlcore's own plugins run a program before they are returned.

    :raises SandboxError: no sandbox of that name or level can be made here. The message says why and what to type.
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
    """Return the argument for the sandbox's target.

    :param name: the name in the registry, if it differs from ``options.backend``.
    :raises PluginError: the registry has no such sandbox, or its options model is broken.
    :raises ConfigError: the sandbox does not support an option. The message names the key below ``sandbox``.
    :raises pydantic.ValidationError: its options model refuses ``backend_options``.
    """
    name = name or options.backend
    spec, model = registry.spec(PluginKind.SANDBOX, name), registry.options_model(PluginKind.SANDBOX, name)
    fields = model.model_fields if model is not None else {}
    who = f"sandbox {options.backend} of {registry.owner(PluginKind.SANDBOX, name)}"
    levels = spec.levels if isinstance(spec, SandboxSpec) else ()
    if levels and options.level not in ("auto", *levels):
        raise ConfigError(f'sandbox.level = "{options.level}" is not a level of {who}; it gives {", ".join(levels)}')
    if options.readable and "readable" not in fields:
        raise ConfigError(f"sandbox.readable names folders of this machine, and {who} cannot give programs access to any; leave it out")
    asked = {key: getattr(options, key) for key in SHARED_OPTIONS if key in fields}
    for key in asked:
        if key in options.backend_options:
            raise ConfigError(f"sandbox.backend_options holds {key}, which is set as sandbox.{key}; write it there")
    return model.model_validate({**options.backend_options, **asked}) if model is not None else dict(options.backend_options)


def _first(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}".removeprefix(": ")


# --- sandboxes of a run --------------------------------------------------------------------------------------------------


def sandboxes_in(options: Any, path: str = "") -> Iterator[tuple[str, SandboxOptions]]:
    """Yield (dotted path below ``options``, value) of every ``SandboxOptions`` inside a plugin's options, at any depth."""
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
    """A sandbox that a reward's options name, on its way to a worker.

    ``payload``: the pickled class of a sandbox that a worker could not find, because it is in a file or was added from Python. None for
    others, which the worker resolves itself and compares.
    """

    attestation: Attestation
    payload: bytes | None


def bundle_sandboxes(options: Any, registry: Registry) -> tuple[SandboxBundle, ...]:
    """Return bundles of the sandboxes that a reward's options name, each once. Raise PluginError if one of them does not exist."""
    names = dict.fromkeys(found.backend for _, found in sandboxes_in(options))
    return tuple(
        SandboxBundle(
            attestation=registry.attest(PluginKind.SANDBOX, name),
            payload=registry.payload(PluginKind.SANDBOX, name) if not is_reference(name) or ".py:" in name else None,
        )
        for name in names
    )


def load_sandboxes(bundles: Iterable[SandboxBundle]) -> None:
    """Make shipped classes known to ``open_sandbox`` in a worker. Raise PluginError if a name means something else here."""
    resolved = []
    for bundle in bundles:
        if bundle.payload is None:
            resolved.append(bundle.attestation)
        else:
            _ARRIVED[bundle.attestation.name] = pickle.loads(bundle.payload)
    if resolved:
        Registry.discover().check_attestations(resolved)
