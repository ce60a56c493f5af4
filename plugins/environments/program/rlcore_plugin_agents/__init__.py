"""Agents: programs that play episodes with the policy. This module only declares the conversation, the reward and the environment."""

from __future__ import annotations

from typing import Any

from rlcore.api import ConversationSpec, DataSourceSpec, EnvironmentSpec, PluginKind, RewardSpec, hookimpl

rlcore_api = "2.0"


@hookimpl
def rlcore_register_conversations() -> list[ConversationSpec]:
    """Return the conversation that lets an environment play."""
    return [
        ConversationSpec(
            name="agent",
            target="rlcore_plugin_agents.agent:Agent",
            config="rlcore_plugin_agents.agent_options:AgentOptions",
            summary="An episode of sampling.environment, which talks to the policy as to an OpenAI model",
        )
    ]


@hookimpl
def rlcore_register_environments() -> list[EnvironmentSpec]:
    """Return the environments that are any program."""
    return [
        EnvironmentSpec(
            name="program",
            target="rlcore_plugin_agents.program_environment:CommandEnvironment",
            config="rlcore_plugin_agents.agent_options:ProgramOptions",
            summary="A program of its own, in any language, that reads and writes JSON lines",
        ),
        EnvironmentSpec(
            name="command",
            target="rlcore_plugin_agents.command_agent:CommandLineAgent",
            config="rlcore_plugin_agents.command_options:CommandOptions",
            summary="A command line agent, such as Claude Code or codex, that works in a folder and is graded there",
        ),
    ]


@hookimpl
def rlcore_register_data_sources() -> list[DataSourceSpec]:
    """Return the data source of rows that an environment has."""
    return [
        DataSourceSpec(
            name="env",
            target="rlcore_plugin_agents.environment_rows:EnvironmentRows",
            summary="env:ENVIRONMENT:NAME: rows that an environment has, such as its levels or tasks",
            prefix="env:",
        )
    ]


@hookimpl
def rlcore_register_rewards() -> list[RewardSpec]:
    """Return the reward that an environment gives itself."""
    return [
        RewardSpec(
            name="environment",
            target="rlcore_plugin_agents.environment_reward:EnvironmentReward",
            config="rlcore_plugin_agents.agent_options:EnvironmentRewardOptions",
            summary="The reward that the environment itself gave to the episode",
        )
    ]


@hookimpl
def rlcore_adapt_function(kind: PluginKind, function: Any) -> type | None:
    """Return an environment that calls ``play(model, row)``; None for anything but a function."""
    if kind is not PluginKind.ENVIRONMENT:
        return None
    from rlcore_plugin_agents.function_environment import environment_class

    return environment_class(function)


@hookimpl
def rlcore_check_run(config: Any) -> list[str]:
    """Return what cannot work about the environment of a run."""
    sampling, rewards = config.sampling, [entry.name.lower() for entry in config.rewards]
    if sampling.environment == "none" and sampling.conversation.lower() != "agent" and "environment" not in rewards:
        return []
    from rlcore_plugin_agents.run_checks import problems

    return problems(config)


@hookimpl
def rlcore_note_run(config: Any) -> list[str]:
    """Return what the user should know about the episodes of a run, and about the prompts in flight."""
    inference = config.inference
    if config.sampling.environment == "none" and inference.max_in_flight in ("auto", inference.inference_batch_size):
        return []
    from rlcore_plugin_agents.run_notes import notes

    return list(notes(config))
