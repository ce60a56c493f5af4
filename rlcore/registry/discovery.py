"""Finds installed plugins, imports their light entry modules, checks them against the hooks, and collects their specs.

One broken plugin never disables the others: each fault becomes a problem in the plugin's own row. Each plugin gets its own plugin manager,
so that an implementation cannot wrap, precede or break another one. No plugin target is imported here.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.abc import InspectLoader
from importlib.metadata import Distribution, EntryPoint, distributions
from importlib.util import find_spec
from types import ModuleType

import pluggy

import rlcore
from rlcore.api import API_VERSION
from rlcore.contracts import hookspecs
from rlcore.contracts.errors import UsageError
from rlcore.contracts.specs import REGISTERING_HOOKS, SPEC_OF_KIND, PluginKind, Spec
from rlcore.registry import builtin
from rlcore.registry.error_context import closest, reason, stdout_to_stderr
from rlcore.registry.install import install_line

__all__ = ["Plugin", "PluginRow", "api_problem", "find_plugins", "is_library", "overlooked", "switch_notes", "switch_off", "why_unusable"]

GROUP = "rlcore"
LIBRARY = "rlcore-library"
"""The keyword of a distribution that several plugins share and that registers nothing."""
_TYPED = "no:"
"""The prefix in RLCORE_DISABLE of names that come from ``-p``."""


@dataclass(frozen=True, kw_only=True)
class PluginRow:
    """One plugin as ``rlcore plugins`` shows it.

    ``api``: the API version that it declares, "" if none. ``offers``: its (kind, name) pairs. ``problems``: one sentence each.
    ``disabled``: the environment variable or the switch that disables it, "" if it is enabled.
    """

    distribution: str
    version: str
    api: str = ""
    module: str = ""
    entry_point: str = ""
    offers: tuple[tuple[PluginKind, str], ...] = ()
    problems: tuple[str, ...] = ()
    disabled: str = ""


@dataclass(frozen=True, kw_only=True)
class Plugin:
    """A row, the plugin's specs, and its hooks. ``manager`` is None if the plugin was refused as a whole."""

    row: PluginRow
    specs: tuple[tuple[PluginKind, Spec], ...] = ()
    manager: pluggy.PluginManager | None = field(default=None, repr=False)


def find_plugins(found: Iterable[Distribution] | None = None, kinds: Collection[PluginKind] = tuple(PluginKind)) -> list[Plugin]:
    """Return the core's own plugin, then every plugin of the given distributions (default: all installed ones), by entry-point name.

    Only the registering hooks of ``kinds`` are called: a hook may import the packages that its specs need.
    """
    core = PluginRow(distribution="rlcore", version=rlcore.__version__, module=builtin.__name__, entry_point="builtin")
    plugins = [_examine(core, builtin, kinds)]
    rows = sorted(_entry_points(found), key=lambda row: (row.entry_point, row.distribution))
    with stdout_to_stderr():
        return plugins + [_import(_switched(row), kinds) for row in rows]


# --- entry points and switches -----------------------------------------------------------------------------------------


def _entry_points(found: Iterable[Distribution] | None) -> Iterator[PluginRow]:
    seen: set[str] = set()
    for distribution in distributions() if found is None else found:
        text = distribution.read_text("entry_points.txt")
        if not text or f"[{GROUP}]" not in text.replace(" ", ""):
            continue
        name, version = _identity(distribution)
        if _canonical(name) in seen:  # the first one on the path is the one that Python imports
            continue
        seen.add(_canonical(name))
        try:
            entries = [entry for entry in distribution.entry_points if entry.group == GROUP]
        except Exception as error:
            yield PluginRow(distribution=name, version=version, problems=(f"its entry_points.txt cannot be read: {reason(error)}",))
        else:
            yield from (_row(name, version, entry) for entry in entries)


def overlooked(found: Iterable[Distribution] | None = None) -> tuple[list[PluginRow], list[str]]:
    """Find distributions that are not plugins because they lack an entry point, but may be intended as plugins.

    Return a row with the reason for each distribution that has a plugin's name, or an entry point in a group similar to ours. Return a
    sentence for each other one that requires rlcore, because it may or may not be intended as a plugin. A library for plugins declares
    itself as one (``LIBRARY``).
    """
    rows, notes, seen = [], [], {GROUP}
    for distribution in distributions() if found is None else found:
        name, version = _identity(distribution)
        groups = re.findall(r"^ *\[ *(.+?) *\]", distribution.read_text("entry_points.txt") or "", re.MULTILINE)
        if _canonical(name) in seen:
            continue
        seen.add(_canonical(name))
        near = next((group for group in groups if re.sub(r"[\W_]", "", group).lower().startswith(GROUP)), "")
        if (
            GROUP in groups
            or is_library(distribution)
            or not (near or _canonical(name).startswith("rlcore-plugin-") or _requires_rlcore(distribution))
        ):
            continue
        advice = f"write [project.entry-points.{GROUP}] into its pyproject.toml and install it again"
        if near or _canonical(name).startswith("rlcore-plugin-"):
            fault = f"its entry point is in the group {near!r}, which rlcore does not read" if near else "it has no entry point"
            rows.append(PluginRow(distribution=name, version=version, problems=(f"{fault}; {advice}",)))
        else:
            library = f'if it is a library for plugins, write keywords = ["{LIBRARY}"] into its [project]'
            notes.append(f"{name} requires rlcore and has no entry point; if it is intended as a plugin, {advice}; {library}")
    return rows, notes


