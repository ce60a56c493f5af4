"""SGLang's own server on a CPU, for trying the backend ``endpoint``: ``python -m rlcore_plugin_sglang.cpu_server --model-path FOLDER``,
with any other argument of ``sglang.launch_server``. SGLang starts its processes by ``spawn``, which imports this module first."""

from __future__ import annotations

import sys
import warnings

from rlcore_plugin_sglang.cpu_shim import prepare_cpu

warnings.simplefilter("ignore")  # about kernels that are not for this machine
prepare_cpu()

__all__ = ["main"]

_HERE = (
    *("--device", "cpu", "--attention-backend", "torch_native", "--sampling-backend", "pytorch", "--mem-fraction-static", "0.05"),
    *("--disable-cuda-graph", "--disable-overlap-schedule", "--sleep-on-idle", "--skip-server-warmup"),
)


def main(words: list[str]) -> None:
    """Serve until the process ends."""
    from sglang.launch_server import run_server
    from sglang.srt.server_args import prepare_server_args

    run_server(prepare_server_args([*_HERE, *words]))


if __name__ == "__main__":
    main(sys.argv[1:])
