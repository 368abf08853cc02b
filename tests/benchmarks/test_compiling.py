"""What is compiled ahead of the kernel benchmark."""

from collections import Counter

from scsigmoid.benchmarks.cases import cases
from scsigmoid.benchmarks.compiling import jobs
from scsigmoid.benchmarks.providers import PROVIDERS
from scsigmoid.config.schema import KernelBenchmark

PAPER = KernelBenchmark(
    tokens=16384,
    hidden=2048,
    head_dimensions=[64, 128],
    lengths=[512, 1024, 2048, 4096, 8192, 16384],
    padding=[0.0, 0.25],
    iterations=250,
    warmup_ms=100,
    confidence=0.99,
)


def test_every_code_is_compiled_once():
    found = jobs(list(cases(PAPER)))
    counts = Counter(PROVIDERS[index].name for index, _ in found)
    # 1,024 and 2,048 share a class of triton-sigmoid, as do 4,096 and 8,192.
    assert counts == {"triton_sigmoid": 2 * 2 * 4, "flex": 2 * 2 * 6}
    lengths = [case.length for _, case in found]
    assert lengths == sorted(lengths, reverse=True)
