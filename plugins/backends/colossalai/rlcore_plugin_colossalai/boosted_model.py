"""A Hugging Face model as this rank holds it after ColossalAI's Booster, and its log probabilities."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.utils import cached_file

from rlcore.api import ConfigError, TrainingContext
from rlcore.learning import MicroBatch
from rlcore_plugin_colossalai.colossal_layout import ColossalLayout, model_problem
from rlcore_plugin_colossalai.model_configuration import read_configuration

__all__ = ["BoostedModel", "check_model", "configuration_file", "load_model", "make_plugin"]


def configuration_file(path: str) -> Path:
    """Return ``config.json`` of a folder, or of a hub model in the cache of this machine. Raises ConfigError if there is none."""
    try:
        found = cached_file(path, "config.json")
    except OSError as error:
        raise ConfigError(f"model {path!r} cannot be loaded: {' '.join(str(error).split())[:300]}") from error
    if found is None:
        raise ConfigError(f"model {path!r} cannot be loaded: it has no config.json; name another -m")
    return Path(found)


def check_model(path: str, layout: ColossalLayout) -> None:
    """Raise ConfigError if ranks cannot share this model in ``layout``."""
    settings = json.loads(configuration_file(path).read_text(encoding="utf-8"))
    if problem := model_problem(settings, tensor=layout.tensor, pipeline=layout.pipeline):
        raise ConfigError(f"model {path!r}: {problem}")


def load_model(path: str, attention: str, context: TrainingContext) -> PreTrainedModel:
    """Return the model in float32, without dropout, with its ``config.json`` as transformers 5 reads it.

    Raises ConfigError if it cannot be read completely.
    """
    file = configuration_file(path)
    try:
        model, report = AutoModelForCausalLM.from_pretrained(
            path,
            config=read_configuration(file.parent),
            torch_dtype=torch.float32,
            attn_implementation=attention,
            output_loading_info=True,
            trust_remote_code=context.trust_remote_code,
        )
    except ConfigError:
        raise
    except Exception as error:  # transformers validates little of a config.json, so building from one may raise anything
        raise ConfigError(f"model {path!r} cannot be loaded: {' '.join(str(error).split())[:300]}") from error
    if absent := sorted(report["missing_keys"]):
        raise ConfigError(f"model {path!r} does not hold what its config.json describes: tensor {absent[0]!r} is absent")
    _check_head(model, file)
    model.config.use_cache = False
    _train_every_row(model)
    ready: PreTrainedModel = model.eval()
    return ready


def _check_head(model: PreTrainedModel, file: Path) -> None:
    """Raise ConfigError if the files hold a head of its own although ``config.json`` says that it is the embedding.

    This version of transformers would leave the head out, and another model than the sampled one would train."""
    head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    if head is None or head.weight is not embedding.weight:
        return
    for weights in sorted(file.parent.glob("*.safetensors")):
        with safe_open(weights, framework="pt") as tensors:
            if "lm_head.weight" in tensors.keys() and not torch.equal(tensors.get_tensor("lm_head.weight").float(), head.weight.cpu()):  # noqa: SIM118
                raise ConfigError(
                    f"{file} says tie_word_embeddings true, but {weights.name} holds a head that is not the embedding; "
                    "write false if the head is right, or remove lm_head.weight"
                )


def _train_every_row(model: PreTrainedModel) -> None:
    """Let the row of the padding token train if it also ends a response: torch gives no gradient to the row ``padding_idx``."""
    named = (getattr(config, "eos_token_id", None) for config in (model.config, model.generation_config))
    ends = {token for value in named for token in (value if isinstance(value, list) else [value])}
    for module in model.modules():
        if isinstance(module, torch.nn.Embedding) and module.padding_idx in ends - {None}:
            module.padding_idx = None


def make_plugin(layout: ColossalLayout, dtype: str, sequence_parallel: str = "none") -> Any:
    """Return ColossalAI's plugin: TorchDDP, LowLevelZero 1 or 2, or HybridParallel.

    Clipping is this backend's own. ``sequence_parallel``: see ``ColossalOptions``.
    """
    from colossalai.booster.plugin import HybridParallelPlugin, LowLevelZeroPlugin, TorchDDPPlugin

    stage, precision = layout.stage(dtype), {"float32": "fp32", "bfloat16": "bf16"}[dtype]
    if layout.tensor * layout.pipeline > 1:
        named: dict[str, Any] = {"num_microbatches": layout.pipeline} if layout.pipeline > 1 else {}
        if sequence_parallel != "none":
            named |= {"enable_sequence_parallelism": True, "sequence_parallelism_mode": sequence_parallel}
        return HybridParallelPlugin(
            tp_size=layout.tensor,
            pp_size=layout.pipeline,
            zero_stage=stage,
            precision=precision,
            broadcast_buffers=False,
            overlap_communication=False,
            enable_metadata_cache=False,
            make_vocab_size_divisible_by=64 if layout.pipeline == 1 else 1,  # a tied head on another stage is not padded
            **named,
        )
    if stage:
        return LowLevelZeroPlugin(stage=stage, precision=precision, overlap_communication=False)
    return TorchDDPPlugin(broadcast_buffers=False)


class BoostedModel:
    """A model on this rank.

    ``model``: the result of ``booster.boost``, or a plain model that every rank holds. ``vocabulary``: the number of entries without
    padding. ``multiple``: the length of a forward must be divisible by this, if ranks share its tokens.
    """

    def __init__(self, model: Any, plugin: Any, layout: ColossalLayout, vocabulary: int, multiple: int = 1) -> None:
        self.model, self.plugin, self.layout, self.vocabulary, self.multiple = model, plugin, layout, vocabulary, multiple

    @property
    def device(self) -> torch.device:
        """The device of the model."""
        return next(self.model.parameters()).device

    def forward(self, token_ids: torch.Tensor) -> Any:
        """Return the output of the model for int64[b, t]; if ranks share the tokens, these are padded on the right."""
        return self.model(input_ids=torch.nn.functional.pad(token_ids, (0, -token_ids.shape[1] % self.multiple)))

    def logits(self, output: Any, places: torch.Tensor) -> torch.Tensor:
        """Return [n, V] float32 of ``places`` in [b x t], whole on each tensor-parallel rank, without padding; differentiable."""
        chosen = output.logits.flatten(0, 1).index_select(0, places)
        if self.layout.tensor > 1:
            from colossalai.shardformer.layer._operation import gather_forward_split_backward

            slice_rows = self.model.unwrap().get_output_embeddings().weight.shape[0]
            # llama leaves padding out, so the last slice is shorter
            chosen = torch.nn.functional.pad(chosen, (0, slice_rows - chosen.shape[1]))
            chosen = gather_forward_split_backward(chosen, -1, self.plugin.tp_group)
        found: torch.Tensor = chosen[:, : self.vocabulary].float()
        return found

    def logprobs(self, output: Any, micro: MicroBatch, *, entropy: bool) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return ([n], [n] or None) of the policy tokens; the output may be padded beyond the micro-batch."""
        width, padded = micro.input_ids.shape[1], output.logits.shape[1]
        chosen = self.logits(output, micro.select // width * padded + micro.select % width)
        divisor = micro.temperature
        if isinstance(divisor, torch.Tensor):
            divisor = divisor.to(chosen.dtype)[:, None]
        log_p = (chosen / divisor).log_softmax(-1)
        found = log_p.gather(1, micro.targets[:, None]).squeeze(1)
        return found, -(log_p.exp() * log_p).sum(-1) if entropy else None

    def run_pipeline(
        self, inputs: Sequence[torch.Tensor], criterion: Callable[[int, Any], torch.Tensor], booster: Any = None, optimizer: Any = None
    ) -> None:
        """Run one pass of the pipeline's schedule over ``inputs``, int64[b, t] each, of any shapes.

        On the last stage ``criterion`` receives the number of the micro-batch and the output. With ``optimizer`` the backward runs too, and
        gradients are summed over the stages that share a weight.
        """
        scheduler = self.plugin.scheduler
        # the schedule needs one for each stage
        idle = [torch.zeros(1, 2, dtype=torch.int64, device=self.device)] * (self.layout.pipeline - len(inputs))
        scheduler.num_microbatches = count = len(inputs) + len(idle)
        micros = iter([*inputs, *idle])
        # The schedule would cut one batch into parts of one shape, each as long as the longest and with as many rows as the largest.
        scheduler.load_batch = lambda data, device=None: None
        scheduler.load_micro_batch = lambda: {"input_ids": next(micros)}
        done = iter(range(count))

        def numbered(output: Any, _: Any) -> torch.Tensor:
            return criterion(next(done), output) * count  # the schedule divides by this

        if optimizer is None:
            scheduler.forward_backward_step(self.model, iter(()), numbered, None, False, False)
        else:
            booster.execute_pipeline(iter(()), self.model, numbered, optimizer, return_loss=False, return_outputs=False)
