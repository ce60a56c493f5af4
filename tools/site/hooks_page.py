"""The page of the hooks: each with its signature, its documentation, and when rlcore calls it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

from rlcore.contracts import hookspecs
from tools.site.markdown import escape, prose, signature, table

__all__ = ["hooks_page"]

_SECTION = re.compile(r"# --- ([a-z ]+) -+$|^def (rlcore_\w+)", re.MULTILINE)


def hooks_page() -> str:
    """Return the page, in the sections and the order of the source."""
    text = "# Hooks\n\n" + prose(hookspecs.__doc__)
    rows, body = [], ""
    for section, hook in _hooks():
        if section:
            body += f"## {section.capitalize()}\n\n"
            continue
        function = getattr(hookspecs, hook)
        first = (inspect.getdoc(function) or "").partition("\n\n")[0]
        rows.append((f"[`{hook}`](#{hook})", escape(re.split(r"(?<=[^.])\.\s|;\s", first)[0].rstrip(".") + ".")))
        body += f"({hook})=\n### {hook}\n\n```python\n@hookimpl\ndef {signature(hook, function)}: ...\n```\n\n{prose(function.__doc__)}"
    return text + table(("hook", "purpose"), rows) + body


def _hooks() -> Iterator[tuple[str, Any]]:
    """Yield (section, "") for each part of the source, and ("", hook) for each hook."""
    for found in _SECTION.finditer(inspect.getsource(hookspecs)):
        yield found[1] or "", found[2] or ""
