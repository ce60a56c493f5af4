"""Writes the table of metrics into docs/reference/metrics.md: ``python -m tools.metric_table``, or ``--check``: exits 1 if it is stale."""

from __future__ import annotations

import argparse
from pathlib import Path

from rlcore.contracts.metric_names import METRICS

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "metrics.md"
BEGIN, END = "<!-- metrics: python -m tools.metric_table -->\n", "<!-- /metrics -->"
SECTIONS = {
    "step": "The update",
    "reward/mean": "Rewards",
    "groups": "Groups and filters",
    "source/<source>/share": "Sources",
    "response_length/mean": "Responses",
    "loss": "Loss and policy",
    "staleness/mean": "Staleness and time",
    "eval/<task>": "Evaluations",
}
"""The metric with which each section begins, and its heading."""


def main() -> int:
    """Write the table, or compare it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if the page is stale")
    page = PAGE.read_text(encoding="utf-8")
    fresh = with_metrics(page)
    if parser.parse_args().check:
        return 0 if page == fresh else 1
    PAGE.write_text(fresh, encoding="utf-8")
    return 0


def with_metrics(page: str) -> str:
    """The page with the table of today between the marks; ValueError if a mark is missing."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE.name} lacks {BEGIN.strip()!r} or {END!r}: the table stands between the two")
    lines = []
    for metric in METRICS:
        if metric.name in SECTIONS:
            lines += ["", f"### {SECTIONS[metric.name]}", "", "| metric | unit | meaning | when |", "|---|---|---|---|"]
        lines.append(f"| `{metric.name}` | {metric.unit} | {metric.text} | {metric.when} |")
    return "\n".join([before + begin, *lines[1:], "", end + after])


if __name__ == "__main__":
    raise SystemExit(main())
