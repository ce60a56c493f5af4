"""Prints the megabytes that one forward and backward over 512 tokens and a vocabulary of 65 536 add to this process at their peak."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from rlcore_plugin_torch.projection import token_logprobs

TOKENS, HIDDEN, VOCABULARY = 512, 64, 65_536


def resident(which: str) -> float:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(which))
    return int(line.split()[1]) / 1024


def step(way: str, entropy: bool, tokens: int) -> None:
    hidden = torch.randn(tokens, HIDDEN, requires_grad=True)
    targets = torch.randint(0, VOCABULARY, (tokens,))
    if way == "chunked":
        logprobs, entropies = token_logprobs(hidden, WEIGHT, None, targets, 0.9, entropy=entropy)
    else:
        log_p = ((hidden @ WEIGHT.t()) / 0.9).log_softmax(-1)
        logprobs = log_p.gather(1, targets[:, None]).squeeze(1)
        entropies = -(log_p.exp() * log_p).sum(-1) if entropy else None
    total = logprobs.sum() if entropies is None else logprobs.sum() + entropies.sum()
    total.backward()
    WEIGHT.grad = None


torch.manual_seed(0)
torch.set_num_threads(1)
WEIGHT = torch.randn(VOCABULARY, HIDDEN, requires_grad=True)
step(sys.argv[1], sys.argv[2] == "entropy", tokens=2)
Path("/proc/self/clear_refs").write_text("5")
before = resident("VmRSS")
step(sys.argv[1], sys.argv[2] == "entropy", TOKENS)
print(resident("VmHWM") - before)