def is_library(distribution: Distribution) -> bool:
    """Return whether a distribution declares itself as a library that plugins share."""
    fields: Mapping[str, str] = distribution.metadata or {}  # type: ignore[assignment]
    return LIBRARY in re.split(r"[,\s]+", fields.get("Keywords") or "")


def _requires_rlcore(distribution: Distribution) -> bool:
    """Return whether the distribution requires rlcore itself, apart from its own extras."""
    return any(re.match(r"rlcore\s*($|[\[(<>=!~@;])", text) and "extra ==" not in text for text in distribution.requires or ())


def _identity(distribution: Distribution) -> tuple[str, str]:
    fields: Mapping[str, str] = distribution.metadata or {}  # type: ignore[assignment]
    return fields.get("Name") or "(a distribution without a name)", fields.get("Version") or "unknown"


def _row(distribution: str, version: str, entry: EntryPoint) -> PluginRow:
    row = PluginRow(distribution=distribution, version=version, module=entry.value, entry_point=entry.name)
    if re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", entry.value):
        return row
    return replace(row, problems=(f"entry point {entry.name} = {entry.value!r} must name a module, without ':' or '[...]'",))


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _switches(variable: str) -> frozenset[str]:
    return frozenset(_canonical(word.strip()) for word in os.environ.get(variable, "").split(",") if word.strip())


def _switched(row: PluginRow) -> PluginRow:
    """Mark a plugin that RLCORE_DISABLE names, or that the allow list RLCORE_PLUGINS omits, by entry-point name or distribution."""
    called = {_canonical(row.entry_point), _canonical(row.distribution)}
    allowed, refused = _switches("RLCORE_PLUGINS"), _switches("RLCORE_DISABLE")
    if called & refused:
        return replace(row, disabled="RLCORE_DISABLE")
    if typed := {_TYPED + name for name in called} & refused:
        return replace(row, disabled=f"-p {min(typed)}")
    if allowed and not called & allowed:
        return replace(row, disabled="RLCORE_PLUGINS")
    return row


def why_unusable(distribution: str, rows: Iterable[PluginRow]) -> str:
    """Return why a plugin that is installed offers nothing, as the end of a sentence; "" if it works or is not installed."""
    for row in (row for row in rows if row.distribution == distribution):  # one for each of its entry points
        if row.disabled:
            undo = "leave it out" if row.disabled.startswith("-p") else "change that variable"
            return f"which {row.disabled} excludes; {undo}"
        if row.problems:
            return f"which is installed but broken: {row.problems[0]}"
    return ""


def switch_off(word: str) -> None:
    """Disable the plugin that ``no:NAME`` names, in this process and in those that it starts.

    :raises UsageError: the word does not name an installed plugin.
    """
    called = {_canonical(name) for row in _entry_points(None) for name in (row.entry_point, row.distribution)}
    name = word.removeprefix(_TYPED)
    if name == word or _canonical(name) not in called:
        raise UsageError(f"rlcore -p takes no:NAME with the name of an installed plugin, not {word!r}{closest(name, called)}")
    os.environ["RLCORE_DISABLE"] = ",".join(filter(None, (os.environ.get("RLCORE_DISABLE"), word)))


def switch_notes(rows: Iterable[PluginRow]) -> tuple[str, ...]:
    """Return a sentence for every name in RLCORE_PLUGINS or RLCORE_DISABLE that does not match an installed plugin."""
    called = {_canonical(name) for row in rows for name in (row.entry_point, row.distribution)}
    return tuple(
        f"{variable} names {word!r}, which is not the name of an installed plugin{closest(word, called)}"
        for variable in ("RLCORE_PLUGINS", "RLCORE_DISABLE")
        for word in sorted(_switches(variable) - called)
        if not word.startswith(_TYPED)
    )


# --- examination -------------------------------------------------------------------------------------------------------


