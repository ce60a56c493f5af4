"""A game of two players for a tiny model: take one or two stones; whoever takes the last one wins. An illegal move loses."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["GAME", "STONES", "chat_of", "rows", "write_beginner"]

STONES = range(4, 9)
GAME = '''
import json
from pathlib import Path

from rlcore.api.environments import EpisodeResult


async def play(model, row):
    """Each player sees how many stones are left, in its own chat, and answers with how many it takes."""
    names = (row["begins"], "black" if row["begins"] == "white" else "white")
    left, chats = row["stones"], {name: [] for name in names}
    played, chances, best = 0, 0, 0
    while True:
        name, other = names[played % 2], names[(played + 1) % 2]
        chats[name].append({"role": "user", "content": str(left)})
        answer = await model.players[name].chat(chats[name], max_tokens=1)
        said = answer["content"] or ""
        chats[name].append({"role": "assistant", "content": said})
        played += 1
        take = int(said) if said in ("1", "2") and int(said) <= left else 0
        chances, best = chances + bool(left % 3), best + (take == left % 3 > 0)
        left -= take
        if not take or not left:
            break
    winner, loser = (name, other) if take else (other, name)
    if "log" in row:
        with Path(row["log"]).open("a") as log:
            log.write(json.dumps({"stones": row["stones"], "begins": row["begins"], "chats": chats}) + chr(10))
    return EpisodeResult(
        reward=float(winner == "white"),
        player_rewards={winner: 1.0, loser: -1.0},
        extra={"best_moves": best / max(1, chances), "legal": float(take > 0), "played": played},
    )


play.episodes_per_process = 128
'''
"""``best_moves``: the share of the moves that win for sure, of those where one exists."""


def rows(count: int, seed: int, **columns: Any) -> list[dict[str, Any]]:
    """Games that white and black begin in turn."""
    draw = random.Random(seed)
    begun = [(draw.choice(STONES), ("white", "black")[number % 2]) for number in range(count)]
    return [{"messages": [{"role": "user", "content": str(stones)}], "stones": stones, "begins": who, **columns} for stones, who in begun]


def chat_of(draw: random.Random) -> list[dict[str, str]]:
    """The chat of a player that moves at random, with a third of its moves replaced by the best one, against one that moves at random."""
    left, chat = draw.randrange(1, STONES.stop), list[dict[str, str]]()
    while left > 0:
        take = left % 3 if left % 3 and draw.random() < 1 / 3 else draw.randint(1, min(2, left))
        chat += [{"role": "user", "content": str(left)}, {"role": "assistant", "content": str(take)}]
        left -= take
        left -= draw.randint(1, min(2, left)) if left else 0
    return chat


def write_beginner(folder: Path, steps: int = 150) -> None:
    """Write the model of the quickstart, taught to move legally and nearly at random."""
    import torch
    from rlcore_plugin_quickstart.digits_tokenizer import VOCABULARY, build_tokenizer
    from rlcore_plugin_quickstart.warmstart import encode, new_model, save_model

    tokenizer, model, draw = build_tokenizer(), new_model(0), random.Random(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    chats: Sequence[Any] = [chat_of(draw) for _ in range(2048)]
    data = encode(chats, tokenizer)
    end = VOCABULARY.index("<|end|>")
    for step in range(steps):
        batch = data.take((torch.arange(64) + 64 * step).remainder(len(chats)).numpy())
        wanted = batch.answer[:, 1:] & (batch.ids[:, 1:] != end)  # a move is one token
        loss = torch.nn.functional.cross_entropy(model(batch.ids).logits[:, :-1][wanted], batch.ids[:, 1:][wanted])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    save_model(model, folder)
    tokenizer.save_pretrained(folder)
