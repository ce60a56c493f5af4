"""Inference by external servers: vLLM or SGLang, by address."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlcore.api import Bucket, ConfigError, InferenceContext, InFlight, Request, WeightsError, WeightsManifest
from rlcore_plugin_serving import CAPABILITIES
from rlcore_plugin_serving.checkpoint import HEAD, local_folder, read_shapes
from rlcore_plugin_serving.endpoint_options import EndpointOptions
from rlcore_plugin_serving.joining_backend import JoiningBackend
from rlcore_plugin_serving.served_engine import ServedEngine, ServerAccess
from rlcore_plugin_serving.version_folder import VersionFolders

__all__ = ["EndpointBackend"]


class EndpointBackend(JoiningBackend):
    """Inference by external servers.

    Requests are spread over the producer's servers. Versions reach them through a folder that both sides see, and each token carries the
    version that its server reports for it. The weights that the servers hold when the backend is created count as version 0.
    """

    capabilities = CAPABILITIES
    who = "the server"

    def __init__(self, context: InferenceContext, options: EndpointOptions) -> None:
        access = _access(options, context.producer, context.producers)
        model = local_folder(context.model)
        config = _text_config(model)
        shapes = read_shapes(model)
        folders = None
        if options.shared_folder is not None:
            folders = VersionFolders(options.shared_folder, options.shared_folder_there or str(options.shared_folder.resolve()), model)
        self._served = ServedEngine(
            access,
            vocabulary=int(config["vocab_size"]),
            max_tokens=context.max_tokens,
            dtype=context.dtype,
            folders=folders,
        )
        super().__init__(context, self._served, shapes, tied=bool(config.get("tie_word_embeddings")) or HEAD not in shapes)
        self._seals: list[int | None] = []
        self._served_seals: list[int | None] = []
        self.capabilities = replace(CAPABILITIES, counter_noise=self._served.seeds, transfers=self._served.transfers)

    def unsupported(self, request: Request) -> str:
        """See ServingBackend."""
        return self._served.unsupported(self._ask(request))

    def begin_update(self, version: int, manifest: WeightsManifest, in_flight: InFlight) -> None:
        """See ServingBackend. Raises WeightsError also if the servers do not take weights."""
        if self._joined is None and (problem := self._served.unweighable()):
            raise WeightsError(problem)
        super().begin_update(version, manifest, in_flight)
        self._seals = []

    def receive(self, bucket: Bucket) -> None:
        """See JoiningBackend."""
        if bucket.info:
            self._served.expect(bucket.version)
        super().receive(bucket)
        self._seals.append(bucket.checksum)

    def ranks(self) -> int:
        """See JoiningBackend."""
        return self._served.ranks()

    def collective_rpc(self, method: str, *, kwargs: Mapping[str, Any] | None = None) -> Any:
        """See JoiningBackend."""
        return self._served.carry_out(method, kwargs)

    def finish_update(self) -> int:
        """See ServingBackend. Raises WeightsError if the servers' own checksums do not match."""
        known = bool(self._seals) and None not in self._seals and len(self._seals) == len(self._served_seals)
        self._served.tensors_changed(self._seals != self._served_seals if known else None)
        version = super().finish_update()
        self._served_seals = self._seals
        return version


def _access(options: EndpointOptions, producer: int, producers: int) -> ServerAccess:
    """Return the servers of one producer: each producer updates its own servers."""
    own = options.addresses[producer::producers]
    if not own:
        raise ConfigError(
            f"inference.options.addresses names {len(options.addresses)} servers for {producers} producers, each of which needs its "
            f"own; type -i {len(options.addresses)}"
        )
    key = _key("api_key_env", options.api_key_env)
    return ServerAccess(
        own,
        key=key,
        admin_key=_key("admin_key_env", options.admin_key_env) or key,
        start=options.start_seconds,
        silence=options.silence_seconds,
        connections=options.connections,
        verify=options.verify_weights,
    )


def _key(option: str, variable: str | None) -> str:
    if variable is None:
        return ""
    if not (key := os.environ.get(variable, "")):
        raise ConfigError(f"inference.options.{option} names the environment variable {variable}, which is not set where the producer runs")
    return key


def _text_config(folder: Path) -> dict[str, Any]:
    """Return the part of a model's config.json that describes its language model."""
    path = folder / "config.json"
    try:
        whole = json.loads(path.read_text(encoding="utf-8"))
        config = {**whole, **whole.get("text_config", {})}
        int(config["vocab_size"])
        return config
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path} does not give the model's vocabulary size ({error}); name the model's folder by --model") from error
