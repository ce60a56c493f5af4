"""Assembles scored groups into batches: the flat arrays for estimators, training backends and losses. Pure numpy.

Axes: ``R`` sampled rollouts, ``G`` groups, ``N`` policy tokens. Groups come in canonical order (the order of their leases, never of
arrival), and rollouts follow by index. Greedy rollouts are baselines: only their reward is used, and they never train.

A rollout with branches counts as several rollouts, one for each branch; for an estimator, each player of a group is a group of its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any

import numpy as np

from rlcore.contracts.batches import Normalisers, RewardBatch, TrainBatch, token_index
from rlcore.contracts.errors import RunError
from rlcore.contracts.interfaces import AdvantageEstimator, Loss, Need, RewardDetail
from rlcore.contracts.loss_wrappers import Aggregation
from rlcore.contracts.types import FinishReason, Group, Rollout, RolloutKind, Score, Segment
from rlcore.learning.aggregation import SampleLevel, count, token_weights
from rlcore.learning.overlong_punishment import SoftOverlong, soft_overlong

__all__ = ["BatchSettings", "assemble_batch", "assemble_rewards", "prepare_loss", "run_estimator", "split", "undeclared", "weighed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSettings:
    """The part of the run's configuration that shapes a batch.

    ``filter_truncated``: a truncated rollout stays in the statistics and leaves the loss. ``overlong``: the soft punishment, None if it is
    off. ``max_staleness``: older tokens do not train; None if no token is older. ``rewards``: the names of the run's rewards, in order.
    """

    max_new_tokens: int
    variation: Aggregation = field(default_factory=SampleLevel)
    filter_truncated: bool = False
    overlong: SoftOverlong | None = None
    max_staleness: int | None = None
    rewards: tuple[str, ...] = ()


def assemble_rewards(
    groups: Sequence[Group],
    settings: BatchSettings,
    *,
    masked: Collection[int] = (),
    kl: np.ndarray | None = None,
    kl_coeff: float = 0.0,
    with_greedy: bool = False,
    needs: Collection[RewardDetail] = (),
) -> RewardBatch:
    """Return the groups as an estimator receives them.

    :param masked: places in ``groups`` of those that the group filter masked (in the statistics, not in the loss).
    :param kl: float64[N], with its coefficient, if the run puts KL into the reward.
    :param with_greedy: whether the estimator needs the greedy rollout's reward.
    :param needs: the other fields that it declares.
    :raises RunError: a score is not finite, or its number of token rewards differs from the rollout's number of tokens.
    """
    flat = _flatten(groups, settings, masked)
    compared = {player: number for number, player in enumerate(dict.fromkeys(flat.players))}
    rewards = np.array([_value(rollout, score) for rollout, score in zip(flat.rollouts, flat.scores, strict=True)], np.float64)
    if settings.overlong is not None:
        rewards = rewards + soft_overlong(flat.lengths, flat.truncated, settings.overlong)
    return RewardBatch(
        rewards=_read_only(np.where(flat.in_statistics, rewards, 0.0)),
        group=_read_only(np.array([compared[player] for player in flat.players], np.int64)),
        in_statistics=_read_only(flat.in_statistics),
        in_loss=_read_only(flat.in_loss),
        lengths=_read_only(flat.lengths),
        offsets=_read_only(flat.offsets),
        kl=None if kl is None else _read_only(np.array(kl, np.float64)),
        kl_coeff=kl_coeff,
        greedy=_read_only(_greedy(groups, compared, settings)) if with_greedy else None,
        **_details(
            [groups[number].prompt_id + (f"/{player}" if player else "") for number, player in compared], flat, needs, settings.rewards
        ),
    )


def assemble_batch(
    groups: Sequence[Group],
    advantages: np.ndarray | None,
    settings: BatchSettings | Sequence[BatchSettings],
    *,
    masked: Collection[int] = (),
    version: int = 0,
    seed: int = 0,
) -> TrainBatch:
    """Return the global batch of one update, with weights and normalisers for a single optimizer step.

    :param advantages: [R] or [N] as ``run_estimator`` returns them, or None (zeros) if log probabilities are needed first. Set them later
        with ``dataclasses.replace``.
    :param settings: those of the run; a sequence has those of each source, and then the batch says the ``source`` of its rollouts.
    :param masked: as for ``assemble_rewards``.
    :raises RunError: a rollout is marked as sampled at a temperature that is impossible for sampling.
    """
    flat = _flatten(groups, settings, masked)
    _check_temperatures(flat.rollouts)
    values = np.zeros(int(flat.offsets[-1])) if advantages is None else np.asarray(advantages)
    batch = TrainBatch(
        rollouts=flat.rollouts,
        group=flat.group,
        in_loss=flat.in_loss,
        offsets=flat.offsets,
        advantages=(np.repeat(values, flat.lengths) if len(values) == len(flat.rollouts) else values).astype(np.float32),
        rollout_logprobs=_rollout_logprobs(flat.rollouts),
        weights=np.zeros(int(flat.offsets[-1]), np.float32),
        normalisers=Normalisers(tokens=0, rollouts=0, length=0),
        version=version,
        seed=seed,
        source=None if isinstance(settings, BatchSettings) else np.array([group.source_index for group in groups], np.int64)[flat.group],
    )
    return weighed(batch, settings)


def run_estimator(name: str, estimator: AdvantageEstimator, batch: RewardBatch) -> np.ndarray:
    """Return float32[N]: the estimator's advantages, checked, at every policy token; 0 for rollouts outside the statistics.

    Raise RunError, naming the estimator, if the result has another shape than ``estimator.per`` says, or is not finite in float32.
    """
    try:
        values = np.asarray(estimator.estimate(batch), np.float64)
    except (TypeError, AttributeError) as error:
        if not (hint := undeclared(error, "an estimator", RewardDetail)):
            raise
        raise RunError(f"estimator {name!r} failed: {type(error).__name__}: {error}{hint}") from error
    shapes = {"rollout": (len(batch.rewards),), "token": (int(batch.offsets[-1]),)}
    if values.shape != shapes.get(estimator.per):
        raise RunError(
            f'estimator {name!r} declares per = "{estimator.per}" and returned shape {list(values.shape)}; it must declare per = "rollout" '
            f'and return one advantage per rollout {list(shapes["rollout"])}, or per = "token" and one per token {list(shapes["token"])}'
        )
    if estimator.per == "rollout":
        values = np.repeat(values, batch.lengths)
    values = np.where(np.repeat(batch.in_statistics, batch.lengths), values, 0.0)
    if (bad := ~_fits_float32(values)).any():
        worst = int(np.searchsorted(batch.offsets, int(np.flatnonzero(bad)[0]), side="right")) - 1
        raise RunError(
            f"estimator {name!r} returned {values[bad][0]} for rollout {worst} of the batch "
            f"(reward {batch.rewards[worst]}, group {int(batch.group[worst])}); advantages must be finite in float32"
        )
    return values.astype(np.float32)


def prepare_loss(name: str, loss: Loss, batch: TrainBatch) -> TrainBatch:
    """Return the batch with the arrays of ``loss.prepare``.

    Raise RunError, naming the loss, for another shape than [N] or a value that is not finite.
    """
    for array in (getattr(batch, known.name) for known in fields(batch)):
        if isinstance(array, np.ndarray):
            array.setflags(write=False)  # a loss that writes into the batch would change the update silently
    extras = {}
    try:
        chosen = loss.prepare(batch)
    except (TypeError, AttributeError) as error:
        if not (hint := undeclared(error)):
            raise
        raise RunError(f"loss {name!r} failed in prepare: {type(error).__name__}: {error}{hint}") from error
    if not isinstance(chosen, Mapping):
        raise RunError(f"loss {name!r}: prepare returned a {type(chosen).__name__}; it must return a mapping of names to arrays")
    for key, value in chosen.items():
        array = np.asarray(value)
        if array.shape != batch.advantages.shape:
            raise RunError(f"loss {name!r}: prepare returned {key!r} of shape {list(array.shape)}; it must be [{len(batch.advantages)}]")
        if not _fits_float32(array).all():
            raise RunError(f"loss {name!r}: prepare returned {key!r} with values that are not finite in float32")
        extras[key] = array.astype(np.float32)
    return replace(batch, extras=extras, entropy=None)


def undeclared(error: BaseException, who: str = "a loss", known: type[StrEnum] = Need) -> str:
    """Return the end of the message for a plugin's own error if the plugin read a None; "" for any other error."""
    if not isinstance(error, TypeError | AttributeError) or "NoneType" not in str(error):
        return ""
    also = ", and entropy in prepare by prepares_entropy = True" if known is Need else ""
    fields_of = f"{who} declares the fields that it reads in `needs` ({', '.join(known)}){also}"
    return f"; a field that is None in a batch was not declared: {fields_of}"


