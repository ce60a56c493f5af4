"""``python serve.py module:Class CONFIG PORT``: serves a resources server of NeMo Gym, without its head server and without starting Ray.

This file runs by its path in the Python that has nemo-gym. It imports nothing of rlcore.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress
from importlib import import_module


def main() -> None:
    """Serve until this process ends."""
    import nemo_gym  # noqa: F401  # it makes resources_servers importable
    import uvicorn
    from nemo_gym.config_types import BaseServerConfig
    from nemo_gym.server_utils import ServerClient
    from omegaconf import OmegaConf

    named, config, port = sys.argv[1:]
    module, _, name = named.partition(":")
    kind = getattr(import_module(module), name)
    address = {"host": "127.0.0.1", "port": int(port)}
    settings = kind.model_fields["config"].annotation.model_validate(
        {**address, "entrypoint": "app.py", "name": name, **json.loads(config)}
    )
    client = ServerClient(head_server_config=BaseServerConfig(**address), global_config_dict=OmegaConf.create({}))
    server = kind(config=settings, server_client=client)
    app = server.setup_webserver()
    server.setup_exception_middleware(app)
    loop = asyncio.new_event_loop()
    serving = loop.create_task(uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=int(port), log_level="warning")).serve())
    while not serving.done():
        with suppress(SystemExit):  # of the task of one request, which fails by it
            loop.run_until_complete(serving)
    serving.result()  # uvicorn ends by SystemExit if it cannot start


if __name__ == "__main__":
    main()
