"""Defaults change only on purpose: a run without a word about a setting does what it did before."""

from __future__ import annotations

import json

from rlcore.config.setting_table import core_settings

DEFAULTS = """
algorithm.cache_length="auto" algorithm.dynamic_batching=false algorithm.entropy_coeff=0.0 algorithm.epochs_per_batch=1
algorithm.estimator="auto" algorithm.filter_by="accuracy" algorithm.filter_limit=10 algorithm.filter_range=null
algorithm.filter_truncated_response=false algorithm.filters=[]
algorithm.kl_coeff=0.0 algorithm.kl_in="loss" algorithm.kl_kind="k3" algorithm.loss="auto"
algorithm.loss_variation="sample_level" algorithm.mismatch_correction="auto" algorithm.mismatch_range="auto" algorithm.name="grpo"
algorithm.old_logprobs="auto" algorithm.skip_threshold=null algorithm.soft_over_length_punishment=false algorithm.updates_per_batch=1
data.bad_rows="refuse" data.chat_template=null data.columns={} data.control_tokens="special" data.dataset="" data.template={}
data.tools=null data.sampler="auto"
data.format="auto" data.max_prompt_tokens=512 data.max_rows=null data.overlong="refuse" data.shuffle=true
data.system_prompt=null eval.eval_dataset={} eval.eval_interval=0 eval.eval_max_new_tokens=null eval.eval_samples=1
eval.eval_save_dir=null eval.eval_temperature=0.6 inference.device="auto" inference.dtype="float32" inference.environment=null
inference.inference_batch_size="auto" inference.inference_microbatch_size="auto" inference.name="transformers" inference.num_inferencer=1
inference.max_in_flight="auto"
inference.producer_tensor_parallel_size=1 log.best_by="accuracy" log.export_dtype=null log.keep_best=true log.keep_checkpoints=3
log.private=false log.rollout_interval=1 log.rollout_max_mb=1024.0 log.rollout_save_dir=null log.rollout_share=1.0 log.save_dir=null
log.save_interval="auto" log.observers={} log.trackers=[] model.model="" model.tokenizer_path=null model.trust_remote_code=false rewards=[]
rewards.deadline="auto" run.controller_deadline=60.0 run.controllers=[]
run.enable_profiling=false run.master_address=null run.master_port=null run.max_steps=null run.num_episodes=1
run.placement="split" run.project="rlcore" run.ray_dir=null run.run_dir="runs" run.runtime="auto" run.seed=0
sampling.conversation="single_turn"
sampling.environment="none" sampling.max_context_tokens=null sampling.max_new_tokens=512
sampling.min_p=0.0 sampling.num_generations=8 sampling.oversampling=0
sampling.stop=null sampling.temperature=1.0 sampling.temperature_end=null sampling.top_k=0 sampling.top_p=1.0
schedule.data_actor_buffer_size_limit="auto" schedule.heartbeat_deadline=60.0 schedule.lease_deadline=3600.0 schedule.max_restores=3
schedule.max_staleness="auto" schedule.partial_rollouts=false
schedule.producer_deadline=600.0 schedule.producer_load_deadline=1800.0 schedule.producer_restarts=3
schedule.reward_call_memory_mb=4096 schedule.reward_error_budget=0.05 schedule.reward_worker_growth_mb=1024
schedule.reward_worker_items=10000 schedule.reward_workers="auto" schedule.trainer_deadline=3600.0 training.betas=[0.9,0.95]
training.context_parallel_size=1 training.device="auto" training.dtype="float32" training.environment=null training.expert_parallel_size=1
training.learning_rate=1e-06 training.lora_alpha=32.0 training.lora_rank=0 training.lora_targets=[] training.max_grad_norm=1.0
training.lr_schedule="cosine"
training.model_hook="none" training.optimizer="adamw" model.reference=null model.reference_sync_steps=0 model.reference_mixup_alpha=1.0
training.max_skipped_steps=10 training.min_lr_ratio=0.1 training.name="auto" training.num_trainers=1 training.pipeline_parallel_size=1
training.tensor_parallel_size=1 training.tokens_per_forward=16384 training.train_batch_size=32 training.train_microbatch_size="auto"
training.train_minibatch_size="auto" training.warmup_steps=0 training.weight_decay=0.01 training.zero_stage=0 weights.bucket_mb=256
weights.deadline=120.0 weights.probe=true weights.transport="auto"
"""
"""``setting=default``, the default as compact JSON. Whoever changes one changes it here, in the docs and in CHANGELOG.md."""


def test_no_default_changes_unnoticed() -> None:
    defaults = {f"{path}={json.dumps(setting.default, separators=(',', ':'))}" for path, setting in core_settings().items()}
    assert defaults == set(DEFAULTS.split())
