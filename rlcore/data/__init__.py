"""From files to checked prompts: reading, validation with ``file:line``, mixing. Loads no torch and no transformers."""

from rlcore.data.dataset import DataSet
from rlcore.data.prompts import check_prompt_lengths, load_eval, load_prompts, short_prompts, with_system_prompt

__all__ = ["DataSet", "check_prompt_lengths", "load_eval", "load_prompts", "short_prompts", "with_system_prompt"]
