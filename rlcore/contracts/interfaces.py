"""The base classes that plugins implement. They carry the defaults, so a plugin writes only its own behaviour.

The core calls these methods and knows nothing else of a plugin. It calls each target once per process: ``target(context, options)`` for
backends, and ``target(options)`` or ``target()`` for all others. ``options`` is an instance of the plugin's own pydantic model, if its spec
names one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from rlcore.contracts.batches import LossBatch, RewardBatch, TrainBatch
from rlcore.contracts.capabilities import InferenceCapabilities, InFlight, TrainingCapabilities
from rlcore.contracts.from_spec import FromSpec
from rlcore.contracts.needs import ModelRole, Need, RewardDetail
from rlcore.contracts.public_members import PublicMembers
from rlcore.contracts.run_info import RunInfo
from rlcore.contracts.snapshots import Bucket, WeightsManifest, WeightSource
from rlcore.contracts.specs import AdvantageSpec, InferenceBackendSpec, LossSpec, TrainingBackendSpec
from rlcore.contracts.tracker_interface import Tracker
from rlcore.contracts.training_settings import LoraSettings, OptimizerSettings
from rlcore.contracts.types import Completion, Message, Request

if TYPE_CHECKING:
    import torch

    from rlcore.contracts.model_hook import ModelHook

__all__ = [
    "AdvantageEstimator",
    "InferenceBackend",
    "InferenceContext",
    "Loss",
    "ModelRole",
    "Need",
    "Objective",
    "PendingSave",
    "RewardDetail",
    "RunInfo",
    "Tokenizer",
    "Tracker",
    "TrainingBackend",
    "TrainingContext",
]


class Tokenizer(Protocol):
    """The interface of a tokenizer. rlcore wraps Hugging Face tokenizers; a fake takes ten lines."""

    stop_ids: frozenset[int]
    """Tokens that end a completion."""

    def render(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> np.ndarray:
        """Return int32[C]: the messages in the chat template, with the schemas of the row's ``tools`` and the generation prompt."""
        ...

    def encode(self, text: str) -> Sequence[int]:
        """Return the tokens of a text that is not a chat. No token is added to it."""
        ...

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text, without special tokens."""
        ...

    def fingerprint(self) -> str:
        """Return a hash. Two processes compare it, so that they cannot disagree on the meaning of a token."""
        ...

    def save(self, folder: Path) -> None:
        """Write the tokenizer next to a model, in a form that its loader can read."""
        ...


# --- inference ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceContext(metaclass=PublicMembers):
    """The arguments of one inference worker.

    ``prompts_per_forward``: the value of ``-imbs``.
    ``max_tokens``: the limit of prompt + response.
    ``trust_remote_code``: whether Python code in the model's folder may run.
    ``adapter_rank``: the largest rank of the LoRA adapters that will arrive for ``model``; 0 if none will.
    ``producer``: the number of the producer that owns the engine, from 0 to ``producers`` - 1. A replacement keeps the number.
    """

    model: str
    tokenizer: Tokenizer
    prompts_per_forward: int
    max_tokens: int
    dtype: str = "float32"
    device: str = "auto"
    tensor_parallel: int = 1
    seed: int = 0
    trust_remote_code: bool = False
    adapter_rank: int = 0
    producer: int = 0
    producers: int = 1


class InferenceBackend(FromSpec, ABC, described_by=InferenceBackendSpec):
    """An engine that generates many completions at a time and accepts new weights while it runs. Not thread-safe: one owner calls it."""

    capabilities: InferenceCapabilities
    epoch = -1
    """The epoch of the group that the engine joined last; ``update_engine`` keeps it current."""

    @abstractmethod
    def submit(self, requests: Sequence[Request]) -> None:
        """Queue requests and return at once. Requests with equal ``token_ids`` share the prompt's computation if possible."""

    @abstractmethod
    def poll(self, timeout: float) -> list[Completion]:
        """Make progress and return the finished completions.

        Return [] after ``timeout`` seconds, or if nothing is in flight. Never busy-wait.
        """

    @abstractmethod
    def cancel(self, request_ids: Iterable[str]) -> None:
        """Drop requests. ``poll`` returns those in flight as ``ABORTED``, with the tokens that they have. Unknown ids are ignored."""

    @abstractmethod
    def begin_update(self, version: int, manifest: WeightsManifest, in_flight: InFlight) -> None:
        """Pause before new weights arrive, and treat the requests in flight as ``in_flight`` says.

        Its value is the one that the capabilities declare.

        The caller calls neither ``submit`` nor ``poll`` before ``finish_update``. If an update stops between the two, an engine that cannot
        swap weights holds a mixture of them. It then raises RunError from every call that asks for tokens, until another update has
        finished.

        :raises WeightsError: the manifest does not fit the model; the message names the tensor. The engine then continues with its old
            weights.
        """

    @abstractmethod
    def receive(self, bucket: Bucket) -> None:
        """Take the tensors of one bucket. Buckets arrive in the order of their index, each once.

        Keep none of its arrays, and no view of them: their memory is reused for other weights as soon as this method returns.
        """

    @abstractmethod
    def finish_update(self) -> int:
        """Serve the new weights from now on, and return their version.

        :raises WeightsError: a tensor did not arrive; the message names it.
        """

    def describe(self) -> Mapping[str, Any]:
        """Return the facts that the trainer's side of an engine transfer needs before it builds a group, picklable: ``{"ranks": 4}``.

        Called once, before the first update.
        """
        return {}

    def connect(self, info: Mapping[str, Any], epoch: int) -> None:
        """Join the group of the engine transfer that the trainer's side describes in ``info``, and wait until it is complete.

        Called before the first update that uses this transfer, and again with a higher ``epoch`` if the members change. A collective cannot
        lose a member, so its group is built anew. Drop the previous group here.

        ``connect``, ``receive`` and ``finish_update`` raise GroupBrokenError if the group breaks. The producer then keeps the engine,
        informs the transfer, and waits for the version under a higher epoch, for at most ``weights.deadline``.
        """
        raise NotImplementedError(f"{type(self).__name__} takes weights through the memory of the host alone (capabilities.transfers)")

    @abstractmethod
    def score(self, token_ids: np.ndarray) -> np.ndarray:
        """Return the probe: int32[T] -> float32[T-1], the log probability of each token after the first, at temperature 1."""

    def sleep(self, level: int = 1) -> None:
        """Release the device.

        Level 1: the weights may move to host memory, and an update on top of them (adapter, delta) may follow ``wake``. Level 2: nothing is
        kept, and whole weights follow. rlcore asks an engine that accepts only whole weights for level 2.
        """
        raise NotImplementedError(f"{type(self).__name__} does not sleep (capabilities.sleeps is False)")

    def wake(self) -> None:
        """Take back as much of the device as the weights need. An update follows before the next ``submit``."""
        raise NotImplementedError(f"{type(self).__name__} does not sleep (capabilities.sleeps is False)")

    def wake_cache(self) -> None:
        """Take back the rest of the device, for keys and values. Called after ``wake`` and the update, before the next ``submit``."""

    def close(self) -> None:
        """Free everything. Called once, also after an error."""


