"""A fake server, made with the standard library: it speaks as vLLM or SGLang do, draws tokens by a hash of seed and place, and can be told
to break off, fall silent, forget its weights, or lack what a producer needs. The real ones are in tests/server."""

from __future__ import annotations

import json
import math
import threading
import time
from dataclasses import dataclass, field
from hashlib import blake2b, sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from rlcore.api import Snapshot, Tensor

VOCABULARY = 42
SHAPES = {"model.embed_tokens.weight": (VOCABULARY, 4), "model.norm.weight": (4,), "lm_head.weight": (VOCABULARY, 4)}


def weights(version: int, number: int | None = None) -> Snapshot:
    """The tensors of a number, as this version."""
    fill = version if number is None else number
    tensors = {name: Tensor(dtype="float32", shape=shape, data=np.full(shape, fill, np.float32)) for name, shape in SHAPES.items()}
    return Snapshot.of(version, tensors)


def drawn(seed: int, place: int) -> int:
    """The token at a place of an answer: 2 and above, so that none ends it."""
    return 2 + int.from_bytes(blake2b(f"{seed}-{place}".encode(), digest_size=4).digest(), "little") % (VOCABULARY - 2)


@dataclass
class Behaviour:
    """What the server does; a test changes it while it runs."""

    kind: str = "vllm"
    label: str = "default"
    key: str = ""
    pace: float = 0.002
    """Seconds between two tokens."""
    break_after: int | None = None
    """Tokens of an answer after which it hangs up."""
    silent_after: int | None = None
    """Tokens of an answer after which it says nothing more."""
    break_on_drop: bool = False
    """It hangs up on a request that is dropped."""
    raw: bool = False
    """Log probabilities are of the distribution before it is cut."""
    tokens: bool = True
    """It has the endpoint of token ids."""
    development: bool = True
    """It takes weights."""
    max_tokens: int = 512
    vocabulary: int = VOCABULARY
    score: float = -1.5
    sums: str = ""
    """Of its weights; "": of the file that it has read."""
    refuse_loading: str = ""
    drop_connections: int = 0
    """So many orders are hung up on before they are answered."""
    dtype: str = "float32"


@dataclass
class FakeServer:
    """``log``: the paths that were asked for. ``answers``: how often each request id was asked, ``dropped``: ids of aborts."""

    behaviour: Behaviour = field(default_factory=Behaviour)
    log: list[str] = field(default_factory=list)
    answers: dict[str, Any] = field(default_factory=dict)
    dropped: set[str] = field(default_factory=set)
    paused: bool = False
    file: str = ""
    running: int = 0
    most_running: int = 0
    port: int = 0

    def start(self) -> FakeServer:
        """On the port that it had before, if any."""
        self._http = _Server(("127.0.0.1", self.port), _Handler)
        self._http.fake = self
        self.port = self._http.server_address[1]
        self._gone = False
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def stop(self) -> None:
        """As a process that is killed: nobody is told anything."""
        self._gone = True
        self._http.shutdown()
        self._http.server_close()
        for connection in list(self._http.connections):
            connection.close()

    @property
    def gone(self) -> bool:
        return self._gone

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    fake: FakeServer

    def __init__(self, *given: Any) -> None:
        self.connections: set[Any] = set()
        super().__init__(*given)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self.connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Hang-ups are what these tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *words: Any) -> None: ...

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def _serve(self) -> None:
        fake, place = self.server.fake, urlsplit(self.path)
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "{}")
        behaviour = fake.behaviour
        if behaviour.drop_connections and place.path != "/health":
            behaviour.drop_connections -= 1
            self.close_connection = True
            self.connection.close()
            return
        fake.log.append(place.path)
        if behaviour.key and place.path not in ("/health", "/version") and self.headers["Authorization"] != f"Bearer {behaviour.key}":
            self._json({"error": "Unauthorized"}, 401)
            return
        speak = {"vllm": _VLLM, "sglang": _SGLANG}.get(behaviour.kind, {"/health": lambda fake, body: ({}, 200)})
        answer = speak.get(place.path, _absent)(fake, body)
        if callable(answer):
            self._stream(fake, answer)
        else:
            self._json(*answer)

    def _json(self, value: Any, status: int = 200) -> None:
        text = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _stream(self, fake: FakeServer, messages: Any) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        fake.running += 1
        fake.most_running = max(fake.most_running, fake.running)
        try:
            for message in messages():
                self.wfile.write(f"data: {json.dumps(message)}\n\n".encode())
            self.wfile.write(b"data: [DONE]\n\n")
        except (_HangUp, OSError):
            self.connection.close()
        finally:
            fake.running -= 1


