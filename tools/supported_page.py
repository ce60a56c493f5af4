"""Writes the tables of docs/reference/supported.md: ``python -m tools.supported_page``, or ``--check``: exit code 1 if the page is stale.

Layouts, engines and devices come from the capabilities that the backends declare, data formats from the specs that are registered, models
from the table of docs/how_to/inference.md. A backend has run on a GPU if docs/maintainers/gpu.md has a result of its suite.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

from benchmarks.gpu.contracts import SUITES
from rlcore.api import InferenceBackendSpec, TrainingBackendSpec
from rlcore.contracts.specs import Spec
from rlcore.registry import builtin

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference" / "supported.md"
BEGIN, END = "<!-- supported: python -m tools.supported_page -->\n", "<!-- /supported -->"
LAYOUTS = {
    "single": "one process",
    "data": "data-parallel, `-t N`",
    "zero": "sharded, `-zero 1` to `3`",
    "tensor": "tensor-parallel, `-tp` or `-ptp`",
    "pipeline": "pipeline, `-pp`",
    "context": "context-parallel",
    "expert": "expert-parallel",
}
"""The layouts that a backend can declare, in the order of the page."""
NEVER = "never run on a GPU"


def main() -> int:
    """Write the tables, or compare them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if the page is stale")
    page = PAGE.read_text(encoding="utf-8")
    fresh = with_tables(page)
    if parser.parse_args().check:
        return 0 if page == fresh else 1
    PAGE.write_text(fresh, encoding="utf-8")
    return 0


def with_tables(page: str) -> str:
    """Return the page with the tables of today between the marks; ValueError if a mark is missing."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE.name} lacks {BEGIN.strip()!r} or {END!r}: the tables stand between the two")
    tables = "\n\n".join([_engines_and_trainers(), _layouts(), _models(), _formats()])
    return f"{before}{begin}\n{tables}\n\n{end}{after}"


def ran_on_gpu() -> set[str]:
    """Return the backends whose suites have a result in docs/maintainers/gpu.md."""
    results = (ROOT / "docs" / "maintainers" / "gpu.md").read_text(encoding="utf-8")
    return {suite.partition("/")[0] for suite in SUITES} if re.search(r"^\| contracts-\S+ \| done ", results, re.MULTILINE) else set()


def on_gpu(name: str, devices: Iterable[str], layout: str = "single") -> str:
    """Return whether a backend runs on GPUs in a layout: yes, no, or never run."""
    if "cuda" not in devices:
        return "no"
    return "yes" if layout == "single" and name in ran_on_gpu() else NEVER


def _registered(folder: str, hook: str) -> list[Spec]:
    """Return the specs that the packages of a folder of plugins register by a hook, in the order of their packages."""
    packages = sorted((ROOT / "plugins").glob(f"{folder}/*/rlcore_plugin_*/__init__.py"))
    return [spec for path in packages for spec in getattr(import_module(path.parent.name), hook, list)()]


def _backends() -> list[tuple[str, InferenceBackendSpec | TrainingBackendSpec]]:
    engines = _registered("backends", "rlcore_register_inference_backends")
    trainers = _registered("backends", "rlcore_register_training_backends")
    pairs = [*(("engine", one) for one in engines), *(("trainer", one) for one in trainers)]
    return [(kind, spec) for kind, spec in pairs if isinstance(spec, InferenceBackendSpec | TrainingBackendSpec)]


def _engines_and_trainers() -> str:
    rows = []
    for kind, spec in _backends():
        declared = spec.capabilities
        if declared is None:
            continue
        lora = "yes" if "adapter" in declared.kinds else "no"
        dtypes = ", ".join(sorted(declared.dtypes))
        sleeps = "yes" if declared.sleeps else "no"
        devices = ["yes" if "cpu" in declared.devices else "no", on_gpu(spec.name, declared.devices)]
        rows.append([f"`{spec.name}`", kind, *devices, dtypes, lora, sleeps])
    heads = ["backend", "kind", "CPU", "one GPU", "dtypes", "LoRA adapters without the base model", "gives its device back"]
    return "## Engines and trainers\n\n" + table(heads, rows)


def _layouts() -> str:
    declared = [(f"{kind} `{spec.name}`", spec.name, spec.capabilities) for kind, spec in _backends() if spec.capabilities]
    rows = []
    for layout, label in LAYOUTS.items():
        cells = [_layout_cell(name, record.layouts, record.devices, layout) for _, name, record in declared]
        rows.append([label, *cells])
    return "## Layouts\n\n" + table(["layout", *(head for head, _, _ in declared)], rows)


def _layout_cell(name: str, layouts: Iterable[str], devices: Iterable[str], layout: str) -> str:
    if layout not in layouts:
        return "no"
    verdict = on_gpu(name, devices, layout)
    return "yes" if verdict == "yes" else f"on CPUs; {verdict}" if verdict == NEVER else "on CPUs"


def _models() -> str:
    text = (ROOT / "docs" / "how_to" / "inference.md").read_text(encoding="utf-8")
    recorded = text.partition("<!-- architectures: begin -->")[2].partition("<!-- architectures: end -->")[0]
    rows = re.findall(r"^\| ([\w, ]+) \| ([^|]*) \| (served|refused)", recorded, re.MULTILINE)
    named = [(re.sub(r", (.*)", r" (\1)", name), "experts" in special, verdict) for name, special, verdict in rows]
    served = ", ".join(name for name, experts, verdict in named if verdict == "served" and not experts)
    experts = ", ".join(name for name, experts, verdict in named if verdict == "served" and experts)
    refused = ", ".join(name for name, _, verdict in named if verdict == "refused")
    cells = [
        ["dense", "yes", served],
        ["mixture of experts (MoE)", "yes", experts],
        ["other attention, other positions, recurrence", "no", refused],
    ]
    return "## Models of engine `transformers`\n\n" + table(["kind", "supported", "architectures that were tested"], cells)


def _formats() -> str:
    readers = [*builtin.rlcore_register_data_sources(), *_registered("*", "rlcore_register_data_sources")]
    formats = _registered("*", "rlcore_register_row_formats")
    rows = [
        [f"`{spec.name}`", kind, spec.summary.replace("|", "\\|")]
        for kind, specs in (("reader", readers), ("rows", formats))
        for spec in specs
    ]
    return "## Data formats\n\nEach of these is supported.\n\n" + table(["name", "kind", "reads"], rows)


def table(heads: list[str], rows: Iterable[list[str]]) -> str:
    """Return a table of Markdown."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [heads, ["---"] * len(heads), *rows])


if __name__ == "__main__":
    raise SystemExit(main())
