"""Rewards that were written for other libraries, which rlcore runs unchanged; and rlcore's rewards for TRL (``trl``).

This module only declares them; the judging code is imported in the worker processes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rlcore.api import DataSourceSpec, PluginKind, RewardSpec, hookimpl

if TYPE_CHECKING:
    from rlcore_plugin_adapters.for_trl import RewardOfRlcore

rlcore_api = "2.0"

_GYM_PROMPT = (
    "Think the problem through, then write the final answer, and nothing else, inside <answer> </answer>, in the form that the problem "
    "asks for: <answer> your final answer </answer>"
)

_NO_ANSWER = ("boxnet", "graph_color", "propositional_logic", "rubiks_cube", "rush_hour")
"""Data sets of reasoning-gym 0.1.25 whose entries have the answer None; ``score_answer`` judges answers, and gives None 0."""

TRL_FUNCTION = RewardSpec(
    name="trl_function",
    target="rlcore_plugin_adapters.trl_reward:TrlReward",
    config="rlcore_plugin_adapters.adapter_options:TrlOptions",
    summary="A reward function of TRL, fn(prompts, completions, **columns) -> list[float | None]",
    reads_tokens=True,
    full_value_option="right",
)


@hookimpl
def rlcore_register_rewards() -> list[RewardSpec]:
    """Return one reward for each form that a function may have, and the check of JSON."""
    return [
        TRL_FUNCTION,
        RewardSpec(
            name="verl_function",
            target="rlcore_plugin_adapters.verl_reward:VerlReward",
            config="rlcore_plugin_adapters.adapter_options:VerlOptions",
            summary="A reward function of verl, compute_score(data_source, solution_str, ground_truth, extra_info)",
            full_value_option="right",
        ),
        RewardSpec(
            name="reasoning_gym",
            target="rlcore_plugin_adapters.gym_reward:GymReward",
            config="rlcore_plugin_adapters.adapter_options:GymOptions",
            gold="text",
            summary="score_answer of the row's reasoning-gym data set; rows: data sources gym:NAME and gym-endless:NAME",
            system_prompt=_GYM_PROMPT,
            full_value_option="correct_score",
        ),
        RewardSpec(
            name="json_schema",
            target="rlcore_plugin_adapters.schema_reward:SchemaReward",
            config="rlcore_plugin_adapters.adapter_options:SchemaOptions",
            summary="The response is JSON that fits a JSON Schema, of the row or of a file",
            full_value_option="correct_score",
        ),
    ]


@hookimpl
def rlcore_register_data_sources() -> list[DataSourceSpec]:
    """Return the data sources of reasoning-gym, one with an end and one without."""
    return [
        DataSourceSpec(
            name="reasoning_gym",
            target="rlcore_plugin_adapters.gym_rows:GymRows",
            summary="gym:NAME?size=500&seed=0&OPTION=VALUE: a data set of reasoning-gym; needs the package reasoning-gym",
            prefix="gym:",
        ),
        DataSourceSpec(
            name="reasoning_gym_endless",
            target="rlcore_plugin_adapters.gym_rows:EndlessGym",
            summary="gym-endless:NAME?seed=0&levels=1&OPTION=VALUE: the same without end, of several levels; needs reasoning-gym",
            prefix="gym-endless:",
            endless=True,
        ),
    ]


@hookimpl
def rlcore_note_run(config: Any) -> list[str]:
    """Name the data sets of reasoning-gym whose own answer does not score 1, or whose every answer does."""
    places = [str(source.path).partition(":") for source in config.data_sets]
    names = [(prefix, path.partition("?")[0]) for prefix, _, path in places if prefix in ("gym", "gym-endless")]
    notes = dict.fromkeys(_NO_ANSWER, "has no answer to its questions, so nothing shows before the run that one scores 1")
    notes["game_of_life_halting"] = "gives 1 to every answer, so nothing can be learned from it"
    return [f"{prefix}:{name}: reasoning-gym {notes[name]}" for prefix, name in names if name in notes]


@hookimpl
def rlcore_adapt_function(kind: PluginKind, function: Any) -> type | None:
    """Return a reward that calls a function of TRL or verl; None for any other function."""
    if kind is not PluginKind.REWARD:
        return None
    from rlcore_plugin_adapters.given_function import reward_class

    return reward_class(function)


@hookimpl
def rlcore_translate_arguments(arguments: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return arguments with TRL's names under their names here; None if there are none."""
    from rlcore_plugin_adapters.trl_names import translated

    return translated(arguments)


def trl(
    reward: Any,
    *,
    options: Mapping[str, Any] | None = None,
    columns: Mapping[str, str] | None = None,
    deadline: float | None = None,
    workers: int = 2,
    length_limit: int | None = None,
) -> RewardOfRlcore:
    """Return a reward function for ``reward_funcs`` of TRL's trainers. It judges by a reward of rlcore, in worker processes, with its
    deadline.

    :param reward: its name ("boxed"), ``./my_reward.py:Mine``, a class, an instance or a function. Or a list of mappings like tables of
        ``[[rewards]]`` (``name``, ``weight``, ``options``, ``deadline``): the result is their weighted sum, and None if one of them has no
        verdict. If functions are listed separately in ``reward_funcs``, TRL instead adds up the others, as if this one had returned 0.
    :param options: its options, as in ``[[rewards]]``.
    :param columns: columns that have another name in TRL's data set: {"gt_answer": "solution"}.
    :param deadline: seconds for one response; None: the reward's own deadline. ``options`` and ``deadline`` are for a single reward.
    :param workers: worker processes of each training process.
    :param length_limit: ``max_completion_length`` of the trainer: a completion of so many tokens was truncated.
    :raises PluginError, ConfigError: there is no such reward, or it refuses its options. At the first call: it cannot be built.
    """
    from rlcore_plugin_adapters.for_trl import RewardOfRlcore, entries_of

    alone = {"name": reward, "options": dict(options or {})} | ({} if deadline is None else {"deadline": deadline})
    return RewardOfRlcore(entries_of(reward if isinstance(reward, list) else [alone]), columns or {}, workers, length_limit)
