"""The flags of ``rlcore score`` and ``audit`` change only on purpose: every spelling that users' scripts rely on."""

from __future__ import annotations

import pytest
from rlcore_plugin_tools.score.audit_command import AuditCommand
from rlcore_plugin_tools.score.score_command import ScoreCommand

from rlcore.api.commands import Command, Parser

OF_SCORE = (
    "--against --against-option --against_option --columns --config --data-format --data_format --deadline --dry-run --dry_run --help "
    "--json --limit --option --out --resume --reward --reward-deadline --strict --workers -h -n"
)
OF_AUDIT = "--all --columns --data --data-format --data_format --deadline --help --json --option --reward --reward-deadline --workers -h"


@pytest.mark.parametrize(("command", "flags"), [(ScoreCommand, OF_SCORE), (AuditCommand, OF_AUDIT)], ids=["score", "audit"])
def test_the_flags_of_the_commands_about_rewards(command: type[Command], flags: str) -> None:
    parser = Parser()
    command().add_arguments(parser)
    assert sorted(parser._option_string_actions) == flags.split()
