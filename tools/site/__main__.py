"""Build the site: ``python -m tools.site [--out FOLDER]``. Opens no network connection. The last line is one JSON object.

The pages stay as they are in the repository, where their links work, too. This command copies them, turns links to other files of the
repository into links of the site, adds pages that it makes from the code, and calls Sphinx, whose warnings end it with exit code 1.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import time
from pathlib import Path

from sphinx.cmd.build import build_main

from tools.site.pages import ROOT, write_source


def main() -> int:
    """Write the sources, build, and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "docs", help="folder of the site [build/docs]")
    parser.add_argument("--screenshots", type=Path, metavar="FOLDER", help="also write pictures of ten pages, at 1280 and 390 pixels")
    args = parser.parse_args()
    out, begun = args.out.absolute(), time.monotonic()
    source, trees = out.with_name(f"{out.name}-source"), out.with_name(f"{out.name}-source-trees")
    for made in (source, trees, out):
        shutil.rmtree(made, ignore_errors=True)
    os.environ["COLUMNS"] = "100"  # the width of the usage of a command
    write_source(source)
    words = ["-W", "--keep-going", "-q", "-j", str(os.cpu_count()), "-b", "html", "-c", str(Path(__file__).parent), "-d", str(trees)]
    code = build_main([*words, str(source), str(out)])
    pages = list(out.rglob("*.html"))
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    if args.screenshots:
        from tools.site.screenshots import take_screenshots

        take_screenshots(out, args.screenshots)
    print(json.dumps({"site": str(out), "pages": len(pages), "mb": round(size / 1e6, 1), "seconds": round(time.monotonic() - begun, 1)}))
    return 1 if code else 0


if __name__ == "__main__":
    raise SystemExit(main())
