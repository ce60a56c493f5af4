"""Turns an exception of somebody else's code into half a sentence: what was raised, in which file, on which line.

Knows nothing of plugins; the callers name the culprit and the rule, or say with ``error_context`` and ``close_part`` who it is.
``stdout_to_stderr`` keeps what such code prints out of standard output.
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
"""One for each caller inside ``stdout_to_stderr``."""
_ASIDE_STACK = ExitStack()
"""Puts standard output back, when the last of them leaves."""
_ASIDE_LOCK = threading.Lock()
SHOW_TRACEBACK = "RLCORE_TRACEBACK=1 shows the traceback"
_LONGEST = 300
_NOT_WRITTEN = ("File too large", "Read-only file system", "PytorchStreamWriter failed")
_NO_MEMORY = ("out of memory", "OutOfMemoryError", "MemoryError", "allocate memory")


def reason(error: BaseException) -> str:
    """``"NameError: name 'x' is not defined (my.py, line 3)"``: the error's type, its first line, where it was raised."""
    if isinstance(error, SyntaxError):
        place = f" ({Path(error.filename).name}, line {error.lineno})" if error.filename else ""
        return f"{type(error).__name__}: {error.msg}{place}"
    lines = str(error).strip().splitlines()
    said = f"{type(error).__name__}: {lines[0][:_LONGEST].rstrip('.')}" if lines else type(error).__name__
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _machinery(frame.filename)]
    return f"{said} ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else said


def _machinery(filename: str) -> bool:
    """Frames that brought the code in or called it, and say nothing about where it went wrong."""
    path = Path(filename)
    return filename.startswith("<frozen") or "importlib" in path.parts or "pluggy" in path.parts or path.parent == Path(__file__).parent


def closest(word: str, known: Iterable[str]) -> str:
    """``"; did you mean 'boxed'?"``-style tail for the nearest known word, "" where none is near."""
    near = difflib.get_close_matches(word.lower(), sorted(set(known)), n=1)
    folded = {name.lower(): name for name in known}
    if not near:
        near = difflib.get_close_matches(word.lower(), sorted(folded), n=1)
    return f", did you mean {folded.get(near[0], near[0])!r}" if near else ""


def out_of_memory(error: BaseException) -> bool:
    """Return whether an error, or the text of one that was raised elsewhere, says that memory of the host or of a device ran out."""
    return isinstance(error, MemoryError) or any(word in str(error) for word in _NO_MEMORY) or type(error).__name__ == "OutOfMemoryError"


@contextmanager
def error_context(
    who: str, doing: str, less_memory: str = "take a smaller model, or end other programs", raised: type[RlcoreError] = RunError
) -> Iterator[None]:
    """Inside, anything but an rlcore error is raised as ``raised``: ``{who} failed while {doing}: …``. ``less_memory``: what to type if
    memory runs out."""
    try:
        yield
    except (Exception, SystemExit) as error:  # a plugin that exits must not end the run as if it were done
        if isinstance(error, RlcoreError):
            if out_of_memory(error) and less_memory not in str(error):  # another rank's
                raise type(error)(f"{error}; {less_memory}") from error.__cause__
            if (full := disk_full(error)) and full not in str(error):  # as a plugin has told it
                raise type(error)(f"{error}; {full}") from error.__cause__
            raise
        said = f"{type(error).__name__}: {error}"
        short = shorten(said.rstrip(": "), _LONGEST, placeholder=" …")
        if out_of_memory(error):
            raise RunError(f"{who} ran out of memory while {doing} ({short}); {less_memory}") from None
        if full := disk_full(error):  # of which a traceback says nothing more
            raise raised(f"{who} failed while {doing}: {full} ({short})") from None
        raise raised(f"{who} failed while {doing}: {said}") from (None if any(word in said for word in _NOT_WRITTEN) else error)


def close_part(part: Any, who: str) -> None:
    """Close it; an error in that is reported and must not hide the one that ended the run."""
    try:
        part.close()
    except Exception as error:
        logging.getLogger("rlcore").warning("%s failed while closing: %s: %s", who, type(error).__name__, error)


@contextmanager
def stdout_to_stderr(*, for_all: bool = False) -> Iterator[None]:
    """Inside, what is printed, by any thread, a library in C or a program that is started, goes to standard error. Threads may overlap.

    ``for_all``: behind it standard output is back even if a thread that was left behind is still inside, for the last line of a command.
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
