"""Loads the model of a plan into an engine, for a gateway without a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from rlcore.api import Sampling, Tokenizer
from rlcore.api.runtime import check_model_files, make_engine, read_texts
from rlcore_gateway.engine_thread import EngineThread

if TYPE_CHECKING:
    from rlcore.api.commands import Plan

__all__ = ["served_model"]


@contextmanager
def served_model(plan: Plan, say: Callable[[str], None]) -> Iterator[tuple[Tokenizer, EngineThread]]:
    """Yield the tokenizer of a model, and its engine in a thread that is not started yet. Raises ConfigError if it cannot be loaded."""
    config = plan.config.sampling
    with ExitStack() as closing:
        check_model_files(plan)
        tokenizer = read_texts(plan, {}, say=say).tokenizer
        engine = make_engine(plan, tokenizer, closing)
        sampling = Sampling(temperature=config.temperature, top_p=config.top_p, top_k=config.top_k, min_p=config.min_p, extra=config.extra)
        yield tokenizer, EngineThread(engine, sampling, plan.config.run.seed)
