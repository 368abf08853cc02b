"""Time eager calls of packed attention on one GPU: the host's time per call, and short batches.

python docs/measurements/scripts/host_time.py host_time.csv --label COMMIT
python docs/measurements/scripts/host_time.py options.csv --label COMMIT --part options

Kernels: our sigmoid attention, FlashAttention-4 if it is installed, torch's ``varlen_attn``, in
turns. A CUDA GPU is needed, and about a minute, most of which is compilation.

- ``host``: microseconds per call of 256 tokens in 2 heads. The GPU needs a small part of this time.
  Best of the rounds, 300 calls each.
- ``whole``: microseconds per call of larger batches on the GPU's clock, which include the time for
  which the GPU waits for launches. Median of the rounds, 6 calls each.
- ``options`` (only with ``--part options``): as ``whole``, for our kernels with other head
  dimensions, in float32, and with a causal mask. Calls that a commit does not support are left out.

To compare commits, run this file with the ``src`` of each commit as PYTHONPATH, in turns.
"""

import argparse
import csv
import math
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import NormalDist, median
from typing import Any

import torch
from torch import Tensor

from scsigmoid.attention import sigmoid_attention

Attend = Callable[..., Any]
HOST_ROUNDS, HOST_CALLS = 10, 300
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


#: Name, heads, head dimension, dtype and options of calls of our kernels with 8 x 2,048 tokens.
OPTIONS: tuple[tuple[str, int, int, torch.dtype, dict[str, Any]], ...] = (
    ("D 64", 32, 64, torch.bfloat16, {}),
    ("D 64, Triton", 32, 64, torch.bfloat16, {"backend": "triton"}),
    ("D 64, causal", 32, 64, torch.bfloat16, {"is_causal": True}),
    ("D 128", 16, 128, torch.bfloat16, {}),
    ("D 128, Triton", 16, 128, torch.bfloat16, {"backend": "triton"}),
    ("D 128, causal", 16, 128, torch.bfloat16, {"is_causal": True}),
    ("D 32", 64, 32, torch.bfloat16, {}),
    ("D 32, Triton", 64, 32, torch.bfloat16, {"backend": "triton"}),
    ("D 96", 16, 96, torch.bfloat16, {}),
    ("D 96, Triton", 16, 96, torch.bfloat16, {"backend": "triton"}),
    ("D 256", 8, 256, torch.bfloat16, {}),
    ("D 64, float32", 32, 64, torch.float32, {}),
    ("D 128, float32", 16, 128, torch.float32, {}),
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


def calls(
    attend: Attend,
    heads: int,
    dimension: int,
    lengths: list[int],
    dtype: torch.dtype = torch.bfloat16,
) -> dict[str, Attend]:
    """Return the functions to time: forward without gradients, and forward with backward pass."""
    options: dict[str, Any] = {"device": "cuda", "dtype": dtype}
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


def measure(timed: dict[tuple[str, str], Attend], batch: str, kind: str) -> list[dict[str, Any]]:
    """Time functions in turns, and print and return a row of each. Keys: kernel, part of a step."""
    for call in timed.values():  # compile, and call prepared launches at least once
        for _ in range(5):
            call()
    is_host = kind == "host"
    time_once = host_microseconds if is_host else gpu_microseconds
    readings: dict[tuple[str, str], list[float]] = {key: [] for key in timed}
    for _ in range(HOST_ROUNDS if is_host else ROUNDS):
        for key, call in timed.items():
            readings[key].append(time_once(call))
    rows = []
    for (name, part), values in readings.items():
        value = min(values) if is_host else median(values)
        times = {"microseconds": value, "low": min(values), "high": max(values)}
        rounded = {key: round(x, 1) for key, x in times.items()}
        row = {"batch": batch, "kind": kind, "kernel": name, "part": part, **rounded}
        rows.append({**row, "readings": len(values)})
        print(f"{batch:<28} {kind:<7} {name:<15} {part:<22} {value:9.1f}", flush=True)
    return rows


def measure_kernels() -> list[dict[str, Any]]:
    """Time all kernels on all batches."""
    found = kernels()
    rows = []
    for batch, kind, heads, dimension, lengths in BATCHES:
        timed = {
            (name, part): call
            for name, attend in found.items()
            for part, call in calls(attend, heads, dimension, lengths).items()
        }
        rows += measure(timed, batch, kind)
    return rows


def measure_options() -> list[dict[str, Any]]:
    """Time our kernels with all options that they support."""
    rows = []
    for name, heads, dimension, dtype, options in OPTIONS:
        attend = partial(sigmoid_attention, **options)
        timed = calls(attend, heads, dimension, [2048] * 8, dtype)
        try:
            timed["forward"]()
        except (TypeError, ValueError) as error:
            print(f"{name}: not supported ({error})", flush=True)
            continue
        by_part = {(name, part): call for part, call in timed.items()}
        rows += measure(by_part, "8 x 2,048 tokens", "options")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path, help="CSV file; rows are added if it exists")
    parser.add_argument("--label", default="", help="text in the first column, such as a commit")
    parser.add_argument("--part", choices=["kernels", "options"], default="kernels")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    rows = measure_kernels() if arguments.part == "kernels" else measure_options()
    machine = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
    rows = [{"label": arguments.label, **row, **machine} for row in rows]
    is_new = not arguments.output.exists()
    with arguments.output.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0])
        if is_new:
            writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
