"""Prompts that ask for one mark of an answer under a reward that reads another, and prompts that only look like it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from rlcore_plugin_math.answer_marks import asked_marks, notes

from rlcore.api import Message, Prompt


def remarks(texts: list[str], *ways: str, system: str | None = None, route: str | None = None) -> list[str]:
    prompts = [
        Prompt(prompt_id=str(at), index=at, messages=(Message(role="user", content=text),), columns={}, reward=route)
        for at, text in enumerate(texts)
    ]
    entry = SimpleNamespace(name="boxed", options={"extract": {"by": ways}} if ways else {})
    other = SimpleNamespace(name="another", options={})
    return list(notes(SimpleNamespace(rewards=(other, entry), data=SimpleNamespace(system_prompt=system)), {"train": prompts}))


@pytest.mark.parametrize(
    ("text", "mark"),
    [
        ('7 * 8? Think, and write the answer after "####".', "hashes"),
        ("7 * 8? End with the result as #### <number>.", "hashes"),
        ("Q: 1 + 1?\nThat is two. #### 2\nQ: 7 * 8?", "hashes"),
        ("The last line of your response should be of the form Answer: $Answer (without quotes).\n\n7 * 8?", "answer_line"),
        ('7 * 8? Remember to put your answer on its own line after "Answer:".', "answer_line"),
        ("7 * 8? Finish with **Answer:** and the number.", "answer_line"),
        ("7 * 8? Reply inside <answer> </answer>.", "answer_tags"),
        (r"7 * 8? Put it within \boxed{}.", "boxed"),
        ("7 * 8? Put it within boxed{}.", "boxed"),
        (r"7 * 8? Frame it with \fbox.", "boxed"),
    ],
)
def test_a_prompt_asks_for_a_mark(text: str, mark: str) -> None:
    assert asked_marks(text) == {mark}


@pytest.mark.parametrize(
    "text",
    [
        "7 * 8?",
        "#### Problem 3\nWhat is 7 * 8?",
        "Answer the question.\n\n##### Notes\n7 * 8?",
        "Q: 7 * 8?\nAnswer:",
        "Answer: is it 5 or 6?",
        "The answerer: a story. How long is it?",
        "Which answers are right?",
        "A boxed set of 3 games costs 5.",
    ],
)
def test_near_misses_ask_for_nothing(text: str) -> None:
    assert asked_marks(text) == frozenset()


HASHES = 'Write the answer after "####".'


def test_the_remark_counts_and_says_what_to_type() -> None:
    (said,) = remarks([HASHES, "7 * 8?", HASHES], "boxed")
    assert said == (
        r"train: 2 of 3 prompts ask for an answer with ####, and the reward boxed reads only \boxed{}, so such answers are malformed; to "
        'read what the prompts ask for, type --rewards.boxed.extract \'{"by": ["hashes"]}\' -s ""'
    )
    (own_prompt,) = remarks([HASHES], "boxed", system="Think.")
    assert own_prompt.endswith("""type --rewards.boxed.extract '{"by": ["hashes"]}'""")


def test_every_mark_that_prompts_ask_for_is_counted_and_offered() -> None:
    (said,) = remarks([HASHES, "End with Answer: 5.", "End with Answer: 6.", "7?"], "boxed")
    assert "2 of 4 prompts ask for an answer with Answer:, 1 with ####, and the reward" in said
    assert '{"by": ["answer_line", "hashes"]}' in said


def test_a_reward_that_reads_what_is_asked_gets_no_remark() -> None:
    assert remarks([HASHES], "hashes") == []
    assert remarks([HASHES], "boxed", "hashes") == []
    assert remarks([HASHES + r" Or in \boxed{}."], "boxed") == []
    assert remarks([HASHES], "boxed", "last_number") == []  # the number after #### is the last one
    assert remarks([HASHES], "boxed", route="another") == []
    assert len(remarks([r"Put it in \boxed{}."], "hashes")) == 1
