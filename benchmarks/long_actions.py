"""A long transcript explained on a CPU: CPU time and memory of `explain_action`, beside one forward pass.

    python benchmarks/long_actions.py FOLDER --template benchmarks/chatml_tools.jinja --tokens 8000

The transcript is made of episodes of the agent register (`whyformer.facts.episode`) one after the other, the last one
with an injected order. A run replaces the row of its model, length and threads in
benchmarks/results/long_actions.json.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from pathlib import Path
from typing import Any

import torch

import whyformer
from whyformer.facts import AGENT_TOOLS, episode
from whyformer.inputs.conversation import Conversation, conversation_of
from whyformer.inputs.tool_prompt import tool_prompt_of

RESULTS = Path(__file__).parent / "results" / "long_actions.json"
ENTRIES = 12  # of each result


def main() -> None:
    """Measure one transcript."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--template", type=Path)
    parser.add_argument("--tokens", type=int, default=8000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model = whyformer.load(options.model)
    if options.template is not None:
        model.tokenizer.chat_template = options.template.read_text(encoding="utf-8")
    messages, prompt = transcript(model, options.tokens)
    ids = torch.tensor([prompt.prompt.ids])
    forward = seconds_of(lambda: model.model(input_ids=ids, logits_to_keep=1, use_cache=False))
    start, wall = time.process_time(), time.perf_counter()
    action = whyformer.explain_action(messages, AGENT_TOOLS, model)
    figures = {
        "model": model.name,
        "tokens": len(prompt.prompt.tokens),
        "messages": len(messages),
        "threads": options.threads,
        "forward_seconds": round(forward, 1),
        "seconds": round(time.process_time() - start, 1),
        "wall_seconds": round(time.perf_counter() - wall, 1),
        "forwards": action.forwards,
        "peak_gib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
        "method": action.method,
        "verdict": action.verdict,
        "top": [one.source.name for one in action.top(3)],
        "notes": list(action.notes),
    }
    print(json.dumps(figures, indent=1))
    rows = json.loads(options.out.read_text(encoding="utf-8")) if options.out.is_file() else []
    kept = [row for row in rows if any(row[name] != figures[name] for name in ("model", "tokens", "threads"))]
    options.out.write_text(json.dumps([*kept, figures], indent=1) + "\n", encoding="utf-8")


def transcript(model: Any, tokens: int) -> tuple[list[dict[str, Any]], Any]:
    """The longest conversation of at most this many tokens, which ends with an injected call, and its prompt."""
    last = episode(0, kind="bill", attack="other_tool", entries=ENTRIES).messages
    best = None
    before: list[Any] = []
    for seed in range(1, 1000):
        messages = renumbered([last[0], *before, *last[1:]])
        prompt = prompt_of_messages(model, messages)
        if len(prompt.prompt.tokens) > tokens:
            break
        best = messages, prompt
        before += episode(seed, kind="bill", entries=ENTRIES).messages[1:]
    if best is None:
        raise SystemExit(f"One episode has more than {tokens} tokens.")
    return best


def renumbered(messages: list[Any]) -> list[dict[str, Any]]:
    """Messages whose calls have identifiers of their own; the results of calls without one are added."""
    own: list[dict[str, Any]] = []
    for message in messages:
        calls = [{**call, "id": f"call_{len(own)}_{n}"} for n, call in enumerate(message.get("tool_calls") or ())]
        if message["role"] == "tool":
            own.append({**message, "tool_call_id": own[-1]["tool_calls"][0]["id"]})
        else:
            if own and own[-1].get("tool_calls"):
                own.append({"role": "tool", "tool_call_id": own[-1]["tool_calls"][0]["id"], "content": "Done."})
            own.append({**message, **({"tool_calls": calls} if calls else {})})
    return own


def prompt_of_messages(model: Any, messages: list[dict[str, Any]]) -> Any:
    """The prompt before the last message."""
    whole = conversation_of(messages, AGENT_TOOLS)
    return tool_prompt_of(model, Conversation(whole.messages[:-1], whole.tools))


def seconds_of(run: Any) -> float:
    """CPU seconds of a run without gradients."""
    start = time.process_time()
    with torch.inference_mode():
        run()
    return time.process_time() - start


if __name__ == "__main__":
    main()