class _HangUp(Exception):
    """The server breaks off."""


def _absent(fake: FakeServer, body: Any) -> Any:
    return {"error": "Not Found"}, 404


def _wait(fake: FakeServer, made: int) -> None:
    """Between two tokens, or for as long as it is paused; or for ever."""
    if fake.behaviour.break_after is not None and made >= fake.behaviour.break_after:
        raise _HangUp
    time.sleep(fake.behaviour.pace)
    while (fake.paused or (fake.behaviour.silent_after is not None and made >= fake.behaviour.silent_after)) and not fake.gone:
        time.sleep(0.005)
    if fake.gone:
        raise _HangUp


def _spans(labels: list[str]) -> list[dict[str, Any]]:
    return [{"version": label, "start": place, "end": place + 1} for place, label in enumerate(labels)]


# --- as vLLM --------------------------------------------------------------------------------------------------------------


def _generate(fake: FakeServer, body: Any) -> Any:
    behaviour, asked, name = fake.behaviour, body["sampling_params"], body.get("request_id", "")
    if not behaviour.tokens:
        return _absent(fake, body)
    if any(token >= behaviour.vocabulary for token in asked.get("logprob_token_ids") or ()):
        return {"error": {"message": "out of vocabulary"}}, 400
    if not body.get("stream"):
        entries = [{"token_id": token, "logprob": behaviour.score} for token in [9, *asked.get("logprob_token_ids", ())]]
        told = [None, *({str(token): {"logprob": behaviour.score}} for token in body["token_ids"][1:])]
        choice = {
            "token_ids": [9],
            "finish_reason": "length",
            "weight_versions": _spans([behaviour.label]),
            "logprobs": {"content": [{**entries[0], "top_logprobs": entries[1:]}]},
        }
        return {"choices": [choice], "prompt_logprobs": told if asked.get("prompt_logprobs") == 0 else None}, 200
    fake.answers[name] = fake.answers.get(name, 0) + 1

    def messages() -> Any:
        labels: list[str] = []
        cut = asked["top_k"] == 1 and not behaviour.raw
        while True:
            dropped = f"generate-tokens-{name}" in fake.dropped
            if dropped and behaviour.break_on_drop:
                raise _HangUp
            tokens = []
            if not dropped:
                _wait(fake, len(labels))
                tokens = [drawn(asked["seed"] or 0, len(labels))]
                labels.append(behaviour.label)
            finish = "abort" if dropped else "length" if len(labels) >= asked["max_tokens"] else None
            yield {
                "choices": [
                    {
                        "token_ids": tokens,
                        "logprobs": {"content": [{"token_id": token, "logprob": 0.0 if cut else -1.0} for token in tokens]},
                        "finish_reason": finish,
                        "weight_versions": _spans(labels) if finish else None,
                    }
                ]
            }
            if finish:
                return

    return messages


def _development(order: Any) -> Any:
    return lambda fake, body: order(fake, body) if fake.behaviour.development else _absent(fake, body)


def _set(name: str, value: Any) -> Any:
    def order(fake: FakeServer, body: Any) -> Any:
        setattr(fake, name, value)
        return {"status": "done"}, 200

    return order


def _load(fake: FakeServer, folder: str) -> str:
    """Why it does not."""
    if fake.behaviour.refuse_loading:
        return fake.behaviour.refuse_loading
    file = Path(folder) / "model.safetensors"
    if not file.is_file():
        return f"no such folder: {folder}"
    fake.file = sha256(file.read_bytes()).hexdigest()
    return ""


def _rpc(fake: FakeServer, body: Any) -> Any:
    assert body["method"] == "reload_weights"
    problem = _load(fake, body["kwargs"]["weights_path"])
    return ({"error": {"message": problem}}, 500) if problem else ({"results": [None]}, 200)


def _name_weights(fake: FakeServer, body: Any) -> Any:
    fake.behaviour.label = body["new_version"]
    return {"success": True}, 200


