from __future__ import annotations

import subprocess
import sys

import pytest

import rlcore.learning


def test_the_numpy_half_loads_no_torch() -> None:
    code = (
        "import sys\n"
        "from rlcore.learning import group_mean, BatchSettings, split, assemble_batch, SoftOverlong, plan_micro_batches, ClippedOptions\n"
        "from rlcore.learning import learning_rate, run_estimator\n"
        "assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize("name", rlcore.learning.__all__)
def test_every_public_name_is_there(name: str) -> None:
    value = getattr(rlcore.learning, name)
    assert callable(value)
    assert getattr(value, "__name__", name) == name


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = rlcore.learning.nothing