# --- training ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingContext(metaclass=PublicMembers):
    """The arguments of one trainer rank.

    ``rollouts_per_forward``: the value of ``-tmbs``.
    ``tokens_per_forward``: the limit of tokens and padding in one forward pass.
    ``prompts_per_slice``: the value of ``-tMbs``.
    ``needs``: the inputs that the objective needs. The reference model is loaded only with ``Need.REFERENCE``.
    ``trust_remote_code``: whether Python code in the model's folder may run.
    """

    model: str
    optimizer: OptimizerSettings
    rollouts_per_forward: int
    tokens_per_forward: int
    prompts_per_slice: int
    needs: frozenset[Need] = frozenset()
    dtype: str = "float32"
    device: str = "auto"
    rank: int = 0
    world_size: int = 1
    rendezvous: str = ""
    """The address at which the ranks meet, ``tcp://host:port``; "" with one rank."""
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    context_parallel: int = 1
    expert_parallel: int = 1
    zero_stage: int = 0
    seed: int = 0
    trust_remote_code: bool = False
    lora: LoraSettings | None = None
    """None: every weight is trained."""
    model_hook: ModelHook | None = None
    """Applied to the model and to the reference. If ``resumed``, the weights of ``model`` then replace those that it set."""
    resumed: bool = False
    """Whether ``model`` is the policy of a checkpoint."""
    reference: str = ""
    """The reference model; "" means ``model``.

    In a resumed run, ``model`` is the policy of the checkpoint and ``reference`` is the model with which the run began. With ``lora`` both
    are the latter, and ``load`` restores the adapters.
    """


class Objective(Protocol):
    """The loss of one micro-batch, with the global normalisers included: a pure function of the last stage's output.

    The loss of an optimizer step is the sum over all micro-batches of all ranks, and so is its gradient.
    """

    needs: frozenset[Need]

    def __call__(self, logprobs: torch.Tensor, batch: LossBatch) -> tuple[torch.Tensor, Mapping[str, torch.Tensor]]:
        """Return a scalar on which to call ``backward``, and metrics whose sum over micro-batches is the step's figure.

        :param logprobs: [n] log probabilities.
        """
        ...