def _drop_vllm(fake: FakeServer, body: Any) -> Any:
    fake.dropped.update(body["request_ids"])
    return {}, 200


_VLLM: dict[str, Any] = {
    "/health": lambda fake, body: ({}, 200),
    "/version": lambda fake, body: ({"version": "0.32.0"}, 200),
    "/v1/models": lambda fake, body: ({"data": [{"id": "m", "max_model_len": fake.behaviour.max_tokens}]}, 200),
    "/server_info": _development(lambda fake, body: ({"vllm_config": {"model_config": {"dtype": f"torch.{fake.behaviour.dtype}"}}}, 200)),
    "/inference/v1/generate": _generate,
    "/inference/v1/abort_requests": _drop_vllm,
    "/is_paused": _development(lambda fake, body: ({"is_paused": fake.paused}, 200)),
    "/pause": _development(_set("paused", True)),
    "/resume": _development(_set("paused", False)),
    "/reset_prefix_cache": _development(lambda fake, body: ({"success": True}, 200)),
    "/collective_rpc": _development(_rpc),
    "/update_weight_version": _development(_name_weights),
    "/weight_checker": _development(lambda fake, body: ({"checksums": {"w": fake.behaviour.sums or fake.file}}, 200)),
}

# --- as SGLang ------------------------------------------------------------------------------------------------------------


def _answer(fake: FakeServer, body: Any) -> Any:
    behaviour, asked, prompt = fake.behaviour, body["sampling_params"], body["input_ids"]
    if any(token >= behaviour.vocabulary for token in body.get("token_ids_logprob") or ()):
        return {"error": {"message": "out of vocabulary"}}, 400
    if not body.get("stream"):
        entries = [[None if not place else behaviour.score, token, None] for place, token in enumerate(prompt)]
        return {"output_ids": [], "meta_info": {"input_token_logprobs": entries, "weight_version": behaviour.label}}, 200
    name = body["rid"]
    fake.answers[name] = fake.answers.get(name, 0) + 1

    def messages() -> Any:
        tokens: list[int] = []
        while True:
            dropped = name in fake.dropped
            if not dropped:
                _wait(fake, len(tokens))
                tokens.append(drawn(asked.get("sampling_seed", 0), len(prompt) + len(tokens)))
            finish = "abort" if dropped else "length" if len(tokens) >= asked["max_new_tokens"] else None
            told: dict[str, Any] = {
                "finish_reason": {"type": finish} if finish else None,
                "completion_tokens": len(tokens),
                "output_token_logprobs": [[-1.0, token, None] for token in tokens],
                "weight_version": behaviour.label,
            }
            if body.get("return_sampling_mask"):
                told["output_token_sampling_logprobs"] = [0.0 if not behaviour.raw else -math.e] * len(tokens)
            if finish:
                told["weight_versions"] = [{"version": behaviour.label, "start": 0, "end": len(tokens)}]
            yield {"output_ids": tokens, "meta_info": told}
            if finish:
                return

    return messages


def _update_sglang(fake: FakeServer, body: Any) -> Any:
    assert not fake.running, "weights were written while requests ran"
    problem = _load(fake, body["model_path"])
    if problem:
        return {"success": False, "message": problem}, 400
    fake.behaviour.label = body["weight_version"]
    return {"success": True, "message": "", "num_paused_requests": 0}, 200


def _drop_sglang(fake: FakeServer, body: Any) -> Any:
    fake.dropped.add(body["rid"])
    return {}, 200


_SGLANG: dict[str, Any] = {
    "/health": lambda fake, body: ({}, 200),
    "/model_info": lambda fake, body: ({"model_path": "m", "weight_version": fake.behaviour.label}, 200),
    "/server_info": lambda fake, body: (
        {
            "max_req_input_len": fake.behaviour.max_tokens + 1,
            "sampling_mask_max_tokens": 8,
            "enable_deterministic_inference": True,
            "dtype": fake.behaviour.dtype,
        },
        200,
    ),
    "/generate": _answer,
    "/abort_request": _drop_sglang,
    "/update_weights_from_disk": _update_sglang,
    "/weights_checker": lambda fake, body: ({"success": True, "ranks": [{"checksums": {"w": fake.behaviour.sums or fake.file}}]}, 200),
}
