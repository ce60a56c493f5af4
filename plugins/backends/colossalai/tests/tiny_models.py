"""A program for either version of transformers: make tiny random models, and compute log probabilities of a fixed sequence.

python tiny_models.py make FOLDER < {name: settings}        # a model a name, below FOLDER
python tiny_models.py compute plain|translated FOLDER…      # prints {folder: [log probability]}
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
import transformers

LENGTH = 200
VOCABULARY = 64


def make(folder: Path, settings: dict[str, Any]) -> None:
    torch.manual_seed(1)
    config = transformers.AutoConfig.for_model(**settings)
    model = transformers.AutoModelForCausalLM.from_config(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)  # positions and the head matter
    model.save_pretrained(folder)


def compute(folder: Path, *, translated: bool) -> list[float]:
    config = None
    if translated:
        from rlcore_plugin_colossalai.model_configuration import read_configuration

        config = read_configuration(folder)
    model, told = transformers.AutoModelForCausalLM.from_pretrained(folder, config=config, output_loading_info=True)
    assert not told["missing_keys"], told
    ids = torch.randint(3, VOCABULARY, (1, LENGTH), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        logits = model.eval().float()(ids, use_cache=False).logits[0, :-1]
    logprobs = logits.log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0]
    return [float(value) for value in logprobs]


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    if sys.argv[1] == "make":
        for name, settings in json.load(sys.stdin).items():
            make(Path(sys.argv[2]) / name, settings)
    else:
        print(json.dumps({folder: compute(Path(folder), translated=sys.argv[2] == "translated") for folder in sys.argv[3:]}))
