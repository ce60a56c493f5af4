"""An environment is chosen by ``sampling.environment``; its options, its conversation and what the plan says of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlcore.config import Plan, plan_run
from rlcore.contracts.errors import ConfigError
from rlcore.contracts.specs import PluginKind
from rlcore.registry.plugin_registry import Registry
from rlcore.runtime.arguments import plan_arguments

GAME = """
from pydantic import BaseModel, ConfigDict
from rlcore.api.environments import TurnEnvironment

class Game(TurnEnvironment):
    "Guess a number."
    class Options(BaseModel):
        model_config = ConfigDict(frozen=True, extra="forbid")
        most: int = 9
    deterministic = {deterministic}
    def __init__(self, options): ...
    def reset(self, row): return "guess"
    def step(self, answer): return "", 1.0, True
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "game.py").write_text(GAME.format(deterministic=False), encoding="utf-8")
    (tmp_path / "sure.py").write_text(GAME.format(deterministic=True), encoding="utf-8")
    return tmp_path


def plan(environment: str, **options: int) -> Plan:
    settings = {"sampling": {"environment": environment, "environment_options": options}, "schedule": {"max_staleness": 0}}
    return plan_run([], {}, Registry.discover(), overrides=settings, require=False)


def test_an_environment_brings_the_conversation_that_plays_it(here: Path) -> None:
    found = plan("./game.py:Game")
    assert found.config.sampling.conversation == "agent"
    assert "sampling.conversation = agent (environment ./game.py:Game)" in found.notes
    assert (PluginKind.ENVIRONMENT, "./game.py:Game") in found.plugins()
    assert plan("none").config.sampling.conversation == "single_turn"


def test_in_python_an_environment_may_be_a_class_or_a_function(here: Path) -> None:
    async def play(model: object, row: object) -> float:
        return 1.0

    found = plan_arguments({"environment": play, "reward": "environment"}, {}, require=False)
    assert found.config.sampling.conversation == "agent"
    assert found.config.sampling.environment == "play"


def test_its_options_are_checked_and_written_out(here: Path) -> None:
    found = plan("./game.py:Game", most=3)
    assert found.environment_options is not None
    assert found.environment_options.model_dump() == {"most": 3}
    assert "[sampling.environment_options]\nmost = 3" in found.to_toml()
    with pytest.raises(ConfigError, match=r"sampling\.environment_options\.least .* did you mean 'most'|least"):
        plan("./game.py:Game", least=3)


def test_a_plan_is_seeded_unless_the_environment_is_deterministic(here: Path) -> None:
    game, sure = plan("./game.py:Game").reproducible, plan("./sure.py:Game").reproducible
    assert str(game) == "reproducible: seeded (environment ./game.py:Game does not promise the same episode for the same answers)"
    assert "environment" not in sure.why


def test_the_longest_context_is_prompt_and_response_unless_it_is_set(here: Path) -> None:
    assert plan("none").config.max_context_tokens == 512 + 512
    settings = {"sampling": {"max_context_tokens": 4096}}
    assert plan_run([], {}, Registry.discover(), overrides=settings, require=False).config.max_context_tokens == 4096
