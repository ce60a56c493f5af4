"""Names that rlcore's own plugins offer, so that the error for a name that is not installed has the command that installs it.

Plugins of other authors need no entry here: the catalogue is consulted only after all installed plugins.
"""

from __future__ import annotations

from collections.abc import Mapping

from rlcore.contracts.errors import PluginError
from rlcore.contracts.specs import PluginKind

__all__ = [
    "OFFERS",
    "NotInstalledError",
    "distribution_of",
    "known_names",
    "known_offer",
    "known_source",
    "known_training",
    "known_transfer",
]


class NotInstalledError(PluginError):
    """A known name that no installed distribution offers. ``pip`` is the command to type."""

    def __init__(self, message: str, pip: str) -> None:
        super().__init__(message)
        self.pip = pip


OFFERS: Mapping[str, Mapping[PluginKind, tuple[str, ...]]] = {
    "rlcore-plugin-math": {PluginKind.REWARD: ("boxed", "think_answer_tags")},
    "rlcore-plugin-code": {PluginKind.REWARD: ("code",)},
    "rlcore-plugin-adapters": {
        PluginKind.REWARD: ("trl_function", "verl_function", "reasoning_gym", "json_schema"),
        PluginKind.DATA: ("reasoning_gym", "reasoning_gym_endless"),
    },
    "rlcore-plugin-judge": {PluginKind.REWARD: ("llm_judge", "llm_pairwise")},
    "rlcore-plugin-agents": {
        PluginKind.CONVERSATION: ("agent",),
        PluginKind.ENVIRONMENT: ("command", "program"),
        PluginKind.REWARD: ("environment",),
    },
    "rlcore-plugin-harbor": {PluginKind.ENVIRONMENT: ("harbor",)},
    "rlcore-plugin-nemo-gym": {PluginKind.ENVIRONMENT: ("nemo_gym",)},
    "rlcore-plugin-openenv": {PluginKind.ENVIRONMENT: ("openenv",)},
    "rlcore-plugin-textarena": {PluginKind.ENVIRONMENT: ("textarena",)},
    "rlcore-plugin-verifiers": {PluginKind.ENVIRONMENT: ("verifiers",)},
    "rlcore-gateway": {PluginKind.COMMAND: ("gateway",)},
    "rlcore-plugin-sandbox": {PluginKind.SANDBOX: ("local",)},
    "rlcore-plugin-transformers": {PluginKind.INFERENCE: ("transformers",)},
    "rlcore-plugin-vllm": {PluginKind.INFERENCE: ("vllm",)},
    "rlcore-plugin-sglang": {PluginKind.INFERENCE: ("sglang",)},
    "rlcore-plugin-serving": {PluginKind.INFERENCE: ("endpoint",)},
    "rlcore-plugin-torch": {PluginKind.TRAINING: ("torch",)},
    "rlcore-plugin-colossalai": {PluginKind.TRAINING: ("colossalai",)},
    "rlcore-plugin-grpo": {
        PluginKind.ALGORITHM: ("grpo", "dr_grpo", "gspo", "cispo", "gmpo", "sapo", "maxrl", "clip_cov", "kl_cov"),
        PluginKind.ESTIMATOR: ("maxrl", "pass_at_k", "pkpo"),
        PluginKind.LOSS: ("gspo", "cispo", "gmpo", "sapo", "clip_cov", "kl_cov"),
    },
    "rlcore-plugin-dapo": {PluginKind.ALGORITHM: ("dapo",), PluginKind.FILTER: ("best_of_n", "length_range", "reward_spread")},
    "rlcore-plugin-rloo": {PluginKind.ALGORITHM: ("rloo",), PluginKind.ESTIMATOR: ("rloo",)},
    "rlcore-plugin-reinforce": {
        PluginKind.ALGORITHM: ("reinforce++", "reinforce_ppb", "reinforce++-baseline", "remax", "opo", "gpg"),
        PluginKind.ESTIMATOR: ("reinforce++", "reinforce_ppb", "reinforce++-baseline", "remax", "opo", "gpg"),
        PluginKind.LOSS: ("gpg",),
    },
    "rlcore-plugin-datasets": {
        PluginKind.DATA: ("csv", "parquet", "hub"),
        PluginKind.FORMAT: (
            *("verl", "dapo", "trl", "openr1", "gsm8k", "math", "nemotron", "nemotron_post", "intellect2", "intellect3", "deepmath"),
            *("orz", "dolci", "rllm", "choices"),
        ),
    },
    "rlcore-plugin-quickstart": {PluginKind.COMMAND: ("quickstart",)},
    "rlcore-plugin-tools": {
        PluginKind.COMMAND: ("audit", "compare", "env", "eval", "plan", "report", "rollouts", "runs", "score", "show", "watch"),
    },
    "rlcore-plugin-processes": {PluginKind.RUNTIME: ("local",), PluginKind.TRANSFER: ("shared",)},
    "rlcore-plugin-ray": {
        PluginKind.RUNTIME: ("ray",),
        PluginKind.TRANSFER: ("object_store", "collective"),
        PluginKind.COMMAND: ("launch",),
    },
    "rlcore-plugin-trackers": {PluginKind.TRACKER: ("tensorboard", "trackio", "wandb")},
    "rlcore-plugin-extraction": {},
    "rlcore-plugin-workers": {},
}
"""The distributions of this repository, and the names that each of them offers."""

_BY_NAME: Mapping[tuple[PluginKind, str], str] = {
    (kind, name): distribution for distribution, kinds in OFFERS.items() for kind, names in kinds.items() for name in names
}


def distribution_of(kind: PluginKind, name: str) -> str | None:
    """Return the distribution that should offer ``name`` (any case), None if rlcore does not know the name."""
    return _BY_NAME.get((kind, name.lower()))


def known_names(kind: PluginKind) -> tuple[str, ...]:
    """Return every name of a kind in the catalogue, sorted."""
    return tuple(sorted(name for of_kind, name in _BY_NAME if of_kind is kind))


def known_source(path: str, *, folder: bool) -> str:
    """Return the data source of rlcore's own plugins that reads data sets with this name, or folders; "" if there is none."""
    marks = {
        "hub": folder or path.startswith("hf:"),
        "reasoning_gym": path.startswith("gym:"),
        "reasoning_gym_endless": path.startswith("gym-endless:"),
        "csv": path.endswith((".csv", ".csv.gz")),
        "parquet": path.endswith(".parquet"),
    }
    return next((name for name, claimed in marks.items() if claimed), "")


def known_offer(hook: str) -> str:
    """Return the distribution that offers an object by this hook."""
    return {"rlcore_plan_arguments": "rlcore-plugin-tools", "rlcore_tokenizer_class": "rlcore-plugin-transformers"}[hook]


def known_training(*, pipeline: bool) -> str:
    """Return the training backend of rlcore's own plugins that suits most runs.

    With ``pipeline``, return the one that splits a model into stages.
    """
    return "colossalai" if pipeline else "torch"


def known_transfer(reach: str) -> str:
    """Return the weight transfer of rlcore's own plugins that works on one host; "" if the processes of a run can be on different hosts."""
    return "shared" if reach == "host" else ""
