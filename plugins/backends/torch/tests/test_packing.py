"""Packed forwards against padded rows on a tiny model in float64; each way to pack wrongly is planted once and seen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from exact_backend import make_norms_exact
from hypothesis import given, settings
from hypothesis import strategies as st
from rlcore_plugin_torch import attention, packing, shared_attention, slots
from rlcore_plugin_torch.attention import Pieces, tiles
from rlcore_plugin_torch.microbatch_planning import Cost, plan_packed
from rlcore_plugin_torch.packing import pack, trees
from rlcore_plugin_torch.passes import Clock, MicrobatchPlanner, accumulate, with_padding_share
from rlcore_plugin_torch.policy import CausalPolicy
from rlcore_plugin_torch.slots import Slots
from transformers import AutoConfig, AutoModelForCausalLM

from rlcore.api import FinishReason, Rollout, RunError, Segment, TrainBatch
from rlcore.learning import ClippedSurrogate, PolicyObjective, collate
from rlcore.testing import make_rollout, make_train_batch

VOCABULARY = 50
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 512,
    "initializer_range": 0.3,
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": 1,
}
MIXED = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 6}
EVERY = MicrobatchPlanner(rollouts=1000, tokens=10**6, prompts=1000)


def make_policy(kind: str = "qwen2", *, packed: bool = True, exact: bool = True, **config: Any) -> CausalPolicy:
    torch.manual_seed(0)
    sizes = {name: value for name, value in {**SIZES, **config}.items() if value is not None}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **sizes), attn_implementation="sdpa").eval()
    if exact:
        model = model.double()
        make_norms_exact(model)
    policy = CausalPolicy(model=model)
    if packed:
        assert policy.try_packing() == ""
    return policy


@pytest.fixture(scope="module")
def policy() -> CausalPolicy:
    return make_policy()


@pytest.fixture(scope="module")
def windowed() -> CausalPolicy:
    """A window in one of two layers; documents of the test are longer."""
    return make_policy("qwen2", use_sliding_window=True, **MIXED)


@pytest.fixture(scope="module", params=["shared", "tiles"])
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each way in which a CPU attends over a packed buffer. Of the module, as hypothesis asks for; so a test without it says its own."""
    with pytest.MonkeyPatch.context() as patch:
        use(patch, request.param)
        yield request.param


def use(patch: pytest.MonkeyPatch, way: str) -> None:
    patch.setattr(attention, "has_shared", shared_attention.has_shared if way == "shared" else lambda *_: False)


# --- batches -------------------------------------------------------------------------------------------------------------

LENGTHS = st.one_of(st.integers(0, 6), st.integers(0, 40))
MEMBERS = st.tuples(LENGTHS, st.booleans(), st.booleans(), st.integers(0, 2), st.sampled_from([0.7, 1.0, 1.3]))
"""Tokens, whether some are forced, whether it is in the loss, further segments, temperature."""
SHAPES = st.lists(st.tuples(st.integers(1, 30), st.lists(MEMBERS, min_size=1, max_size=5)), min_size=1, max_size=4)


def make_batch(shape: Any, seed: int = 0) -> TrainBatch:
    rng = np.random.default_rng(seed)
    rollouts, groups, in_loss = [], [], []
    for number, (context, members) in enumerate(shape):
        prompt = rng.integers(0, VOCABULARY, context)
        for index, (length, forced, trains, more, temperature) in enumerate(members):
            segments = [make_segment(rng, prompt, length, forced)]
            for _ in range(more):
                # A later segment goes on from the first one, or from the prompt itself, as where an answer was thrown away.
                past = np.concatenate([prompt, segments[0].token_ids]) if rng.random() < 0.7 else prompt
                segments.append(make_segment(rng, past, int(rng.integers(0, 8)), forced=False))
            rollouts.append(
                Rollout(
                    prompt_id=f"p{number}",
                    index=index,
                    segments=tuple(segments),
                    text="",
                    finish=FinishReason.STOP,
                    temperature=temperature,
                )
            )
            groups.append(number)
            in_loss.append(trains and any(segment.policy_mask.any() for segment in segments))
    batch = make_train_batch(rollouts, rng.normal(size=len(rollouts)).tolist(), group=groups, in_loss=in_loss)
    return replace(batch, rollout_logprobs=rng.normal(-3, 0.3, int(batch.offsets[-1])).astype(np.float32))


