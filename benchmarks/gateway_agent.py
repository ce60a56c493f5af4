"""The agents of `make bench-gateway`: a program of the environment, which plays many episodes at once with a real HTTP client."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from typing import Any

import httpx2


async def play(client: httpx2.AsyncClient, episode: Mapping[str, Any]) -> None:
    """Talk for as many turns as the row says, and answer the line."""
    row, headers = episode["row"], {"authorization": f"Bearer {episode['key']}"}
    messages = list(row["messages"])
    for _ in range(row["turns"]):
        answer = await client.post(
            f"{episode['base_url']}/chat/completions", json={"model": episode["model"], "messages": messages}, headers=headers
        )
        answer.raise_for_status()
        messages += [answer.json()["choices"][0]["message"], {"role": "user", "content": row["hint"]}]
    print(json.dumps({"episode": episode["episode"], "reward": 1.0}), flush=True)


async def main() -> None:
    """Play what comes in until the standard input ends."""
    reader = asyncio.StreamReader(limit=1 << 26)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx2.AsyncClient(timeout=None, limits=limits, trust_env=False) as client, asyncio.TaskGroup() as playing:
        while line := await reader.readline():
            if "row" in (told := json.loads(line)):
                playing.create_task(play(client, told))


if __name__ == "__main__":
    asyncio.run(main())
