"""The producer's end of a gateway process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlcore_gateway import guard
from rlcore_gateway import link as module
from rlcore_gateway.gateway import Ask, GatewaySettings
from rlcore_gateway.ledger import EpisodeLimits
from rlcore_gateway.link import GatewayLink, LinkedEpisode
from rlcore_gateway.link_messages import GatewaySetup
from rlcore_gateway.links import shares
from rlcore_gateway.worker_process import WorkerCommand

from rlcore.testing import FakeTokenizer


def test_an_episode_runs_tools_until_its_next_call() -> None:
    woken: list[bool] = []
    link: Any = None
    episode = LinkedEpisode(link, "e", {}, EpisodeLimits(tokens=9, context=9), lambda: woken.append(episode.tools))
    ask = Ask(episode="e", call="c", context_ids=np.ones(1, np.int32), max_new_tokens=1, stop=(), noise=0)
    episode.asked(ask)
    episode.called_tools()
    episode.asked(ask)
    assert woken == [False, True, False]


def test_a_link_that_is_closed_while_its_process_starts_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    command = WorkerCommand(argv=(sys.executable, "-c", ""))
    setup = GatewaySetup(
        tokenizer=FakeTokenizer("a"), settings=GatewaySettings(), command=command, workers=1, deadline=9.0, cancel_seconds=1.0
    )
    link = GatewayLink("producer-0", setup, lambda text: None)
    real = module.Channel.of

    async def of(end: Any) -> Any:
        link._leave()  # as a call of close does that comes now
        return await real(end)

    monkeypatch.setattr(module.Channel, "of", of)
    link.start()
    link._thread.join(60)
    assert not link._thread.is_alive()
    assert link.process is not None
    assert link.process.poll() is not None


def test_a_guard_ends_with_the_status_of_its_command_even_if_its_lifeline_is_closed_at_the_same_time() -> None:
    reading, lifeline = os.pipe()
    os.close(lifeline)
    words = [str(reading), str(os.getpid()), "0", sys.executable, "-c", "import time; time.sleep(600)"]
    with subprocess.Popen(
        [sys.executable, guard.__file__, *words], pass_fds=[reading], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        os.close(reading)
        assert process.wait(60) == 256 - signal.SIGKILL
        assert module.ProcessTail(process).ending() == "was killed by signal 9 (Killed)"


@given(count=st.integers(1, 40), more=st.integers(0, 200))
def test_gateways_share_all_workers_evenly(count: int, more: int) -> None:
    found = shares(count + more, count)
    assert len(found) == count
    assert sum(found) == count + more
    assert 1 <= min(found) >= max(found) - 1
