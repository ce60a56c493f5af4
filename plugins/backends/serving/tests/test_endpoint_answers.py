"""Answers of several servers, some of which break: with fakes that speak as vLLM and SGLang do."""

from __future__ import annotations

import time
from dataclasses import replace

import fake_servers
import pytest
from fake_servers import drawn, weights
from rlcore_plugin_serving.partial_completions import NewTokens, seed_of

from rlcore.api import FinishReason, RunError, WeightsError
from rlcore.testing import update_engine

KINDS = pytest.mark.parametrize("kind", ["vllm", "sglang"])


def until_it_fails(engine) -> None:
    """Poll, for some seconds."""
    for _ in range(100):
        engine.poll(0.1)


def due(kind: str, number: int, tokens: int) -> list[int]:
    """What request r<number> draws, wherever it is asked, and however often."""
    start = 0 if kind == "vllm" else 2
    return [drawn(seed_of((0, 0, 0, number)), start + place) for place in range(tokens)]


@KINDS
def test_requests_are_spread_over_servers(kind, server, backend, ask, answered):
    servers = [server(kind=kind, pace=0.01), server(kind=kind, pace=0.01)]
    engine = backend(*servers)
    engine.submit(ask(8))
    found = answered(engine, 8)
    assert {name: completion.token_ids.tolist() for name, completion in found.items()} == {f"r{n}": due(kind, n, 20) for n in range(8)}
    assert [fake.most_running for fake in servers] == [4, 4]
    assert all((completion.versions == 0).all() for completion in found.values())


@KINDS
def test_all_turns_of_a_rollout_are_at_one_server(kind, server, backend, ask, answered):
    """Turns come one by one, while the other rollouts run tools: the number of requests alone would always name the first server."""
    servers = [server(kind=kind), server(kind=kind)]
    engine = backend(*servers)
    rollouts = ask(6, tokens=2)

    def placed(number: int, turn: int) -> int:
        before = [len(fake.answers) for fake in servers]
        noise = (0, 0, 0, number + (turn << 32))
        engine.submit([replace(rollouts[number], request_id=f"r{number}-{turn}", noise=noise)])
        answered(engine, 1)
        (place,) = (place for place, fake in enumerate(servers) if len(fake.answers) > before[place])
        return place

    places = [placed(number, 0) for number in range(6)]
    assert sorted(places) == [0, 0, 0, 1, 1, 1]
    for turn, order in enumerate(((5, 3, 1, 0, 2, 4), (0, 1, 2, 3, 4, 5)), start=1):
        assert [placed(number, turn) for number in order] == [places[number] for number in order]
    servers[0].stop()
    assert [placed(number, 3) for number in range(6)] == [1] * 6


@KINDS
def test_a_server_that_hangs_up_in_mid_answer_is_lost_and_others_go_on(kind, server, backend, ask, answered):
    broken, whole = server(kind=kind), server(kind=kind)
    engine = backend(broken, whole)
    broken.behaviour.break_after = 7
    engine.submit(ask(6))
    found = answered(engine, 6)
    assert {name: completion.token_ids.tolist() for name, completion in found.items()} == {f"r{n}": due(kind, n, 20) for n in range(6)}
    assert all(completion.finish is FinishReason.LENGTH for completion in found.values())
    assert all(count == 1 for fake in (broken, whole) for count in fake.answers.values())


@KINDS
def test_a_silent_server_is_lost(kind, server, backend, ask, answered):
    silent, whole = server(kind=kind), server(kind=kind)
    engine = backend(silent, whole, silence_seconds=0.5)
    silent.behaviour.silent_after = 3
    engine.submit(ask(4))
    assert {name: completion.token_ids.tolist() for name, completion in answered(engine, 4).items()} == {
        f"r{n}": due(kind, n, 20) for n in range(4)
    }


def test_a_paused_server_is_not_taken_for_silent(server, backend, ask, answered):
    fake = server(pace=0.01)
    engine = backend(fake, silence_seconds=0.4)
    engine.submit(ask(1))
    engine.poll(0.05)
    engine._served.pause()
    time.sleep(1.0)
    update_engine(engine, weights(1))
    assert len(answered(engine, 1)["r0"].token_ids) == 20