class PendingSave(Protocol):
    """A write in progress; a ``concurrent.futures.Future`` is one."""

    def done(self) -> bool:
        """Return True once the write has finished or failed."""

    def result(self) -> object:
        """Wait until the write has finished. Raise the error if it failed, RunError if ``close`` cancelled it."""


class TrainingBackend(FromSpec, ABC, described_by=TrainingBackendSpec):
    """The owner of the policy, its optimizer and the loop over micro-batches.

    With several ranks every method is collective, except ``data_parallel``, ``timings`` and ``close``: all ranks call it, in the same
    order. ``close`` must not wait for other ranks, because one may be dead.
    """

    capabilities: TrainingCapabilities

    @abstractmethod
    def setup(self, context: TrainingContext) -> None:
        """Load the model and build the optimizer. Do heavy imports here or later."""

    @abstractmethod
    def logprobs(self, batch: TrainBatch, which: ModelRole) -> np.ndarray:
        """Return float32[N]: the log probabilities of all policy tokens in this rank's share.

        They are computed at each rollout's temperature, over the full vocabulary, without gradient. A share may be empty.
        """

    def logprobs_and_entropies(self, batch: TrainBatch) -> tuple[np.ndarray, np.ndarray]:
        """Return ``logprobs`` of the policy, and the entropy of its distribution at each of the same tokens, float32[N], from one pass.

        Called only if ``capabilities.entropies``. Since 2.0.
        """
        raise NotImplementedError(f"{type(self).__name__} computes no entropies before an update (capabilities.entropies is False)")

    @abstractmethod
    def update(self, batch: TrainBatch, objective: Objective) -> Mapping[str, float]:
        """Take one optimizer step on this rank's share, which may be empty, and return the metrics of the whole step.

        The metrics are the same on every rank, and include ``grad_norm`` (before clipping) and ``learning_rate``. Weights and normalisers
        of the share are those of the global batch, so gradients and the objective's metrics add up over ranks.

        All ranks skip the step in two cases: if no rank has a rollout in the loss, or if ``grad_norm`` is not finite. In the second case
        the metrics have ``skipped_steps`` 1.0. A skipped step leaves weights, moments and schedule unchanged, bit for bit.
        """

    @abstractmethod
    def weight_source(self) -> WeightSource:
        """Return the current weights of the policy, for the transfer to the engines. Collective, see ``WeightSource``."""

    @abstractmethod
    def probe(self, token_ids: np.ndarray) -> np.ndarray:
        """Return int32[T] -> float32[T-1]: the policy's log probability of each token after the first, at temperature 1."""

    @abstractmethod
    def save_model(self, folder: Path, dtype: str | None = None) -> PendingSave | None:
        """Write a Hugging Face checkpoint of the policy, without tokenizer, into an empty folder that all ranks can see.

        None means that it is written. A ``PendingSave`` means that the weights are copied and are being written: the next update may change
        them. ``save`` follows at once, and no other checkpoint starts before both are done. Both methods may be called while the backend
        sleeps.

        :param dtype: None: the precision from which a resume continues. Otherwise one of ``capabilities.exports``: write the whole model
            rounded to it, with adapters merged.
        """

    @abstractmethod
    def save(self, folder: Path) -> PendingSave | None:
        """Write the state that an exact resume needs in addition to the model: optimizer, schedule, random state.

        For the return value see ``save_model``.
        """

    @abstractmethod
    def load(self, folder: Path) -> None:
        """Read the files that ``save`` wrote. Every value must be equal bit for bit."""

    def sleep(self) -> None:
        """Release the device; weights and optimizer move to host memory.

        Collective: it returns once every rank has released its own device, so that an engine may take it. Called only if
        ``capabilities.sleeps``, after an update and after its weights have been handed out.
        """
        raise NotImplementedError(f"{type(self).__name__} does not sleep (capabilities.sleeps is False)")

    def wake(self) -> None:
        """Take the device back; collective. An update or ``weight_source`` follows."""
        raise NotImplementedError(f"{type(self).__name__} does not sleep (capabilities.sleeps is False)")

    def sync_reference(self, share: float) -> None:
        """Move the weights of the reference model towards the policy's: ``(1 - share) * reference + share * policy``. Since 2.0.

        Collective. Called after an update, only with ``capabilities.syncs_reference`` and ``Need.REFERENCE``. With a share of 1 the
        reference becomes the policy, bit for bit. From then on ``save`` includes the reference, and ``load`` restores it.

        :param share: above 0 and at most 1.
        """
        raise NotImplementedError(f"{type(self).__name__} does not move its reference (capabilities.syncs_reference is False)")

    @property
    def data_parallel(self) -> tuple[int, int]:
        """The pair (place, size) of this rank among the ranks that hold whole replicas of the model and share a batch."""
        return 0, 1

    def cost(self, batch: TrainBatch, rows: np.ndarray) -> int:
        """Return the cost of forward and backward passes over these rollouts (int[R], all of one group), the same on every rank.

        Groups are divided between data-parallel ranks by this cost; its unit does not matter. Override it if more than the number of tokens
        counts.

        rlcore calls it before a rank has the tokens, in any thread. Lengths and masks are true then, but ids are below 0. The contexts of
        two segments compare equal if the real ones are equal.
        """
        segments = [segment for row in rows for segment in batch.rollouts[row].segments]
        return sum(len(segment.context_ids) + len(segment.token_ids) for segment in segments)

    def gather(self, values: np.ndarray) -> list[np.ndarray]:
        """Return the arrays of all data-parallel ranks, by place. Their lengths may differ."""
        return [values]

    def timings(self) -> Mapping[str, float]:
        """Return the seconds since the last call by part: ``forward``, ``backward``, ``optimizer``."""
        return {}

    def close(self) -> None:
        """Free everything and cancel writes in progress. Called once, also after an error."""


