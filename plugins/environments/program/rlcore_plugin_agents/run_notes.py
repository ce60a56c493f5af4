"""What the plan of a run says about its episodes, before anything starts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rlcore.api import PluginError, PluginKind
from rlcore.api.commands import Registry
from rlcore.api.environments import EnvironmentSpec
from rlcore_plugin_agents.player_options import PlayerOptions

__all__ = ["notes"]


def notes(config: Any) -> Iterator[str]:
    """Yield what the user should know."""
    yield from _in_flight(config)
    if config.sampling.conversation.lower() != "agent" or config.sampling.environment == "none":
        return
    yield from _places(config)
    options = config.sampling.options
    if options["gateways"] > 1:
        yield (
            f"sampling.options.gateways = {options['gateways']}: each producer has as many gateway processes, which share its "
            f"episodes and its {options['workers']} workers"
        )
    if options["on_budget"] == "answer":
        yield (
            "sampling.options.on_budget = answer: a call beyond the budget gets a fixed answer, so the agent does not hear that its "
            "budget is used up; such answers do not train, and conversation/canned_answers counts them"
        )
    if options["players"]:
        yield from _players(config)


def _in_flight(config: Any) -> Iterator[str]:
    """A number that has no effect can only be the user's: ``auto`` is never below the least nor above the most."""
    inference, schedule, batch = config.inference, config.schedule, config.training.train_batch_size
    most, least = int(inference.max_in_flight), int(inference.inference_batch_size)
    said = f"inference.max_in_flight = {most}"
    allowed = (int(schedule.max_staleness) + 1) * batch
    if most < least:
        yield f"{said} has no effect, because a producer always has inference_batch_size = {least} prompts in flight"
    elif schedule.alternating or most == least:
        return
    elif config.sampling.environment == "none":
        yield f"{said} has little effect without an environment, because the {least} prompts of inference_batch_size fill the engine"
    elif most > allowed:
        yield f"{said} means {allowed}: (max_staleness + 1) x train_batch_size is the most that the staleness allows"


def _places(config: Any) -> Iterator[str]:
    """Compare the episodes that a producer has in flight with those that its processes can play."""
    options, sampling = config.sampling.options, config.sampling
    each = options["episodes_per_process"] or _declared(sampling.environment)
    if each is None:
        return
    prompts, group = int(config.inference.max_in_flight), sampling.num_generations + sampling.oversampling
    places, wanted = options["workers"] * each, max(prompts, int(config.inference.inference_batch_size)) * group
    if places < wanted:
        yield (
            f"a producer has up to {wanted} episodes in flight, and its processes play {places} at the same time (workers = "
            f"{options['workers']}, each plays {each}); the others wait; raise workers or episodes_per_process in [sampling.options]"
        )


def _declared(environment: str) -> int | None:
    """Return how many episodes a process of the environment plays, None if only the run can tell."""
    try:
        spec = Registry.discover().spec(PluginKind.ENVIRONMENT, environment)
    except PluginError:  # a class of the calling program, which has no name here
        return None
    assert isinstance(spec, EnvironmentSpec)
    return spec.episodes_per_process


def _players(config: Any) -> Iterator[str]:
    from rlcore_plugin_agents.player_engines import frozen_notes

    players = {name: PlayerOptions.model_validate(table) for name, table in config.sampling.options["players"].items()}
    policies = [name for name, player in players.items() if player.kind == "policy"]
    if len(policies) > 1:
        yield (
            f"the players {', '.join(policies)} are the policy: the calls of each train, with its own reward if the environment gives "
            "player_rewards"
        )
    yield from frozen_notes(config)
    for name, player in players.items():
        if player.kind == "endpoint":
            yield f"player {name} is the model {player.model} at {player.base_url}; it never trains, and no seed of the run reaches it"
