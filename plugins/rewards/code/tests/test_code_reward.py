"""Verdicts, with a sandbox that answers from a script: what is asked of it, and what is made of its answers."""

import pytest
from rlcore_plugin_code.extract import fenced
from rlcore_plugin_code.options import CodeOptions
from rlcore_plugin_code.reward import CodeReward
from rlcore_plugin_code.texts import as_judged

from rlcore.api import FinishReason, Outcome, RewardInput, SandboxError
from rlcore.api.sandbox import Limit, ProgramResult

TESTS = {"inputs": ["a\n", "b\n", "c\n", "d\n"], "outputs": ["A-secret\n", "B-secret\n", "C-secret\n", "D-secret\n"]}


def ran(stdout=b"", *, exit_code=0, signal=None, stderr=b"", limit=None, wall=0.1):
    return ProgramResult(exit_code=exit_code, signal=signal, stdout=stdout, stderr=stderr, limit=limit, wall_seconds=wall)


def right(job):
    return ran(job.stdin.strip().upper() + b"-secret\n")


def only(*letters, otherwise=None):
    """Right for these inputs, ``otherwise`` for the others."""
    return lambda job: right(job) if job.stdin.decode().strip() in letters else otherwise or ran(b"no\n")


def judge(reward, program="x", finish=FinishReason.STOP, text=None, tests=TESTS):
    return reward.score(
        RewardInput(messages=(), columns={"test_cases": tests}, text=fenced(program) if text is None else text, finish=finish)
    )


def test_every_test_must_pass(scripted):
    reward, sandbox = scripted(right, format_score=1.0)
    score = judge(reward)
    assert (score.value, score.accuracy, score.format_ok, score.outcome, score.reason) == (10.0, 1.0, True, Outcome.OK, "")
    assert sorted(job.stdin for job in sandbox.jobs) == [b"a\n", b"b\n", b"c\n", b"d\n"]
    assert all(job.source == as_judged(b"x\n") for job in sandbox.jobs)


def test_the_first_failure_decides(scripted):
    reward, sandbox = scripted(only("a", "b", "d"), format_score=1.0)
    score = judge(reward)
    assert (score.value, score.accuracy, score.format_ok, score.outcome) == (1.0, 0.0, True, Outcome.WRONG)
    assert score.reason == "test 3: wrong output"
    assert sandbox.jobs[-1].stdin == b"c\n"
    assert score.in_loss


def test_a_share_of_the_tests_where_asked_for(scripted):
    reward, sandbox = scripted(only("a", "b", "d"), format_score=2.0, partial=True)
    score = judge(reward)
    assert (score.value, score.accuracy, score.outcome) == (8.0, 0.0, Outcome.WRONG)
    assert score.reason == "test 3: wrong output (3 of 4 tests passed)"
    assert len(sandbox.jobs) == 4
    assert judge(scripted(right, partial=True)[0]).value == 10.0
    assert judge(scripted(only(), partial=True, format_score=2.0)[0]).value == 2.0


def test_nothing_expected_enters_the_sandbox_or_the_reason(scripted):
    reward, sandbox = scripted(only("a", otherwise=ran(b"x", exit_code=1, stderr=b"boom")))
    score = judge(reward)
    assert "secret" not in repr(sandbox.jobs)
    assert "secret" not in repr(score)


@pytest.mark.parametrize("limit", list(Limit))
def test_a_limit_is_a_wrong_answer_that_trains(scripted, limit):
    score = judge(scripted(only("a", "b", "c", otherwise=ran(b"D-secret", exit_code=None, signal=9, limit=limit)), format_score=1.0)[0])
    assert (score.value, score.accuracy, score.outcome) == (1.0, 0.0, Outcome.WRONG)
    assert score.reason == f"limit: {limit}, test 4"
    assert score.in_loss
    assert score.in_statistics


@pytest.mark.parametrize(
    ("end", "words"),
    [
        ({"exit_code": 3}, "test 2: exit code 3"),
        (
            {"exit_code": 1, "stderr": b"Traceback\n  File x\nZeroDivisionError: division by zero\n\n"},
            "test 2: exit code 1: ZeroDivisionError: division by zero",
        ),
        ({"exit_code": 1, "stderr": b"a\x1b[31m\xff" + b"e" * 1000}, "test 2: exit code 1: a [31m\ufffd" + "e" * 113),
        ({"exit_code": None, "signal": 11}, "test 2: signal SIGSEGV"),
        ({"exit_code": None, "signal": 99}, "test 2: signal 99"),
    ],
)
def test_right_output_and_a_bad_end_is_wrong(scripted, end, words):
    score = judge(scripted(only("a", "c", "d", otherwise=ran(b"B-secret\n", **end)))[0])
    assert (score.value, score.outcome, score.reason) == (0.0, Outcome.WRONG, words)


def test_limits_are_those_of_the_options(scripted):
    reward, sandbox = scripted(
        right, cpu_seconds=1.5, wall_seconds=3, memory_mb=64, output_mb=0.5, processes=7, total_seconds=3.25, max_program_chars=10
    )
    judge(reward)
    limits = [job.limits for job in sandbox.jobs]
    assert {(one.cpu_seconds, one.memory_bytes, one.output_bytes, one.processes) for one in limits} == {(1.5, 64 << 20, 1 << 19, 7)}
    assert [one.wall_seconds for one in limits] == pytest.approx([3.0, 3.0, 3.0, 2.95])  # what is left of the total


