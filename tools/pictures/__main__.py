"""Draw pictures of the documentation: ``python -m tools.pictures [NAME …] [--measure]`` writes docs/pictures/NAME.svg.

``--measure`` first makes the runs of a picture that shows runs, and stores their figures in benchmarks/results. Without it, the stored
figures are drawn. ``--check`` writes nothing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from tools.pictures import bubble, flow, learning, ledger, packages, step

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "pictures"
PICTURES: Mapping[str, Callable[[], str]] = {
    "bubble": bubble.draw,
    "flow": flow.draw,
    "learning": learning.draw,
    "ledger": ledger.draw,
    "packages": packages.draw,
    "step": step.draw,
}
MEASURED: Mapping[str, Callable[[], None]] = {"bubble": bubble.measure, "learning": learning.measure}


def main() -> int:
    """Draw, or compare with the committed files; return 1 if one is stale."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"pictures to draw [all: {', '.join(PICTURES)}]")
    parser.add_argument("--measure", action="store_true", help=f"make the runs anew, for {' and '.join(MEASURED)}: minutes")
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if a file is not what its command gives")
    args = parser.parse_args()
    names = args.names or list(PICTURES)
    if unknown := [name for name in names if name not in PICTURES]:
        parser.error(f"no picture has the name {unknown[0]!r}; the names are {', '.join(PICTURES)}")
    stale = [name for name in names if not _drawn(name, measure=args.measure, check=args.check)]
    if stale:
        print(f"stale: {', '.join(stale)}; type: make pictures", file=sys.stderr)
    return 1 if stale else 0


def _drawn(name: str, *, measure: bool, check: bool) -> bool:
    """Draw a picture, or return whether its file is what the command gives."""
    if measure and name in MEASURED:
        MEASURED[name]()
    path, text = FOLDER / f"{name}.svg", PICTURES[name]()
    if check:
        return path.exists() and path.read_text(encoding="utf-8") == text
    path.write_text(text, encoding="utf-8")
    return True


if __name__ == "__main__":
    sys.exit(main())
