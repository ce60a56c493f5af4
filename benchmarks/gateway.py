"""`make bench-gateway`: what a gateway process costs a call, with 64, 256 and 512 episodes of six turns at the same time.

The gateway process is that of a run, with its channel to a producer. The producer is here, with an engine that only waits. The agents are
programs with a real HTTP client; their CPU time does not count. Then the same turns after a history of 3,000 and of 34,000 tokens: the
agents send it whole with each call. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np
import psutil
from rlcore_gateway.gateway import GatewaySettings
from rlcore_gateway.ledger import EpisodeLimits
from rlcore_gateway.link import LinkedEpisode
from rlcore_gateway.link_messages import GatewaySetup
from rlcore_gateway.links import GatewayLinks
from rlcore_gateway.worker_process import WorkerCommand

from rlcore.api import Completion, FinishReason
from rlcore.testing import ChatTokenizer

LIMITS = EpisodeLimits(tokens=1 << 20, context=1 << 20)
SENTENCE = "guess the number is higher or lower than what you said before because it has two digits and the first one is odd"
HINT = " ".join([SENTENCE] * 3)
ANSWER = SENTENCE[:60]
TEMPLATE = """\
{%- for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""


def make_tokenizer() -> ChatTokenizer:
    """A byte-level BPE with one token a word, and the template of ChatML."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    fast = Tokenizer(models.BPE())
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=600, special_tokens=["<|im_start|>", "<|im_end|>"], initial_alphabet=alphabet, show_progress=False
    )
    fast.train_from_iterator([" " + SENTENCE] * 9, trainer)
    wrapped = PreTrainedTokenizerFast(tokenizer_object=fast, eos_token="<|im_end|>")
    wrapped.chat_template = TEMPLATE
    return ChatTokenizer(wrapped)


class StubProducer:
    """Owns the gateway processes, and answers each call after some seconds, without computing.

    :param seconds: of the engine, on average.
    """

    def __init__(self, gateways: int, agents: int, seconds: float) -> None:
        tokenizer = make_tokenizer()
        self._seconds, self._random = seconds, random.Random(0)
        self._ids = np.array([*tokenizer.encode(ANSWER), *tokenizer.stop_ids], np.int32)
        root = Path(__file__).parent.parent
        command = WorkerCommand(argv=(sys.executable, "-m", "benchmarks.gateway_agent"), cwd=str(root), episodes=-(-512 // agents))
        setup = GatewaySetup(tokenizer=tokenizer, settings=GatewaySettings(), command=command, workers=agents, deadline=3600.0)
        self._links = GatewayLinks("bench", setup, print, count=gateways)
        self._links.start()
        self.play([row("warm")] * agents)
        self.processes = [self._process(link) for link in self._links.links]

    @staticmethod
    def _process(link: Any) -> psutil.Process:
        """The gateway process, which a guard starts."""
        guard = psutil.Process(link.process.pid)
        return next(one for one in guard.children() if any("rlcore_gateway.process" in word for word in one.cmdline()))

    @property
    def cpu_seconds(self) -> float:
        """The CPU time of the gateway processes, without their children."""
        times = [process.cpu_times() for process in self.processes]
        return float(sum(one.user + one.system for one in times))

    @property
    def megabytes(self) -> float:
        """Their memory."""
        return float(sum(process.memory_info().rss for process in self.processes)) / 1e6

    def play(self, rows: Sequence[Mapping[str, Any]]) -> list[LinkedEpisode]:
        """Play an episode for each row, all at the same time, and return them when all have ended."""
        news: SimpleQueue[int] = SimpleQueue()
        episodes = [self._links.open_episode(one, LIMITS, partial(news.put, number)) for number, one in enumerate(rows)]
        due: list[tuple[float, int, str]] = []
        while not all(episode.report for episode in episodes):
            self._answer_due(episodes, due)
            try:
                number = news.get(timeout=max(0.0, due[0][0] - time.monotonic()) if due else 1.0)
            except Empty:
                continue
            for ask in episodes[number].take():
                heapq.heappush(due, (time.monotonic() + self._random.uniform(0.5, 1.5) * self._seconds, number, ask.call))  # type: ignore[union-attr]
        assert all(episode.report.end.outcome == "ok" for episode in episodes if episode.report), episodes[0].report
        return episodes

    def _answer_due(self, episodes: Sequence[LinkedEpisode], due: list[tuple[float, int, str]]) -> None:
        while due and due[0][0] <= time.monotonic():
            _, number, call = heapq.heappop(due)
            ids = self._ids
            said = Completion(
                request_id=call, token_ids=ids, logprobs=np.zeros(len(ids)), versions=np.zeros(len(ids)), finish=FinishReason.STOP
            )
            episodes[number].answer(call, said)

    def close(self) -> None:
        """End the processes."""
        self._links.close()


def row(task: str, turns: int = 6, history: int = 0) -> dict[str, Any]:
    """A row of the agents: the turns, and the earlier messages, of about so many tokens together."""
    said = [{"role": "user", "content": HINT}, {"role": "assistant", "content": ANSWER}] * (history // 80)
    return {
        "messages": [{"role": "system", "content": f"play {task}"}, *said, {"role": "user", "content": "guess"}],
        "turns": turns,
        "hint": HINT,
    }


def measured(producer: StubProducer, rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Play, and return CPU milliseconds a call, the milliseconds of a call beyond the engine, and megabytes."""
    before, began = producer.cpu_seconds, time.monotonic()
    episodes = producer.play(rows)
    calls = sum(one["turns"] for one in rows)
    beyond = [value for episode in episodes if episode.report for value in episode.report.milliseconds]
    assert len(beyond) == calls, (len(beyond), calls)
    return {
        "cpu_ms": round(1000 * (producer.cpu_seconds - before) / calls, 2),
        "p50_ms": round(float(np.percentile(beyond, 50)), 1),
        "p99_ms": round(float(np.percentile(beyond, 99)), 1),
        "megabytes": round(producer.megabytes),
        "calls_per_second": round(calls / (time.monotonic() - began)),
    }


def histories(producer: StubProducer, lengths: Sequence[int], episodes: int, turns: int) -> dict[str, float]:
    """The CPU milliseconds of a call after a history of each length. The gateway has rendered the history before."""
    found = {}
    for length in lengths:
        rows = [row("long", turns, length)] * episodes
        producer.play([row("long", 1, length)])
        found[f"cpu_ms_at_{length}"] = measured(producer, rows)["cpu_ms"]
        print(f"after {length} tokens: {found[f'cpu_ms_at_{length}']} ms CPU a call", flush=True)
    first, last = (found[f"cpu_ms_at_{length}"] for length in (lengths[0], lengths[-1]))
    return {**found, "ratio": round(last / first, 2)}


def main() -> None:
    """Measure, and print a table and one JSON object."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--episodes", type=int, nargs="+", default=[64, 256, 512], metavar="N", help="at the same time [64 256 512]")
    words.add_argument("--gateways", type=int, default=1, metavar="N", help="gateway processes [1]")
    words.add_argument("--agents", type=int, default=4, metavar="N", help="processes that play [4]")
    words.add_argument("--seconds", type=float, default=4.0, metavar="S", help="of the engine for a call, on average [4]")
    words.add_argument("--histories", type=int, nargs="*", default=[3000, 34000], metavar="TOKENS", help="none: skip them [3000 34000]")
    given = words.parse_args()
    producer = StubProducer(given.gateways, max(given.agents, given.gateways), given.seconds)
    try:
        found: dict[str, Any] = {"gateways": given.gateways}
        print("| episodes | CPU a call | p50 | p99 | memory | calls a second |\n|---|---|---|---|---|---|")
        for count in given.episodes:
            got = found[f"episodes_{count}"] = measured(producer, [row(str(number)) for number in range(count)])
            shown = "{cpu_ms} ms | {p50_ms} ms | {p99_ms} ms | {megabytes} MB | {calls_per_second}".format(**got)
            print(f"| {count} | {shown} |", flush=True)
        if given.histories:
            print(f"\nhistories of {' and '.join(map(str, given.histories))} tokens …", flush=True)
            found["histories"] = histories(producer, given.histories, 32, 12)
    finally:
        producer.close()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
