"""Several engines of one process: they end in any order, and the last one leaves no process group behind."""

from __future__ import annotations

import numpy as np
import torch

TOLERANCE = 1e-4


def assert_alike(answers, others) -> None:
    assert set(answers) == set(others)
    for name, answer in answers.items():
        assert answer.token_ids.tolist() == others[name].token_ids.tolist(), name
        assert np.allclose(answer.logprobs, others[name].logprobs, atol=TOLERANCE), name


def test_engines_of_one_process_end_in_any_order(backend, ask, answered):
    first, second, third = backend(), backend(), backend()
    request = [ask("r0", [3, 5, 4])]
    before = answered(second, request)
    first.close()
    del third
    assert_alike(answered(second, request), before)
    second.close()
    assert_alike(answered(backend(), request), before)


def test_the_last_engine_of_a_process_leaves_no_group_behind(backend):
    first, second = backend(), backend()
    second.close()
    assert torch.distributed.is_initialized()
    first.close()
    assert not torch.distributed.is_initialized()
