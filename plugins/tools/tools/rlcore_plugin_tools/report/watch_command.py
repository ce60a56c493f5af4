"""``rlcore watch RUN``: the page of ``rlcore report`` on this machine, live, until Ctrl-C."""

from __future__ import annotations

import argparse
from pathlib import Path

from rlcore.api.commands import Command, ExampleFormatter
from rlcore_plugin_tools.report.report_command import add_bounds

__all__ = ["WatchCommand"]

_TEXT = """\
Show a run in the browser while it continues: the page of rlcore report, which follows the run and keeps your position. It is served
only on this machine, at an address with a token: keep it secret, since it lets anybody read the run. From another machine, forward
the port: ssh -L PORT:127.0.0.1:PORT HOST. Ctrl-C ends it; the run continues.
"""
_EPILOG = """\
examples:
  rlcore watch runs/rlcore/20260131-120000-3f2a1b
  rlcore watch runs/rlcore/20260131-120000-3f2a1b --port 8321
"""


class WatchCommand(Command):
    """The command ``rlcore watch``."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the runs, the port and the size limits."""
        parser.usage = "rlcore watch RUN [RUN …] [--port PORT] [--rollouts N] [--characters N]"
        parser.description = _TEXT
        parser.epilog = _EPILOG
        parser.formatter_class = ExampleFormatter
        parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="a run folder")
        parser.add_argument("--port", type=_port, default=0, metavar="PORT", help="a port of this machine [one that is free]")
        add_bounds(parser, rollouts=2_000)

    def run(self, args: argparse.Namespace) -> int:
        """Serve until Ctrl-C."""
        from rlcore_plugin_tools.report.page_server import PageServer
        from rlcore_plugin_tools.report.report_content import Bounds, ReportContent

        with PageServer(ReportContent(args.runs, Bounds(args.rollouts, args.characters)), args.port) as server:
            print(f"watching at {server.url} (Ctrl-C ends it; the run continues)", flush=True)
            try:
                server.serve_forever()
            except KeyboardInterrupt:
                print()
        return 0


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 1 << 16:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port from 1 to 65535")
    return int(text)