def _import(row: PluginRow, kinds: Collection[PluginKind]) -> Plugin:
    if row.disabled or row.problems:
        return Plugin(row=row)
    try:
        module = importlib.import_module(row.module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit too, and exceptions of Rust extensions
        declared = _declared_in_source(row.module) if isinstance(error, ImportError | AttributeError) else None
        problem = api_problem(declared) if declared else ""
        said = f"{row.module}: {problem}" if problem else f"importing {row.module} raised {reason(error)}"
        return Plugin(row=replace(row, api=declared or "", problems=(said,)))
    return _examine(row, module, kinds)


def _declared_in_source(module: str) -> str | None:
    """Return ``rlcore_api`` as the source of a module states it, None if it does not.

    A plugin for another major version imports names that are gone, so its module cannot be imported and asked."""
    try:
        spec = find_spec(module)
        source = spec.loader.get_source(module) if spec and isinstance(spec.loader, InspectLoader) else None
    except (ImportError, AttributeError, SyntaxError, ValueError):
        return None
    found = re.search(r"""(?m)^rlcore_api\s*(?::[^=]*)?=\s*["'](\d+\.\d+)["']""", source or "")
    return found[1] if found else None


def _examine(row: PluginRow, module: ModuleType, kinds: Collection[PluginKind]) -> Plugin:
    declared = getattr(module, "rlcore_api", None)
    row = replace(row, api=declared if isinstance(declared, str) else "")
    if problem := api_problem(declared):
        return Plugin(row=replace(row, problems=(f"{module.__name__}: {problem}",)))
    manager = _Hooks("rlcore")
    manager.add_hookspecs(hookspecs)
    problems = _hook_problems(module, manager)
    if problems:
        return Plugin(row=replace(row, problems=tuple(problems)))
    specs, problems = _collect(manager, kinds)
    row = replace(row, offers=tuple((kind, spec.name) for kind, spec in specs), problems=tuple(problems))
    return Plugin(row=row, specs=tuple(specs), manager=manager)


class _Hooks(pluggy.PluginManager):
    """A plugin manager that reads the options of rlcore's hooks once, not once per plugin. That took a third of the discovery's time."""

    parse_hookspec_opts = staticmethod(cache(pluggy.PluginManager("rlcore").parse_hookspec_opts))


def api_problem(declared: object, host: str = API_VERSION) -> str:
    """Return why a plugin that declares API version ``declared`` cannot work with this rlcore; "" if it can.

    The rule: the same major version, and a minor version of the plugin that is not above rlcore's.
    """
    if declared is None:
        return f'it does not say which API it was written for; put rlcore_api = "{host}" into it'
    if not isinstance(declared, str) or not re.fullmatch(r"\d+\.\d+", declared):
        return f'rlcore_api is {declared!r}, it must read "major.minor" like "{host}"'
    major, minor = (int(part) for part in declared.split("."))
    host_major, host_minor = (int(part) for part in host.split("."))
    if major > host_major or (major == host_major and minor > host_minor):
        return f"it was written for API {declared} and this rlcore offers {host}; {install_line('rlcore', upgrade=True)}"
    if major < host_major:
        return f"it was written for API {declared} and this rlcore offers {host}; install a newer release of the plugin"
    return ""


def _hook_problems(module: ModuleType, manager: pluggy.PluginManager) -> list[str]:
    """Return the problems of a module's hooks: no spec, other arguments than the spec's, or no decorator."""
    specified = {name for name in vars(manager.hook) if name.startswith("rlcore_")}
    problems = [
        f"{module.__name__}.{name} lacks the @hookimpl decorator"
        if name in specified
        else f"{module.__name__}.{name} is not a hook of rlcore{closest(name, specified)}"
        for name, value in sorted(vars(module).items())
        if name.startswith("rlcore_") or (name.startswith("register_") and f"rlcore_{name}" in specified)
        if inspect.isfunction(value) and value.__module__ == module.__name__ and not hasattr(value, "rlcore_impl")
    ]
    try:
        manager.register(module)
    except pluggy.PluginValidationError as error:
        name = next((name for name in specified if f"{name!r}" in str(error)), "")
        takes = f"; {name} takes {', '.join(getattr(manager.hook, name).spec.argnames) or 'no argument'}" if name else ""
        return [*problems, f"a hook of {module.__name__} does not fit its specification: {' '.join(str(error).split())}{takes}"]
    for caller in manager.get_hookcallers(module) or ():
        if not caller.has_spec() and not all(implementation.optionalhook for implementation in caller.get_hookimpls()):
            problems.append(f"{module.__name__}.{caller.name} is not a hook of rlcore{closest(caller.name, specified)}")
    return problems


def _collect(manager: pluggy.PluginManager, kinds: Collection[PluginKind]) -> tuple[list[tuple[PluginKind, Spec]], list[str]]:
    """Return the specs of the registering hooks, and the problems. A faulty hook offers nothing; the others stay."""
    specs: list[tuple[PluginKind, Spec]] = []
    problems: list[str] = []
    for hook, kind in REGISTERING_HOOKS.items():
        caller = getattr(manager.hook, hook)
        if kind not in kinds or not caller.get_hookimpls():
            continue
        try:
            results = caller()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            problems.append(f"{hook} raised {reason(error)}")
            continue
        problem = "" if results else f"{hook} returned None, it must return a list of {SPEC_OF_KIND[kind].__name__}"
        problem = problem or next(filter(None, (_junk(hook, kind, result) for result in results)), "")
        if problem:
            problems.append(problem)
        else:
            specs += [(kind, spec) for result in results for spec in result]
    return specs, problems


def _junk(hook: str, kind: PluginKind, result: object) -> str:
    wanted = SPEC_OF_KIND[kind]
    if not isinstance(result, list | tuple):
        return f"{hook} returned {_article(result)}, it must return a list of {wanted.__name__}"
    wrong = [item for item in result if not isinstance(item, wanted)]
    return f"{hook} returned {_article(wrong[0])} in its list, every item must be {wanted.__name__}" if wrong else ""


def _article(value: object) -> str:
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"
