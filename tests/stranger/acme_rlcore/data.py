"""Generated rows: ``acme:say`` asks the model to say a letter, drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from rlcore.api.data import DataError, RowSource


class MadeOptions(BaseModel):
    """Options of the data source ``acme_made``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    count: int = Field(6, ge=1, description="number of rows")
    seed: int = Field(0, description="seed of the draws")
    letters: tuple[str, ...] = Field(("a", "b", "c"), min_length=1, description="letters to choose from")
    order: Literal["drawn", "sorted"] = Field("drawn", description="order of the rows")


class MadeRows(RowSource):
    """The data source ``acme_made``, for paths that begin with ``acme:``."""

    def __init__(self, options: MadeOptions) -> None:
        self._options = options

    def rows(self, path: str) -> Iterator[tuple[int, object]]:
        """Yield (number, row) for each row. The only path is ``acme:say``."""
        if path != "acme:say":
            raise DataError(f"{path}: there is no such task; write acme:say")
        draw = random.Random(self._options.seed)
        drawn = [draw.choice(self._options.letters) for _ in range(self._options.count)]
        for number, letter in enumerate(sorted(drawn) if self._options.order == "sorted" else drawn, start=1):
            yield number, {"messages": {"role": "user", "content": letter}, "gt_answer": letter}
