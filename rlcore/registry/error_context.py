"""Describes an exception of a plugin's code in half a sentence: its text, its file, its line.

This module knows no plugins. The callers name the culprit and the rule, or pass the culprit to ``error_context`` and ``close_part``.
``stdout_to_stderr`` keeps the output of such code out of standard output.
"""

from __future__ import annotations

import difflib
import logging
import os
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from pathlib import Path
from textwrap import shorten
from typing import Any

from rlcore.contracts.errors import RlcoreError, RunError, disk_full

__all__ = ["SHOW_TRACEBACK", "close_part", "closest", "error_context", "out_of_memory", "reason", "stdout_to_stderr"]

_ASIDE: list[object] = []
"""One entry for each caller inside ``stdout_to_stderr``."""
_ASIDE_STACK = ExitStack()
"""Restores standard output when the last caller leaves."""
_ASIDE_LOCK = threading.Lock()
SHOW_TRACEBACK = "RLCORE_TRACEBACK=1 shows the traceback"
_LONGEST = 300
_NOT_WRITTEN = ("File too large", "Read-only file system", "PytorchStreamWriter failed")
_NO_MEMORY = ("out of memory", "OutOfMemoryError", "MemoryError", "allocate memory")


def reason(error: BaseException) -> str:
    """Return the error's type, its first line, and where it was raised: ``"NameError: name 'x' is not defined (my.py, line 3)"``."""
    if isinstance(error, SyntaxError):
        place = f" ({Path(error.filename).name}, line {error.lineno})" if error.filename else ""
        return f"{type(error).__name__}: {error.msg}{place}"
    lines = str(error).strip().splitlines()
    said = f"{type(error).__name__}: {lines[0][:_LONGEST].rstrip('.')}" if lines else type(error).__name__
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _machinery(frame.filename)]
    return f"{said} ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else said


def _machinery(filename: str) -> bool:
    """Return whether a frame belongs to the code that imported or called the plugin, and says nothing about the place of the error."""
    path = Path(filename)
    return filename.startswith("<frozen") or "importlib" in path.parts or "pluggy" in path.parts or path.parent == Path(__file__).parent


def closest(word: str, known: Iterable[str]) -> str:
    """Return ``", did you mean 'boxed'"`` with the nearest known word, "" if none is near."""
    near = difflib.get_close_matches(word.lower(), sorted(set(known)), n=1)
    folded = {name.lower(): name for name in known}
    if not near:
        near = difflib.get_close_matches(word.lower(), sorted(folded), n=1)
    return f", did you mean {folded.get(near[0], near[0])!r}" if near else ""


def out_of_memory(error: BaseException) -> bool:
    """Return whether an error, or its text if it was raised elsewhere, says that memory of the host or of a device ran out."""
    return isinstance(error, MemoryError) or any(word in str(error) for word in _NO_MEMORY) or type(error).__name__ == "OutOfMemoryError"


@contextmanager
def error_context(
    who: str, doing: str, less_memory: str = "take a smaller model, or end other programs", raised: type[RlcoreError] = RunError
) -> Iterator[None]:
    """Inside the context, raise any exception that is not an rlcore error as ``raised``: ``{who} failed while {doing}: …``.

    If memory ran out, raise RunError with ``less_memory``. An rlcore error passes, with a hint if memory or the disk was full.

    :param less_memory: what to type if memory runs out.
    """
    try:
        yield
    except (Exception, SystemExit) as error:  # a plugin that exits must not end the run as if it were done
        if isinstance(error, RlcoreError):
            if out_of_memory(error) and less_memory not in str(error):  # raised on another rank
                raise type(error)(f"{error}; {less_memory}") from error.__cause__
            if (full := disk_full(error)) and full not in str(error):  # the error of a plugin
                raise type(error)(f"{error}; {full}") from error.__cause__
            raise
        said = f"{type(error).__name__}: {error}"
        short = shorten(said.rstrip(": "), _LONGEST, placeholder=" …")
        if out_of_memory(error):
            raise RunError(f"{who} ran out of memory while {doing} ({short}); {less_memory}") from None
        if full := disk_full(error):  # a traceback adds nothing
            raise raised(f"{who} failed while {doing}: {full} ({short})") from None
        raise raised(f"{who} failed while {doing}: {said}") from (None if any(word in said for word in _NOT_WRITTEN) else error)


def close_part(part: Any, who: str) -> None:
    """Close a part. Log an error, so that it does not hide the error that ended the run."""
    try:
        part.close()
    except Exception as error:
        logging.getLogger("rlcore").warning("%s failed while closing: %s: %s", who, type(error).__name__, error)


@contextmanager
def stdout_to_stderr(*, for_all: bool = False) -> Iterator[None]:
    """Inside the context, send everything that is printed to standard error. Contexts of several threads may overlap.

    This covers any thread, libraries in C, and child processes.

    :param for_all: restore standard output on leaving, for the last line of a command, even if an abandoned thread is still inside.
    """
    caller = object()
    with _ASIDE_LOCK:
        if not _ASIDE:
            _ASIDE_STACK.enter_context(_redirected())
        _ASIDE.append(caller)
    try:
        yield
    finally:
        with _ASIDE_LOCK:
            _ASIDE[:] = [] if for_all else [one for one in _ASIDE if one is not caller]
            if not _ASIDE:
                _ASIDE_STACK.close()


def _redirected() -> ExitStack:
    with ExitStack() as stack:
        if (own := sys.__stdout__) is not None and sys.stdout is own and sys.stderr is not None:
            own.flush()
            kept = os.dup(1)
            stack.callback(os.close, kept)
            stack.callback(os.dup2, kept, 1)
            os.dup2(2, 1)
        stack.enter_context(redirect_stdout(sys.stderr))
        return stack.pop_all()