def make_segment(rng: np.random.Generator, context: np.ndarray, length: int, forced: bool) -> Segment:
    mask = rng.random(length) < 0.6 if forced else np.ones(length, np.bool_)
    zeros = np.zeros(length)
    return Segment(context_ids=context, token_ids=rng.integers(0, VOCABULARY, length), logprobs=zeros, versions=zeros, policy_mask=mask)


def plain_batch(contexts: list[int], lengths: list[int]) -> TrainBatch:
    return make_batch([(context, [(length, False, True, 0, 1.0) for length in lengths]) for context in contexts])


def difference(policy: CausalPolicy, batch: TrainBatch) -> tuple[float, float]:
    """Between packed and padded, over all rollouts that have a policy token: of a log probability, and the gradient's, relative."""
    rows = np.flatnonzero(batch.lengths > 0)
    found = []
    for make in (collate, pack):
        micro = make(batch, rows)
        policy.model.zero_grad()
        logprobs, entropy = policy.logprobs(micro, entropy=True)
        assert entropy is not None
        slopes = torch.linspace(-1, 2, len(logprobs), dtype=logprobs.dtype)
        (logprobs @ slopes + 0.1 * entropy.sum()).backward()
        found.append((logprobs.detach(), torch.cat([weight.grad.flatten() for weight in policy.model.parameters()])))
    (theirs, their_grad), (ours, our_grad) = found
    return float((ours - theirs).abs().max()), float((our_grad - their_grad).norm() / their_grad.norm())


# --- equality ------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("way")
@given(SHAPES, st.integers(0, 5))
@settings(deadline=None, max_examples=25)
def test_packed_is_padded(policy: CausalPolicy, windowed: CausalPolicy, shape: Any, seed: int) -> None:
    batch = make_batch(shape, seed)
    if not (batch.lengths > 0).any():
        return
    for one in (policy, windowed):
        assert max(difference(one, batch)) < 1e-10


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("queries", [128, 7])
def test_long_branches_and_mixed_lengths(
    policy: CausalPolicy, windowed: CausalPolicy, monkeypatch: pytest.MonkeyPatch, queries: int
) -> None:
    """Branches longer than the queries of a tile, tiles of several shapes, a tile with padding."""
    monkeypatch.setattr(attention, "_QUERIES", queries)
    monkeypatch.setattr(slots, "_FREE", 100)
    batch = plain_batch([5, 40], [1, 3, 150, 260, 9])
    plan = pack(batch, np.arange(10)).attention
    assert len(plan.tiles) > 3
    assert len(plan.shared.own) > 3
    for one in (policy, windowed):
        assert max(difference(one, batch)) < 1e-10


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(
    "cut", [MicrobatchPlanner(rollouts=1000, tokens=10**6, prompts=1000), MicrobatchPlanner(rollouts=2, tokens=50, prompts=1)]
)
def test_an_update_does_not_depend_on_packing(policy: CausalPolicy, cut: MicrobatchPlanner) -> None:
    batch = make_batch(
        [(9, [(12, True, True, 1, 0.7), (0, False, True, 0, 1.0), (30, False, False, 0, 1.0), (5, False, True, 0, 1.3)])] * 3
    )
    objective = PolicyObjective(loss=ClippedSurrogate(), entropy_coeff=0.01)
    found = []
    for packed in (False, True):
        policy.model.zero_grad()
        metrics = with_padding_share(accumulate(policy, batch, objective, replace(cut, packed=packed), Clock()))
        found.append((torch.cat([weight.grad.flatten() for weight in policy.model.parameters()]), metrics))
    (theirs, told), (ours, said) = found
    assert float((ours - theirs).norm() / theirs.norm()) < 1e-10
    assert said.pop("padding_share") == 0
    assert 0 < told.pop("padding_share") < 1
    assert said == pytest.approx(told, rel=1e-10, abs=1e-12)


