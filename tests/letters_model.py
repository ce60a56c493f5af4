"""A tiny real model that reads letters, for runs of real backends on the data of the fakes."""

from __future__ import annotations

from pathlib import Path

__all__ = ["LETTERS", "write_model"]

LETTERS = "abcdef"


def write_model(folder: Path, rows: int = len(LETTERS) + 4) -> None:
    """A Qwen2 of 2 layers and a tokenizer of single letters; ``rows``: of its embedding."""
    import torch
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    words = ["<pad>", "<eos>", "<user>", *LETTERS, " "]
    fast = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<pad>"))
    fast.pre_tokenizer = pre_tokenizers.Split(Regex("<user>|."), behavior="isolated")
    fast.decoder = decoders.Fuse()
    wrapped = PreTrainedTokenizerFast(tokenizer_object=fast, eos_token="<eos>", pad_token="<pad>")
    wrapped.chat_template = "{% for m in messages %}<user>{{ m['content'] }}{% endfor %}<user>"
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1}
    config = Qwen2Config(**shape, vocab_size=rows, max_position_embeddings=1024, eos_token_id=1, bos_token_id=None, pad_token_id=None)
    Qwen2ForCausalLM(config).save_pretrained(folder)
    wrapped.save_pretrained(folder)
