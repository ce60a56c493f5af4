"""Apply the run's model hook to a model that was read, or refuse the result if other programs would not read the same model."""

from __future__ import annotations

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.initialization import no_init_weights

from rlcore.api import ConfigError, ModelHook
from rlcore_plugin_torch.loading import settled
from rlcore_plugin_torch.policy import AGREE
from rlcore_plugin_torch.weights import named_weights

__all__ = ["hooked"]


def hooked(
    hook: ModelHook, model: PreTrainedModel, seed: int, *, resumed: bool = False, adapters: bool = False, trust_remote_code: bool = False
) -> PreTrainedModel:
    """Return what the hook makes of a whole model, on the same device and in the same precision, without dropout.

    Raises ConfigError if the hook fails, leaves nothing to train, or makes a model that is not that of its ``config``.

    :param resumed: the model is that of a checkpoint, so its weights replace those that the hook sets.
    :param adapters: the model will carry adapters. Their files belong on the files of the model, so its weights must stay as they are.
    """
    who, device, dtype = f"model hook {type(hook).__name__}", model.device, model.dtype
    before = {name: weight.detach().clone() for name, weight in named_weights(model).items()} if resumed or adapters else {}
    changed = settled(_applied(hook, model, seed, who).to(device=device, dtype=dtype))  # type: ignore[arg-type]
    if not any(weight.requires_grad for weight in changed.parameters()):
        raise ConfigError(f"{who} leaves no parameter with requires_grad, so nothing would be trained; freeze fewer of them")
    plain = _plain(changed, who, trust_remote_code=trust_remote_code)
    for name, weight in named_weights(changed).items():
        if not torch.isfinite(weight.detach()).all():
            raise ConfigError(f"{who} makes a model whose tensor {name!r} holds non-finite values (NaN, infinity); set finite ones")
        if (kept := before.get(name)) is None or torch.equal(kept, weight):
            continue
        if adapters:
            raise ConfigError(
                f"{who} changes the tensor {name!r}, and the files of adapters belong on the weights of the model's files; save the "
                "changed model and name its folder, or type --lora-rank 0"
            )
        weight.data.copy_(kept)
    _check_same(changed, plain, who)
    return changed


def _applied(hook: ModelHook, model: PreTrainedModel, seed: int, who: str) -> PreTrainedModel:
    device = model.device
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.default_generator.manual_seed(seed)
        if device.type == "cuda":
            torch.cuda.manual_seed(seed)
        try:
            changed = hook.apply(model)
        except Exception as error:
            raise ConfigError(f"{who} failed while changing {type(model).__name__}: {type(error).__name__}: {error}") from error
    if not isinstance(changed, PreTrainedModel):
        raise ConfigError(f"{who} returned {type(changed).__name__}; apply must return a PreTrainedModel of transformers")
    return changed


def _plain(model: PreTrainedModel, who: str, *, trust_remote_code: bool) -> PreTrainedModel:
    """Return the model that engines and ``from_pretrained`` build from the ``config``, over the memory of the model's own weights.

    Raises ConfigError if names or shapes of the weights differ.
    """
    with no_init_weights():  # memory that nothing writes costs nothing
        plain: PreTrainedModel = AutoModelForCausalLM.from_config(
            model.config, attn_implementation=model.config._attn_implementation, trust_remote_code=trust_remote_code
        )
    plain.tie_weights()  # which building without first weights leaves out
    here, there = ({name: tuple(weight.shape) for name, weight in named_weights(one).items()} for one in (model, plain))
    for name in sorted(here.keys() | there.keys()):
        if here.get(name) != there.get(name):
            found, due = (str(shapes.get(name, "absent")) for shapes in (here, there))
            raise ConfigError(
                f"{who} makes a model that engines and from_pretrained do not know: its tensor {name!r} is {found}, and in "
                f"{type(plain).__name__}, which its config names, {due}; keep the names and shapes of that class"
            )
    # Detached, because torch would give parameters the requires_grad of those that they replace.
    plain.load_state_dict({name: weight.detach() for name, weight in named_weights(model).items()}, strict=False, assign=True)
    plain.tie_weights()
    return plain.to(model.device).eval()


@torch.no_grad()
def _check_same(model: PreTrainedModel, plain: PreTrainedModel, who: str) -> None:
    """Raise ConfigError if the two models give other log probabilities of twelve tokens."""
    tokens = torch.arange(2, 14, device=model.device)[None] % int(model.get_input_embeddings().weight.shape[0])
    try:
        own, read = (one(input_ids=tokens, use_cache=False).logits.float().log_softmax(-1) for one in (model, plain))
        gap = float((own - read).abs().max())
    except Exception as error:
        raise ConfigError(f"{who} makes a model that does not answer with logits: {type(error).__name__}: {error}") from error
    if not gap <= AGREE:
        raise ConfigError(
            f"{who} makes a model whose log probabilities differ by {gap:.2g} from those of {type(plain).__name__} with the same weights, "
            "which engines and from_pretrained build from its config; change the weights alone, or the config with the forward"
        )
