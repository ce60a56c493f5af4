"""A causal language model as a policy: from a micro-batch to the log probabilities of its policy tokens, without a tensor [B, T, V].

The decoder gives hidden states; only those that predict policy tokens are projected, chunk by chunk. This leaves out anything else that a
model does to its logits, such as scaling or capping. A comparison with the model's own logits finds such a model, which is then refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from rlcore.api import ConfigError, RunError
from rlcore.learning import MicroBatch, collate
from rlcore_plugin_torch.attention import PACKED, NotPackableError
from rlcore_plugin_torch.decoder import decoder_of
from rlcore_plugin_torch.fused_layers import fuse, fusible, unfuse
from rlcore_plugin_torch.microbatch_planning import Cost
from rlcore_plugin_torch.packing import PackedBatch, pack
from rlcore_plugin_torch.projection import token_logprobs
from rlcore_plugin_torch.sample import sample_batch

__all__ = ["AGREE", "CausalPolicy"]

_AGREE_PACKED = 1e-4
"""The same bound for one token in a packed buffer and in a separate row."""
AGREE = 1e-3
"""Nats by which two ways of computing one log probability in float32 may differ on a short sequence."""


class CausalPolicy(torch.nn.Module):
    """A policy whose ``forward`` calls the decoder and the projection once, so that a wrapper of the module (``fully_shard``) sees every
    use of its weights.

    ``compute``: bfloat16 to run the forward under autocast (weights do not change), None for the weights' own precision. ``chunk``: entries
    of the vocabulary projected at a time, None for a size that suits the device. ``exact_head``: project in float32 even if ``compute`` is
    bfloat16.
    """

    def __init__(
        self, *, model: PreTrainedModel, compute: torch.dtype | None = None, chunk: int | None = None, exact_head: bool = False
    ) -> None:
        super().__init__()
        self.model = model
        self.compute = compute
        self.chunk = chunk
        self.exact_head = exact_head
        self.fused = False

    @property
    def device(self) -> torch.device:
        """The device of the model."""
        return torch.device(self.model.device)

    def forward(
        self,
        inputs: Mapping[str, Any],
        select: torch.Tensor,
        targets: torch.Tensor,
        temperature: float | torch.Tensor = 1.0,
        entropy: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return ([n] log probabilities of ``targets`` int64[n], [n] entropies or None), differentiable.

        ``inputs``: the arguments of the decoder, including ``input_ids`` [B, T] and, for a packed buffer, its ``attention_plan``.
        ``select`` int64[n]: the positions in [B x T] whose output predicts the targets.
        """
        hidden = self._hidden(inputs).index_select(0, select)
        head = self.model.get_output_embeddings()
        hidden = hidden.to(head.weight.dtype if self.compute is None or self.exact_head else self.compute)
        bias = getattr(head, "bias", None)
        return token_logprobs(hidden, head.weight, bias, targets, temperature, entropy=entropy, chunk=self.chunk)

    def logprobs(self, micro: MicroBatch, *, entropy: bool = False) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return ([n] log probabilities, [n] entropies or None) of the micro-batch's policy tokens at its temperatures, differentiable."""
        inputs: dict[str, Any] = {"input_ids": micro.input_ids}
        # Rows are padded on the right and attention is causal: neither mask nor positions are needed, and attention takes its fastest path.
        if isinstance(micro, PackedBatch):
            # transformers builds no mask if it receives one of four axes. This mask hides nothing, so a layer that uses it is detected.
            everything = torch.ones(1, 1, 1, 1, dtype=torch.bool, device=self.device)
            inputs |= {"position_ids": micro.position_ids, "attention_mask": everything, "attention_plan": micro.attention}
        result: tuple[torch.Tensor, torch.Tensor | None] = self(inputs, micro.select, micro.targets, micro.temperature, entropy)
        if isinstance(micro, PackedBatch) and not micro.attention.windows:
            raise RunError(f"{type(self.model).__name__} did not use the attention plan of the packed buffer; set packing = 'off'")
        return result

    def idle(self) -> torch.Tensor:
        """Return a loss of 0 from a forward of two tokens that predicts none of them.

        A rank of a divided model calls this while another rank has work.
        """
        token_ids = torch.zeros(1, 2, dtype=torch.int64, device=self.device)
        none = token_ids[0, :0]
        result: tuple[torch.Tensor, torch.Tensor | None] = self({"input_ids": token_ids}, none, none)
        return result[0].sum()

    def probe(self, token_ids: torch.Tensor) -> torch.Tensor:
        """int64[T] -> [T-1]: return the log probability of each token after the first, at temperature 1."""
        before = torch.arange(len(token_ids) - 1, device=token_ids.device)
        logprobs: torch.Tensor = self({"input_ids": token_ids[None]}, before, token_ids[1:])[0]
        return logprobs

    def _hidden(self, inputs: Mapping[str, Any]) -> torch.Tensor:
        """Return [B x T, H]: the decoder's output, including the final norm."""
        with torch.autocast(self.device.type, dtype=self.compute, enabled=self.compute is not None):
            output = decoder_of(self.model)(**inputs, use_cache=False).last_hidden_state
        flat: torch.Tensor = output.flatten(0, 1)
        return flat

    @torch.no_grad()
    def check_projection(self) -> None:
        """Raise ConfigError if hidden states times the output embedding are not the model's logits."""
        token_ids = torch.arange(2, 14, device=self.device) % self._vocabulary()
        exact = CausalPolicy(model=self.model)
        logits = self.model(input_ids=token_ids[None], use_cache=False).logits[0, :-1].float()
        own = logits.log_softmax(-1).gather(1, token_ids[1:, None]).squeeze(1)
        gap = float((own - exact.probe(token_ids)).abs().max())
        if not gap <= AGREE:
            raise ConfigError(
                f"model {self.model.config.name_or_path!r} ({type(self.model).__name__}) computes its logits by more than a projection of "
                f"hidden states (log probabilities differ by {gap:.2g}): the torch backend does not support soft-capped or scaled logits"
            )

    def cost(self) -> Cost:
        """Return the cost of forwards of this model, from its hidden size, layers and vocabulary."""
        config = self.model.config.get_text_config(decoder=True)
        return Cost(token=6 * int(config.hidden_size), target=self._vocabulary() // (2 * int(config.num_hidden_layers)))

    def use_packing(self, *, fused: bool) -> None:
        """Let attention go through ``packed_attention`` and, if ``fused``, layers of packed buffers through ``fused_layers``.

        Padded rows and probes compute as before.
        """
        self.model.set_attn_implementation(PACKED)
        self.fused = fused
        if fused:
            fuse(self.model)

    @torch.no_grad()
    def try_packing(self) -> str:
        """Switch to packing if the model computes the same in a packed buffer as in plain rows.

        Returns "" if it does; layers are then ``fused`` if these also compute the same. Otherwise returns the reason and restores the
        model.
        """
        before = str(self.model.config._attn_implementation)
        if before != "sdpa":
            return f"attention = {before!r} does not support packed buffers"
        for fused in (True, False) if self.compute is None and fusible(self.model) else (False,):
            if not (found := self._why_not(fused)):
                return ""
            self.model.set_attn_implementation(before)
            if fused:
                unfuse(self.model)
        self.fused = False
        return found

    def _why_not(self, fused: bool) -> str:
        try:
            self.use_packing(fused=fused)
            return self._gap_of_packing()
        except (NotPackableError, RunError) as error:
            return str(error).partition(";")[0]
        except Exception as error:  # a model's own code may raise anything on inputs that it was not written for
            return f"{type(error).__name__}: {error}".splitlines()[0]

    def _gap_of_packing(self) -> str:
        config = self.model.config.get_text_config(decoder=True)
        kinds = set(getattr(config, "layer_types", None) or ())
        if strange := sorted(str(kind) for kind in kinds - {"full_attention", "sliding_attention"}):
            return f"it has layers of type {strange[0]}"
        exact = CausalPolicy(model=self.model)
        batch = sample_batch(self._vocabulary(), contexts=(4, 3, 7))
        rows = np.arange(len(batch))
        packed = pack(batch, rows, device=self.device)
        gap = float((exact.logprobs(packed)[0] - exact.logprobs(collate(batch, rows, device=self.device))[0]).abs().max())
        if not gap <= _AGREE_PACKED:
            return f"its log probabilities differ by {gap:.2g}"
        window = getattr(config, "sliding_window", None)
        if window is not None and (not kinds or "sliding_attention" in kinds) and window not in packed.attention.windows:
            return f"its sliding window of {window} does not reach the attention function"
        return ""

    def _vocabulary(self) -> int:
        return int(self.model.get_output_embeddings().weight.shape[0])
