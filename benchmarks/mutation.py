"""`make mutation`: do the tests notice when an estimator or a loss is wrong? The last line is one JSON object.

cosmic-ray finds and applies the mutations and keeps the sessions (`cr-report` reads them); this module chooses which of them count, and
runs the tests of `mutation.toml` on each in a forked child of a process that has torch imported, so that a mutant costs about a second.
The working tree is copied first and never touched. A session is a file in `.mutation/`, named after the module and its text: a run that
was interrupted goes on, a module that was edited starts again.
"""

from __future__ import annotations

import argparse
import ast
import compileall
import contextlib
import difflib
import fnmatch
import gc
import hashlib
import importlib
import json
import os
import py_compile
import shutil
import signal
import sys
import tempfile
import time
import tomllib
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.work_db import WorkDB
from cosmic_ray.work_item import MutationSpec, TestOutcome, WorkerOutcome, WorkItem, WorkResult

from benchmarks.mutation_operators import operators
from benchmarks.silent_places import silent_places

ROOT = Path(__file__).parents[1]
SESSIONS = ROOT / ".mutation"
LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv", "__pycache__", ".hypothesis", ".mutation", ".*_cache", "*.egg-info", "runs", "quickstart_*"
)
GREEN, RED = 0, (1, 2, 3, 4)  # pytest's exit codes; 2 to 4: a mutant that does not import, or breaks a conftest
PYTEST = ("-x", "-q", "--assert=plain", "--tb=line", "-p", "no:cacheprovider", "-p", "no:anyio", "-m", "not full and not nightly")
MEMORY = 8 << 30  # bytes a mutant may take beyond what its parent has: a wrong exponent can ask for terabytes


class Refused(Exception):
    """A setting or a test that makes the figures meaningless."""


@dataclass(frozen=True)
class Mutant:
    """One change of one module."""

    operator: str
    occurrence: int
    start: tuple[int, int]
    end: tuple[int, int]
    source: str

    @property
    def job(self) -> str:
        return f"{self.operator}:{self.occurrence}"


def guards() -> tuple[float, dict[str, list[str]]]:
    """The score that is asked for, and for each module its test files: those named after it first, then as written."""
    settings = tomllib.loads((ROOT / "benchmarks" / "mutation.toml").read_text())
    chosen: dict[str, list[str]] = {}
    for pattern, tests in settings["guards"].items():
        modules = [str(path.relative_to(ROOT)) for path in sorted(ROOT.glob(pattern))]
        if not modules:
            raise Refused(f"mutation.toml names {pattern}, and no such file exists")
        for module in modules:
            files = [file for test in tests for file in _test_files(test)]
            chosen.setdefault(module, sorted(dict.fromkeys(files), key=lambda file, stem=Path(module).stem: stem not in Path(file).stem))
    return settings["score"], chosen


def _test_files(name: str) -> list[str]:
    path = ROOT / name
    if not path.exists():
        raise Refused(f"mutation.toml names {name}, and no such file exists")
    return [name] if path.is_file() else [str(file.relative_to(ROOT)) for file in sorted(path.glob("test_*.py"))]


def mutants(source: str) -> Iterator[Mutant]:
    """Every mutant that counts: it compiles, differs from the source and from those before it, and is at no silent place."""
    silent = silent_places(source)
    tree, seen = get_ast(source), {ast.dump(ast.parse(source))}
    for name, operator in operators().items():
        places = (place for node in ast_nodes(tree) for place in operator.mutation_positions(node))
        for occurrence, (start, end) in enumerate(places):
            if any(first <= start and end <= last for first, last in silent):
                continue
            mutated = mutate_code(source, operator, occurrence)
            if mutated is None:
                continue
            try:
                meaning = ast.dump(ast.parse(mutated))
                compile(mutated, "mutant", "exec", dont_inherit=True)
            except (SyntaxError, ValueError):
                continue
            if meaning not in seen:
                seen.add(meaning)
                yield Mutant(name, occurrence, tuple(start), tuple(end), mutated)


