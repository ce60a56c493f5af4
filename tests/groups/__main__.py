"""Groups of tests from the command line.

python -m tests.groups [list] [--json]        what would run, and why
python -m tests.groups ci                     the part of .ci/run: full and engine groups that are not known to pass; ALL=1 runs all
python -m tests.groups nightly [--stale]      nightly groups that have not passed with today's code, most valuable first
python -m tests.groups run NAME…              these groups, known to pass or not; records nothing
python -m tests.groups why NAME FILE          how a group comes to read a file
python -m tests.groups forgiven               is the list of forgiven tests in order?
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from subprocess import CalledProcessError

from tests.groups.leash import Leash, LeashError
from tests.groups.session import Session
from tests.groups.table import TableError

WRONG = 2
AS_CI = {
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "RLCORE_TEST_LEVELS": "namespaces landlock",
    "RLCORE_TEST_BROWSER": "1",
}
"""What the Makefile and .ci/run set: a key is the same whoever asks for it."""


def main(words: list[str]) -> int:
    """Do one of the above."""
    options = parser().parse_args(words or ["list"])
    os.environ.update({name: os.environ.get(name, value) for name, value in AS_CI.items()})
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))  # what runs is ended, as by Ctrl-C
    try:
        leash = Leash.load()
        if options.what == "forgiven":
            return 0
        session = Session(leash)
        if options.what == "list":
            return session.show(as_json=options.json)
        if options.what == "why":
            return session.why(options.group, options.file)
        if options.what == "ci":
            return session.ci(everything=os.environ.get("ALL", "") not in ("", "0"))
        if options.what == "nightly":
            return session.stale() if options.stale else session.nightly(options.names)
        return session.run([session.table.named(name) for name in options.names], record=False)
    except (LeashError, TableError) as error:
        print(f"tests.groups: {error}", file=sys.stderr)
        return WRONG
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except CalledProcessError as error:
        print(f"tests.groups: {' '.join(map(str, error.cmd))} ended with exit code {error.returncode}", file=sys.stderr)
        return WRONG


def parser() -> argparse.ArgumentParser:
    """Of the words after ``python -m tests.groups``."""
    made = argparse.ArgumentParser(prog="tests.groups", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = made.add_subparsers(dest="what", required=True)
    parts.add_parser("list").add_argument("--json", action="store_true")
    parts.add_parser("ci")
    parts.add_parser("forgiven")
    nightly = parts.add_parser("nightly")
    nightly.add_argument("--stale", action="store_true", help="list them, and run nothing")
    nightly.add_argument("names", nargs="*")
    parts.add_parser("run").add_argument("names", nargs="+")
    why = parts.add_parser("why")
    why.add_argument("group")
    why.add_argument("file")
    return made


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