def test_without_a_server_the_producer_ends_and_the_sentence_names_each(server, backend, ask):
    servers = [server(pace=0.05), server(pace=0.05)]
    engine = backend(*servers)
    engine.submit(ask(4))
    engine.poll(0.1)
    for fake in servers:
        fake.stop()
    with pytest.raises(RunError, match=rf"no server .* is left .*{servers[0].port}: .*{servers[1].port}: "):
        until_it_fails(engine)
    with pytest.raises(RunError, match="is left"):
        engine.submit(ask(5)[4:])


@KINDS
def test_an_answer_of_weights_that_were_not_given_is_not_used(kind, server, backend, ask, answered):
    anew, whole = server(kind=kind), server(kind=kind)
    engine = backend(anew, whole)
    update_engine(engine, weights(1))
    anew.behaviour.label = "default"  # as if it had been started again between two requests
    engine.submit(ask(4))
    found = answered(engine, 4)
    assert all((completion.versions == 1).all() for completion in found.values())
    assert {name: completion.token_ids.tolist() for name, completion in found.items()} == {f"r{n}": due(kind, n, 20) for n in range(4)}
    assert [bool(fake.answers) for fake in (anew, whole)] == [True, True]
    engine.submit(ask(4))
    answered(engine, 4)
    assert engine._served._servers[0].why.startswith("it answers with weights 'default', but 'rlcore-")


@KINDS
def test_a_server_that_came_back_joins_at_the_next_update(kind, server, backend, ask, answered):
    lost, whole = server(kind=kind, pace=0.01), server(kind=kind, pace=0.01)
    engine = backend(lost, whole)
    engine.submit(ask(4))
    engine.poll(0.05)
    lost.stop()
    answered(engine, 4)
    lost.behaviour.label = "default"
    lost.start()
    update_engine(engine, weights(1))
    lost.most_running = 0
    engine.submit(ask(4))
    assert all((completion.versions == 1).all() for completion in answered(engine, 4).values())
    assert lost.most_running == 2


@KINDS
def test_requests_go_on_over_an_update(kind, server, backend, ask, answered):
    fake = server(kind=kind, pace=0.02)
    engine = backend(fake)
    engine.submit(ask(4, tokens=30))
    while fake.most_running < 4:
        engine.poll(0.02)
    for _ in range(6):
        engine.poll(0.02)
    update_engine(engine, weights(7))
    found = answered(engine, 4)
    for n in range(4):
        completion = found[f"r{n}"]
        assert completion.token_ids.tolist() == due(kind, n, 30)
        assert completion.finish is FinishReason.LENGTH
        assert sorted(set(completion.versions.tolist())) == [0, 7]
        assert completion.versions.tolist() == sorted(completion.versions.tolist())


@KINDS
def test_a_cancelled_request_keeps_the_tokens_that_its_server_proves(kind, server, backend, ask, answered):
    engine = backend(server(kind=kind, pace=0.02))
    engine.submit(ask(2, tokens=200))
    engine.poll(0.2)
    engine.cancel(["r1"])
    completion = answered(engine, 1)["r1"]
    assert completion.finish is FinishReason.ABORTED
    assert 0 < len(completion.token_ids) < 200
    assert len(completion.versions) == len(completion.token_ids)


def test_a_request_whose_last_token_comes_before_its_cancellation_comes_back_as_aborted(server, backend, ask, answered, monkeypatch):
    engine = backend(server())
    engine.submit(ask(1, tokens=4))
    parts = []
    while not any(part.finish for part in parts):
        parts += engine._engine.take(1.0)
    monkeypatch.setattr(engine._engine, "abort", lambda names: parts)
    engine.cancel(["r0"])
    completion = answered(engine, 1)["r0"]
    assert completion.finish is FinishReason.ABORTED
    assert completion.token_ids.tolist() == due("vllm", 0, 4)


