"""A causal language model as a policy: from a micro-batch to the log probabilities of its policy tokens, and nothing of [B, T, V].

The decoder gives hidden states; only those that predict policy tokens are projected, chunk by chunk. What that leaves out (a model
that scales or caps its logits) is found by comparing once with the model's own logits, and refused.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from transformers import PreTrainedModel

from rlcore.api import ConfigError, TrainBatch
from rlcore.learning import MicroBatch, collate
from rlcore_plugin_torch.projection import token_logprobs
from rlcore_plugin_torch.sample import sample_batch

__all__ = ["AGREE", "CausalPolicy"]

AGREE = 1e-3
"""Nats by which two ways of computing one log probability in float32 may differ on a short sequence."""


class CausalPolicy(torch.nn.Module):
    """One call of ``forward`` goes through the decoder, and the projection, so that a wrapper of the whole
    module (``fully_shard``) sees every use of its weights.

    ``compute``: bfloat16 to run the forward under autocast (weights stay as they are), None for the weights' own precision.
    ``chunk``: tokens projected at a time, None for a size that suits the device.
    """

    def __init__(self, *, model: PreTrainedModel, compute: torch.dtype | None = None, chunk: int | None = None) -> None:
        super().__init__()
        self.model = model
        self.compute = compute
        self.chunk = chunk

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return torch.device(self.model.device)

    def forward(
        self,
        inputs: Mapping[str, torch.Tensor],
        select: torch.Tensor,
        targets: torch.Tensor,
        temperature: float | torch.Tensor = 1.0,
        entropy: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """([n] log probabilities of ``targets`` int64[n], [n] entropies or None), differentiable.

        ``inputs``: what the decoder takes, ``input_ids`` [B, T] among it; ``select`` int64[n]: the positions in [B x T] whose output
        predicts the targets.
        """
        hidden = self._hidden(inputs).index_select(0, select)
        head = self.model.get_output_embeddings()
        hidden = hidden.to(self.compute or head.weight.dtype)
        bias = getattr(head, "bias", None)
        return token_logprobs(hidden, head.weight, bias, targets, temperature, entropy=entropy, chunk=self.chunk)

    def logprobs(self, micro: MicroBatch, *, entropy: bool = False) -> tuple[torch.Tensor, torch.Tensor | None]:
        """([n] log probabilities, [n] entropies or None) of the micro-batch's policy tokens at its temperatures, differentiable."""
        inputs = {"input_ids": micro.input_ids}
        # Plain rows are causal from the left: neither mask nor positions are needed, and attention takes its fastest path.
        if micro.mask is not None:
            inputs |= {"attention_mask": micro.mask, "position_ids": micro.position_ids}
        result: tuple[torch.Tensor, torch.Tensor | None] = self(inputs, micro.select, micro.targets, micro.temperature, entropy)
        return result

    def idle(self) -> torch.Tensor:
        """A loss of 0 from a forward of two tokens that predict none: what a rank of a divided model does while another has work."""
        token_ids = torch.zeros(1, 2, dtype=torch.int64, device=self.device)
        none = token_ids[0, :0]
        result: tuple[torch.Tensor, torch.Tensor | None] = self({"input_ids": token_ids}, none, none)
        return result[0].sum()

    def probe(self, token_ids: torch.Tensor) -> torch.Tensor:
        """int64[T] -> [T-1]: log probability of each token after the first, at temperature 1."""
        before = torch.arange(len(token_ids) - 1, device=token_ids.device)
        logprobs: torch.Tensor = self({"input_ids": token_ids[None]}, before, token_ids[1:])[0]
        return logprobs

    def _hidden(self, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """[B x T, H]: the decoder's output, final norm included."""
        with torch.autocast(self.device.type, dtype=self.compute, enabled=self.compute is not None):
            output = self.model.get_decoder()(**inputs, use_cache=False).last_hidden_state
        flat: torch.Tensor = output.flatten(0, 1)
        return flat

    @torch.no_grad()
    def check_projection(self) -> None:
        """ConfigError where hidden states times the output embedding are not the model's logits."""
        token_ids = torch.arange(2, 14, device=self.device) % self._vocabulary()
        exact = CausalPolicy(model=self.model)
        logits = self.model(input_ids=token_ids[None], use_cache=False).logits[0, :-1].float()
        own = logits.log_softmax(-1).gather(1, token_ids[1:, None]).squeeze(1)
        gap = float((own - exact.probe(token_ids)).abs().max())
        if not gap <= AGREE:
            raise ConfigError(
                f"model {self.model.config.name_or_path!r} ({type(self.model).__name__}) does more to its logits than project hidden "
                f"states (log probabilities differ by {gap:.2g}): soft-capped or scaled logits are not served by the torch backend"
            )

    @torch.no_grad()
    def shares_prompts(self, row_tokens: int) -> bool:
        """Whether a prompt followed by several completions under a mask gives the log probabilities of the plain rows."""
        exact = CausalPolicy(model=self.model)
        batch = sample_batch(self._vocabulary())
        plain, shared = (exact._short(batch, share_prompts=width) for width in (0, row_tokens))
        return float((plain - shared).abs().max()) <= AGREE

    def _short(self, batch: TrainBatch, share_prompts: int) -> torch.Tensor:
        micro = collate(batch, np.arange(len(batch)), share_prompts=share_prompts, device=self.device)
        return self.logprobs(micro)[0]

    def _vocabulary(self) -> int:
        return int(self.model.get_output_embeddings().weight.shape[0])
