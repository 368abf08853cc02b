"""What becomes of kernels that fail, and what is not even tried."""

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from scsigmoid.benchmarks import preparing
from scsigmoid.benchmarks.cases import Case
from scsigmoid.benchmarks.inputs import Inputs
from scsigmoid.benchmarks.preparing import prepare_case, refuse_large
from scsigmoid.benchmarks.providers import PROVIDERS, Provider
from scsigmoid.benchmarks.sigmoid_kernels import Kernel, Unavailable
from scsigmoid.benchmarks.timing import passes
from scsigmoid.errors import UserError

CPU = torch.device("cpu")
CASE = Case("paper", 8, 2, 12, (12, 12))
PLAIN = [one for one in PROVIDERS if one.matrices]


def failing(held: list[weakref.ref[Tensor]], kept: list[BaseException], where: str) -> Provider:
    """A kernel that runs out of memory with tensors in its frames, in a cycle, and its error kept.

    As torch's autograd, its compiler and a caller that logs errors may do.
    """

    def fail() -> None:
        large = torch.zeros(1000)
        cycle: list[object] = [torch.zeros(1000)]
        cycle.append(cycle)
        held.extend(weakref.ref(one) for one in (large, cycle[0]) if isinstance(one, Tensor))
        try:
            raise torch.OutOfMemoryError("tried to allocate 1 PiB")
        except torch.OutOfMemoryError as error:
            kept.append(error)
            # A second error on top of the first, as where a capture cannot be ended.
            if where == "twice":
                raise RuntimeError("capture failed") from error
            raise

    def prepare(_: Inputs) -> Kernel:
        if where == "prepare":
            fail()

        def kernel(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            fail()
            return q

        return kernel

    return Provider("failing", "sigmoid", "padded", prepare)


@pytest.mark.parametrize("where", ["prepare", "call", "twice"])
def test_a_failed_kernel_leaves_nothing_behind(where: str) -> None:
    held: list[weakref.ref[Tensor]] = []
    kept: list[BaseException] = []
    (candidate,) = prepare_case(
        Inputs(CASE, CPU, torch.float32), [failing(held, kept, where)], 0, CPU
    )
    assert candidate.timer is None
    said = "failed: RuntimeError: capture failed" if where == "twice" else "does not fit in memory"
    assert candidate.note == said
    assert len(kept) == 1
    assert len(held) == 2
    assert [one() for one in held] == [None, None]


def test_the_next_kernel_is_timed() -> None:
    plain = next(one for one in PLAIN if one.name == "pytorch")
    found = prepare_case(Inputs(CASE, CPU, torch.float32), [failing([], [], "call"), plain], 0, CPU)
    assert [one.timer is not None for one in found] == [False, True]


def test_a_broken_gpu_stops_the_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails after it would not be that kernel's fault."""

    def broken(_: torch.device) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered\nMore.")

    monkeypatch.setattr(preparing, "synchronise", broken)
    with pytest.raises(UserError, match=r"failing \(padded, .*illegal memory access.*; leave it"):
        prepare_case(
            Inputs(CASE, CPU, torch.float32), [failing([], [], "prepare")], 0, torch.device("cpu")
        )


class LiveMatrices(TorchDispatchMode):
    """The most memory in n x n results of operators that was alive at once."""

    def __init__(self, smallest: int) -> None:
        super().__init__()
        self.smallest, self.live, self.most = smallest, 0, 0
        self.seen: set[int] = set()

    def __torch_dispatch__(
        self, function: Callable[..., Any], types: object, arguments: Any = (), options: Any = None
    ) -> Any:
        found = function(*arguments, **(options or {}))
        for tensor in (one for one in tree_leaves(found) if isinstance(one, Tensor)):
            storage = tensor.untyped_storage()
            if storage.nbytes() >= self.smallest and storage.data_ptr() not in self.seen:
                self.seen.add(storage.data_ptr())
                self.live += storage.nbytes()
                self.most = max(self.most, self.live)
                weakref.finalize(storage, self.gone, storage.data_ptr(), storage.nbytes())
        return found

    def gone(self, address: int, size: int) -> None:
        self.seen.discard(address)
        self.live -= size


@pytest.mark.parametrize("lengths", [(96, 96), (96, 80)], ids=["equal", "unequal"])
@pytest.mark.parametrize("provider", PLAIN, ids=lambda one: one.name)
def test_the_matrices_that_plain_attention_holds(
    provider: Provider, lengths: tuple[int, ...]
) -> None:
    case = Case("paper", 4, 2, 96, lengths)
    inputs = Inputs(case, CPU, torch.float32)
    kernel, tensors = provider.prepare(inputs), inputs.in_layout(provider.layout)
    one = 2 * 2 * 96**2 * 4
    with LiveMatrices(one) as counted:
        passes(kernel, tensors)
    assert counted.most == provider.matrix_bytes(case, 4) == 3 * one


def test_what_will_not_fit_is_not_tried() -> None:
    case = Case("paper", 64, 32, 16384, (16384,))
    for provider in PLAIN:
        # 3 matrices of 32 heads in bfloat16.
        needed = 3 * 32 * 16384**2 * 2
        assert needed == 48 * 2**30
        refuse_large(provider, case, 2, needed)
        with pytest.raises(Unavailable, match=r"left out: .* need 48 GiB, 40 GiB are free"):
            refuse_large(provider, case, 2, 40 * 2**30)
    for provider in PROVIDERS:
        if not provider.matrices:
            refuse_large(provider, case, 2, 0)
