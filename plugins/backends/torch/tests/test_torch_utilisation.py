"""MFU against a case by hand, on which devices it is known, and in the metrics of an update."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from rlcore_plugin_torch import backend
from rlcore_plugin_torch.utilisation import peak_flops, utilisation


def test_a_case_by_hand() -> None:
    """7e9 weights and 100 000 tokens are 4.2e15 FLOPs; in 4 s on two devices of 989e12."""
    assert utilisation(7_000_000_000, 100_000, 4.0, 2, 989e12) == pytest.approx(4.2e15 / (8 * 989e12))


@pytest.mark.parametrize(
    ("name", "peak"),
    [
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA H100 PCIe", 756e12),
        ("NVIDIA A100-SXM4-80GB", 312e12),
        ("NVIDIA A10", 125e12),
        ("TITAN", None),
    ],
)
def test_the_peak_of_a_device_follows_from_its_name(monkeypatch: pytest.MonkeyPatch, name: str, peak: float | None) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: name)
    assert peak_flops(torch.device("cuda", 0), "bfloat16") == peak
    assert peak_flops(torch.device("cuda", 0), "float32") is None
    assert peak_flops(torch.device("cpu"), "bfloat16") is None


def test_an_update_reports_it_where_the_peak_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    context = SimpleNamespace(dtype="bfloat16", world_size=1)
    trainer = SimpleNamespace(device=torch.device("cpu"), context=context, _parameters=1000)
    metrics = {"positions": 120.0, "padded_positions": 20.0}
    monkeypatch.setattr(backend, "peak_flops", lambda device, dtype: 6e5)
    monkeypatch.setattr(backend.time, "monotonic", lambda: 12.0)
    assert backend.TorchBackend._utilised(trainer, metrics, 10.0) == {"mfu": pytest.approx(0.5)}  # type: ignore[arg-type]
    assert backend.TorchBackend._utilised(trainer, {}, 10.0) == {}  # type: ignore[arg-type]
    monkeypatch.setattr(backend, "peak_flops", lambda device, dtype: None)
    assert backend.TorchBackend._utilised(trainer, metrics, 10.0) == {}  # type: ignore[arg-type]
