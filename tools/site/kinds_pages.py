"""The pages of the kinds of plugins: base class, spec, registration, and the plugins of this repository with their options."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from typing import Any

from rlcore_plugin_tools.show.describe import describe
from rlcore_plugin_tools.show.show_command import _HELP

from rlcore.api import PluginKind
from rlcore.contracts.specs import REGISTERING_HOOKS, SPEC_OF_KIND, Spec
from rlcore.registry.plugin_registry import Registry
from rlcore.registry.targets import BASES
from tools.site.markdown import cell, escape, prose, table

__all__ = ["kinds_pages"]

_HOOKS = {kind: hook for hook, kind in REGISTERING_HOOKS.items()}
_INTRO = """# Kinds of plugins

A plugin offers things of one or several kinds. Each page says which base class and which spec a kind has, how to register it, and which
plugins of this repository offer it. `rlcore show KIND NAME` prints the same about one of them.

"""


def kinds_pages(registry: Registry, api: Mapping[str, str]) -> dict[str, str]:
    """Return name on the site -> text: the overview first, then a page for each kind.

    :param api: the pages of the Python API, to which base classes link.
    """
    rows = [
        (f"[{kind}](kinds/{kind}.md)", cell(_HELP[kind]), f"`{SPEC_OF_KIND[kind].__name__}`", str(len(registry.names(kind))))
        for kind in _HELP
    ]
    pages = {f"reference/kinds/{kind}": _page(registry, kind, api) for kind in _HELP}
    return {"reference/kinds": _INTRO + table(("kind", "what it is", "spec", "here"), rows), **pages}


def _page(registry: Registry, kind: PluginKind, api: Mapping[str, str]) -> str:
    spec, base, hook, told = SPEC_OF_KIND[kind], BASES.get(kind), _HOOKS[kind], _HELP[kind]
    derived = (
        f"Its class derives from {_linked(base.__name__, api)} and is named by `target` of the spec.\n"
        if base
        else "It has no code: the spec says everything.\n"
    )
    made = 'name="mine", summary="one line"' + (', target="acme_rlcore.mine:Mine"' if spec.has_target else "")
    text = f"# {kind}\n\n{told[:1].upper()}{told[1:]}.\n\n{derived}\n## Register one\n\n"
    text += f"```python\nfrom rlcore.api import {spec.__name__}, hookimpl\n\n\n"
    text += f"@hookimpl\ndef {hook}():\n    return [{spec.__name__}({made})]\n```\n\n"
    text += f"See [`{hook}`](../hooks.md#{hook}).\n\n## {spec.__name__}\n\n{prose(spec.__doc__)}"
    text += table(("field", "type", "default"), map(_field, fields(spec)))
    if spec.__doc__ != Spec.__doc__:
        text += f"The fields of all kinds:\n\n{prose(inspect.getdoc(Spec)).partition(chr(10) * 2)[2]}"
    text += "## Installed with this repository\n\n"
    found = sorted(registry.specs(kind), key=lambda one: one.name)
    text += table(
        ("name", "summary", "package"),
        [(f"[`{one.name}`](#{kind}-{one.name})", cell(one.summary), f"`{registry.owner(kind, one.name)}`") for one in found],
    )
    if kind is PluginKind.COMMAND:
        return text.replace(f"(#{kind}-", "(../commands.md#command-")
    return text + "".join(_plugin(registry, kind, one.name) for one in found)


def _linked(name: str, api: Mapping[str, str]) -> str:
    """Return the link to the entry of a public name."""
    place = next(place for place, text in api.items() if f"\n## {name}\n" in text)
    return f"[`{name}`](../../{place}.md#{name.lower()})"


def _field(field: Field[Any]) -> tuple[str, str, str]:
    default = "required" if field.default is MISSING and field.default_factory is MISSING else f"`{field.default!r}`"
    return f"`{field.name}`", cell(f"`{field.type}`"), cell(default if field.default is not MISSING or default == "required" else "`{}`")


def _plugin(registry: Registry, kind: PluginKind, name: str) -> str:
    """Return what ``rlcore show KIND NAME`` prints, without what follows from the spec's defaults."""
    told = describe(registry, kind, name)
    text = f"({kind}-{name})=\n### {name}\n\n{escape(told['summary'])}. Package: `{told['owner']}`.\n\n"
    aliases = ", ".join(f"`{alias}`" for alias in told["aliases"])
    facts = [("also called", aliases), ("source", escape(told["source"])), ("code", f"`{told['target']}`" if told["target"] else "")]
    defaults = {field.name: field.default for field in fields(SPEC_OF_KIND[kind])}
    facts += [
        (f"`{key}`", escape(f"`{json.dumps(value, ensure_ascii=False)}`"))
        for key, value in told["properties"].items()
        if key != "notes"
        and value not in (defaults.get(key), None, [], "", {})
        and not (isinstance(value, list) and tuple(value) == defaults.get(key))
    ]
    text += "".join(f"- {label}: {value}\n" for label, value in facts if value) + "\n"
    if notes := told["properties"].get("notes"):
        text += f"```text\n{notes.strip()}\n```\n\n"
    rows = [
        (f"`{option['path']}`", cell(f"`{option['type']}`"), _default(option), cell(option["description"])) for option in told["options"]
    ]
    return text + table(("option", "type", "default", "meaning"), rows)


def _default(option: dict[str, Any]) -> str:
    return "required" if option["required"] else cell(f"`{json.dumps(option['default'], ensure_ascii=False)}`")
