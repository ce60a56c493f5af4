"""The hostile corpus through the engine: each row gets a verdict, and the engine is afterwards what it was before, process by process."""

from __future__ import annotations

import os
import time

import pytest
from rlcore_plugin_code import rlcore_register_rewards
from rlcore_plugin_code.audit import cases, corpus
from rlcore_plugin_code.options import CodeOptions

from rlcore.api import Message, Outcome, Prompt, Rollout, Segment
from rlcore.api.sandbox import SandboxOptions
from rlcore.testing import Judge, RewardEntry
from tests.levels import LEVELS, need

CASES = {case.name: case for case in cases()}
HOSTILE = [row["name"] for row in corpus("code_hostile") if row["name"] in CASES]
WORKERS = 2
OF_A_JAIL = {"namespaces": 3, "landlock": 1}  # processes of an idle one: bubblewrap, its init and the zygote; the zygote alone


def ask(judge, names):
    """name -> score; each name a group of its own."""
    for key, name in enumerate(names):
        case = CASES[name]
        prompt = Prompt(prompt_id=name, index=key, messages=(Message(role="user", content="?"),), columns=case.columns)
        segment = Segment(context_ids=[1], token_ids=[2], logprobs=[0.0], versions=[0], policy_mask=[True])
        judge.submit(key, prompt, [Rollout(prompt_id=name, index=0, segments=(segment,), text=case.text, finish=case.finish)])
    scores, limit = {}, time.monotonic() + 240
    while len(scores) < len(names) and time.monotonic() < limit:
        scores |= {names[key]: of[0] for key, of in judge.poll(5.0)}
    return scores


def below(pid, children, others=frozenset()):
    """All processes that descend from this one, but for its children among the ``others``."""
    return {found for child in set(children(pid)) - others for found in (child, *below(child, children))}


def settled(state, wanted):
    """``state()``, once it is what is wanted or a minute is over: a process takes a moment to come and to be gone."""
    limit = time.monotonic() + 60
    while state() != wanted and time.monotonic() < limit:
        time.sleep(0.05)
    return state()


def idle(state, processes):
    """``state()``, once it names so many processes and has stayed the same for 2 s, or a minute is over.

    The last worker may still be opening its jail, with processes that are there for a moment only.
    """
    limit = time.monotonic() + 60
    seen, since = state(), time.monotonic()
    while time.monotonic() < limit and (len(seen[1]) != processes or time.monotonic() - since < 2):
        time.sleep(0.05)
        if (now := state()) != seen:
            seen, since = now, time.monotonic()
    return seen


@pytest.mark.full
@pytest.mark.parametrize("level", LEVELS)
def test_the_hostile_corpus_leaves_the_engine_as_it_was(level, mark, children):
    need(level)
    spec = next(spec for spec in rlcore_register_rewards() if spec.name == "code")
    options = CodeOptions(
        cpu_seconds=1,
        wall_seconds=2,
        memory_mb=512,
        max_program_chars=1_000_000,
        sandbox=SandboxOptions(level=level, readable=(mark.folder,)),
    )

    def state():
        """Workers, everything below them, and this test's jails wherever they hang in the process tree."""
        return set(children(os.getpid())) - others, below(os.getpid(), children, others), mark.processes()

    others = frozenset(children(os.getpid()))
    with Judge([RewardEntry(name="code", spec=spec, deadline=30.0, options=options)], workers=WORKERS) as judge:
        assert all(score.outcome is Outcome.OK for score in ask(judge, ["add_ok"]).values())
        full = WORKERS * (1 + OF_A_JAIL[level])
        before = idle(state, full)
        assert (len(before[0]), len(before[1])) == (WORKERS, full)
        scores = ask(judge, HOSTILE)
        assert settled(state, before) == before
        assert all(score.outcome is Outcome.OK for score in ask(judge, ["add_ok"]).values())
    assert set(scores) == set(HOSTILE)
    assert [name for name, score in scores.items() if not score.outcome.judged] == []
    assert [name for name, score in scores.items() if CASES[name].accept is False and score.outcome is Outcome.OK] == []
    assert settled(mark.processes, set()) == set()
