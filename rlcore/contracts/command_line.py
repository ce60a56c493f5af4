"""What a command of the ``rlcore`` command line implements."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

__all__ = ["Command"]


class Command(ABC):
    """A command of the ``rlcore`` command line. It is made without arguments when it is typed; then ``add_arguments`` and ``run`` are
    called, once each.

    An error of ``rlcore.api`` ends the command with its sentence and exit code. Any other exception is a defect of the plugin: the user
    sees its traceback and a sentence that names the plugin.
    """

    @abstractmethod
    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add what can be typed after ``rlcore NAME``; set ``parser.usage``, ``description`` and ``epilog`` where argparse's own are poor.

        :param parser: ``rlcore.api.commands.Parser``, whose errors are one sentence and exit code 2. ``rlcore NAME --help`` calls this
            too, so import nothing here that takes long.
        """

    @abstractmethod
    def run(self, args: argparse.Namespace) -> int:
        """Do the work and return the exit code: 0 fine, 1 failed, 2 what was typed cannot work, 130 interrupted.

        :param args: what was typed, by the names of ``add_arguments``; ``args.registry`` is the ``Registry`` of what is installed.
        """
