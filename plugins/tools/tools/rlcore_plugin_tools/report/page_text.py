"""Assembles the page as bytes, and packs the data of runs so that nothing in it can be read as markup.

Data is gzip in base64, which contains neither ``<`` nor ``&``, and the scripts insert it into the page as text. The page's content security
policy allows only its own scripts and styles, by their hashes. It allows no connection, or only one to its server if the page is live.
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
    "rollout_chat.js",
    "rollout_detail.js",
    "rollouts.js",
    "settings.js",
    "versions.js",
    "main.js",
)
"""Each module follows those that it imports. The page joins them into one script, so a top-level name of one module is visible in all."""
_IMPORT = re.compile(r"^import \{[^}]*\} from \"\./\w+\.js\";\n", re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|class|let)\b)", re.MULTILINE)


def page(figures: Mapping[str, Any] | None = None, rollouts: Mapping[str, Any] | None = None) -> bytes:
    """Return a page that needs no server if data is given; otherwise a page that keeps asking its server for ``figures`` and
    ``rollouts``."""
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
    parts = re.split(r"\{\{([A-Z]+)\}\}", _part("page.html"))  # each placeholder is filled once; inserted text is not searched
    return "".join(blocks[part] if place % 2 else part for place, part in enumerate(parts)).encode()


def packed(data: Mapping[str, Any], level: int = 6) -> bytes:
    """Return the gzip of the data as ASCII JSON, in which lone surrogates and the like are escapes. The same data gives the same bytes."""
    return gzip.compress(json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode("ascii"), level, mtime=0)


def script() -> str:
    """Return all modules as one script."""
    return "\n".join(_EXPORT.sub("", _IMPORT.sub("", _part(name))) for name in _MODULES)


def _part(name: str) -> str:
    return files("rlcore_plugin_tools.report").joinpath("page", *name.split("/")).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
