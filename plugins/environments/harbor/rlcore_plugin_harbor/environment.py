"""Trials of Harbor as episodes: its agents and verifiers, not changed, in sessions of the sandbox."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from harbor.agents.factory import AgentFactory
from harbor.agents.installed.base import BaseInstalledAgent
from harbor.models.agent.name import AgentName
from harbor.models.task.task import Task
from harbor.models.trial.config import AgentConfig, EnvironmentConfig, TaskConfig, TrialConfig
from harbor.models.trial.result import StepResult, TrialResult
from harbor.trial.trial import Trial
from harbor.utils.import_path import import_class
from pydantic import ValidationError

from rlcore.api import DataError, InfrastructureError
from rlcore.api.environments import Environment, EpisodeResult, Model
from rlcore_plugin_harbor.images import image_need, outside_link
from rlcore_plugin_harbor.options import HarborOptions
from rlcore_plugin_harbor.relay import relayed
from rlcore_plugin_harbor.session_environment import SessionEnvironment, open_sessions

__all__ = ["Harbor"]

_KEY = "RLCORE_HARBOR_KEY"
_TERMINUS = {"collect_rollout_details": True, "enable_summarize": False, "record_terminal_session": False}
"""Options of Harbor's own agent: token ids for the comparison; no summaries, which begin segments; no recorder, which it would install."""
_NO_REWARD = frozenset(
    {
        *("AddTestsDirError", "DownloadVerifierDirError", "RuntimeError", "VerifierTimeoutError"),
        *("RewardFileNotFoundError", "RewardFileEmptyError", "VerifierOutputParseError", "ValidationError"),
    }
)
"""Errors of the tests that the policy can cause. Others, such as FileNotFoundError for tests that the task lacks, are its author's."""