def test_padding_share_counts_positions_and_adds_up() -> None:
    """Rows of 4 + 3 and 4 + 1 tokens make 14 positions, two of them padding; of another rank 10 positions, none padded."""
    policy = make_policy(packed=False)
    objective = PolicyObjective(loss=ClippedSurrogate())
    first = accumulate(policy, plain_batch([4], [3, 1]), objective, EVERY, Clock())
    other = accumulate(policy, plain_batch([4], [1, 1]), objective, EVERY, Clock())
    assert with_padding_share(first)["padding_share"] == 2 / 14
    total = with_padding_share({name: first[name] + other[name] for name in first})
    assert total["padding_share"] == 2 / 24
    assert not {"positions", "padded_positions"} & set(total)
    assert "padding_share" not in with_padding_share({})


def test_in_half_precision_it_stays_near() -> None:
    policy = make_policy(exact=False)
    policy.compute = torch.bfloat16
    batch = plain_batch([9, 5], [7, 3, 12])
    with torch.no_grad():
        ours, theirs = (policy.logprobs(make(batch, np.arange(6)))[0] for make in (pack, collate))
    assert float((ours - theirs).abs().max()) < 0.3
    assert float((ours - theirs).abs().mean()) < 0.03


# --- what is planted is seen -----------------------------------------------------------------------------------------------


def leak(tile: Any, window: int | None) -> np.ndarray:
    return np.ones((len(tile.pieces.start), 1, tile.wide_q, tile.wide_k), np.bool_)


def late(tile: Any, window: int | None) -> np.ndarray:
    """Causal from the upper left: as if there were no prefix before the queries."""
    return np.tile(np.tri(tile.wide_q, tile.wide_k, dtype=np.bool_), (len(tile.pieces.start), 1, 1, 1))


def one_document(found: Any, starts: np.ndarray) -> Pieces:
    return Pieces.of([(0, 0, 0, int(starts[-1]))])


def one_sibling_more(found: Any, starts: np.ndarray) -> Pieces:
    """Each tree as one document: a branch sees the ones before it."""
    return Pieces.of([(0, 0, int(start), tree.tokens) for tree, start in zip(found, starts, strict=False)])


def never_restarted(tree: Any) -> list[np.ndarray]:
    return [np.arange(tree.tokens)]


def all_of_the_padding(begin: np.ndarray, many: np.ndarray, prompt: np.ndarray, length: np.ndarray) -> Any:
    return _PREFIX_TILE(begin, many, prompt, length)._replace(mask=None)


def the_last_tokens_alone(*given: Any) -> Any:
    """The part of a branch's own tokens does not know how much its prompt weighs."""
    grad, tensors, out, denominators, mask, causal, scale = given
    return _BACKWARD(grad, tensors, out, denominators - 1.0 * causal, mask, causal, scale)


_PREFIX_TILE, _BACKWARD = shared_attention._prefix_tile, shared_attention._backward


@pytest.mark.parametrize(
    ("place", "name", "bug"),
    [
        (packing, "_pieces", one_document),
        (packing, "_pieces", one_sibling_more),
        (packing, "_positions", never_restarted),
    ],
    ids=["documents leak", "branches see siblings", "positions not restarted"],
)
@pytest.mark.usefixtures("way")
def test_a_planted_bug_is_seen(monkeypatch: pytest.MonkeyPatch, place: Any, name: str, bug: Any) -> None:
    check_seen(monkeypatch, place, name, bug)


@pytest.mark.parametrize("bug", [leak, late], ids=["sees the future", "wrong causal offset"])
def test_a_planted_bug_of_tiles_is_seen(monkeypatch: pytest.MonkeyPatch, bug: Any) -> None:
    use(monkeypatch, "tiles")
    check_seen(monkeypatch, attention.Tile, "mask", bug)


def test_a_planted_bug_of_shared_prompts_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, "shared")
    check_seen(monkeypatch, shared_attention, "_prefix_tile", all_of_the_padding)


def test_a_wrong_gradient_of_shared_prompts_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, "shared")
    policy, batch = make_policy(), plain_batch([5, 3], [6, 4, 9])
    monkeypatch.setattr(shared_attention, "_backward", the_last_tokens_alone)
    assert difference(policy, batch)[1] > 1e-3


def check_seen(monkeypatch: pytest.MonkeyPatch, place: Any, name: str, bug: Any) -> None:
    policy, batch = make_policy(), plain_batch([5, 3], [6, 4, 9])
    assert max(difference(policy, batch)) < 1e-10
    monkeypatch.setattr(place, name, bug)
    assert min(difference(policy, batch)) > 1e-3
    assert make_policy(packed=False).try_packing(), "the trial at setup is blind to it"


