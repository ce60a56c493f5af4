"""The environment of this quickstart: the model repairs a small repository, and hidden tests grade its work.

Change it as you like: the reward, ``ATTEMPTS``, the limits. Another format of patches needs another model, because this tiny one has seen
no other answer.

rlcore calls ``play`` once for each episode, in another process. What the model writes never runs in that process. An episode has two
sessions of the sandbox, which reach no file, process or address of this machine, and end with the episode:

1. the session of the policy: it has the files of the repository and the failed test, and applies the patches;
2. the session of the tests: it has only the files of the repository as the first session left them.

The right values of the hidden tests are in neither session. The second session gets the calls and answers with values, and ``graded``
compares them here. Code in the same process as its tests could make each of them pass.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from rlcore.api.environments import Environment, EpisodeResult, Model
from rlcore.api.sandbox import Limits, SandboxOptions, Session, SessionJob, open_sandbox
from rlcore_plugin_quickstart import patches

ATTEMPTS = 1
"""Patches that the policy may try. After each but the last, it reads why the patch does not apply, or what the failed test says now."""
APPLIES = 0.2
"""Reward of a patch that applies and breaks nothing, so that the model learns the format before it finds the bug."""
SESSIONS = 4
"""Sessions that each process has at the same time. More would not be faster, and each takes some 40 MB."""
MIB = 1 << 20
LIMITS = Limits(
    cpu_seconds=2.0, wall_seconds=60.0, memory_bytes=256 * MIB, disk_bytes=16 * MIB, files=256, processes=16, address_bytes=1 << 40
)
PRINTED = 1 << 16
"""Most bytes that the tests may print."""
PYTHON = (sys.executable, "-I", "-S", "-B", "-c")

WORK = """
import json, sys

def read(path):
    with open(path) as file:
        return file.read()

paths, command = json.loads(sys.stdin.readline())
for line in sys.stdin:
    answer, test = json.loads(line)
    try:
        after = applied({path: read(path) for path in paths}, answer)
    except ValueError as error:
        print(json.dumps([False, str(error)]), flush=True)
        continue
    for path, text in after.items():
        with open(path, "w") as file:
            file.write(text)
    said = ""
    if test:
        import subprocess  # here, because the session starts faster without it
        try:
            done = subprocess.run(command, input=json.dumps([test]), capture_output=True, text=True, timeout=10)
            said = json.loads(done.stdout)[0][1]
        except subprocess.TimeoutExpired:
            said = "the test took too long"
        except ValueError:
            said = "the test was ended by the code"
    print(json.dumps([True, said]), flush=True)
"""
"""The program of the first session, after the source of ``patches``. It reads an answer and a test; it writes if the patch applies, and
what the test says."""
TESTS = """
import importlib, json, sys

sys.path.insert(0, "")
values = []
for module, call in json.loads(sys.stdin.read()):
    try:
        values.append([True, repr(eval(call, vars(importlib.import_module(module))))])
    except Exception as error:
        values.append([False, repr(error)])
