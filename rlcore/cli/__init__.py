"""The ``rlcore`` command. It is light: the help imports at most the entry modules of plugins, and a command imports its own module."""

from __future__ import annotations

import errno
import io
import json
import os
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rlcore.host.terminal_text import escape_control

if TYPE_CHECKING:
    from types import FrameType

    from rlcore.contracts.errors import RlcoreError

__all__ = ["main"]

_INTERRUPTED = 130
_TERMINATED = 128 + signal.SIGTERM


class _Terminated(KeyboardInterrupt):
    """SIGTERM outside the training loop, which has its own handler."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Exit codes: 0 success, 1 the run failed, 2 usage (one sentence, nothing written), 130 interrupted,
    143 ended by SIGTERM."""
    words = list(sys.argv[1:] if argv is None else argv)
    from rlcore.contracts.errors import RlcoreError

    _open_closed_streams()
    _prepare_streams()
    try:
        code = _run(words)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader of the output is gone, so nothing more can be printed
        _drop_output()
        return 1
    except RecursionError:
        _report("the input is nested too deeply to be read; flatten it", "--json" in words)
        return 2
    except MemoryError:
        _report("this machine ran out of memory; end other programs, or lower -tmbs, -imbs or -tbs", "--json" in words)
        return 1
    except OSError as error:
        return _not_written(error, "--json" in words)
    except RlcoreError as error:
        _report(" ".join(str(error).split()) + _show_cause(error), "--json" in words)
        return error.exit_code
    except KeyboardInterrupt as stop:
        _report("interrupted", "--json" in words)
        return _TERMINATED if isinstance(stop, _Terminated) else _INTERRUPTED
    except SystemExit as stop:  # argparse after --help
        return stop.code if isinstance(stop.code, int) else 0


def _open_closed_streams() -> None:
    """Connect standard streams that the caller closed (``>&-``) with the null device.

    Otherwise the next opened file would get the number of a standard stream, and child processes would write into it."""
    while (handle := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(handle, True)
    os.close(handle)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - for the life of the process


def _prepare_streams() -> None:
    """Make output replace characters that the terminal's encoding lacks, and make SIGTERM and SIGHUP clean up like Ctrl-C."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    for number, handler in ((signal.SIGTERM, _terminate), (signal.SIGHUP, signal.default_int_handler)):
        if threading.current_thread() is threading.main_thread() and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, handler)


def _terminate(number: int, frame: FrameType | None) -> None:
    raise _Terminated


def _show_cause(error: RlcoreError) -> str:
    """Return the end of the error sentence, and print the traceback of a plugin's own code if it failed in a run.

    If the plugin failed before the run, the returned text says how to see the traceback."""
    from rlcore.contracts.errors import PluginError, RlcoreError
    from rlcore.registry.error_context import SHOW_TRACEBACK

    if error.__cause__ is None or isinstance(error.__cause__, RlcoreError):
        return ""
    if error.exit_code == 1 or os.environ.get("RLCORE_TRACEBACK"):
        import traceback

        traceback.print_exception(error.__cause__)
        return ""
    return f" ({SHOW_TRACEBACK})" if isinstance(error, PluginError) else ""


def _not_written(error: OSError, as_json: bool) -> int:
    """Report the path that cannot be read or written. Return the exit code: 1 for a full disk, 2 for a path."""
    from rlcore.contracts.errors import disk_full

    full = bool(disk_full(error)) or error.errno == errno.EFBIG
    what = error.filename or ("standard output, or a file that is written" if full else "a file")
    advice = "make room on its disk" if full else "check the path"
    said = error.strerror or str(error)
    _report(f"{what}: {f'disk full ({said})' if disk_full(error) else said}; {advice}", as_json)
    return 1 if full else 2


def _drop_output() -> None:
    """Discard the rest of standard output, so that the interpreter does not try to write it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _report(sentence: str, as_json: bool) -> None:
    with suppress(OSError):  # a full disk must not hide the exit code
        print(f"error: {escape_control(sentence, lines=True)}", file=sys.stderr)
    if as_json:
        try:
            print(json.dumps({"error": sentence}, ensure_ascii=False), flush=True)
        except OSError:
            _drop_output()


def _run(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        from rlcore.cli.help_text import help_text

        print(help_text())
        return 0
    if words[0] == "-p":
        from rlcore.registry.discovery import switch_off

        switch_off(words[1] if len(words) > 1 else "")
        return _run(words[2:])
    if words[0] in ("-V", "--version"):
        from rlcore import __version__

        print(f"rlcore {__version__}")
        return 0
    from rlcore.cli.typed_command import run_command

    return run_command(words[0], words[1:])
