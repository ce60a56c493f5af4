"""Arguments of TRL's ``GRPOTrainer`` and ``GRPOConfig`` (1.16) by their names in ``rlcore.train``.

A name that has no counterpart is refused, with the name or the way that works here. Names that both have (``learning_rate``, ``max_steps``,
``num_generations``, …) stay.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from rlcore.api import ConfigError

__all__ = ["translated"]

_SAME: Mapping[str, str] = {
    "train_dataset": "dataset",
    "reward_funcs": "reward",
    "max_completion_length": "max_new_tokens",
    "max_prompt_length": "max_prompt_tokens",
    "beta": "kl_coeff",
    "num_iterations": "epochs_per_batch",
    "entropy_coef": "entropy_coeff",
    "mask_truncated_completions": "filter_truncated_response",
    "shuffle_dataset": "shuffle",
    "chat_template_kwargs": "template",
    "output_dir": "run_dir",
    "run_name": "project",
    "save_steps": "save_interval",
    "eval_steps": "eval_interval",
    "save_total_limit": "keep_checkpoints",
    "num_generations_eval": "eval_samples",
    "vllm_tensor_parallel_size": "producer_tensor_parallel_size",
    "report_to": "trackers",
    "epsilon_high": "algorithm.options.clip_eps_high",
    "delta": "algorithm.options.dual_clip",
    "sapo_temperature_pos": "algorithm.options.tau_pos",
    "sapo_temperature_neg": "algorithm.options.tau_neg",
}
_AS_HERE = frozenset(
    {
        *("learning_rate", "weight_decay", "warmup_steps", "max_grad_norm", "max_steps", "num_generations", "seed"),
        *("temperature", "top_p", "top_k", "min_p", "trust_remote_code"),
    }
)
"""Fields of GRPOConfig with the same name and meaning."""
_WITHOUT_EFFECT = frozenset(
    {"logging_steps", "disable_tqdm", "log_completions", "remove_unused_columns", "do_train", "num_completions_to_print", "logging_dir"}
)
"""Fields that only change what TRL prints; a run here always logs every update."""
_BATCH = ("per_device_train_batch_size", "gradient_accumulation_steps")
_INSTEAD: Mapping[str, str] = {
    "args": "an object of type GRPOConfig, or its fields as arguments: rlcore.train(…, max_completion_length=64)",
    "processing_class": "tokenizer_path=FOLDER",
    "peft_config": "lora_rank=16, with lora_alpha and lora_targets",
    "callbacks": "a plugin with the hook rlcore_step_finished, or progress=",
    "optimizers": "learning_rate, betas and weight_decay; optimizer=, a name or a class derived from rlcore.api.OptimizerFactory",
    "rollout_func": "conversation=, a class derived from rlcore.api.Conversation",
    "environment_factory": "conversation=, a class derived from rlcore.api.Conversation",
    "reward_weights": 'weights in [[rewards]]: **{"rewards": [{"name": "boxed", "weight": 0.5}, …]}',
    "loss_type": 'loss_variation="token_level" for "dapo" and "bnpo", "sample_level" for "grpo", "constant_length" for "dr_grpo"; '
    'loss="cispo" or "sapo" for these',
    "scale_rewards": 'estimator=: "group_norm", or "group_mean" for no scaling',
    "importance_sampling_level": 'algorithm="gspo" for a ratio of sequences',
    "generation_batch_size": "train_batch_size, in prompts",
    "steps_per_generation": "updates_per_batch",
    "generation_kwargs": "top_k, top_p or min_p; the engines of this repository take nothing else",
    "lr_scheduler_type": 'lr_schedule="linear", "cosine", "constant", …, with min_lr_ratio=0 for a rate that ends at 0',
    "bf16": '**{"training.dtype": "bfloat16", "inference.dtype": "bfloat16"}',
    "fp16": '**{"training.dtype": "bfloat16"}; rlcore does not train in float16',
    "warmup_ratio": "warmup_steps",
    "eval_strategy": "eval_interval, in updates",
    "save_strategy": "save_interval, in updates",
    "resume_from_checkpoint": "resume=RUN",
    "model_init_kwargs": '**{"training.dtype": …}, **{"training.device": …}',
    "gradient_checkpointing": '**{"training.options.activations": "recompute"}, or "keep" for False',
    "adam_beta1": "betas=(0.9, 0.999)",
    "adam_beta2": "betas=(0.9, 0.999)",
    "vllm_gpu_memory_utilization": '**{"inference.options": {"engine": {"gpu_memory_utilization": 0.3}}}',
    "vllm_importance_sampling_correction": 'mismatch_correction="none" for False',
    "vllm_importance_sampling_mode": 'mismatch_correction="truncated", "masked", "sequence_truncated" or "sequence_masked"',
    "vllm_importance_sampling_clip_max": "mismatch_range=(0.0, 3.0)",
    "vllm_importance_sampling_clip_min": "mismatch_range=(0.5, 3.0)",
    "vllm_mode": 'placement="colocated" or "split"',
    "sync_ref_model": "reference_sync_steps and reference_mixup_alpha; TRL's defaults are 512 and 0.6",
    "ref_model_sync_steps": "reference_sync_steps, which alone turns it on",
    "ref_model_mixup_alpha": "reference_mixup_alpha",
    "push_to_hub": "nothing; upload the folder RUN/checkpoints/step-N/model yourself",
}


def translated(arguments: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the arguments by rlcore's names, or None if none of them has a name of TRL.

    :raises ConfigError: an argument of TRL has no counterpart, or it and its counterpart are both given. The message names all of them.
    """
    given = dict(arguments)
    fields = _fields_set(given.pop("args")) if dataclasses.is_dataclass(given.get("args")) else {}
    unknown = [name for name in fields if name not in {*_SAME, *_AS_HERE, *_WITHOUT_EFFECT, *_SPECIAL, *_INSTEAD}]
    problems = [f"{name} of GRPOConfig has no counterpart in rlcore; leave it out" for name in unknown]
    twice = [name for name in fields if name in given]
    problems += [f"{name} is given twice, by itself and in args; leave one out" for name in twice]
    given = {**fields, **given}
    ours: dict[str, Any] = {}
    for name, value in given.items():
        if name in _INSTEAD and name not in ours:
            problems.append(f"{name} is a name of TRL; pass {_INSTEAD[name]}")
        elif name in _SPECIAL:
            ours |= _SPECIAL[name](value, given, problems)
        elif name not in _WITHOUT_EFFECT and name not in unknown:
            if (key := _SAME.get(name, name)) in given and key != name:
                problems.append(f"{name} is TRL's name of {key}, which is given too; leave one out")
            ours[key] = value
    if problems:
        raise ConfigError("; ".join(problems))
    return None if ours == dict(arguments) else ours


