"""`make architectures`: which architectures the transformers backend serves, and how exactly.

Each is a tiny model with random weights. The backend decodes ragged groups at three temperatures, some prompts longer than the window, two
prompts at a time, so that places are filled again while other rows go on; then new weights come, and it does so again. Every token is held
against a forward pass of transformers over its sequence alone, without cache or padding, in float32. The table goes into
docs/how_to/inference.md; ``--only NAME …`` prints rows and leaves the page alone. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from rlcore_plugin_transformers.engine import TransformersBackend
from rlcore_plugin_transformers.options import TransformersOptions
from transformers import AutoConfig, AutoModelForCausalLM

from rlcore.api import Completion, ConfigError, InferenceContext, Request, Sampling, Snapshot, Tensor
from rlcore.testing import FakeTokenizer, update_engine

PAGE = Path(__file__).parents[1] / "docs" / "how_to" / "inference.md"
BEGIN, END = "<!-- architectures: begin -->", "<!-- architectures: end -->"
TOLERANCE = 1e-4
"""Nats, in float32."""
WINDOW, MAX_TOKENS, VOCABULARY = 8, 64, 96
LENGTHS, GROUPS = (3, 21, 9, 30, 14), (2, 1, 3, 1, 2)
"""Tokens of the prompts, and completions of each."""
BASE: Mapping[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 128,
    "initializer_range": 0.2,
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": VOCABULARY - 1,
}
OWN_HEADS = {name: value for name, value in BASE.items() if name != "head_dim"}
"""For configurations that compute the size of a head."""
MIXED = {"sliding_window": WINDOW, "layer_types": ["sliding_attention", "full_attention"]}
EXPERTS = {
    "num_experts": 4,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
}
LATENT = {
    **EXPERTS,
    "n_routed_experts": 4,
    "n_group": 1,
    "topk_group": 1,
    "q_lora_rank": 8,
    "kv_lora_rank": 8,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 4,
    "v_head_dim": 8,
    "num_key_value_heads": 4,
    "first_k_dense_replace": 1,
}
GPT = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128}


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """One row: ``kind`` is transformers' model type. ``refused``: words of the sentence that refuses it, "" if it is served."""

    name: str
    kind: str
    special: str
    config: Mapping[str, Any] = field(default_factory=dict)
    base: Mapping[str, Any] = field(default_factory=lambda: BASE)
    attention: str = "sdpa"
    refused: str = ""


def _of(name: str, special: str, **given: Any) -> Architecture:
    return Architecture(name=name, special=special, **{"kind": name, **given})