def test_requests_beyond_the_connections_wait_and_can_be_cancelled(server, backend, ask, answered):
    fake = server(pace=0.02)
    engine = backend(fake, connections=2)
    engine.submit(ask(6))
    engine.poll(0.1)
    engine.cancel(["r5"])
    found = answered(engine, 6)
    assert fake.most_running == 2
    assert found["r5"].finish is FinishReason.ABORTED
    assert not len(found["r5"].token_ids)
    assert len(fake.answers) == 5 + 7, "the five others, and seven looks when it was met"


def test_a_stop_string_that_a_lost_server_said_is_said_again(server, backend, ask, answered):
    broken, whole = server(pace=0.01), server(pace=0.01)
    engine = backend(broken, whole)
    text = engine._context.tokenizer.decode(due("vllm", 0, 6))
    requests = ask(1, tokens=20, stop=(text[-3:],))
    engine.submit(requests)
    asked = broken if broken.running else whole
    asked.behaviour.break_after = 6
    completion = answered(engine, 1)["r0"]
    assert completion.finish is FinishReason.STOP
    assert text[-3:] in engine._context.tokenizer.decode(completion.token_ids.tolist())


def test_a_stop_string_that_is_withdrawn_before_its_drop_arrives_is_asked_for_again(server, backend, ask, answered, monkeypatch):
    """The server breaks off after the stop string; the next server has sent a first token when the drop reaches it."""
    engine = backend(server(pace=0.01))
    tokens = due("vllm", 0, 6)
    stop = engine._context.tokenizer.decode(tokens)[-3:]

    def abort(names: list[str]) -> list[NewTokens]:
        monkeypatch.undo()
        return [
            NewTokens("r0", withdrawn=True),
            NewTokens("r0", tokens[:1], [-1.0]),
            NewTokens("r0", versions=[0], finish="abort"),
        ]

    monkeypatch.setattr(engine._engine, "abort", abort)
    monkeypatch.setattr(engine._engine, "add", lambda asks: None)
    engine.submit(ask(1, stop=(stop,)))
    engine._add([NewTokens("r0", tokens, [-1.0] * 6)])
    completion = answered(engine, 1)["r0"]
    assert completion.finish is FinishReason.STOP
    assert stop in engine._context.tokenizer.decode(completion.token_ids.tolist())


def test_a_stop_string_is_asked_for_again_if_its_server_breaks_off_while_it_is_dropped(server, backend, ask, answered):
    servers = [server(pace=0.01), server(pace=0.01)]
    engine = backend(*servers)
    text = engine._context.tokenizer.decode(due("vllm", 0, 6))
    servers[0].behaviour.break_on_drop = True
    engine.submit(ask(1, stop=(text[-3:],)))
    assert servers[0].address == engine._served._servers[0].address
    completion = answered(engine, 1)["r0"]
    assert completion.finish is FinishReason.STOP
    assert completion.token_ids.tolist() == due("vllm", 0, len(completion.token_ids))
    assert [known.healthy for known in engine._served._servers] == [False, True]


def test_score_names_a_server_that_computes_otherwise(server, backend):
    one, other = server(), server()
    engine = backend(one, other)
    assert engine.score([3, 4, 5]).tolist() == [-1.5, -1.5]
    other.behaviour.score = -1.6
    with pytest.raises(WeightsError, match=f"{other.port} serves version 0 as .*{one.port} does, but .* differ by 0.1 nats"):
        engine.score([3, 4, 5])
    other.behaviour.dtype = "bfloat16"


def test_log_probabilities_that_are_no_numbers_end_the_producer(server, backend, ask, monkeypatch):
    engine = backend(server())
    monkeypatch.setitem(fake_servers._VLLM, "/inference/v1/generate", _broken_logits)
    engine.submit(ask(1))
    with pytest.raises(RunError, match="not finite"):
        until_it_fails(engine)


def _broken_logits(fake, body):
    choice = {
        "token_ids": [4],
        "logprobs": {"content": [{"token_id": 4, "logprob": -9999.0}]},
        "finish_reason": "length",
        "weight_versions": [{"version": "default", "start": 0, "end": 1}],
    }
    return lambda: iter([{"choices": [choice]}])
