"""``python -m rlcore_gateway.host``: plays the episodes of an ``Environment`` class, and speaks the JSON lines of a program.

Its first line is ``{"host": …}``, a pickled ``ChosenEnvironment`` in base64. With ``"rows"``, it writes the rows of that name, one a line,
and ends. What the environment prints goes to standard error.
"""

from __future__ import annotations

import asyncio
import base64
import inspect
import json
import os
import pickle
import sys
import traceback
from collections.abc import Callable, Mapping
from numbers import Real
from pathlib import Path
from typing import Any

import cloudpickle

from rlcore.api import InfrastructureError, UsageError
from rlcore.api.environments import ChosenEnvironment, Environment, EpisodeResult, TurnEnvironment, environment_target
from rlcore_gateway.hosted_model import HostedModel
from rlcore_gateway.worker_lines import LONGEST_LINE, BadLineError, as_line, parsed

__all__ = ["described", "main", "setup_line"]


_REWARDS = ("turn_rewards", "branch_rewards", "player_rewards")


class _EnvironmentFailure(Exception):
    """``reset`` or ``step`` raised: this is never the agent's fault."""


def setup_line(environment: ChosenEnvironment, rows: str | None = None) -> bytes:
    """Return the first line for a host.

    :param rows: the name of rows to write. None: play episodes.
    """
    named = {} if rows is None else {"rows": rows}
    return as_line({"host": base64.b64encode(cloudpickle.dumps(environment)).decode(), **named})


def main() -> int:
    """Serve standard input until it is closed. Return 1 if the environment cannot be made, or its rows cannot be written."""
    lines, answers = os.fdopen(os.dup(0), "rb", buffering=0), os.dup(1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)  # what an environment prints is no answer
    setup = json.loads(_first_line(lines.fileno()))
    try:
        chosen = pickle.loads(base64.b64decode(setup["host"]))
        if "rows" in setup:
            with os.fdopen(answers, "wb") as output:
                output.writelines(map(as_line, environment_target(chosen).rows(setup["rows"])))
            return 0
        host = _Host(chosen, answers)
    except UsageError as error:
        print(error, file=sys.stderr)
        return 1
    except Exception as error:  # whatever the code of an environment raises
        print(f"the environment cannot be {'read' if 'rows' in setup else 'made'}: {described(error)}", file=sys.stderr)
        return 1
    loop = asyncio.Runner().get_loop()  # never closed: that would cancel all episodes
    serving = loop.create_task(host.serve(lines))
    while not serving.done():
        try:
            loop.run_until_complete(serving)
        except SystemExit as error:  # of a task of one episode, which has it now; the others play on
            print(described(error), file=sys.stderr, flush=True)
        except KeyboardInterrupt as error:
            print(described(error), file=sys.stderr, flush=True)
            os._exit(1)
    os._exit(0)  # threads of the environment must not keep the process alive


def _first_line(descriptor: int) -> bytes:
    """Read one line, and nothing after it."""
    line = bytearray()
    while not line.endswith(b"\n"):
        if not (data := os.read(descriptor, 1)):
            raise EOFError("the gateway closed the standard input of this process before its first line")
        line += data
    return bytes(line)


