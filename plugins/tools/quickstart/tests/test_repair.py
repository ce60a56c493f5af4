"""The environment ``repair``: what a script as the policy gets for its patches, in real sessions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from rlcore_plugin_quickstart import repair
from rlcore_plugin_quickstart.patches import DIVIDER, END, START, make_patch
from rlcore_plugin_quickstart.repair import APPLIES, Repair
from rlcore_plugin_quickstart.repositories import Repository, make_repositories

from rlcore.api.environments import EpisodeResult
from tests.levels import need

REPOSITORIES = make_repositories(3, 8, 8).heldout
REPOSITORY = REPOSITORIES[0]
PATH, RIGHT, WRONG = REPOSITORY.bug
FIX = f"return {RIGHT.expression}"
OTHER_PATH, OTHER = next((path, function) for path, function in REPOSITORY.right if path != PATH)
BREAKS_THE_OTHER = make_patch(OTHER_PATH, OTHER.text, OTHER.text.replace("return ", "return -1 * "))


@pytest.fixture(scope="module")
def environment() -> Iterator[Repair]:
    need("namespaces")
    made = Repair()
    yield made
    made._sandbox.close()


class Scripted:
    """A policy that gives these answers; it keeps the chats that it was asked."""

    def __init__(self, *answers: str) -> None:
        self.answers, self.asked = list(answers), list[list[Mapping[str, Any]]]()

    async def chat(self, messages: Sequence[Mapping[str, Any]], **_: Any) -> dict[str, Any]:
        self.asked.append(list(messages))
        return {"role": "assistant", "content": self.answers.pop(0)}


def row_of(repository: Repository) -> dict[str, Any]:
    row: dict[str, Any] = repository.row()
    return {**row, "messages": [row["messages"]]}


def played(environment: Repair, model: Scripted, repository: Repository = REPOSITORY) -> EpisodeResult:
    result = asyncio.run(environment.play(model, row_of(repository)))  # type: ignore[arg-type]
    assert result.outcome == "ok"
    return result


def patch(*body: str, path: str = PATH) -> str:
    """Replace the wrong line by others, which have the indentation of the body of the function."""
    lines = "".join(f"    {line}\n" for line in body)
    return f"{path}\n{START}    return {WRONG.expression}\n{DIVIDER}{lines}{END}"


def test_a_perfect_policy_solves_all(environment: Repair) -> None:
    for repository in REPOSITORIES:
        result = played(environment, Scripted(repository.patch), repository)
        assert (result.reward, result.extra) == (1.0, {"applies": 1.0, "accuracy": 1.0, "result": "all tests pass"})


@pytest.mark.parametrize(
    ("answer", "reward", "applies", "sentence"),
    [
        (f"{RIGHT.name} must {FIX}", 0.0, 0.0, "the answer has no block"),
        (patch(f"return {WRONG.expression}"), 0.0, 0.0, "the patch changes nothing"),
        (patch("return -1"), APPLIES, 1.0, f"the patch applies, but {RIGHT.name}("),
        (patch("return no_such_name"), 0.0, 1.0, f"the patch breaks {RIGHT.name}("),
        (patch("return ("), 0.0, 1.0, f"the patch breaks {RIGHT.name}("),
        (f"{REPOSITORY.patch}\n{BREAKS_THE_OTHER}", 0.0, 1.0, f"the patch breaks {OTHER.name}("),
    ],
)
def test_the_rewards(environment: Repair, answer: str, reward: float, applies: float, sentence: str) -> None:
    result = played(environment, Scripted(answer))
    assert (result.reward, result.extra["applies"], result.extra["accuracy"]) == (reward, applies, 0.0)
    assert str(result.extra["result"]).startswith(sentence)


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (["raise SystemExit(0)"], "the tests were ended or disturbed by the code"),
        (["import os", "os._exit(0)"], "the tests were ended or disturbed by the code"),
        (["while True: pass"], "the tests reached the limit cpu"),
        (["print([[True, '1']] * 6)", FIX], "the tests were ended or disturbed by the code"),
        (["import os", "while True: os.write(1, b'x' * 9999)"], "the tests were ended or disturbed by the code"),
        (["import os", "os.remove(__file__)", FIX], "the code changed files"),
        (["open('shapes.py', 'a').write('#')", "open('new.py', 'w').close()", FIX], "the code changed files"),
        (["import sys", "sys._getframe(2).f_globals['values'] = [[True, '1']] * 6", FIX], "the patch breaks "),
        (["open('../../OUTSIDE', 'w').write('x')", FIX], ""),
    ],
    ids=lambda value: str(value[0])[:20] if isinstance(value, list) else "",
)
def test_a_hostile_policy_gets_nothing(environment: Repair, body: list[str], sentence: str, tmp_path: Path) -> None:
    outside = [str(tmp_path / "victim"), "OUTSIDE"]
    Path(outside[0]).write_text("untouched")
    result = played(environment, Scripted(patch(*(line.replace("../../OUTSIDE", outside[0]) for line in body))))
    assert (result.reward, result.extra["accuracy"]) == (0.0, 0.0)
    assert str(result.extra["result"]).startswith(sentence)
    assert Path(outside[0]).read_text() == "untouched"


@pytest.mark.parametrize("path", ["../../../../../../{}", "{}", "test.py"])
def test_a_path_outside_the_repository_is_refused(environment: Repair, path: str, tmp_path: Path) -> None:
    victim = tmp_path / "victim.py"
    victim.write_text(f"    return {WRONG.expression}\n")
    named = path.format(victim)
    result = played(environment, Scripted(patch(FIX, path=named)))
    assert (result.reward, result.extra["applies"]) == (0.0, 0.0)
    assert str(result.extra["result"]).endswith("is not a file of the repository")
    assert victim.read_text() == f"    return {WRONG.expression}\n"


def test_episodes_wait_for_each_other_if_too_many_would_have_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    living, most = [0], [0]

    class Counted:
        def session(self, job: object) -> Counted:
            living[0] += 1
            most[0] = max(most[0], living[0])
            return self

        def close(self) -> None:
            living[0] -= 1

    monkeypatch.setattr(repair, "open_sandbox", lambda options: Counted())
    environment = Repair()

    async def one() -> None:
        async with environment._session("", {}):
            await asyncio.sleep(0.01)

    async def many() -> None:
        await asyncio.gather(*(one() for _ in range(3 * repair.SESSIONS)))

    asyncio.run(many())
    assert (living, most) == ([0], [repair.SESSIONS])


def test_nothing_is_left_of_an_episode(environment: Repair) -> None:
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    daemon = ["import os", "if os.fork() == 0:", "    os.setsid()", "    while True: pass", FIX]
    played(environment, Scripted(patch(*daemon)))
    assert {process.pid for process in psutil.Process().children(recursive=True) if process.status() != psutil.STATUS_ZOMBIE} <= before


def test_with_more_attempts_the_policy_reads_what_its_patch_did(environment: Repair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repair, "ATTEMPTS", 4)
    second = REPOSITORY.patch.replace(f"    return {WRONG.expression}\n", "    return -1\n", 1)
    model = Scripted("What?", patch("return -1"), second)
    result = played(environment, model)
    assert (result.reward, result.extra["result"]) == (1.0, "all tests pass")
    said = [str(message["content"]) for message in model.asked[-1]]
    assert said[1::2] == ["What?", patch("return -1")]
    assert said[2].startswith("the answer has no block")
    assert said[4] == "-1"


def test_code_of_an_earlier_attempt_that_ends_the_session_gets_nothing(environment: Repair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repair, "ATTEMPTS", 2)
    model = Scripted(patch("import os, signal", "os.kill(os.getppid(), signal.SIGKILL)", FIX), REPOSITORY.patch)
    result = played(environment, model)
    assert result.reward == 0.0


def test_the_right_values_of_hidden_tests_are_in_no_session(environment: Repair, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[str] = []
    session, say = Repair._session, repair._say

    def seen_session(self: Repair, program: str, files: Mapping[str, str]) -> Any:
        given.append(program + json.dumps(files))
        return session(self, program, files)

    async def seen_say(session: Any, value: Any, *, end: bool = False) -> None:
        given.append(json.dumps(value))
        await say(session, value, end=end)

    monkeypatch.setattr(Repair, "_session", seen_session)
    monkeypatch.setattr(repair, "_say", seen_say)
    secret = {**row_of(REPOSITORY)}
    for name in ("fail_to_pass", "pass_to_pass"):
        secret[name] = [[module, call, "SECRET"] for module, call, _ in secret[name]]
    result = asyncio.run(environment.play(Scripted(REPOSITORY.patch), secret))  # type: ignore[arg-type]
    assert result.reward == 0.0
    assert len(given) == 5
    assert "SECRET" not in "".join(given)


@pytest.mark.parametrize("printed", [b"", b"[", b"[" * 60_000, b"1", b"[[true]]", b"[[true, 1]]", b'[[true, "1"], [true, "2"]]'])
def test_whatever_the_code_prints_in_place_of_the_tests_is_no_accident(printed: bytes) -> None:
    assert repair._values(printed, 1) is None