class Harbor(Environment):
    """Plays a trial an episode. The row's column ``task`` is the folder of the task."""

    def __init__(self, options: HarborOptions) -> None:
        self._options = options
        self._agent = _agent_class(options.agent)
        SessionEnvironment.sandbox, SessionEnvironment.given = open_sessions(options), options

    @classmethod
    def rows(cls, name: str) -> Iterator[Mapping[str, Any]]:
        """See Environment. ``name`` is the folder of a task, or of a folder of tasks; with ``?playable``, tasks that need an image are left
        out."""
        folder, _, choice = name.partition("?")
        if choice not in ("", "playable"):
            raise DataError(f"env:harbor:{name}: {choice!r} is not a choice; the one choice is ?playable")
        folders = _task_folders(Path(folder).expanduser().absolute(), name)
        tasks = [(task, _need(task)) for task in map(_task, folders)]
        refused = [(task, need) for task, need in tasks if need]
        if refused and (not choice or len(refused) == len(tasks)):
            task, need = refused[0]
            more = f"; {len(refused)} of {len(tasks)} tasks need one; leave these out with env:harbor:{folder}?playable"
            raise DataError(f"task {task.name} needs an image: not run ({need}){'' if len(tasks) == 1 else more}")
        for task, need in tasks:
            if not need:
                messages = [{"role": "user", "content": task.instruction}]
                yield {"messages": messages, "task": str(task.paths.task_dir), "name": task.name}

    async def play(self, model: Model, row: Mapping[str, Any]) -> EpisodeResult:
        """See Environment."""
        if not isinstance(row.get("task"), str):
            raise InfrastructureError("the row has no column task; read tasks with -d env:harbor:FOLDER")
        try:
            task = _task(Path(row["task"]))
        except DataError as error:
            raise InfrastructureError(str(error)) from error
        if need := _need(task):
            raise InfrastructureError(f"task {task.name} needs an image: not run ({need})")
        os.environ[_KEY] = model.api_key  # not in the trial's config, from which it would reach every command
        async with AsyncExitStack() as closing:
            folder = Path(closing.enter_context(tempfile.TemporaryDirectory(prefix="rlcore-harbor-", ignore_cleanup_errors=True)))
            base_url, SessionEnvironment.reach = model.base_url, None
            if issubclass(self._agent, BaseInstalledAgent):
                SessionEnvironment.reach = folder / "gateway"
                await closing.enter_async_context(relayed(SessionEnvironment.reach, base_url))
                base_url = f"http://127.0.0.1:{SessionEnvironment.PORT}/v1"
            trial = await Trial.create(self._config(task, folder, model.name, base_url))
            return self._ended(await trial.run())

    def _config(self, task: Task, folder: Path, model: str, base_url: str) -> TrialConfig:
        given, named = self._options, ":" not in self._options.agent
        usual: Mapping[str, Any] = {}
        if given.agent == AgentName.TERMINUS_2.value:
            usual = {**_TERMINUS, "llm_kwargs": {"api_key": os.environ[_KEY]}}
        elif issubclass(self._agent, BaseInstalledAgent):
            usual = {"skip_install": True}
        plays = given.agent not in (AgentName.ORACLE.value, AgentName.NOP.value)
        agent = AgentConfig(
            name=given.agent if named else None,
            import_path=None if named else given.agent,
            model_name=f"openai/{model}" if plays else None,
            base_url=base_url if plays else None,
            model_api_key_name=_KEY if plays and not usual.get("llm_kwargs") else None,
            kwargs={**usual, **given.agent_options},
        )
        path = f"{SessionEnvironment.__module__}:{SessionEnvironment.__qualname__}"
        return TrialConfig(
            task=TaskConfig(path=task.paths.task_dir),
            trial_name="trial",
            trials_dir=folder,
            agent=agent,
            environment=EnvironmentConfig(import_path=path),
        )

    def _ended(self, result: TrialResult) -> EpisodeResult:
        """Return the end of the episode. Raise InfrastructureError if the task's start or its tests failed."""
        parts: list[TrialResult | StepResult] = [result, *(result.step_results or [])]
        played = any(part.agent_execution is not None for part in parts)
        failed = next((part for part in parts if part.exception_info is not None), None)
        rewards = (result.verifier_result.rewards if result.verifier_result else None) or {}
        extra = {f"reward_{name}": float(value) for name, value in rewards.items() if name != self._options.reward}
        zero = self._options.on_missing_reward == "zero"
        if failed is None:
            if not rewards and zero:
                return EpisodeResult(reward=0.0, sampled=self._sampled(parts))
            if self._options.reward not in rewards:
                raise InfrastructureError(f"the tests wrote no reward {self._options.reward!r}; they wrote {', '.join(rewards) or 'none'}")
            return EpisodeResult(reward=float(rewards[self._options.reward]), extra=extra, sampled=self._sampled(parts))
        assert failed.exception_info is not None
        info = failed.exception_info
        reason = f"{info.exception_type}: {(info.exception_message.splitlines() or [''])[0][:300]}"
        began = failed.verifier.started_at if failed.verifier is not None else None
        if not played or (began is not None and info.occurred_at >= began):
            if played and zero and info.exception_type in _NO_REWARD:
                return EpisodeResult(reward=0.0, sampled=self._sampled(parts), reason=reason)
            raise InfrastructureError(reason)
        reward = rewards.get(self._options.reward)
        outcome = "timeout" if info.exception_type == "AgentTimeoutError" else "crashed"
        return EpisodeResult(outcome=outcome, reward=None if reward is None else float(reward), extra=extra, reason=reason)  # type: ignore[arg-type]

    def _sampled(self, parts: list[TrialResult | StepResult]) -> list[list[int]] | None:
        """Return the token ids of each answer that Harbor recorded; None if its agent records none, or not those of its summaries."""
        if self._options.agent_options.get("enable_summarize"):
            return None
        details = [detail for part in parts if part.agent_result for detail in part.agent_result.rollout_details or []]
        return [ids for detail in details for ids in detail.get("completion_token_ids", [])] if details else None


def _agent_class(name: str) -> type:
    """Return the class of an agent. Raise DataError if there is none."""
    if ":" in name:
        return import_class(name, label="agent")
    known = {agent.value: path for agent, path in AgentFactory._AGENT_MAP.items()}
    if name not in known:
        near = get_close_matches(name, known, 1)
        likely = f", did you mean {near[0]!r}" if near else ""
        listed = '"$(rlcore env path harbor)"/bin/harbor run --help lists its agents'  # they are too many for a message
        raise DataError(f"Harbor has no agent {name!r}{likely}; {listed}; or name a class as package.module:Class")
    return import_class(known[name], label="agent")


def _task_folders(folder: Path, name: str) -> list[Path]:
    if (folder / "task.toml").exists():
        return [folder]
    found = sorted(path.parent for path in folder.glob("*/task.toml"))
    if not found:
        raise DataError(
            f"env:harbor:{name}: there is no task.toml in {folder}, nor in a folder of it; name the folder of a task or of tasks"
        )
    return found


def _task(folder: Path) -> Task:
    """Read a task as Harbor does. Raise DataError if it cannot be read, or would read files outside of its folder."""
    if link := outside_link(folder):
        raise DataError(f"{folder}: {link} is a link that leads out of the task; copy the file into the task")
    try:
        return Task(folder)
    except (OSError, ValueError, ValidationError) as error:
        raise DataError(f"{folder} is not a task of Harbor: {str(error).splitlines()[0]}") from error


def _need(task: Task) -> str:
    return image_need(task.paths.environment_dir, task.config.environment)
