"""Later calls of an episode find their context in the prefix cache, up to whole blocks."""

from __future__ import annotations

import pytest

from rlcore.testing import update_engine

BLOCK, EPISODES, TURNS = 32, 4, 6


@pytest.mark.parametrize("own_process", [False, True])
def test_later_turns_hit_the_prefix_cache(own_process, backend, ask, answered, snapshot, record_property):
    """Episodes of six turns, all at once. Each turn adds 40 tokens: those of its answer, and of a tool."""
    engine = backend(max_tokens=512, endless=True, own_process=own_process, engine={"block_size": BLOCK})
    driver = engine._driver
    contexts = {episode: [3 + (place * (episode + 1)) % 37 for place in range(100)] for episode in range(EPISODES)}
    for turn in range(TURNS):
        requests = [
            ask(f"e{episode}-{turn}", context, noise=episode + (turn << 32), max_new_tokens=20) for episode, context in contexts.items()
        ]
        before, answers = driver.cached_tokens, answered(engine, requests)
        # The keys and values of the last sampled token were never computed.
        due = sum((len(context) - 20 - 1) // BLOCK * BLOCK for context in contexts.values()) if turn else 0
        assert driver.cached_tokens - before == due
        for episode, context in contexts.items():
            context += [*answers[f"e{episode}-{turn}"].token_ids.tolist(), *[5 + (episode + turn + place) % 31 for place in range(20)]]
    assert driver.context_tokens == EPISODES * sum(100 + 40 * turn for turn in range(TURNS))
    share = driver.cached_tokens / driver.context_tokens
    record_property("share", share)
    print(f"share of the context that the prefix cache had: {share:.3f}")
    assert share > 0.7
    update_engine(engine, snapshot(1))
    before = driver.cached_tokens
    answered(engine, [ask("after", contexts[0][:300], max_new_tokens=2)])
    assert driver.cached_tokens == before  # keys and values of the old weights are gone
