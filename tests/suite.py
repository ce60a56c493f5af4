"""Run the tests of one marker expression: what can run side by side in worker processes, then the serial ones alone.

    python -m tests.suite -m "not full and not nightly" --workers 2 [any argument of pytest]

Both parts run even if the first one fails; the last line adds them up. With ``--again``, which CI gives, the tests that failed run once
more, alone. Those that then pass and that tests/groups/forgiven.toml names do not fail the run; each is a defect to mend, of the test or of
the code. With ``--workers 0`` one pytest runs everything; so it does for ``--pdb``, ``--trace`` and ``-s``, which need a terminal.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.groups.leash import Leash, LeashError

FAILED, CANNOT, NO_TESTS = 1, 4, 5  # pytest's exit codes; above 1 and without 5 it could not run as told
USAGE = 2
AT_A_TERMINAL = {"--pdb", "--trace", "-s", "--capture=no"}
SERIAL = "pytest.mark." + "serial"
COUNT = re.compile(r"(\d+) (passed|failed|skipped|xfailed|xpassed|errors?|warnings?)\b")
SUMMARY = re.compile(r"=* ?(?:no tests ran|\d+ \w+(?:, \d+ \w+)*) in [\d.]+s\b")
AGAIN = re.compile(r"(\S.*?::.*) PASSED\b")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def main(words: list[str]) -> int:
    options, rest = parser().parse_known_args(words)
    if not options.workers.isdecimal():
        told = f"--workers {options.workers} is no number of processes; type WORKERS=2, or WORKERS=0 for one process"
        print(f"tests.suite: {told}", file=sys.stderr)
        return USAGE
    try:
        leash = Leash.load(*([options.forgiven] if options.forgiven else [])) if options.again else Leash({})
    except LeashError as error:
        print(f"tests.suite: {error}", file=sys.stderr)
        return USAGE
    workers, rest = int(options.workers), [*rest, *(["-k", options.keywords] if options.keywords else [])]
    chosen = " and ".join(f"({expression})" for expression in options.marked)
    if workers == 0 or AT_A_TERMINAL & set(rest):
        forget = ["--cache-clear"] if options.again else []
        code = subprocess.run(pytest(chosen, 0, options.junitxml, [*rest, *forget]), check=False).returncode
        again = pytest(chosen, 0, numbered(options.junitxml, "again"), rest)
        return once_more(again, leash) if options.again and code == FAILED else code
    if (chosen or options.keywords) and (wrong := wrong_expression(chosen, options.keywords)):
        print(wrong, file=sys.stderr)
        return CANNOT
    signal.signal(signal.SIGINT, lambda *_: None)  # the pytest below gets it as well, and ends in its own way
    started, counts, codes = time.monotonic(), Counter[str](), []
    for name, marked, processes in (("beside", "not serial", workers), ("alone", "serial", 0)):
        part = f"({chosen}) and {marked}" if chosen else marked
        files = serial_files() if name == "alone" and not names_a_path(rest) else []
        forget = ["--cache-clear"] if options.again and not codes else []  # only failures of this run are run again
        codes.append(watched(pytest(part, processes, numbered(options.junitxml, name), [*rest, *forget, *files]), counts))
        if codes[-1] not in (0, FAILED, NO_TESTS):
            return codes[-1]
    print(total(counts, time.monotonic() - started))
    if options.again and verdict(codes) == FAILED:
        return once_more(pytest(chosen, 0, numbered(options.junitxml, "again"), rest), leash)
    return verdict(codes)


def names_a_path(words: list[str]) -> bool:
    return any(Path(word.split("::")[0]).exists() for word in words)


def serial_files() -> list[str]:
    """Those that mark a test as serial: to collect all others as well, only to leave their tests out, takes half a minute."""
    files = sorted(file for top in ("tests", "plugins") for file in Path(top).rglob("test_*.py"))
    return [str(file) for file in files if SERIAL in file.read_text(encoding="utf-8")]


def once_more(command: list[str], leash: Leash, environ: dict[str, str] | None = None, cache: Path = Path(".pytest_cache")) -> int:
    """Run the tests that failed again, by themselves. Return 0 if all of them pass now and are forgiven; the last lines say which are
    not, and how many ran. ``cache``: pytest's, which names them."""
    counts, passed, names = Counter[str](), list[str](), cache / "v" / "cache" / "lastfailed"
    if not names.is_file():
        print(f"nothing is run again: pytest has not written down in {names} what failed")
        return FAILED
    failed = list(json.loads(names.read_text(encoding="utf-8")))
    code = watched([*command, "--last-failed", "--last-failed-no-failures=none", "--verbosity=1"], counts, environ, passed)
    lost = [f"{test} failed, and did not run again: it was skipped, or not found" for test in failed if test not in passed]
    for sentence in (complaints := [*leash.unforgiven(passed), *(lost if code == 0 else [])]):
        print(sentence)
    said = ", ".join(f"{number} {outcome}" for outcome, number in counts.items()) or "no tests ran"
    print(f" run again after a failure, names above: {said} ".center(80, "="))
    return FAILED if code == NO_TESTS or (code == 0 and complaints) else code


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="tests.suite", description=__doc__, add_help=False, allow_abbrev=False)
    made.add_argument("--workers", "-n", default="2")
    made.add_argument("-k", dest="keywords", default="")
    made.add_argument("-m", dest="marked", action="append", default=[])
    made.add_argument("--again", action="store_true")
    made.add_argument("--forgiven", type=Path, help=argparse.SUPPRESS)  # another list than the committed one, for tests
    made.add_argument("--junitxml", "--junit-xml", type=Path)
    return made


