"""Serve a model on 127.0.0.1 by the OpenAI-compatible completions API (`echo`, `logprobs`), on transformers alone.

    python benchmarks/model_server.py FOLDER --port 8000

It stands in for llama.cpp's Python server where that cannot be installed. Nothing of whyformer computes its figures.
"""

from __future__ import annotations

import argparse
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


class Served:
    """A model that scores texts and continues them greedily, one request at a time."""

    def __init__(self, folder: str, device: str) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).to(device).eval()
        self.lock = Lock()

    @torch.inference_mode()
    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        text = body["prompt"]
        encoded = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        ids = torch.tensor([encoded["input_ids"]], device=self.model.device)
        with self.lock:
            if not body.get("echo"):
                return {"choices": [{"text": self.written(ids, int(body["max_tokens"]))}]}
            values = self.model(ids).logits[0].float().log_softmax(dim=-1)
        own = values[:-1].gather(-1, ids[0, 1:, None])[:, 0].double().tolist()
        texts = [text[start:end] for start, end in encoded["offset_mapping"]]
        figures = {"tokens": texts, "token_logprobs": [None, *own]}
        figures["text_offset"] = [start for start, _ in encoded["offset_mapping"]]
        return {"choices": [{"text": text, "logprobs": figures}]}

    def written(self, ids: torch.Tensor, tokens: int) -> str:
        settings = {"do_sample": False, "max_new_tokens": tokens, "repetition_penalty": 1.0}
        settings |= {"temperature": None, "top_p": None, "top_k": None}
        settings["pad_token_id"] = self.tokenizer.eos_token_id
        ids = self.model.generate(ids, attention_mask=torch.ones_like(ids), **settings)[0, ids.shape[1] :]
        return self.tokenizer.decode(ids, skip_special_tokens=True)


def serve(served: Served, port: int) -> ThreadingHTTPServer:
    """A server that waits for requests; port 0 chooses a free one."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            content = json.dumps(served.answer(body)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    serve(Served(options.model, options.device), options.port).serve_forever()


if __name__ == "__main__":
    main()
