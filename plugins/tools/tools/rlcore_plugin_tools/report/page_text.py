"""The page as bytes: its parts put together, the data of runs packed so that nothing in it can be taken for a part of the page.

Data travels as gzip in base64, which has neither ``<`` nor ``&``, and the scripts write it into the page as text. The policy of the page
allows its own scripts and styles alone, by their hashes, and no connection at all (to its server alone, if it is live).
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

__all__ = ["packed", "page"]

_STYLES = ("uplot/uplot.css", "base.css", "layout.css", "charts.css", "tables.css", "rollouts.css")
_MODULES = (
    "dom.js",
    "format.js",
    "load.js",
    "figures.js",
    "chart.js",
    "smooth.js",
    "header.js",
    "curves.js",
    "evaluation.js",
    "spreads.js",
    "times.js",
    "word_diff.js",
    "rollout_filter.js",
    "rollout_list.js",
    "rollout_detail.js",
    "rollouts.js",
    "settings.js",
    "versions.js",
    "main.js",
)
"""Each after those that it imports: in the page they are one script, so a name at the top of one is a name in all."""
_IMPORT = re.compile(r"^import \{[^}]*\} from \"\./\w+\.js\";\n", re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|class|let)\b)", re.MULTILINE)


def page(figures: Mapping[str, Any] | None = None, rollouts: Mapping[str, Any] | None = None) -> bytes:
    """With data a page that stands alone; without, one that asks its server for ``figures`` and ``rollouts`` again and again."""
    style = "\n".join(_part(name) for name in _STYLES)
    scripts = [_part("uplot/uplot.js"), script()]
    live = figures is None
    connect = "'self'" if live else "'none'"
    policy = (
        f"default-src 'none'; script-src {' '.join(map(_hash, scripts))}; style-src {_hash(style)}; img-src data:; "
        f"connect-src {connect}; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'"
    )
    blocks = {
        "POLICY": policy,
        "LIVE": "yes" if live else "no",
        "STYLE": style,
        "FIGURES": "" if figures is None else base64.b64encode(packed(figures)).decode(),
        "ROLLOUTS": "" if rollouts is None else base64.b64encode(packed(rollouts)).decode(),
        "UPLOT": scripts[0],
        "SCRIPT": scripts[1],
    }
    parts = re.split(r"\{\{([A-Z]+)\}\}", _part("page.html"))  # each place is filled once, and what fills it is not looked at again
    return "".join(blocks[part] if place % 2 else part for place, part in enumerate(parts)).encode()


def packed(data: Mapping[str, Any], level: int = 6) -> bytes:
    """gzip of JSON in ASCII: lone surrogates and the like are escapes. The same data is the same bytes."""
    return gzip.compress(json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode("ascii"), level, mtime=0)


def script() -> str:
    """All modules as one."""
    return "\n".join(_EXPORT.sub("", _IMPORT.sub("", _part(name))) for name in _MODULES)


def _part(name: str) -> str:
    return files("rlcore_plugin_tools.report").joinpath("page", *name.split("/")).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
