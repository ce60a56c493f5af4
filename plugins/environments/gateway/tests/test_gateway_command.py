"""``rlcore gateway``: its rules, its engine's thread, and a real model behind it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import openai
import pytest
from rlcore_gateway import rlcore_register_commands
from rlcore_gateway.engine_thread import EngineThread
from rlcore_gateway.gateway import Ask

from rlcore.api import InferenceContext, RunError, Sampling
from rlcore.testing import FakeInference, FakeTokenizer, RunTester, check_command, write_fake_model
from rlcore.testing.run_tester import PROGRAM, QUIET
from tests.letters_model import write_model

FAKE = FakeTokenizer()


def test_the_command_conforms(tmp_path: Path) -> None:
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    tester.fake_run()
    (spec,) = rlcore_register_commands()
    check_command(spec, tester, "run.toml", "--dry-run")


def test_a_wrong_call_is_refused_in_one_sentence(tmp_path: Path) -> None:
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    tester.run("gateway").assert_refused("no model is given: type --model")
    tester.run("gateway", "--model", "nowhere").assert_refused("model nowhere is not found here")
    tester.run("gateway", "--model", "nowhere", "--port", "70000").assert_refused("70000", "not a port")
    tester.run("gateway", "--model", "nowhere", "--history", "all").assert_refused("'all' is not a valid history", "as_sampled")


def test_the_file_of_a_run_with_an_environment_is_served(tmp_path: Path) -> None:
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    written = Path(tester.fake_run(sampling={"environment": "./game.py:play", "options": {"deadline": 9.0}}))
    written.write_text(written.read_text().replace('{ name = "fake" }', '{ name = "environment" }'))
    tester.run("gateway", str(written), "--dry-run").assert_ok()


def engine_in(folder: Path) -> FakeInference:
    model = write_fake_model(folder)
    return FakeInference(InferenceContext(model=str(model), tokenizer=FAKE, prompts_per_forward=4, max_tokens=200))


def ask(name: str, most: int = 5) -> Ask:
    return Ask(episode="game", call=name, context_ids=np.array([3, 22, 4], np.int32), max_new_tokens=most, stop=(), noise=int(name))


def test_the_thread_answers_calls_that_are_open_together(tmp_path: Path) -> None:
    async def run() -> None:
        thread = EngineThread(engine_in(tmp_path), Sampling())
        thread.start()
        done = await asyncio.gather(*(thread.generate(ask(str(number))) for number in range(6)))
        again = await thread.generate(ask("3"))
        thread.stop()
        assert [one.request_id for one in done] == [str(number) for number in range(6)]
        np.testing.assert_array_equal(again.token_ids, done[3].token_ids)  # the same stream, the same draw
        assert len({tuple(one.token_ids.tolist()) for one in done}) > 1

    asyncio.run(run())


def test_a_call_that_is_cancelled_is_cancelled_in_the_engine(tmp_path: Path) -> None:
    engine, cancelled = engine_in(tmp_path), []
    engine.poll = lambda timeout: []  # type: ignore[method-assign]  # never done
    engine.cancel = cancelled.extend  # type: ignore[method-assign]

    async def run() -> None:
        thread = EngineThread(engine, Sampling())
        thread.start()
        task = asyncio.ensure_future(thread.generate(ask("1")))
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait([task])
        thread.stop()
        assert cancelled == ["1"]

    asyncio.run(run())


def test_an_engine_that_fails_ends_every_call(tmp_path: Path) -> None:
    engine = engine_in(tmp_path)

    def broken(timeout: float) -> list[Any]:
        raise OSError("device lost")

    engine.poll = broken  # type: ignore[method-assign]

    async def run() -> None:
        thread = EngineThread(engine, Sampling())
        thread.start()
        for number in ("1", "2"):
            with pytest.raises(RunError, match="the engine has failed: OSError: device lost"):
                await thread.generate(ask(number))
        thread.stop()

    asyncio.run(run())


def test_a_real_model_is_served_until_ctrl_c(tmp_path: Path) -> None:
    """As a process, because it ends by a signal."""
    write_model(tmp_path / "model")
    words = ("gateway", "--model", "model", "--backend", "transformers", "--json", "--max-context-tokens", "100")
    environment = {**os.environ, **QUIET}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *words], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as serving:
        try:
            assert serving.stdout is not None
            told = json.loads(next(line for line in serving.stdout if line.startswith("{")))
            with openai.OpenAI(base_url=told["base_url"], api_key=told["api_key"]) as client:
                messages: list[Any] = [{"role": "user", "content": "abc"}]
                for _ in range(2):
                    answer = client.chat.completions.create(model="m", messages=messages, max_tokens=4)
                    assert 1 <= answer.usage.completion_tokens <= 4
                    messages += [{"role": "assistant", "content": answer.choices[0].message.content}, messages[0]]
            body = {"model": "m", "max_tokens": 4, "messages": messages}
            said = httpx2.post(f"{told['anthropic_base_url']}/v1/messages", json=body, headers={"x-api-key": told["api_key"]}, timeout=60)
            assert said.json()["content"]
            page = httpx2.get(told["page"])
            assert page.status_code == 200
            assert answer.id in page.text
            assert len(re.findall('class="answer"', page.text)) == 3
            assert httpx2.get(told["page"] + "x").status_code == 401
            serving.send_signal(signal.SIGINT)
            _, err = serving.communicate(timeout=60)
        finally:
            serving.kill()
    assert (serving.returncode, err) == (0, "")
