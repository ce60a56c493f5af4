"""What only a GPU shows; run by `make gpu-engines`. Elsewhere each is skipped. Not run yet: no GPU was at hand when this was written."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rlcore.testing import update_engine

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
CACHE = 1 << 30


@pytest.mark.parametrize("level", [1, 2])
def test_sleep_gives_the_cache_back_and_wake_takes_it_again(level, backend, snapshot):
    engine, sequence = backend(kv_cache_memory_bytes=CACHE, engine={"gpu_memory_utilization": 0.4}), np.arange(3, 30, dtype=np.int32)
    update_engine(engine, snapshot(1))
    before, awake = engine.score(sequence), torch.cuda.mem_get_info()[0]
    for version in (2, 3, 4):
        engine.sleep(level)
        asleep = torch.cuda.mem_get_info()[0]
        assert asleep - awake > 0.9 * CACHE
        engine.wake()
        assert asleep - torch.cuda.mem_get_info()[0] < 0.5 * CACHE
        update_engine(engine, snapshot(version, seed=1))
        engine.wake_cache()
        assert abs(torch.cuda.mem_get_info()[0] - awake) < 0.1 * CACHE
        assert np.abs(engine.score(sequence) - before).max() < 1e-3