def _fields_set(args: Any) -> dict[str, Any]:
    """Return the fields that differ from their defaults."""
    found = {}
    for field in dataclasses.fields(args):
        default = field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
        value = getattr(args, field.name)
        if field.init and value != default and value is not None and field.name not in _COMPUTED:
            found[field.name] = value
    return found


_COMPUTED = frozenset(
    {"generation_batch_size", "steps_per_generation", "logging_dir", "deepspeed_plugin", "accelerator_config", "hub_token"}
)
"""Fields that TRL and transformers fill in themselves."""


def _batch(value: Any, given: Mapping[str, Any], problems: list[str]) -> dict[str, Any]:
    """Return the prompts of an update: TRL counts completions, on each device."""
    each, steps = (given.get(name, default) for name, default in zip(_BATCH, (8, 1), strict=True))
    group = given.get("num_generations", 8)
    if each * steps % group:
        problems.append(
            f"per_device_train_batch_size x gradient_accumulation_steps = {each * steps} completions do not fill groups of "
            f"num_generations = {group}; pass train_batch_size, in prompts"
        )
    return {"train_batch_size": max(1, each * steps // group)}


def _clip(value: Any, given: Mapping[str, Any], problems: list[str]) -> dict[str, Any]:
    return {"algorithm.options.clip_eps_low": value} | ({} if "epsilon_high" in given else {"algorithm.options.clip_eps_high": value})


def _epochs(value: Any, given: Mapping[str, Any], problems: list[str]) -> dict[str, Any]:
    if value != int(value):
        problems.append(f"num_train_epochs {value}: pass num_episodes, a whole number, or max_steps")
    return {"num_episodes": int(value)}


def _vllm(value: Any, given: Mapping[str, Any], problems: list[str]) -> dict[str, Any]:
    return {"inference.name": "vllm"} if value else {}


_SPECIAL: Mapping[str, Callable[[Any, Mapping[str, Any], list[str]], dict[str, Any]]] = {
    **dict.fromkeys(_BATCH, _batch),
    "epsilon": _clip,
    "num_train_epochs": _epochs,
    "use_vllm": _vllm,
}
