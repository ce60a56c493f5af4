"""How long a run is: sentences about prompts that are left out or run out, and the flags that double its length."""

from __future__ import annotations

from math import ceil

from rlcore.config import Plan, RunConfig
from rlcore.contracts.runtime_interface import Runtime

__all__ = ["dropped_prompts", "short_batch", "train_on"]


def dropped_prompts(plan: Plan, runtime: Runtime) -> list[str]:
    """Return a sentence for each data set from which prompts are left out."""
    longest = {name: plan.of_data(name).config.data.max_prompt_tokens for name in runtime.dropped}
    what = "tokens and are left out (--overlong drop)"
    return [f"{name}: {count} prompts are longer than {longest[name]} {what}" for name, count in runtime.dropped.items()]


def short_batch(config: RunConfig, runtime: Runtime) -> str:
    """Return a sentence if the prompts run out before ``max_steps``, or in the middle of the last batch."""
    batch, run = config.training.train_batch_size, config.run
    total = run.num_episodes * runtime.prompts
    updates, last = ceil(total / batch), total % batch
    wanted = updates if run.max_steps is None else run.max_steps
    if not total or config.algorithm.dynamic_batching or wanted < updates:  # a runtime need not count its prompts
        return ""
    if wanted > updates:
        episodes = ceil(wanted * batch / runtime.prompts)
        what = f"--max-steps {wanted} cannot be reached: {total} prompts are {updates} updates of -tbs {batch}"
        return f"{what}; type -e {episodes} for more"
    short = f"the last of {updates} updates is short, with {last} instead of {batch} prompts"
    return f"{short}: -tbs {batch} does not divide {total} prompts" if last else ""


def train_on(config: RunConfig, runtime: Runtime, steps: int) -> str:
    """Return the flags that train a run of so many steps for as many again."""
    run, prompts = config.run, runtime.prompts
    if run.max_steps is None or not prompts:
        return f"-e {2 * run.num_episodes}" if run.max_steps is None else f"--max-steps {2 * steps}"
    episodes = ceil(2 * steps * config.training.train_batch_size / prompts)
    return f"--max-steps {2 * steps}" + (f" -e {episodes}" if episodes > run.num_episodes else "")
