"""The flags of ``rlcore train`` change only on purpose: every spelling that users' scripts rely on, and the setting that each sets."""

from __future__ import annotations

import argparse

import pytest

from rlcore.cli.flags import add_train_flags, train_flags
from rlcore.cli.parser import Parser
from rlcore.config.setting_table import core_settings

REFERENCE = {
    "model.model": "-m --model",
    "model.tokenizer_path": "--tokenizer-path --tokenizer_path",
    "data.dataset": "-d --dataset",
    "data.system_prompt": "-s --system-prompt",
    "data.max_prompt_tokens": "-mpt --max-prompt-tokens",
    "eval.eval_dataset": "-ed --eval-dataset",
    "eval.eval_interval": "-ei --eval-interval",
    "eval.eval_save_dir": "-esd --eval-save-dir",
    "run.project": "-p --project",
    "run.num_episodes": "-e --num-episodes",
    "run.ray_dir": "--ray_dir --ray-dir",
    "run.master_address": "--master_address --master-address",
    "run.master_port": "--master_port --master-port",
    "run.enable_profiling": "--enable_profiling --enable-profiling",
    "training.num_trainers": "-t --num-trainers",
    "training.train_batch_size": "-tbs --train-batch-size --train_batch_size --training.train-batch-size --training.train_batch_size",
    "training.train_minibatch_size": "-tMbs --train-minibatch-size",
    "training.train_microbatch_size": "-tmbs --train-microbatch-size",
    "training.tensor_parallel_size": "-tp --tensor-parallel-size",
    "training.pipeline_parallel_size": "-pp --pipeline-parallel-size",
    "training.zero_stage": "-zero --zero-stage",
    "training.learning_rate": "-lr --learning-rate",
    "inference.name": "-b --backend",
    "inference.num_inferencer": "-i --num-inferencer",
    "inference.inference_batch_size": "-ibs --inference-batch-size",
    "inference.inference_microbatch_size": "-imbs --inference-microbatch-size",
    "inference.producer_tensor_parallel_size": "-ptp --producer-tensor-parallel-size",
    "sampling.num_generations": "-g --num-generations",
    "sampling.temperature": "-temp --temperature",
    "sampling.top_k": "-topk --top-k",
    "sampling.top_p": "-topp --top-p",
    "sampling.max_new_tokens": "-mnt --max-new-tokens",
    "algorithm.name": "-a --algo",
    "algorithm.kl_coeff": "-kl --kl-coeff",
    "algorithm.estimator": "--estimator",
    "algorithm.loss": "--loss",
    "algorithm.filter_range": "--filter-range --filter_range",
    "algorithm.dynamic_batching": "--dynamic-batching --dynamic_batching",
    "algorithm.skip_threshold": "--skip-threshold --skip_threshold",
    "algorithm.loss_variation": "--loss-variation --loss_variation",
    "algorithm.soft_over_length_punishment": "--soft-over-length-punishment --soft_over_length_punishment",
    "algorithm.cache_length": "--cache-length --cache_length",
    "algorithm.filter_truncated_response": "--filter-truncated-response --filter_truncated_response",
    "rewards": "-rt --reward-type --reward",
    "schedule.data_actor_buffer_size_limit": "-cbsl --data_actor_buffer_size_limit --data-actor-buffer-size-limit",
    "log.save_interval": "-si --save-interval",
    "log.save_dir": "-sd --save-dir",
    "log.rollout_save_dir": "-rsd --rollout-save-dir",
}

