"""Hostile answers: every one ends within its deadline, with a typed outcome that is no accident, and no worker eats the machine.

Here through the real engine from the main thread and from another; from an asynchronous Ray actor in the core's test_reward_ray.py.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import Counter

import pytest
from rlcore_plugin_math import rlcore_register_rewards, symbolic
from rlcore_plugin_math.audit import hostile_rows
from rlcore_plugin_math.compare import LimitExceeded, compare
from rlcore_plugin_math.guards import check_size, foreign_signs, glued_numbers, no_formula
from rlcore_plugin_math.normal import compact, fold, normal, plain_text
from rlcore_plugin_math.options import BoxedOptions
from rlcore_plugin_math.quantity import clock, comma_sequence, in_base, quantity, sequence
from rlcore_plugin_math.structure import balanced, is_label, leading_sign, listing, matrix, nested_signs, relation
from rlcore_plugin_math.units import split_unit
from rlcore_plugin_math.words import has_words, is_words

from rlcore.api import FinishReason, Message, Outcome, Prompt, Rollout, Segment
from rlcore.testing import Judge, RewardEntry

DEADLINE = 60.0  # of the engine, which must not come first however busy the machine is
OPTIONS = BoxedOptions(time_limit=1.5, max_chars=10_000)  # so that the other guards are tried too


def rollout(text):
    segment = Segment(context_ids=[1], token_ids=[2], logprobs=[0.0], versions=[0], policy_mask=[True])
    return Rollout(prompt_id="p", index=0, segments=(segment,), text=text, finish=FinishReason.STOP)


def prompt(key, gold):
    return Prompt(prompt_id=str(key), index=key, messages=(Message(role="user", content="?"),), columns={"gt_answer": gold})


def judge_one_by_one(rows):
    """[(name, score)], each row alone in the pool. The engine ends none of them: the plugin's own limit comes first."""
    spec = next(spec for spec in rlcore_register_rewards() if spec.name == "boxed")
    found = []
    with Judge([RewardEntry(name="boxed", spec=spec, deadline=DEADLINE, options=OPTIONS)], workers=1, error_budget=0.0) as judge:
        for key, (name, gold, answer) in enumerate(rows):
            judge.submit(key, prompt(key, gold), [rollout(rf"\boxed{{{answer}}}")])
            finished = judge.poll(30.0)
            found += [(name, scores[0]) for _, scores in finished]
        assert judge.metrics()["reward/timeouts"] == 0
    return found


def assert_all_ended(rows, found):
    assert [name for name, _ in found] == [name for name, _, _ in rows]
    counted = Counter(score.outcome for _, score in found)
    assert all(score.outcome.judged and score.outcome is not Outcome.OK for _, score in found), counted


@pytest.mark.full
def test_hostile_answers_get_a_verdict_in_time():
    rows = hostile_rows()
    assert_all_ended(rows, judge_one_by_one(rows))


@pytest.mark.nightly
@pytest.mark.full
def test_hostile_answers_get_a_verdict_in_time_from_a_thread():
    rows, found = hostile_rows(), []
    thread = threading.Thread(target=lambda: found.extend(judge_one_by_one(rows)))
    thread.start()
    thread.join(280)
    assert_all_ended(rows, found)


_IN_PROCESS = """
import threading, time
from rlcore.api import RewardInput
from rlcore_plugin_math.audit import hostile_rows
from rlcore_plugin_math.options import BoxedOptions
from rlcore_plugin_math.rewards import BoxedReward
reward = BoxedReward(BoxedOptions(time_limit=1.0, max_chars=10_000))
slowest = []
def judge():
    for name, gold, answer in hostile_rows():
        started = time.thread_time()  # what no limit interrupts is computing; to wait for a core is not
        score = reward.score(RewardInput(messages=(), columns={"gt_answer": gold}, text=chr(92) + "boxed{" + answer + "}"))
        slowest.append((time.thread_time() - started, name))
        assert score.outcome.judged and score.value == 0, (name, score)
thread = threading.Thread(target=judge)
thread.start()
thread.join()
assert len(slowest) == len(hostile_rows()), "an exception ended it"
# Not ru_maxrss: it keeps the size of the process that started this one.
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(max(slowest)[0], int(peak) // 1024)
"""


@pytest.mark.full
def test_in_process_in_a_thread_the_rows_end_too_and_memory_is_bounded():
    """No engine, no signal: the limit of the plugin itself. All rows together stay far below a gigabyte."""
    done = subprocess.run([sys.executable, "-c", _IN_PROCESS], check=True, capture_output=True, text=True, timeout=200)
    slowest, megabytes = map(float, done.stdout.split())
    assert slowest < 1.0 + 2.0
    assert megabytes < 500


_UNITS_TEXT = (
    r"1 a { } ( \text{ \frac{ ^{ ^ _{ _ a/ 1, 1,000 . = - + $ x= \begin{array} \sum \sum_ \pm ! \\ \{ [0 1^ a. "
    r"\sqrt[ |x \log_ 1/ (1 a, \color{ \overline{ 1: ~ \boxed{ {1 [3] \left \hspace{ \over {a\over ½ ⁹ ' {a} ^{1} "
    r"\sum_{i=1}^ (a <x ≤ ﷺ "
)
_UNITS = [*_UNITS_TEXT.split(), " ", "1 ", "a ", "= ", "or ", r"\text{ or }", r"\ "]
_READERS = (
    normal,
    plain_text,
    compact,
    fold,
    quantity,
    sequence,
    comma_sequence,
    clock,
    in_base,
    listing,
    relation,
    balanced,
    is_label,
    matrix,
)
_READERS += (matrix, leading_sign, nested_signs, split_unit, is_words, has_words, no_formula, foreign_signs, glued_numbers)


def _slowest_reader(length):
    found = []
    for unit in _UNITS:
        for before, after in (("", ""), ("1", ""), ("(", "x"), (r"\text{", ""), ("5 ", "}")):
            text = fold(before + (unit * length)[:length] + after)
            for read in _READERS:
                started = time.thread_time()
                read(text)
                found.append((time.thread_time() - started, read.__name__, unit, before))
    return max(found)


@pytest.mark.full
def test_no_pattern_of_ours_backtracks_without_bound():
    """CPU seconds at the longest answer that options allow; a cubic pattern takes hours. A single match cannot be interrupted."""
    assert _slowest_reader(10_000)[0] < 3.0


def test_no_pattern_of_ours_is_exponential():
    assert _slowest_reader(400)[0] < 1.0


def test_size_is_checked_again_after_normalising(monkeypatch):
    """A superscript is an exponent only then; nothing is parsed."""
    monkeypatch.setattr(symbolic, "_parse", None)
    check_size("9⁹⁹⁹⁹⁹⁹⁹⁹")
    with pytest.raises(LimitExceeded):
        compare("42", "9⁹⁹⁹⁹⁹⁹⁹⁹", seconds=5.0)
