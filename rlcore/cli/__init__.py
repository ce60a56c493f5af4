"""The ``rlcore`` command. Light: a command's module is imported when that command is typed, and nothing else is."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import threading
from collections.abc import Sequence
from importlib import import_module

__all__ = ["COMMANDS", "main"]

COMMANDS = {
    "quickstart": "make a tiny model and watch it learn, on this machine",
    "train": "train a model as TOML files and flags say",
    "launch": "write the batch file that trains on a Slurm cluster",
    "score": "judge a file of completions with a reward, without training",
    "audit": "show a reward hostile and honest completions, and report what it makes of them",
    "plan": "say how to split devices between generating and training, by simulation",
    "show": "explain a plugin, or where each setting of a run comes from",
    "plugins": "list installed plugins, or why one does not work",
}
"""Command -> one line of help; the command ``x`` lives in ``rlcore.cli.x``."""

_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Exit codes: 0 fine, 1 the run failed, 2 usage (one sentence, nothing written), 130 interrupted."""
    words = list(sys.argv[1:] if argv is None else argv)
    from rlcore.errors import RlcoreError

    _prepare_streams()
    try:
        return _run(words)
    except BrokenPipeError:  # the reader of our output went away: nothing more can be said to it
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    except RecursionError:
        _report("what was handed in is nested too deeply to be read; flatten it", "--json" in words)
        return 2
    except OSError as error:
        _report(f"{error.filename or 'a file'}: {error.strerror or error}; check the path", "--json" in words)
        return 2
    except RlcoreError as error:
        _show_cause(error)
        _report(" ".join(str(error).split()), "--json" in words)
        return error.exit_code
    except KeyboardInterrupt:
        _report("interrupted", "--json" in words)
        return _INTERRUPTED
    except SystemExit as stop:  # argparse after --help
        return stop.code if isinstance(stop.code, int) else 0


def _prepare_streams() -> None:
    """A character that the terminal's encoding lacks must not end a run; neither must SIGTERM skip the clean-up that Ctrl-C gets."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, signal.default_int_handler)


def _show_cause(error: BaseException) -> None:
    """Where a plugin's own code failed, its traceback, above the sentence that names the plugin."""
    if getattr(error, "exit_code", 1) == 1 and error.__cause__ is not None:
        import traceback

        traceback.print_exception(error.__cause__)


def _report(sentence: str, as_json: bool) -> None:
    print(f"error: {sentence}", file=sys.stderr)
    if as_json:
        print(json.dumps({"error": sentence}, ensure_ascii=False))


def _run(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(_help())
        return 0
    if words[0] in ("-V", "--version"):
        from rlcore import __version__

        print(f"rlcore {__version__}")
        return 0
    if words[:2] == ["show", "config"]:
        return int(import_module("rlcore.cli.show_config").run(words[2:]))
    return _command(words[0], words[1:])


def _command(name: str, words: list[str]) -> int:
    from rlcore.cli.parser import Parser
    from rlcore.errors import UsageError

    if name not in COMMANDS:
        from rlcore.blame import closest

        raise UsageError(f"{name} is not a command of rlcore{closest(name, COMMANDS)}; type rlcore --help for the list")
    commands = Parser(prog="rlcore").add_subparsers(parser_class=Parser)
    import_module(f"rlcore.cli.{name}").add_parser(commands)
    args = commands.choices[name].parse_args(words)
    return int(args.func(args) or 0)


def _help() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}   {text}" for name, text in COMMANDS.items()]
    return "\n".join(
        [
            "usage: rlcore COMMAND …",
            "",
            "Reinforcement learning of language models on verifiable rewards.",
            "",
            *lines,
            "",
            "rlcore COMMAND --help says more; rlcore --version names the version.",
        ]
    )
