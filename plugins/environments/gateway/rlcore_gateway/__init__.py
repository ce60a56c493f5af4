"""The gateway: programs talk to the policy as to an OpenAI model, and the gateway keeps the tokens of each episode.

``gateway.Gateway`` is the HTTP application, ``server.GatewayServer`` serves it, and ``ledger.EpisodeLedger`` holds the calls of an episode.
This module only registers the command.
"""

from __future__ import annotations

rlcore_api = "2.0"