@contextlib.contextmanager
def copied_tree() -> Iterator[Path]:
    """A copy of the working tree in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="rlcore-mutation-") as folder:
        tree = Path(folder) / "tree"
        shutil.copytree(ROOT, tree, ignore=LEFT_OUT)
        # By the text's hash: a mutant of the same second and size as the last one must not run the last one's bytecode.
        compileall.compile_dir(tree, quiet=1, invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH)
        yield tree


def run_tests(tree: Path, tests: Sequence[str], limit: float) -> tuple[int | None, str, float]:
    """Exit code of pytest (negative: killed by that signal; None: over the limit), its output, seconds. In a forked child."""
    log = tree.parent / "output.txt"
    start = time.monotonic()
    child = os.fork()
    if child == 0:
        _child(tree, tests, log)
    status: int | None = None
    try:
        while status is None and time.monotonic() - start < limit:
            done, code = os.waitpid(child, os.WNOHANG)
            status = os.waitstatus_to_exitcode(code) if done else time.sleep(0.01)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # what the tests left running, or all of it
    seconds = time.monotonic() - start
    if status is None:
        os.waitpid(child, 0)
    return status, log.read_text(errors="replace")[-4000:], seconds


def _child(tree: Path, tests: Sequence[str], log: Path) -> None:
    """pytest on the copy, in this process; never returns."""
    code = 70
    try:
        os.setsid()
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(output, stream)
        os.chdir(tree)
        folders = [str(tree), *(str(path.parent) for path in tree.glob("plugins/*/*/pyproject.toml"))]
        sys.path[:0] = folders
        os.environ["PYTHONPATH"] = os.pathsep.join(folders)
        _limit_memory()
        _quick_hypothesis()
        import pytest

        code = int(pytest.main([*PYTEST, *tests]))
        (tree.parent / "imported.json").write_text(json.dumps([name for name, module in list(sys.modules.items()) if _is_foreign(module)]))
        strangers = [name for name, module in list(sys.modules.items()) if _is_stranger(name, module, tree)]
        if strangers:
            print(f"not of the copy: {strangers}")
            code = 70
    except BaseException:  # a child must never go on as its parent; 70 stops the run
        traceback.print_exc()
        code = 70
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def warm_like_the_last_child(tree: Path) -> None:
    """Import what its tests imported from the environment."""
    for name in json.loads((tree.parent / "imported.json").read_text()):
        if name not in sys.modules:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
    gc.freeze()


def _is_foreign(module: object) -> bool:
    file = getattr(module, "__file__", None)
    return file is not None and file.startswith((sys.prefix, sys.base_prefix)) and "rlcore" not in file.removeprefix(sys.prefix)


def _is_stranger(name: str, module: object, tree: Path) -> bool:
    file = getattr(module, "__file__", None)
    return name.split(".")[0].startswith("rlcore") and file is not None and str(ROOT) in file and not file.startswith(str(tree))


def _limit_memory() -> None:
    import resource

    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))


def _quick_hypothesis() -> None:
    """The same examples for every mutant, and none made smaller: only whether a test fails counts here."""
    from hypothesis import HealthCheck, Phase, settings

    quick = settings(
        derandomize=True, database=None, deadline=None, phases=(Phase.explicit, Phase.generate), suppress_health_check=list(HealthCheck)
    )
    settings.register_profile("mutation", quick)
    settings.load_profile("mutation")


def warm() -> None:
    """What most tests import from elsewhere, once. Nothing of rlcore: children import the copy's."""
    for name in ("hypothesis", "numpy", "pydantic", "pytest", "torch", "transformers"):
        importlib.import_module(name)
    sys.dont_write_bytecode = True
    gc.freeze()  # children collect their own only


def session_of(module: str, found: Sequence[Mutant], source: str, fresh: bool) -> WorkDB:
    """The module's session, made where there is none yet for this text."""
    SESSIONS.mkdir(exist_ok=True)
    digest = hashlib.sha256("\n".join([source, *(mutant.job for mutant in found)]).encode()).hexdigest()[:12]
    path = SESSIONS / f"{module.replace('/', '.').removesuffix('.py')}.{digest}.sqlite"
    if fresh:
        path.unlink(missing_ok=True)
    session = WorkDB(path, WorkDB.Mode.create)
    if session.num_work_items == 0 and found:
        session.add_work_items(
            WorkItem.single(
                mutant.job,
                MutationSpec(module, mutant.operator, mutant.occurrence, start_pos=mutant.start, end_pos=mutant.end),
            )
            for mutant in found
        )
    return session


