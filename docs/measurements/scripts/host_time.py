"""Time eager calls of packed attention on one GPU: the host's time per call, and short batches.

python docs/measurements/scripts/host_time.py host_time.csv --label COMMIT

Kernels: our sigmoid attention, FlashAttention-4 if it is installed, torch's ``varlen_attn``, in
turns. A CUDA GPU is needed, and about a minute, most of which is compilation.

- ``host``: microseconds per call of 256 tokens in 2 heads. The GPU needs a small part of this time.
  Best of the rounds, 300 calls each.
- ``whole``: microseconds per call of larger batches on the GPU's clock, which include the time for
  which the GPU waits for launches. Median of the rounds, 6 calls each.

To compare commits, run this file with the ``src`` of each commit as PYTHONPATH, in turns.
"""

import argparse
import csv
import math
import time
from collections.abc import Callable
from pathlib import Path
from statistics import NormalDist, median
from typing import Any

import torch
from torch import Tensor

from scsigmoid.attention import sigmoid_attention

Attend = Callable[..., Any]
HOST_ROUNDS, HOST_CALLS = 5, 300
ROUNDS, CALLS = 12, 6


def cells(count: int, longest: int) -> list[int]:
    """Return quantiles of the lengths of cells (log-normal, median 1,830), cut at ``longest``."""
    levels = ((rank + 0.5) / count for rank in range(count))
    lengths = [1830 * math.exp(0.65 * NormalDist().inv_cdf(level)) for level in levels]
    return [min(longest, round(length)) for length in lengths]


#: Name, kind, heads, head dimension and lengths of each batch.
BATCHES: tuple[tuple[str, str, int, int, list[int]], ...] = (
    ("256 tokens, D 64", "host", 2, 64, [100, 156]),
    ("256 tokens, D 128", "host", 2, 128, [100, 156]),
    ("16 x 1,024 tokens, D 128", "whole", 16, 128, [1024] * 16),
    ("16 x 1,024 tokens, D 64", "whole", 32, 64, [1024] * 16),
    ("16 cells up to 2,048, D 64", "whole", 12, 64, cells(16, 2048)),
    ("8 x 2,048 tokens, D 128", "whole", 16, 128, [2048] * 8),
)


def kernels() -> dict[str, Attend]:
    """Return functions of q, k, v, ``cu_seqlens`` and the maximum length."""
    from torch.nn.attention.varlen import varlen_attn

    def torch_varlen(q: Tensor, k: Tensor, v: Tensor, bounds: Tensor, longest: int) -> Any:
        return varlen_attn(q, k, v, bounds, bounds, longest, longest)

    found: dict[str, Attend] = {"scsigmoid": sigmoid_attention, "varlen_attn": torch_varlen}
    try:
        from flash_attn.cute.interface import flash_attn_varlen_func
    except ImportError:
        return found

    def fa4(q: Tensor, k: Tensor, v: Tensor, bounds: Tensor, longest: int) -> Tensor:
        lengths = {"max_seqlen_q": longest, "max_seqlen_k": longest}
        result = flash_attn_varlen_func(
            q, k, v, cu_seqlens_q=bounds, cu_seqlens_k=bounds, **lengths
        )
        return result[0] if isinstance(result, tuple) else result

    return found | {"fa4": fa4}


def calls(attend: Attend, heads: int, dimension: int, lengths: list[int]) -> dict[str, Attend]:
    """Return the functions to time: forward without gradients, and forward with backward pass."""
    options: dict[str, Any] = {"device": "cuda", "dtype": torch.bfloat16}
    shape = (sum(lengths), heads, dimension)
    q, k, v, upstream = (torch.randn(shape, **options) for _ in range(4))
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    bounds = torch.tensor([0, *lengths]).cumsum(0).to("cuda", torch.int32)
    arguments = bounds, max(lengths)

    @torch.no_grad()
    def forward() -> None:
        attend(q, k, v, *arguments)

    def both() -> None:
        torch.autograd.grad(attend(*leaves, *arguments), leaves, upstream)

    return {"forward": forward, "forward and backward": both}


def host_microseconds(call: Attend) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(HOST_CALLS):
        call()
    seconds = time.perf_counter() - start
    torch.cuda.synchronize()
    return seconds / HOST_CALLS * 1e6


def gpu_microseconds(call: Attend) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    for _ in range(CALLS):
        call()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / CALLS * 1e3


def measure(label: str) -> list[dict[str, object]]:
    """Time all kernels on all batches, and print and return a row of each."""
    found = kernels()
    rows: list[dict[str, object]] = []
    gpu = torch.cuda.get_device_name()
    for batch, kind, heads, dimension, lengths in BATCHES:
        timed = {
            (name, part): call
            for name, attend in found.items()
            for part, call in calls(attend, heads, dimension, lengths).items()
        }
        for call in timed.values():  # compile, and call prepared launches at least once
            for _ in range(5):
                call()
        is_host = kind == "host"
        time_once = host_microseconds if is_host else gpu_microseconds
        readings: dict[tuple[str, str], list[float]] = {key: [] for key in timed}
        for _ in range(HOST_ROUNDS if is_host else ROUNDS):
            for key, call in timed.items():
                readings[key].append(time_once(call))
        for (name, part), values in readings.items():
            value = min(values) if is_host else median(values)
            row = {"label": label, "batch": batch, "kind": kind, "kernel": name, "part": part}
            times = {"microseconds": value, "low": min(values), "high": max(values)}
            rounded = {key: round(x, 1) for key, x in times.items()}
            machine = {"gpu": gpu, "torch": torch.__version__}
            rows.append({**row, **rounded, "readings": len(values), **machine})
            print(f"{batch:<28} {kind:<6} {name:<12} {part:<22} {value:9.1f}", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path, help="CSV file; rows are added if it exists")
    parser.add_argument("--label", default="", help="text in the first column, such as a commit")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    rows = measure(arguments.label)
    is_new = not arguments.output.exists()
    with arguments.output.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0])
        if is_new:
            writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