ARCHITECTURES = (
    _of("llama", "grouped keys, an output head of its own"),
    _of("qwen2", "biased projections"),
    _of("qwen2, window", "a window in the upper layers", kind="qwen2", config={"use_sliding_window": True, **MIXED}),
    _of("qwen3", "normalised queries and keys"),
    _of("mistral", "a window in every layer", config={"sliding_window": WINDOW}),
    _of("ministral", "alternating windows and full attention", config=MIXED),
    _of("gemma", "scaled embeddings"),
    _of("gemma2", "alternating windows, capped attention logits", config={**MIXED, "query_pre_attn_scalar": 8}, attention="eager"),
    _of("gemma2, sdpa", "the same with the default attention", kind="gemma2", config=MIXED, refused='attention = "eager"'),
    _of("gemma3_text", "alternating windows, two rotary bases", config={**MIXED, "query_pre_attn_scalar": 8}),
    _of("phi3", "one projection for all, a window in every layer", config={"sliding_window": WINDOW}),
    _of(
        "phi3, longrope",
        "rotary positions that change at a length",
        kind="phi3",
        config={
            "original_max_position_embeddings": 24,
            "rope_parameters": {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 4, "long_factor": [2.0] * 4},
        },
        refused="rotary positions of type longrope",
    ),
    _of(
        "llama, dynamic",
        "rotary positions that change with the length",
        kind="llama",
        config={"max_position_embeddings": 24, "rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}},
        refused="rotary positions of type dynamic",
    ),
    _of("olmo2", "norms after the blocks"),
    _of("olmo3", "the same, alternating windows", config=MIXED),
    _of("cohere2", "windows with rotary positions, full attention without", config=MIXED),
    _of("exaone4", "alternating windows", config=MIXED),
    _of("smollm3", "some layers without positions"),
    _of("glm4", "half of each head rotates"),
    _of("granite", "scaled residuals and logits"),
    _of("starcoder2", "layer norms, a window in every layer", config={"sliding_window": WINDOW}),
    _of("stablelm", "a part of each head rotates"),
    _of("phi", "parallel blocks"),
    _of("gpt_neox", "parallel blocks"),
    _of("gptj", "parallel blocks, no sdpa", config={**GPT, "rotary_dim": 8}, base=OWN_HEADS, attention="eager"),
    _of("gpt2", "learned positions", config=GPT, base=OWN_HEADS),
    _of("opt", "learned positions with an offset", config={"ffn_dim": 48, "word_embed_proj_dim": 32}),
    _of("mixtral", "experts", config=EXPERTS),
    _of("qwen2_moe", "experts, one shared", config=EXPERTS),
    _of("qwen3_moe", "experts", config=EXPERTS),
    _of("olmoe", "experts", config=EXPERTS),
    _of("granitemoe", "experts", config=EXPERTS),
    _of("gpt_oss", "experts, attention sinks, alternating windows", config={**EXPERTS, **MIXED}, attention="eager"),
    _of("deepseek_v3", "experts, latent attention: keys and values differ in size", config=LATENT, base=OWN_HEADS),
    _of("falcon", "one key for all heads", base=OWN_HEADS, config={"alibi": False}),
    _of("falcon, alibi", "ALiBi", kind="falcon", base=OWN_HEADS, config={"alibi": True}, attention="eager", refused="ALiBi"),
    _of("bloom", "ALiBi", base=OWN_HEADS, config={"n_layer": 2, "n_head": 4}, refused="takes no position_ids"),
    _of("mpt", "ALiBi", base=OWN_HEADS, config={"d_model": 32, "n_heads": 4, "n_layers": 2}, refused="takes no position_ids"),
    _of("llama4_text", "attention within chunks", config={**EXPERTS, "attention_chunk_size": WINDOW}, refused="chunked_attention"),
    _of("doge", "keeps the likeliest keys only", config={"keep_window_size": WINDOW}, refused="keep_window_size"),
    _of("doge, short", "a mask for each head", kind="doge", config={"keep_window_size": MAX_TOKENS}),
    _of(
        "gpt_neo",
        "local attention of its own",
        config={"attention_types": [[["global", "local"], 1]], "window_size": WINDOW, "num_layers": 2, "num_heads": 4},
        base={"vocab_size": VOCABULARY, "hidden_size": 32, "eos_token_id": 1, "bos_token_id": 0},
        refused="window_size",
    ),
    _of("mamba", "recurrent", config={"state_size": 8}, refused="linear_attention"),
    _of("recurrent_gemma", "recurrent layers among windows", config={"lru_width": 32}, refused="linear_attention"),
    _of("jamba", "recurrent layers, experts", config=EXPERTS, refused="linear_attention"),
    _of("qwen3_next", "linear attention, experts", config=EXPERTS, refused="linear_attention"),
    _of("lfm2", "convolutions", config={"layer_types": ["conv", "full_attention"]}, refused="conv"),
)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """``refusal``: the sentence, "" if it is served. In nats: the largest difference of a token in float32, before and after an update;
    mean and largest between an engine in bfloat16 and the model in float32."""

    refusal: str = ""
    before: float = 0.0
    after: float = 0.0
    coarse_mean: float = 0.0
    coarse_most: float = 0.0


def measure(one: Architecture) -> Outcome:
    """Make the model, serve it, compare."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(one.kind, **{**one.base, **one.config})).float().eval()
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        try:
            engine = _engine(folder, one, "float32")
        except ConfigError as error:
            return Outcome(refusal=str(error).replace(folder, one.name))
        plain = _plain(folder, one)
        before = gaps(plain, *generate(engine, seed=1))
        coarse = gaps(plain, *generate(_engine(folder, one, "bfloat16"), seed=1))
        update_engine(engine, _moved(plain))
        after = gaps(plain, *generate(engine, seed=2))
    gc.collect()
    return Outcome(before=float(before.max()), after=float(after.max()), coarse_mean=float(coarse.mean()), coarse_most=float(coarse.max()))


def _engine(folder: str, one: Architecture, dtype: str) -> TransformersBackend:
    context = InferenceContext(
        model=folder, tokenizer=FakeTokenizer("ab"), prompts_per_forward=2, max_tokens=MAX_TOKENS, dtype=dtype, device="cpu"
    )
    return TransformersBackend(context, TransformersOptions.model_validate({"attention": one.attention}))


def _plain(folder: str, one: Architecture, **changed: Any) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation=one.attention, **changed).eval()


def _moved(model: Any) -> Snapshot:
    """Move the weights of a model, and pack them as a trainer sends them."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape, generator=generator) * 0.03)
    tensors = {
        name: Tensor(dtype="float32", shape=tuple(value.shape), data=value.detach().numpy().copy())
        for name, value in model.state_dict().items()
    }
    return Snapshot.of(1, tensors)


def generate(engine: TransformersBackend, seed: int) -> tuple[list[Request], dict[str, Completion]]:
    """Ragged groups, a part of them submitted while the others run."""
    draws = np.random.default_rng(seed)
    prompts = [draws.integers(1, VOCABULARY - 1, length).astype(np.int32) for length in LENGTHS]
    requests = [
        Request(
            request_id=f"{seed}-{prompt}-{rollout}",
            token_ids=prompts[prompt],
            sampling=Sampling(temperature=(0.7, 1.0, 1.3)[prompt % 3], max_new_tokens=4 + 5 * ((prompt + rollout) % 4)),
            noise=(seed, 0, prompt, rollout),
        )
        for prompt, size in enumerate(GROUPS)
        for rollout in range(size)
    ]
    engine.submit(requests[:5])
    finished = {completion.request_id: completion for completion in engine.poll(0.0)}
    engine.submit(requests[5:])
    while completions := engine.poll(60.0):
        finished |= {completion.request_id: completion for completion in completions}
    return requests, finished


def gaps(model: Any, requests: Sequence[Request], finished: Mapping[str, Completion]) -> np.ndarray:
    """float32[tokens]: what the engine says of each token, against a forward pass over its sequence alone."""
    found = []
    for request in requests:
        completion, context = finished[request.request_id], len(request.token_ids)
        ids = torch.from_numpy(np.concatenate([request.token_ids, completion.token_ids]).astype(np.int64))[None]
        with torch.inference_mode():
            logits = model(input_ids=ids, use_cache=False).logits[0, context - 1 : -1].float()
        told = torch.log_softmax(logits / request.sampling.temperature, dim=-1).gather(1, ids[0, context:, None]).squeeze(1).numpy()
        found.append(np.abs(told - completion.logprobs))
    return np.concatenate(found)


def row(one: Architecture, outcome: Outcome) -> str:
    """The line of the table."""
    settings = f' (`attention = "{one.attention}"`)' if one.attention != "sdpa" and not one.refused else ""
    if outcome.refusal:
        why = outcome.refusal.partition(") ")[2] or outcome.refusal.partition("loaded: ")[2]
        return f"| {one.name} | {one.special} | refused: {why} | | | |"
    figures = f"{outcome.before:.0e} | {outcome.after:.0e} | {outcome.coarse_mean:.0e}, {outcome.coarse_most:.0e}"
    return f"| {one.name} | {one.special} | served{settings} | {figures} |"


def table(rows: Sequence[str]) -> str:
    """The markdown between the markers."""
    heads = ("architecture", "what is special", "verdict", "fp32", "after an update", "bf16: mean, largest")
    said = f"Made by `make architectures` with transformers {transformers.__version__} and torch {torch.__version__.partition('+')[0]}."
    return "\n".join([said, "", f"| {' | '.join(heads)} |", "|---|---|---|---:|---:|---:|", *rows])


def main(words: Sequence[str] | None = None) -> int:
    """Measure, write the page; exit code 1 if one is served wrong, or is served or refused against what this file says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=[one.name for one in ARCHITECTURES], help="rows to print; the page is left alone")
    only = parser.parse_args(words).only
    torch.set_num_threads(1)
    head, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not only and not end:
        parser.error(f"{PAGE} has no {BEGIN} before {END}")
    asked = [one for one in ARCHITECTURES if not only or one.name in only]
    outcomes = {one.name: measure(one) for one in asked}
    rows = [row(one, outcomes[one.name]) for one in asked]
    print("\n".join(rows))
    if not only:
        PAGE.write_text(f"{head}{BEGIN}\n\n{table(rows)}\n\n{END}{tail}", "utf-8")
    wrong = [one.name for one in asked if not as_said(one, outcomes[one.name])]
    print(json.dumps({"served": sum(not outcome.refusal for outcome in outcomes.values()), "of": len(asked), "wrong": wrong}))
    return 1 if wrong else 0


def as_said(one: Architecture, outcome: Outcome) -> bool:
    """Refused by the words that this file says, or served with the numbers of a plain forward pass."""
    if one.refused or outcome.refusal:
        return bool(one.refused) and one.refused in outcome.refusal
    return max(outcome.before, outcome.after) < TOLERANCE


if __name__ == "__main__":
    sys.exit(main())
