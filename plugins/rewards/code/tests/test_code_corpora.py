"""Both corpora through the sandbox of this machine, at each level that it has."""

from pathlib import Path

import pytest
from rlcore_plugin_code.audit import POLICY, REFUSED, cases, corpus
from rlcore_plugin_code.extract import last_program
from rlcore_plugin_code.options import CodeOptions
from rlcore_plugin_code.reward import CodeReward

from rlcore.api import Outcome, RewardInput
from rlcore.api.sandbox import Sandbox, open_sandbox
from tests.levels import LEVELS, need

GENEROUS = CodeOptions(wall_seconds=30, max_program_chars=1_000_000)
TIGHT = CodeOptions(cpu_seconds=1, wall_seconds=2.0, memory_mb=512, max_program_chars=1_000_000)
HONEST = {row["name"]: row for row in corpus("code_honest")}
HOSTILE = {row["name"]: row for row in corpus("code_hostile")}
CASES = {case.name: case for case in cases()}
SPENT = {"sleep": ("limit: wall",), "swallow_everything": ("limit: wall",), "stdout_flood": ("limit: output",)} | dict.fromkeys(
    ("inf_loop", "busy_regex", "bigint_c_loop", "ignore_signals", "reset_alarm_then_loop", "setsid_escape_killpg", "cpu_burn_many_threads"),
    ("limit: cpu", "limit: wall"),
)
"""Hostile rows that must end at one of these limits; on a busy machine the clock may run out before the CPU time."""


class Recording(Sandbox):
    """The real sandbox; keeps what programs wrote, and why it had to be replaced."""

    def __init__(self, inner):
        self.inner, self.level = inner, inner.level
        self.written, self.replaced = [], []
        once = inner._once

        def recorded(job):
            try:
                return once(job)
            except Exception as error:
                self.replaced.append(str(error))
                raise

        inner._once = recorded

    def run(self, job):
        ran = self.inner.run(job)
        self.written.append(ran.stdout + ran.stderr)
        return ran

    def describe(self):
        return self.inner.describe()

    def close(self):
        self.inner.close()


@pytest.fixture(scope="module", params=LEVELS)
def judge(request):
    """``judge(name, options) -> (score, recording)`` of one audit case, all by one reward, as in a worker."""
    need(request.param)
    opened = []

    def recorded(options):
        opened.append(Recording(open_sandbox(options)))
        return opened[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rlcore_plugin_code.reward.open_sandbox", recorded)
        reward = CodeReward(CodeOptions(sandbox={"level": request.param}))
        reward.open()
        (sandbox,) = opened

        def run(name, options=GENEROUS):
            reward.options = options
            sandbox.written.clear()
            sandbox.replaced.clear()
            case = CASES[name]
            return reward.score(RewardInput(messages=case.messages, columns=case.columns, text=case.text, finish=case.finish)), sandbox

        yield run
        reward.close()


def expect(score, accept):
    if accept is None:
        assert score.outcome in (Outcome.OK, Outcome.WRONG), score.reason
    elif accept:
        assert (score.outcome, score.value, score.accuracy) == (Outcome.OK, 10.0, 1.0), score.reason
    else:
        assert score.outcome is not Outcome.OK, "accepted"
        assert (score.value, score.accuracy or 0.0) == (0.0, 0.0)


@pytest.mark.parametrize("name", HONEST)
def test_honest(judge, name):
    score, _ = judge(name)
    expect(score, HONEST[name]["expected"])


@pytest.mark.full
@pytest.mark.parametrize("name", [name for name in HOSTILE if name != REFUSED])
def test_hostile(judge, name):
    must = HOSTILE[name]["must"]
    score, sandbox = judge(name, GENEROUS if CASES[name].accept else TIGHT)
    expect(score, CASES[name].accept)
    assert score.outcome.judged
    # A busy machine may not begin a program in time, which is tried again; every program that began must be answered for.
    assert [reason for reason in sandbox.replaced if not reason.startswith("the jail was not built in time")] == []
    for word in must.get("output_must_not_contain", ()):
        assert all(word.encode() not in written for written in sandbox.written)
    if name in SPENT:
        assert score.reason.startswith(SPENT[name])
    after, _ = judge("add_ok")
    expect(after, True)
    left = [
        path for path in ("/dev/shm/leak7f3a", "/tmp/state", "/tmp/n", "/tmp/0", "/var/x", "/var/tmp/x", "/home/x") if Path(path).exists()
    ]
    assert left == []


@pytest.mark.parametrize("name", [name for name in CASES if name not in HONEST and name not in HOSTILE])
def test_responses_of_odd_shape(judge, name):
    score, _ = judge(name)
    expect(score, CASES[name].accept)


def test_every_row_is_there_and_travels_whole():
    assert len(CASES) == len(cases())
    assert {name for name, row in HOSTILE.items() if row["must"]["verdict"] == "policy"} == {*POLICY, REFUSED}
    for name, row in (HONEST | HOSTILE).items():
        assert (CodeReward().check({"test_cases": row["test_cases"]}) is None) == (name != REFUSED)
        if name == REFUSED:
            continue
        assert last_program(CASES[name].text) == row["program"] + "\n"
        assert CASES[name].columns == {"test_cases": row["test_cases"]}
