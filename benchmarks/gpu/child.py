"""One part, in a process of its own that the runner starts: ``python -m benchmarks.gpu.child PART --device cuda …``."""

from __future__ import annotations

import argparse
import json
import warnings
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.gpu.parts import choose
from benchmarks.gpu.setting import UNFINISHED, Outcome, Setting


def main() -> None:
    """Run the part and write its outcome, with what the machine is, to ``--answer``. An error ends the process and is its own report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part")
    parser.add_argument("--device", choices=["cuda", "cpu"], required=True)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--keep", type=Path, required=True)
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--until", type=float, required=True, help="monotonic time, which all processes of a machine share")
    parser.add_argument("--answer", type=Path, required=True)
    args = parser.parse_args()
    warnings.filterwarnings("ignore", category=FutureWarning)
    from benchmarks.gpu.device import machine

    (part,) = choose([args.part])
    module, _, function = part.target.partition(":")

    def report(outcome: Outcome, **changes: Any) -> None:
        text = json.dumps({**outcome.as_json(), "machine": machine(args.device), **changes})
        aside = args.answer.with_name(f"{args.answer.name}.writing")
        aside.write_text(text, encoding="utf-8")
        aside.replace(args.answer)

    setting = Setting(
        device=args.device,
        tiny=args.tiny,
        scratch=args.scratch,
        keep=args.keep,
        until=args.until,
        report=partial(report, status=UNFINISHED),
    )
    report(getattr(import_module(module), function)(setting, *part.arguments))


if __name__ == "__main__":
    main()