def split(batch: TrainBatch, settings: BatchSettings | Sequence[BatchSettings], *, updates: int, epoch: int = 0) -> list[TrainBatch]:
    """Return the optimizer steps of one epoch over the GLOBAL batch.

    Whole groups are divided by a permutation keyed by (seed, version, epoch). There are at most ``updates`` steps, fewer if there are fewer
    groups. Inside a step the order stays canonical. Weights and normalisers are those of each step. A single step is the batch itself.
    """
    groups = np.unique(batch.group)
    steps = min(updates, len(groups))
    if steps <= 1:
        return [batch]
    order = groups[_keyed_order(len(groups), batch.seed, batch.version, epoch)]
    shares = [np.flatnonzero(np.isin(batch.group, chosen)) for chosen in np.array_split(order, steps)]
    return [weighed(batch.take(rows), settings) for rows in shares]


def weighed(batch: TrainBatch, settings: BatchSettings | Sequence[BatchSettings], share: float = 1.0) -> TrainBatch:
    """Return the batch with the weights and normalisers of a step of its own.

    With the settings of several sources, each source is weighed as if its part were the step, times its share of the step's groups.
    """
    if not isinstance(settings, BatchSettings):
        return _weighed_by_source(batch, settings)
    normalisers = replace(count(batch.lengths, batch.in_loss, settings.max_new_tokens), share=share)
    weights = token_weights(batch.lengths, batch.in_loss, normalisers, settings.variation, batch.group)
    if settings.max_staleness is not None:
        versions = [segment.versions[segment.policy_mask] for rollout in batch.rollouts for segment in rollout.segments]
        weights[np.concatenate([[], *versions]) < batch.version - settings.max_staleness] = 0.0
    return replace(batch, normalisers=normalisers, weights=weights)