def test_a_window_that_is_not_kept_is_seen(windowed: CausalPolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = attention.Tile.mask
    monkeypatch.setattr(attention.Tile, "mask", lambda tile, window: honest(tile, None if window is None else window + 1))
    assert min(difference(windowed, plain_batch([9, 12], [6, 4, 9]))) > 1e-3


# --- models --------------------------------------------------------------------------------------------------------------

EXPERTS = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
PACKED: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen3": {},
    "mistral": {"sliding_window": 6},
    "gemma3_text": {**MIXED, "query_pre_attn_scalar": 8},
    "phi3": {"sliding_window": 6},
    "gpt_neox": {},
    "qwen3_moe": EXPERTS,
    "opt": {"ffn_dim": 48, "word_embed_proj_dim": 32},
}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "recurrent_gemma": ({"lru_width": 32}, "layers of type linear_attention"),
    "jamba": (EXPERTS, "layers of type linear_attention"),
    "lfm2": ({"layer_types": ["conv", "full_attention"]}, "layers of type conv"),
    "llama4_text": ({**EXPERTS, "attention_chunk_size": 8}, "layers of type chunked_attention"),
    "stablelm": ({}, "did not use the attention plan"),
    "falcon": ({"alibi": True, "head_dim": None}, "ValueError"),
    "doge": ({"keep_window_size": 64}, "attends with a mask of its own"),
}


@pytest.mark.full
@pytest.mark.parametrize("kind", PACKED)
def test_models_that_are_packed(kind: str) -> None:
    policy = make_policy(kind, exact=False, **PACKED[kind])
    logprobs, gradient = difference(policy, plain_batch([9, 20, 3], [6, 14, 1, 9]))
    assert logprobs < 1e-4
    assert gradient < 1e-4


@pytest.mark.full
@pytest.mark.parametrize("kind", REFUSED)
def test_models_that_are_not(kind: str) -> None:
    config, words = REFUSED[kind]
    policy = make_policy(kind, packed=False, exact=False, **config)
    before = policy.model.config._attn_implementation
    reason = policy.try_packing()
    assert words in reason
    assert "\n" not in reason
    assert policy.model.config._attn_implementation == before


def test_a_model_that_goes_another_way_is_not_trained_wrongly(policy: CausalPolicy) -> None:
    other = make_policy(packed=False)
    with pytest.raises(RunError, match="did not use the attention plan"):
        other.logprobs(pack(plain_batch([4], [3, 2]), np.arange(2)))


# --- layout, tiles, slots --------------------------------------------------------------------------------------------------


def test_a_prompt_is_there_once_and_no_token_that_predicts_nothing() -> None:
    """4 context tokens; completions of 3, 1 and 4, of which the last token of each need not be read."""
    batch = make_train_batch([make_rollout([1, 2, 3, 4], range(10, 10 + length)) for length in (3, 1, 4)], [0.0] * 3, group=[0, 0, 0])
    micro = pack(batch, np.arange(3))
    assert micro.input_ids.tolist() == [[1, 2, 3, 4, 10, 11, 10, 11, 12]]
    assert micro.position_ids.tolist() == [[0, 1, 2, 3, 4, 5, 4, 5, 6]]
    assert micro.select.tolist() == [3, 4, 5, 3, 3, 6, 7, 8]
    assert micro.targets.tolist() == [10, 11, 12, 10, 10, 11, 12, 13]
    assert trees(batch, [0, 1, 2])[0].pairs == 10 + 2 * 4 + 3 + 3 * 4 + 6