print(json.dumps(values))
"""
"""The program of the second session. It reads calls, and writes for each if it returned a value, and the value or the error."""


class Repair(Environment):
    """Plays episodes. A row has ``messages``, ``files``, ``shown_test``, and the hidden tests ``fail_to_pass`` and ``pass_to_pass``."""

    episodes_per_process = 64

    def __init__(self) -> None:
        """Open the sandbox. :raises SandboxError: this machine has none with sessions; the message says what to install."""
        self._sandbox = open_sandbox(SandboxOptions(level="namespaces", backend_options={"packages": []}))
        self._free = asyncio.Semaphore(SESSIONS)

    async def play(self, model: Model, row: Mapping[str, Any]) -> EpisodeResult:
        """Return the result of one episode. The numbers in ``extra`` become the metrics ``conversation/applies`` and so on."""
        messages, files = list(row["messages"]), row["files"]
        answer = await _answer(model, messages)
        async with self._session(WORK, files) as session:
            await _say(session, [list(files), [*PYTHON, TESTS]])
            for left in reversed(range(ATTEMPTS)):
                applies, said = await self._applied(session, answer, row["shown_test"] if left else None)
                if not left or (applies and said == row["shown_test"][2]):
                    break
                messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": said}]
                answer = await _answer(model, messages)
            after = await asyncio.to_thread(_files, session, files)
        reward, result = await self._graded(row, after) if after != files else (0.0, said)
        extra = {"applies": float(after != files), "accuracy": float(reward == 1.0), "result": result}
        return EpisodeResult(reward=reward, extra=extra)

    @asynccontextmanager
    async def _session(self, program: str, files: Mapping[str, str]) -> AsyncIterator[Session]:
        source = f"{inspect.getsource(patches)}\n{program}" if program is WORK else program
        given = {path: text.encode() for path, text in files.items()}
        job = SessionJob(argv=(*PYTHON, source), readable=(Path(sys.prefix),), files=given, limits=LIMITS)
        async with self._free:
            session = await asyncio.to_thread(self._sandbox.session, job)
            try:
                yield session
            finally:
                await asyncio.to_thread(session.close)

    async def _applied(self, session: Session, answer: str, test: Sequence[str] | None) -> tuple[bool, str]:
        """Apply a patch in the session of the policy. Return if it applies, and what the policy reads about it."""
        await _say(session, [answer, test[:2] if test else None])
        try:
            applies, said = json.loads(await asyncio.wait_for(asyncio.to_thread(session.stdout.readline), LIMITS.wall_seconds))
            return bool(applies), str(said)
        except (ValueError, TypeError, TimeoutError):  # code of an earlier attempt ended or disturbed it; only its files count
            session.kill()
            return False, "the session has ended"

    async def _graded(self, row: Mapping[str, Any], files: Mapping[str, str]) -> tuple[float, str]:
        """Return the reward for the files, and a sentence about it."""
        tests = [*row["pass_to_pass"], *row["fail_to_pass"]]
        async with self._session(TESTS, files) as session:
            await _say(session, [test[:2] for test in tests], end=True)
            printed = await asyncio.to_thread(session.stdout.read, PRINTED)
            if len(printed) == PRINTED:
                session.kill()
            ended = await asyncio.to_thread(session.wait)
            untouched = await asyncio.to_thread(_same, session, files)
        values = _values(printed, len(tests))
        if ended.limit is not None:
            return 0.0, f"the tests reached the limit {ended.limit}"
        if not ended.ok or values is None:
            return 0.0, "the tests were ended or disturbed by the code"
        if not untouched:
            return 0.0, "the code changed files"
        failed = [(*test[:2], *value) for test, value in zip(tests, values, strict=True) if value != [True, test[2]]]
        passed_before = [test[:2] for test in row["pass_to_pass"]]
        for module, call, returned, value in failed:
            if not returned or [module, call] in passed_before:
                return 0.0, f"the patch breaks {call}: {value}"
        return (1.0, "all tests pass") if not failed else (APPLIES, f"the patch applies, but {failed[0][1]} is {failed[0][3]}")


async def _answer(model: Model, messages: Sequence[Mapping[str, Any]]) -> str:
    return (await model.chat(messages)).get("content") or ""


async def _say(session: Session, value: Any, *, end: bool = False) -> None:
    def write() -> None:
        try:
            session.stdin.write(json.dumps(value).encode() + b"\n")
            if end:
                session.stdin.close()
        except BrokenPipeError:  # the session has ended, and its answer will be missing
            pass

    await asyncio.to_thread(write)


def _files(session: Session, files: Mapping[str, str]) -> dict[str, str]:
    """Return the files of the repository as the session has them. A removed or unreadable one has the text ""."""
    found = {}
    for path in files:
        try:
            found[path] = session.read(path).decode()
        except (FileNotFoundError, UnicodeDecodeError):
            found[path] = ""
    return found


def _same(session: Session, files: Mapping[str, str]) -> bool:
    return set(session.names()) == set(files) and _files(session, files) == dict(files)


def _values(printed: bytes, count: int) -> list[list[Any]] | None:
    """Return what TESTS says about the calls, None if the program printed anything else."""
    try:
        values = json.loads(printed)
        return values if len(values) == count and all(isinstance(value, str) for _, value in values) else None
    except (ValueError, TypeError, RecursionError):
        return None