def test_a_long_expected_output_raises_the_limit(scripted):
    reward, sandbox = scripted(right)
    judge(reward, tests={"inputs": ["a"], "outputs": ["x" * (1 << 20)]})
    assert sandbox.jobs[0].limits.output_bytes == 4 << 20


def test_the_time_of_all_tests_is_limited(scripted):
    def slow(job):
        return ran(right(job).stdout, wall=3.0)

    score = judge(scripted(slow, total_seconds=6, wall_seconds=5)[0])
    assert score.outcome is Outcome.WRONG
    assert score.reason.startswith("limit: total, 6 s were over at test ")
    partial = judge(scripted(slow, total_seconds=6, wall_seconds=5, partial=True)[0])
    assert partial.value == 5.0
    assert partial.reason.startswith("limit: total")


def test_the_first_failure_is_named_where_the_time_runs_out_later(scripted):
    score = judge(scripted(lambda job: ran(b"no", wall=3.0), total_seconds=6, wall_seconds=5, partial=True)[0])
    assert score.reason.endswith(": wrong output (0 of 4 tests passed)")


def test_the_tolerance_is_that_of_the_options(scripted):
    halves = {"inputs": ["a"], "outputs": ["0.5"]}
    assert judge(scripted(lambda job: ran(b"0.6"), absolute_tolerance=0.2)[0], tests=halves).outcome is Outcome.OK
    assert judge(scripted(lambda job: ran(b"0.6"))[0], tests=halves).outcome is Outcome.WRONG


def test_a_wall_limit_that_the_total_shortened_is_the_total(scripted):
    reward, sandbox = scripted(lambda job: ran(right(job).stdout, wall=4.0) if len(sandbox.jobs) == 1 else ran(limit=Limit.WALL, wall=1.0))
    reward.options = CodeOptions(total_seconds=5, wall_seconds=5)
    assert judge(reward).reason.startswith("limit: total, 5 s")
    assert [job.limits.wall_seconds for job in sandbox.jobs] == [5.0, 1.0]


def test_a_program_that_is_too_long_is_not_run(scripted):
    reward, sandbox = scripted(right, max_program_chars=10, format_score=1.0)
    score = judge(reward, "x" * 10)
    assert (score.value, score.outcome) == (1.0, Outcome.WRONG)
    assert score.reason == "limit: the program has 11 characters, more than 10"
    assert not sandbox.jobs


def test_a_truncated_response_earns_nothing(scripted):
    reward, sandbox = scripted(right, format_score=1.0)
    score = judge(reward, finish=FinishReason.LENGTH)
    assert (score.value, score.accuracy, score.format_ok, score.outcome, score.reason) == (0.0, 0.0, True, Outcome.WRONG, "truncated")
    assert not sandbox.jobs
    assert judge(reward, finish=FinishReason.LENGTH, text="no fence").format_ok is False


def test_no_program_is_malformed(scripted):
    reward, sandbox = scripted(right, format_score=1.0)
    score = judge(reward, text="```python\nprint(1)")
    assert (score.value, score.accuracy, score.format_ok, score.outcome) == (0.0, 0.0, False, Outcome.MALFORMED)
    assert score.parsed is None
    assert not sandbox.jobs


def test_a_row_that_cannot_be_judged_is_no_verdict(scripted):
    score = judge(scripted(right)[0], tests={"inputs": [], "outputs": []})
    assert score.outcome is Outcome.INVALID
    assert not score.in_loss
    assert not score.in_statistics


def test_what_the_sandbox_raises_passes(scripted):
    def broken(job):
        raise SandboxError("died twice")

    with pytest.raises(SandboxError, match="died twice"):
        judge(scripted(broken)[0])


def test_at_most_max_tests(scripted):
    reward, sandbox = scripted(right, max_tests=2)
    assert judge(reward).outcome is Outcome.OK
    assert len(sandbox.jobs) == 2


def test_what_was_judged_is_shown_shortened(scripted):
    assert judge(scripted(right)[0], "y" * 2000).parsed == "y" * 500


def test_a_program_of_any_characters_reaches_the_sandbox(scripted):
    reward, sandbox = scripted(right)
    judge(reward, "# \ud800 é \x00")
    assert sandbox.jobs[0].source == as_judged(b"# \xed\xa0\x80 \xc3\xa9 \x00\n")
    assert sandbox.jobs[0].source.endswith(b"\n# \xed\xa0\x80 \xc3\xa9 \x00\n")


def test_open_and_close(scripted):
    reward, sandbox = scripted(right)
    assert reward.notice() == "none (a fake that runs nothing)"
    reward.close()
    reward.close()
    assert sandbox.closed == 1
    assert reward.notice() == ""
    with pytest.raises(RuntimeError, match="before open"):
        judge(CodeReward())


def test_a_checker_that_needs_what_the_sandbox_lacks_judges_nothing(scripted):
    row = {"inputs": ["1\n"], "checker": "import sys\nfrom numpy import array\nsys.exit(0)"}
    reward, sandbox = scripted(right)
    sandbox.packages = frozenset()
    score = reward.score(RewardInput(messages=(), columns={"test_cases": row}, text=fenced("print(1)")))
    assert score.outcome is Outcome.INVALID
    assert "the checker of the row imports numpy" in score.reason
    for shown in (frozenset({"numpy"}), None):
        sandbox.packages = shown
        assert reward.score(RewardInput(messages=(), columns={"test_cases": row}, text=fenced("print(1)"))).outcome is not Outcome.INVALID