def test_a_segment_without_context_is_refused() -> None:
    batch = make_train_batch([make_rollout([], [5, 6])], [0.0])
    with pytest.raises(RunError, match="has no context"):
        pack(batch, np.array([0]))


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(1, 600)), min_size=1, max_size=40))
@settings(deadline=None, max_examples=30)
def test_tiles_hold_every_query_once_and_little_padding(shapes: list[tuple[int, int]]) -> None:
    starts = np.cumsum([0, *(prefix + own for prefix, own in shapes)])
    pieces = Pieces.of([(int(at), prefix, int(at) + prefix, own) for (prefix, own), at in zip(shapes, starts, strict=False)])
    found = tiles(pieces)
    slots = [tile.pieces.query_places(tile.wide_q) for tile in found]
    seen = np.concatenate([places[real] for places, real in slots])
    assert sorted(seen.tolist()) == [
        at for (prefix, own), start in zip(shapes, starts, strict=False) for at in range(start + prefix, start + prefix + own)
    ]
    computed = sum(len(tile.pieces.start) * tile.wide_q * tile.wide_k for tile in found)
    needed = sum(int((tile.pieces.queries * tile.pieces.keys).sum()) for tile in found)
    assert computed <= needed / 0.9 + 4600 * len(found)


def test_slots_there_and_back_with_gradients() -> None:
    index, real = np.array([[2, 0, 1], [2, 2, 0]]), np.array([[True, True, True], [True, True, False]])
    many = Slots.of([(index, real)], torch.device("cpu"))
    rows = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    assert torch.equal(many.fill(rows), rows[index.ravel()])
    (many.fill(rows) * torch.tensor([1.0, 2, 4, 8, 16, 0])[:, None]).sum().backward()
    assert rows.grad is not None
    assert rows.grad.tolist() == [[2, 2], [4, 4], [25, 25]]
    with pytest.raises(ValueError, match="several slots"):
        many.empty(torch.zeros(6, 2))
    single = Slots.of([(np.array([1, 0, 0, 2]), np.array([True, True, False, True]))], torch.device("cpu"))
    assert torch.equal(single.empty(single.fill(rows)), rows)
    assert torch.autograd.gradcheck(lambda given: single.empty(given).sin(), torch.randn(4, 2, dtype=torch.float64, requires_grad=True))


# --- the plan ------------------------------------------------------------------------------------------------------------


@given(SHAPES, st.integers(1, 8), st.integers(1, 200), st.integers(1, 4), st.booleans())
@settings(deadline=None, max_examples=80)
def test_laws_of_the_plan(shape: Any, rollouts: int, tokens: int, prompts: int, everything: bool) -> None:
    batch = make_batch(shape)
    plan = plan_packed(batch, rollouts=rollouts, tokens=tokens, prompts=prompts, everything=everything)
    wanted = np.flatnonzero((batch.lengths > 0) & (batch.in_loss | everything))
    assert sorted(row for rows in plan for row in rows) == wanted.tolist()
    slices = {group: place // prompts for place, group in enumerate(dict.fromkeys(batch.group[wanted].tolist()))}
    for rows in plan:
        assert len(rows) <= rollouts
        assert (np.diff(rows) > 0).all()
        assert len({slices[int(group)] for group in batch.group[rows]}) == 1
        assert len(rows) == 1 or pack(batch, rows).input_ids.numel() <= tokens


def test_forwards_are_of_like_cost_and_few() -> None:
    rng = np.random.default_rng(0)
    lengths = rng.lognormal(3, 1, (16, 4)).astype(int) + 1
    batch = make_batch([(10, [(int(length), False, True, 0, 1.0) for length in row]) for row in lengths])
    cost = Cost(token=100, target=3)
    plan = plan_packed(batch, rollouts=1000, tokens=600, prompts=1000, cost=cost)
    total = pack(batch, np.arange(64)).input_ids.numel()
    assert len(plan) <= -(-total // 600) + 1
    costs = [cost.packed(batch, rows) for rows in plan]
    assert max(costs) < 1.2 * min(costs)
    assert sum(costs) == cost.packed(batch, np.arange(64))


def test_cost_by_hand() -> None:
    """A prompt of 4 and branches of 2 and 0 read tokens: 6 tokens, 10 + 8 + 3 pairs, 4 targets; as rows 7 and 5 tokens."""
    batch = make_train_batch([make_rollout([1, 2, 3, 4], [5, 6, 7]), make_rollout([1, 2, 3, 4], [5])], [0.0] * 2, group=[0, 0])
    cost = Cost(token=1000, target=100)
    assert cost.packed(batch, np.arange(2)) == 6 * 1000 + 21 + 4 * 100
    assert cost.padded(batch, np.arange(2)) == 12 * 1000 + 28 + 15 + 4 * 100
