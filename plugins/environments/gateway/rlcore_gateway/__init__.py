"""The gateway: programs talk to the policy as to an OpenAI model, and the gateway keeps the tokens of each episode.

``gateway.Gateway`` is the HTTP application, ``server.GatewayServer`` serves it, and ``ledger.EpisodeLedger`` holds the calls of an episode.
This module only registers the command.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlcore.api import CommandSpec, hookimpl

rlcore_api = "2.0"


@hookimpl
def rlcore_register_commands() -> Sequence[CommandSpec]:
    """Offer the command ``gateway``."""
    return [
        CommandSpec(
            name="gateway",
            target="rlcore_gateway.gateway_command:GatewayCommand",
            summary="serve a model to an agent without training, with a page that shows the ledger",
            position=45,
        )
    ]