# --- algorithms --------------------------------------------------------------------------------------------------------


class AdvantageEstimator(FromSpec, ABC, described_by=AdvantageSpec):
    """An estimator of advantages from the rewards of one global batch. Pure numpy in float64, called once per batch on every rank."""

    needs_greedy: bool = False
    accepts_kl: bool = False
    per: Literal["rollout", "token"] = "rollout"
    """``AdvantageSpec`` explains these three."""
    needs: frozenset[RewardDetail] = frozenset()
    """The fields that it reads of the batch in addition to rewards, masks and lengths."""

    @abstractmethod
    def estimate(self, batch: RewardBatch) -> np.ndarray:
        """Return the advantages: float64[R], one per rollout, or float64[N], one per token, if the class says ``per = "token"``."""

    def state(self) -> Mapping[str, np.ndarray | float]:
        """Return the state that it keeps between batches (running baselines), by name; {} if none. Saved with the trainer."""
        return {}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from the values that ``state`` returned, numbers as float64[]. The next estimates must be equal bit for bit.

        Called only if there is a state.
        """
        raise NotImplementedError(f"{type(self).__name__} gave a state and cannot restore one")


class Loss(FromSpec, ABC, described_by=LossSpec):
    """A policy-gradient loss per token. The core applies mask, KL penalty, entropy bonus, mismatch correction and aggregation.

    ``on_policy`` (False: the loss has a ratio to the sampler), ``sequence_ratio``, ``one_advantage``, ``prepares_entropy``: see
    ``LossSpec``.

    ``reads_tokens``: whether ``prepare`` reads the content of the batch's rollouts (ids, texts, versions or details of their segments). Set
    it to False if it does not: then each of several trainer ranks receives only the tokens of its own share.

    ``whole_rollouts``: whether ``per_token`` combines the tokens of a rollout (``row_sum``, ``row_mean``, ``row``, ``lengths``). All
    segments of a rollout are then in one forward. Implied by ``sequence_ratio``.
    """

    needs: frozenset[Need] = frozenset()
    reads_tokens: bool = True
    whole_rollouts: bool = False
    on_policy: bool | None = None
    sequence_ratio: bool = False
    one_advantage: bool = False
    prepares_entropy: bool = False

    def prepare(self, batch: TrainBatch) -> Mapping[str, np.ndarray]:
        """Return arrays float32[N] that depend on the whole global batch (ranks, selections). They come back as ``LossBatch.extras``."""
        return {}

    @abstractmethod
    def per_token(self, logprobs: torch.Tensor, batch: LossBatch) -> torch.Tensor | tuple[torch.Tensor, Mapping[str, torch.Tensor]]:
        """Return [n] -> [n]: the loss per token, to be minimised.

        A second return value may name values per token, [n] each; rlcore logs their means over the batch.
        """

    def updated(self, figures: Mapping[str, float]) -> None:
        """Observe the metrics of an update by their names in ``metrics.jsonl``; they are the same on every rank. Any may be absent.

        A loss changes its state here and nowhere else, so all micro-batches and all ranks of an update have the same loss. Since 2.0.
        """

    def state(self) -> Mapping[str, np.ndarray | float]:
        """Return the state that it keeps between updates, by name; {} if none. Saved with the trainer. Since 2.0."""
        return {}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from the values that ``state`` returned, as for ``AdvantageEstimator.restore``. Since 2.0."""
        raise NotImplementedError(f"{type(self).__name__} gave a state and cannot restore one")