def _weighed_by_source(batch: TrainBatch, settings: Sequence[BatchSettings]) -> TrainBatch:
    assert batch.source is not None
    weights, found = np.zeros_like(batch.weights), {}
    for number in np.unique(batch.source).tolist():
        rows = np.flatnonzero(batch.source == number)
        share = len(np.unique(batch.group[rows])) / len(np.unique(batch.group))
        part = weighed(batch.take(rows), settings[number], share)
        weights[token_index(batch.offsets, rows)], found[number] = part.weights, part.normalisers
    whole = count(batch.lengths, batch.in_loss, max(each.max_new_tokens for each in settings))
    return replace(batch, weights=weights, normalisers=replace(whole, sources=found))


def _keyed_order(n: int, *key: int) -> np.ndarray:
    # # A hash instead of a generator gives the same order on every rank, machine and numpy version.
    digests = [hashlib.blake2b(",".join(map(str, (*key, item))).encode(), digest_size=16).digest() for item in range(n)]
    return np.array(sorted(range(n), key=digests.__getitem__), np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Flat:
    rollouts: tuple[Rollout, ...]
    scores: tuple[Score, ...]
    group: np.ndarray
    lengths: np.ndarray
    offsets: np.ndarray
    truncated: np.ndarray
    in_statistics: np.ndarray
    in_loss: np.ndarray
    players: list[tuple[int, str]]
    """The group and the player of each rollout."""


def _flatten(groups: Sequence[Group], settings: BatchSettings | Sequence[BatchSettings], masked: Collection[int]) -> _Flat:
    rows = [(number, *row) for number, group in enumerate(groups) for row in _rows(group, RolloutKind.SAMPLED)]
    group = np.array([number for number, *_ in rows], np.int64)
    lengths = np.array([rollout.length for *_, rollout, _ in rows], np.int64)
    kept = ~np.isin(group, np.array(sorted(masked), np.int64))
    whole = np.array([rollout.finish != FinishReason.ABORTED for *_, rollout, _ in rows], np.bool_)
    truncated = np.array([rollout.finish == FinishReason.LENGTH for *_, rollout, _ in rows], np.bool_)
    in_loss = whole & kept & np.array([score.in_loss for *_, score in rows], np.bool_) & (lengths > 0)
    own = [settings if isinstance(settings, BatchSettings) else settings[each.source_index] for each in groups]
    filtered = truncated & np.array([each.filter_truncated for each in own], np.bool_)[group]
    return _Flat(
        rollouts=tuple(rollout for *_, rollout, _ in rows),
        scores=tuple(score for *_, score in rows),
        group=group,
        lengths=lengths,
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        truncated=truncated,
        in_statistics=np.array([_counts(rollout, score) for *_, rollout, score in rows], np.bool_),
        in_loss=in_loss & ~filtered,
        players=[(number, player) for number, player, *_ in rows],
    )


def _rows(group: Group, kind: RolloutKind) -> list[tuple[str, Rollout, Score]]:
    """Return the rollouts of a kind as (player, rollout, score), those of a player together."""
    pairs = [pair for pair in zip(group.rollouts, group.scores, strict=True) if pair[0].kind == kind]
    rows = [row for rollout, score in sorted(pairs, key=lambda pair: pair[0].index) for row in _by_branch(rollout, score)]
    players = list(dict.fromkeys(player for player, _, _ in rows))
    return sorted(rows, key=lambda row: players.index(row[0]))


def _by_branch(rollout: Rollout, score: Score) -> Iterator[tuple[str, Rollout, Score]]:
    """Yield (player, rollout, score): the rollout, or each of its branches as a rollout of its own."""
    if not rollout.branches:
        yield "", rollout, score
        return
    values = score.branch_values or (score.value,) * len(rollout.branches)
    if len(values) != len(rollout.branches):
        raise RunError(
            f"the score of rollout {rollout.index} of prompt {rollout.prompt_id!r} has {len(values)} branch values, and the rollout has "
            f"{len(rollout.branches)} branches; a reward must give a value for each, or none"
        )
    turns, tokens, start, end = list(rollout.turn_lengths), list(score.token_rewards or ()), 0, 0
    for branch, value in zip(rollout.branches, values, strict=True):
        start, end = end, end + branch.segments
        part = replace(rollout, segments=rollout.segments[start:end], turn_lengths=(), branches=())
        of_turns = _taken(turns, part.length)
        given = None if score.token_rewards is None else tuple(tokens[: part.length])
        del tokens[: part.length]
        yield branch.player, replace(part, turn_lengths=of_turns), replace(score, value=value, token_rewards=given)


def _taken(lengths: list[int], total: int) -> tuple[int, ...]:
    """Remove and return the first numbers that add up to a total, with the zeros after them."""
    found: list[int] = []
    while lengths and sum(found) + lengths[0] <= total:
        found.append(lengths.pop(0))
    return tuple(found)


def _read_only(array: np.ndarray) -> np.ndarray:
    array.setflags(write=False)
    return array


def _greedy(groups: Sequence[Group], compared: Mapping[tuple[int, str], int], settings: BatchSettings) -> np.ndarray:
    """Return float64[G]: the reward of the greedy rollout if it was judged (of branches, the mean), else NaN, punished as others are."""
    found: dict[int, list[float]] = {}
    for place, group in enumerate(groups):
        for player, rollout, score in _rows(group, RolloutKind.GREEDY):
            if _counts(rollout, score) and (number := compared.get((place, player))) is not None:
                value = _value(rollout, score)
                if settings.overlong is not None:
                    cut = np.array([rollout.finish == FinishReason.LENGTH])
                    value += soft_overlong(np.array([rollout.length]), cut, settings.overlong)[0]
                found.setdefault(number, []).append(value)
    return np.array([np.mean(found[number]) if number in found else np.nan for number in range(len(compared))], np.float64)


def _details(prompt_ids: Sequence[str], flat: _Flat, needs: Collection[RewardDetail], rewards: Sequence[str]) -> dict[str, Any]:
    """Return the fields of a ``RewardBatch`` that an estimator declares."""
    found: dict[str, Any] = {}
    if RewardDetail.PROMPT_IDS in needs:
        found["prompt_ids"] = tuple(prompt_ids)
    if RewardDetail.PARTS in needs:
        parts = [score.parts for score in flat.scores]
        found["parts"] = _by_name(parts, sorted(set().union(*parts)))
    if RewardDetail.RAW_PARTS in needs:
        found["raw_parts"] = _by_name([score.raw for score in flat.scores], rewards)
    if RewardDetail.TOKEN_REWARDS in needs:
        found["token_rewards"] = np.concatenate([np.zeros(0), *map(_token_rewards, flat.rollouts, flat.scores)])
    if RewardDetail.TURNS in needs:
        turns = [rollout.turn_lengths or [turn for segment in rollout.segments for turn in _turns(segment)] for rollout in flat.rollouts]
        found["turn_lengths"] = np.array([length for of_rollout in turns for length in of_rollout], np.int64)
        found["turn_offsets"] = np.cumsum([0, *map(len, turns)])
    if RewardDetail.ROLLOUT_LOGPROBS in needs:
        found["rollout_logprobs"] = _rollout_logprobs(flat.rollouts).astype(np.float64)
    return {name: _read_only(value) if isinstance(value, np.ndarray) else value for name, value in found.items()}


def _by_name(values: Sequence[Mapping[str, float]], names: Sequence[str]) -> dict[str, np.ndarray]:
    return {name: _read_only(np.array([of_rollout.get(name, np.nan) for of_rollout in values], np.float64)) for name in names}


def _turns(segment: Segment) -> list[int]:
    """Return the number of policy tokens in each unbroken run of them."""
    ends = np.flatnonzero(np.diff(segment.policy_mask.astype(np.int8), prepend=0, append=0))
    return [int(turn) for turn in ends[1::2] - ends[::2]]


def _token_rewards(rollout: Rollout, score: Score) -> np.ndarray:
    values = np.zeros(rollout.length) if score.token_rewards is None else np.array(score.token_rewards, np.float64)
    if len(values) != rollout.length:
        raise RunError(
            f"the score of rollout {rollout.index} of prompt {rollout.prompt_id!r} has {len(values)} token rewards, and the policy sampled "
            f"{rollout.length} tokens; a reward must give one for each of RewardInput.token_ids"
        )
    return values


def _counts(rollout: Rollout, score: Score) -> bool:
    """Return whether a rollout enters the statistics.

    An aborted rollout is a failure of the machine, whatever verdict a judge gave to its text.
    """
    return score.in_statistics and rollout.finish is not FinishReason.ABORTED


def _value(rollout: Rollout, score: Score) -> float:
    if not _fits_float32(score.value) and _counts(rollout, score):
        raise RunError(
            f"the score of rollout {rollout.index} of prompt {rollout.prompt_id!r} is {score.value}; it must be finite in float32"
        )
    return float(score.value)


def _fits_float32(values: np.ndarray | float) -> np.ndarray:
    """Return bool, in the shape of ``values``: False for NaN, for infinity, and for values that a cast to float32 would make infinite."""
    fits: np.ndarray = np.abs(values) <= np.finfo(np.float32).max
    return fits


def _check_temperatures(rollouts: Sequence[Rollout]) -> None:
    for rollout in rollouts:
        if not 0 < rollout.temperature < np.inf:
            raise RunError(
                f"rollout {rollout.index} of prompt {rollout.prompt_id!r} is marked as sampled at temperature {rollout.temperature}, "
                "which cannot be trained; it must be a finite number above 0"
            )


def _rollout_logprobs(rollouts: Sequence[Rollout]) -> np.ndarray:
    parts = [segment.logprobs[segment.policy_mask] for rollout in rollouts for segment in rollout.segments]
    return np.concatenate(parts).astype(np.float32) if parts else np.zeros(0, np.float32)
