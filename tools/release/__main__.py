"""Build and check a release: docs/maintainers/releasing.md.

python -m tools.release set VERSION                     write the version into every distribution
python -m tools.release build [--out FOLDER]            sources and wheels of every distribution [dist]
python -m tools.release try [--python PATH] [--light]   install FOLDER into a new environment and use it; --light: what needs no torch
python -m tools.release check VERSION [--dry-run]       the release checklist; --dry-run: the items that take seconds
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

from tools.release.checklist import check
from tools.release.clean import InputError, TrialError, check_wheels, find_python, try_out
from tools.release.dists import BuildError, build
from tools.release.projects import VERSION, set_version, step_back

ROOT = Path(__file__).resolve().parents[2]
WRONG = 2


def main(words: list[str]) -> int:
    """Do one of the above. Exit codes: 0 done, 1 something failed, 2 the words or the files cannot be used."""
    try:
        try:
            return _main(words)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # the reader of the output is gone; the interpreter must not try to write the rest when it ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1


def _main(words: list[str]) -> int:
    options = parser().parse_args(words)
    if options.what in ("set", "check") and not VERSION.fullmatch(options.version):
        print(f"{options.version!r} is no version of rlcore; type three numbers without leading zeros, such as 0.2.0", file=sys.stderr)
        return WRONG
    try:
        return _do(options)
    except (BuildError, TrialError) as error:
        print(error, file=sys.stderr)
        return 1
    except InputError as error:
        print(error, file=sys.stderr)
        return WRONG


def _do(options: argparse.Namespace) -> int:
    if options.what == "set":
        if wrong := step_back(ROOT, options.version):
            print(wrong, file=sys.stderr)
            return WRONG
        changed = set_version(ROOT, options.version)
        print(f"{len(changed)} files have the version {options.version} now")
    elif options.what == "build":
        made = build(ROOT, options.out)
        print(json.dumps({"folder": str(options.out), "sources": len(made) // 2, "wheels": len(made) // 2}))
    elif options.what == "try":
        if not any(options.dist.glob("*.whl")):
            print(f"{options.dist} has no wheels; type make wheels", file=sys.stderr)
            return WRONG
        check_wheels(options.dist)
        python = find_python(options.python)
        with tempfile.TemporaryDirectory(prefix="rlcore-try-") as folder:
            print(json.dumps(try_out(python, options.dist.resolve(), Path(folder), whole=not options.light)))
    else:
        return check(ROOT, options.version, dry_run=options.dry_run)
    return 0


def parser() -> argparse.ArgumentParser:
    """Return the parser of the words after ``python -m tools.release``."""
    made = argparse.ArgumentParser(prog="tools.release", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = made.add_subparsers(dest="what", required=True)
    parts.add_parser("set").add_argument("version")
    parts.add_parser("build").add_argument("--out", type=Path, default=ROOT / "dist")
    tried = parts.add_parser("try")
    tried.add_argument("--dist", type=Path, default=ROOT / "dist")
    tried.add_argument("--python", default=sys.executable)
    tried.add_argument("--light", action="store_true")
    checked = parts.add_parser("check")
    checked.add_argument("version")
    checked.add_argument("--dry-run", action="store_true")
    return made


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
