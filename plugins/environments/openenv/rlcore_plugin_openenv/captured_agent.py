"""An agent with a loop of its own: it talks to the capture server of openenv, whose record is compared with the ledger."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import secrets
import socket
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import uvicorn
from openenv.core.harness.capture import CaptureServer, to_training_trace
from openenv.core.harness.capture.export import export_session

from rlcore.api import InfrastructureError
from rlcore.api.environments import EpisodeResult, Model

__all__ = ["play_captured"]

_EVERY = 0.02
_ENDING = 10.0


async def play_captured(agent: Callable[..., Any], model: Model, row: Mapping[str, Any], server: str) -> EpisodeResult:
    """Let an agent play; its reward is what it returns, None for none.

    The capture server keeps one session an episode. Its other routes need a secret key.
    """
    capture = CaptureServer(
        llm_url=model.base_url,
        model=model.name,
        api_key=model.api_key,
        admin_key=secrets.token_hex(16),
        max_output_tokens=0,
    )
    session = capture.registry.create()
    async with _served(capture.app) as address:
        words = {"base_url": f"{address}/v1", "api_key": session.session_id, "model": model.name}
        if inspect.iscoroutinefunction(agent):
            reward = await agent(**words, row=row, server=server)
        else:
            reward = await asyncio.to_thread(agent, **words, row=row, server=server)
    nodes = session.graph.nodes()
    try:
        trace = to_training_trace(session.graph, export_session(session, include_messages=True))
    except ValueError as error:
        raise InfrastructureError(f"openenv refuses its own record of this episode: {error}") from None
    trained = sum(sum(turn.loss_mask) for turn in trace.turns)
    return EpisodeResult(
        reward=None if reward is None else float(reward),
        sampled=[list(node.sampled_ids) for node in nodes],
        extra={"steps": len(nodes), "trace_turns": len(trace.turns), "trace_tokens": trained},
    )


@contextlib.asynccontextmanager
async def _served(app: Any) -> AsyncIterator[str]:
    """Serve an app in a thread, and yield its address. ``CaptureServer.start`` would listen at all addresses of this machine."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        try:
            while not server.started:
                if not thread.is_alive():
                    raise InfrastructureError("the capture server of openenv ended while it started")
                await asyncio.sleep(_EVERY)
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            await asyncio.to_thread(thread.join, _ENDING)
