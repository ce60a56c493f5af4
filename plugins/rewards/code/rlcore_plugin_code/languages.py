"""The languages of programs: the labels of their fences, the tools that they need on this machine, and how they are run.

A compiler reads model text, so it also runs in the sandbox, once per response; its output is sent back in with every test.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlcore.api import ConfigError
from rlcore.api.sandbox import Level, ProgramResult
from rlcore_plugin_code import texts
from rlcore_plugin_code.runs import Runs, ending
from rlcore_plugin_code.suite import Program

__all__ = ["LANGUAGES", "Language", "NotCompiled", "need", "prepared"]

_MIB = 1 << 20
_LARGEST_BINARY = 64 * _MIB
_COMPILER_SECONDS = 30.0
_COMPILER_MEMORY = 2048 * _MIB
_NODE_RESERVES = 64 << 30  # addresses that Node reserves without using them; its own option bounds its heap


class NotCompiled(Exception):
    """The compiler refused the program; the text says how it ended."""


@dataclass(frozen=True, slots=True)
class Language:
    """``labels``: a regular expression of fence labels; ``tools``: programs, one of which must be on this machine."""

    labels: str
    tools: tuple[str, ...] = ()
    processes: bool = False
    """Whether its tools start processes, which level landlock refuses."""


LANGUAGES: dict[str, Language] = {
    "python": Language(labels=r"[{.]*+(?:python|pypy|py)[0-9.]*+(?:[}:,{].*)?"),
    "cpp": Language(labels=r"[{.]*+(?:c\+\+|cpp|cxx|cc)[0-9]*+(?:[}:,{].*)?", tools=("g++", "clang++"), processes=True),
    "javascript": Language(labels=r"[{.]*+(?:javascript|js|mjs|node|nodejs)(?:[}:,{].*)?", tools=("node", "nodejs")),
}


def need(names: Sequence[str], level: Level) -> None:
    """Raise ConfigError, in one sentence, if a language cannot be judged on this machine."""
    for name in names:
        language, out = LANGUAGES[name], f"leave {name} out"
        if language.tools and _tool(name) is None:
            lacking = " or ".join(language.tools)
            raise ConfigError(f"reward code: languages names {name}, but there is no {lacking} in /usr/bin; install it, or {out}")
        if language.processes and level is Level.LANDLOCK:
            reason = "whose compiler starts processes, which the sandbox level landlock refuses"
            raise ConfigError(f"reward code: languages names {name}, {reason}; use level namespaces, or {out}")


def _tool(name: str) -> str | None:
    return next((found for tool in LANGUAGES[name].tools if (found := shutil.which(tool, path="/usr/bin"))), None)


def prepared(program: Program, runs: Runs) -> Callable[[bytes, int], ProgramResult]:
    """Return ``run(stdin, output_bytes)`` of the program, compiled if its language requires it.

    :raises NotCompiled: the compiler refused it.
    :raises OutOfTime: it took the time of all tests.
    """
    if program.language == "cpp":
        return _compiled(program, runs)
    if program.language == "javascript":
        heap = f"--max-old-space-size={runs.options.memory_mb}"
        argv = (_tool("javascript") or "/usr/bin/node", heap, "--openssl-config=/dev/null", "solution.js")
        files = {"solution.js": program.text}
        return lambda stdin, output: runs.run(argv=argv, files=files, stdin=stdin, output_bytes=output, address_bytes=_NODE_RESERVES)
    source = texts.as_judged(program.text)
    return lambda stdin, output: runs.run(source=source, stdin=stdin, output_bytes=output)


def _compiled(program: Program, runs: Runs) -> Callable[[bytes, int], ProgramResult]:
    compiler = _tool("cpp") or "/usr/bin/g++"
    command = f"{compiler} -std=c++17 -O2 -pipe -w -o program solution.cpp 1>&2 && cat program"
    ran = runs.run(
        argv=("/bin/sh", "-c", command),
        files={"solution.cpp": program.text},
        output_bytes=_LARGEST_BINARY,
        memory_bytes=_COMPILER_MEMORY,
        cpu_seconds=_COMPILER_SECONDS,
    )
    if problem := ending(ran, "the compiler"):
        raise NotCompiled(problem)
    loader = next((str(path) for folder in ("/lib64", "/lib") for path in Path(folder).glob("ld-linux-*.so.*")), "")
    files = {"program": ran.stdout}
    return lambda stdin, output: runs.run(argv=(loader, "./program"), files=files, stdin=stdin, output_bytes=output)