def wrong_expression(marked: str, keywords: str) -> str:
    """What pytest says of -m or -k if it cannot read it, else "". Asked without a test: worker processes would end in xdist's internal
    error."""
    with TemporaryDirectory() as empty:
        command = [*pytest(marked, 0, None, ["-k", keywords]), "--collect-only", "--quiet", empty]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line for line in (done.stderr + done.stdout).splitlines() if "Wrong expression" in line]
    return "".join(lines[:1]) if done.returncode == CANNOT else ""


def pytest(marked: str, workers: int, report: Path | None, rest: list[str]) -> list[str]:
    """The command of one part. A file stays on one worker, so that its fixtures are made once; the order is that of the tree."""
    words = [sys.executable, "-m", "pytest", *rest, "-m", marked, f"--color={'yes' if sys.stdout.isatty() else 'no'}"]
    words += ["-n", str(workers), "--dist", "loadfile", "--no-loadscope-reorder"] if workers else ["-n", "0"]
    return [*words, f"--junitxml={report}"] if report else words


def numbered(report: Path | None, name: str) -> Path | None:
    """A report of its own for each part: the second would overwrite the first."""
    return report and report.with_name(f"{report.stem}-{name}{report.suffix}")


def watched(command: list[str], counts: Counter[str], environ: dict[str, str] | None = None, passed: list[str] | None = None) -> int:
    """Run one pytest, pass on what it prints, and add the figures of its summary to ``counts``: the last line that looks like one, for
    processes and libraries print after it. ``passed`` gets the tests that it names as passed."""
    summary = ""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace", env=environ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            plain = COLOUR.sub("", line)
            summary = plain if SUMMARY.match(plain) else summary
            if passed is not None and (found := AGAIN.match(plain)):
                passed.append(found[1])
    for number, outcome in COUNT.findall(summary):
        counts[outcome if outcome.endswith("ed") else outcome.rstrip("s") + "s"] += int(number)
    return process.returncode


def total(counts: Counter[str], seconds: float) -> str:
    said = ", ".join(f"{number} {outcome}" for outcome, number in counts.items()) or "no tests ran"
    return f" {said} in {seconds:.2f}s (both parts) ".center(80, "=")


def verdict(codes: list[int]) -> int:
    """A part that has no test is none (a path given by hand may hold no serial one); no test at all is an error, as in pytest."""
    ran = [code for code in codes if code != NO_TESTS]
    return max(ran, default=NO_TESTS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