OURS = """
run.seed run.runtime run.placement run.max_steps run.run_dir run.controllers run.controller_deadline
model.trust_remote_code data.shuffle data.sampler data.overlong data.format data.columns
data.bad_rows data.max_rows
data.template data.chat_template data.tools data.control_tokens
sampling.stop
sampling.oversampling sampling.temperature_end sampling.min_p sampling.conversation
sampling.environment sampling.max_context_tokens inference.max_in_flight inference.dtype inference.device inference.environment
training.name training.environment
training.context_parallel_size training.expert_parallel_size
training.tokens_per_forward training.betas training.weight_decay training.warmup_steps training.lr_schedule training.optimizer
training.min_lr_ratio training.max_grad_norm
training.model_hook model.reference model.reference_sync_steps model.reference_mixup_alpha
training.max_skipped_steps training.lora_rank training.lora_alpha training.lora_targets
training.dtype training.device algorithm.kl_kind algorithm.kl_in algorithm.filter_by algorithm.filter_limit algorithm.filters
algorithm.updates_per_batch
algorithm.epochs_per_batch algorithm.entropy_coeff algorithm.mismatch_correction algorithm.mismatch_range algorithm.old_logprobs
schedule.max_staleness schedule.partial_rollouts
schedule.producer_restarts schedule.producer_deadline schedule.producer_load_deadline schedule.reward_workers
schedule.heartbeat_deadline schedule.lease_deadline schedule.trainer_deadline schedule.max_restores
schedule.reward_error_budget schedule.reward_worker_items schedule.reward_worker_growth_mb schedule.reward_call_memory_mb
weights.transport weights.deadline weights.bucket_mb weights.probe eval.eval_samples eval.eval_temperature eval.eval_max_new_tokens
log.rollout_interval log.rollout_share log.best_by log.rollout_max_mb log.keep_checkpoints log.keep_best log.export_dtype log.private
log.trackers log.observers rewards.deadline
"""

OPTIONS_OF_THE_CLIPPED_LOSS = {
    "algorithm.options.clip_eps_low": "--clip-eps-low --clip_eps_low --algorithm.options.clip-eps-low",
    "algorithm.options.dual_clip": "--dual-clip --dual_clip --algorithm.options.dual-clip",
    "algorithm.options.clip_eps_high": "--clip-eps-high --clip_eps_high --algorithm.options.clip-eps-high",
}

SHORT = sorted(word for words in REFERENCE.values() for word in words.split() if not word.startswith("--"))


def parsed(*words: str) -> argparse.Namespace:
    parser = Parser(prog="rlcore train")
    parser.add_argument("files", nargs="*")
    add_train_flags(parser)
    return parser.parse_args(list(words))


def values_of(path: str) -> list[str]:
    if path == "algorithm.filter_range":
        return ["0.1", "0.9"]
    return {"algorithm.name": ["grpo"], "inference.name": ["vllm"], "rewards": ["boxed"], "algorithm.loss": ["clipped"]}.get(
        path,
        {
            "algorithm.estimator": ["group_norm"],
            "algorithm.loss_variation": ["token_level"],
            "training.pipeline_parallel_size": ["2"],
        }.get(path, ["true"]),
    )


@pytest.mark.parametrize(
    ("path", "flag"),
    [(path, flag) for path, flags in {**REFERENCE, **OPTIONS_OF_THE_CLIPPED_LOSS}.items() for flag in flags.split()],
    ids=lambda value: value,
)
def test_a_flag_sets_its_setting(path: str, flag: str) -> None:
    values = values_of(path)
    typed = train_flags(parsed(flag, *values))
    assert typed[path].words == tuple(values)
    assert typed[path].flag == flag


def test_no_setting_comes_or_goes_unnoticed() -> None:
    assert sorted(core_settings()) == sorted([*REFERENCE, *OURS.split()])


def test_no_two_settings_share_a_spelling() -> None:
    spellings = [flag for setting in core_settings().values() for flag in setting.spellings]
    assert len(spellings) == len(set(spellings))


def test_the_short_flags_are_the_reference_s_and_no_more() -> None:
    short = sorted(flag for setting in core_settings().values() for flag in setting.spellings if not flag.startswith("--"))
    assert short == SHORT


def test_the_last_of_a_repeated_flag_wins_whatever_its_spelling() -> None:
    typed = train_flags(parsed("-tbs", "4", "-tMbs", "1", "-tmbs", "2", "-t", "8", "--train_batch_size", "2", "-tMbs=3"))
    words = {path: given.words for path, given in typed.items()}
    assert words == {
        "training.train_batch_size": ("2",),
        "training.train_minibatch_size": ("3",),
        "training.train_microbatch_size": ("2",),
        "training.num_trainers": ("8",),
    }