class _Host:
    """Plays the episodes of one process."""

    def __init__(self, chosen: ChosenEnvironment, answers: int) -> None:
        self._target, self._options, self._answers = environment_target(chosen), chosen.options, answers
        first = self._made()
        self._shared = None if isinstance(first, TurnEnvironment) else first
        self._idle = [first] if self._shared is None else []
        self._playing: dict[str, asyncio.Task[None]] = {}

    def _made(self) -> Environment:
        made: Environment = self._target() if self._options is None else self._target(self._options)
        return made

    async def serve(self, lines: Any) -> None:
        """Play what comes until the input is closed."""
        reader = asyncio.StreamReader(limit=LONGEST_LINE)
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), lines)
        while line := await reader.readline():
            said = json.loads(line)
            if "cancel" in said:
                if (task := self._playing.get(said["cancel"])) is not None:
                    task.cancel()
                continue
            model = HostedModel(said["model"], said["base_url"], said["key"], said.get("players", {}))
            self._playing[said["episode"]] = asyncio.create_task(self._episode(said["episode"], model, said["row"]))

    async def _episode(self, episode: str, model: HostedModel, row: Mapping[str, Any]) -> None:
        rewards: dict[str, float] = {}
        try:
            end = _fields(await self._play(model, row, rewards))
        except asyncio.CancelledError:
            end = {"outcome": "timeout", "reason": "the episode was cancelled", **_so_far(rewards)}
        except (_EnvironmentFailure, InfrastructureError) as error:
            end = {"outcome": "environment", "reason": described(error.__cause__ or error)}
        except (Exception, SystemExit) as error:
            end = {"outcome": "crashed", "reason": described(error), **_so_far(rewards)}
        self._playing.pop(episode, None)
        self._answer({"episode": episode, **end})

    def _answer(self, said: Mapping[str, Any]) -> None:
        try:
            line = json.dumps(said).encode() + b"\n"
            parsed(line)
        except (BadLineError, TypeError, ValueError) as error:
            line = as_line(
                {"episode": said["episode"], "outcome": "environment", "reason": f"the result of the episode is not valid: {error}"}
            )
        view = memoryview(line)
        while view:
            view = view[os.write(self._answers, view) :]

    async def _play(self, model: HostedModel, row: Mapping[str, Any], rewards: dict[str, float]) -> Any:
        if self._shared is not None:
            return await self._shared.play(model, row)
        try:
            environment = self._idle.pop() if self._idle else self._made()
        except (Exception, SystemExit) as error:
            raise _EnvironmentFailure(str(error)) from error
        own = type(environment).play is not TurnEnvironment.play
        result = await (environment.play(model, row) if own else _turns(environment, model, row, rewards))
        self._idle.append(environment)  # not after an exception, which may have left it in any state
        return result


async def _turns(environment: Any, model: HostedModel, row: Mapping[str, Any], rewards: dict[str, float]) -> EpisodeResult:
    """Play with ``reset`` and ``step``, and note the reward of each call in ``rewards``."""
    messages = _messages(await _own(environment.reset, row))
    tools = {"tools": list(environment.tools)} if environment.tools else {}
    while True:
        answer = await model.chat(messages, **tools)
        result = await _own(environment.step, answer)
        if not isinstance(result, tuple) or len(result) != 3 or not isinstance(result[1], Real):
            raise _EnvironmentFailure(f"step returned {result!r:.200}; it must return (messages, reward, done)")
        observation, reward, done = result
        rewards[answer["id"]] = float(reward)
        if done:
            return EpisodeResult(reward=sum(rewards.values()), turn_rewards=rewards)
        messages += [{name: answer[name] for name in ("role", "content", "tool_calls") if answer.get(name) is not None}]
        messages += _messages(observation)


async def _own(function: Callable[..., Any], argument: Any) -> Any:
    try:
        result = function(argument)
        return await result if inspect.isawaitable(result) else result
    except (Exception, SystemExit) as error:
        raise _EnvironmentFailure(str(error)) from error


def _messages(said: Any) -> list[Any]:
    if isinstance(said, str):
        return [{"role": "user", "content": said}]
    if isinstance(said, list) and all(isinstance(one, dict) for one in said):
        return list(said)
    raise _EnvironmentFailure(f"reset or step returned the messages {said!r:.200}; they must be a text or a list of objects")


def _fields(result: Any) -> dict[str, Any]:
    """Return the fields of an answer for what ``play`` returned."""
    if result is None or isinstance(result, Real):
        return {} if result is None else {"reward": float(result)}
    if not isinstance(result, EpisodeResult):
        raise _EnvironmentFailure(f"play returned {type(result).__name__}; it must return an EpisodeResult, a number or None")
    return {
        "outcome": result.outcome,
        "reward": None if result.reward is None else float(result.reward),
        **{name: {key: float(reward) for key, reward in getattr(result, name).items()} for name in _REWARDS},
        "calls": None if result.calls is None else list(result.calls),
        "sampled": None if result.sampled is None else [list(map(int, answer)) for answer in result.sampled],
        "extra": dict(result.extra),
        "reason": result.reason,
    }


def _so_far(rewards: Mapping[str, float]) -> dict[str, Any]:
    """Return the rewards of the turns before an episode was ended. No reward at all if there was no turn."""
    return {"reward": sum(rewards.values()), "turn_rewards": dict(rewards)} if rewards else {}


def described(error: BaseException) -> str:
    """Return type and message of an error, with the last place that is in nobody's package, or else its last place."""
    lines = str(error).strip().splitlines()
    said = f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).parent != Path(__file__).parent]
    own = [frame for frame in frames if "site-packages" not in frame.filename and not frame.filename.startswith("<frozen")]
    place = (own or frames)[-1:]
    return f"{said} ({Path(place[0].filename).name}, line {place[0].lineno})" if place else said


if __name__ == "__main__":
    sys.exit(main())