def judge(tree: Path, module: str, tests: Sequence[str], mutant: Mutant, source: str, limit: float) -> WorkResult:
    """Write the mutant into the copy, run the tests, and put the source back."""
    place = tree / module
    try:
        place.write_text(mutant.source)
        code, output, _ = run_tests(tree, tests, limit)
    finally:
        place.write_text(source)
    if code is not None and code > 0 and code not in RED:
        raise Refused(f"{module}, {mutant.job}: pytest ended with {code}\n{output}")
    diff = "".join(difflib.unified_diff(source.splitlines(True), mutant.source.splitlines(True), module, module, n=1))
    outcome = TestOutcome.SURVIVED if code == GREEN else TestOutcome.KILLED
    ending = WorkerOutcome.ABNORMAL if code is None else WorkerOutcome.NORMAL  # abnormal: over the time limit
    return WorkResult(ending, output=output, test_outcome=outcome, diff=diff)


def run_module(tree: Path, module: str, tests: Sequence[str], options: argparse.Namespace) -> tuple[Counter[str], list[dict[str, object]]]:
    """Counts of the module and its survivors."""
    source = (tree / module).read_text()
    found = list(mutants(source))
    session = session_of(module, found, source, options.fresh)
    known = dict(session.results)
    again = {job for job, result in known.items() if options.retry and not result.is_killed}
    todo = [mutant for mutant in found if mutant.job not in known or mutant.job in again]
    if todo and not options.report:
        code, output, seconds = run_tests(tree, tests, 600)
        if code != GREEN:
            raise Refused(f"{module}: its tests must pass before anything is mutated; pytest ended with {code}\n{output}")
        warm_like_the_last_child(tree)
        for mutant in todo:
            session.set_result(mutant.job, judge(tree, module, tests, mutant, source, 10 + 4 * seconds))
    known = dict(session.results)
    session.close()
    counts = Counter({"mutants": len(found), "pending": len(found) - len(known)})
    counts.update(_outcome(result) for result in known.values())
    return counts, [_survivor(module, mutant, known[mutant.job]) for mutant in found if _outcome(known.get(mutant.job)) == "survived"]


def _outcome(result: WorkResult | None) -> str:
    if result is None:
        return "pending"
    if result.worker_outcome == WorkerOutcome.ABNORMAL:
        return "timeout"
    return "killed" if result.is_killed else "survived"


def _survivor(module: str, mutant: Mutant, result: WorkResult) -> dict[str, object]:
    lines = (result.diff or "").splitlines()[2:]
    old, new = (" ".join(line[1:].strip() for line in lines if line[0] == sign) for sign in "-+")
    return {"place": f"{module}:{mutant.start[0]}", "operator": mutant.job, "old": old, "new": new, "diff": result.diff}


def _write(survivors: Sequence[dict[str, object]]) -> None:
    (SESSIONS / "survivors.jsonl").write_text("".join(json.dumps(one, ensure_ascii=False) + "\n" for one in survivors))


def row(name: str, counts: Counter[str]) -> str:
    done = counts["mutants"] - counts["pending"]
    score = f"{1 - counts['survived'] / done:.3f}" if done else "-"
    return (
        f"| {name} | " + " | ".join(str(counts[key]) for key in ("mutants", "killed", "survived", "timeout", "pending")) + f" | {score} |"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutation", description="mutation test of estimators and losses")
    parser.add_argument("--only", default="*", metavar="PATTERN", help="modules whose path matches, such as '*grpo*'")
    parser.add_argument("--retry", action="store_true", help="run survivors again, after a test was added")
    parser.add_argument("--fresh", action="store_true", help="forget what the sessions know")
    parser.add_argument("--report", action="store_true", help="run nothing, print what the sessions know")
    options = parser.parse_args()
    wanted, chosen = guards()
    warm()
    print("| module | mutants | killed | survived | timeout | pending | score |\n|---|---|---|---|---|---|---|", flush=True)
    total: Counter[str] = Counter()
    survivors: list[dict[str, object]] = []
    with copied_tree() as tree:
        for module, tests in chosen.items():
            if fnmatch.fnmatch(module, options.only):
                counts, alive = run_module(tree, module, tests, options)
                total.update(counts)
                survivors += alive
                print(row(module, counts), flush=True)
                _write(survivors)
    print(row("**all**", total))
    done = total["mutants"] - total["pending"]
    score = 1 - total["survived"] / done if done else 0.0
    print(json.dumps({"score": round(score, 4), **{key: total[key] for key in ("mutants", "killed", "survived", "timeout", "pending")}}))
    return 0 if score >= wanted and not total["pending"] else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Refused as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("stopped; the same command goes on from here", file=sys.stderr)
        sys.exit(130)
