"""The base class of the commands of the ``rlcore`` command line."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

__all__ = ["Command"]


class Command(ABC):
    """A command of the ``rlcore`` command line.

    rlcore creates the command without arguments when the user types it. It then calls ``add_arguments`` and ``run`` once each.

    An error of ``rlcore.api`` ends the command with its message and exit code. Any other exception is a defect of the plugin: the user sees
    its traceback and a sentence that names the plugin.
    """

    @abstractmethod
    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments that users can type after ``rlcore NAME``.

        Set ``parser.usage``, ``description`` and ``epilog`` if argparse's own texts are poor.

        :param parser: an ``rlcore.api.commands.Parser``. Its errors are one sentence with exit code 2. ``rlcore NAME --help`` calls this
            method too, so do not import anything here that takes long.
        """

    @abstractmethod
    def run(self, args: argparse.Namespace) -> int:
        """Do the work and return the exit code: 0 success, 1 failure, 2 unusable arguments, 130 interrupted.

        :param args: the parsed arguments, by the names of ``add_arguments``. ``args.registry`` is the ``Registry`` of the installed
            plugins.
        """
