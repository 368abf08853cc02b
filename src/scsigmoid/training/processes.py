"""The processes that train one model together: one for each GPU, started by torchrun, or one alone.

Gradients are summed once a step, after the last micro-batch, in buckets whose layout never
changes.  ``DistributedDataParallel`` lays its buckets out anew after a process's first step, so a
run that was resumed would add in another order than one that was not; and as the compiled backward
pass hands over its gradients at its end, there is nothing that its overlap could hide.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from scsigmoid.errors import UserError
from scsigmoid.training.devices import resolve_device

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

T = TypeVar("T")
#: Gradients are summed in pieces of so many bytes, each of which is copied once.
BUCKET_BYTES = 1 << 26
# The first process may read and write for long while the others wait.
PATIENCE = timedelta(hours=2)


@dataclass(frozen=True, kw_only=True)
class Processes:
    """One process of those that train a model together.

    Attributes:
        rank: its number; the first one, 0, writes all files.
        count: how many there are.
        device: where it computes.
        host: what they talk through without their GPUs.
    """

    rank: int = 0
    count: int = 1
    device: torch.device
    host: "ProcessGroup | None" = None

    @property
    def first(self) -> bool:
        return self.rank == 0

    def total(self, values: Sequence[int]) -> list[int]:
        """Each value summed over the processes; the GPUs do not wait."""
        if self.count == 1:
            return list(values)
        tensor = torch.tensor(values, dtype=torch.int64)
        with self.connected():
            dist.all_reduce(tensor, group=self.host)
        return [int(value) for value in tensor]

    @contextmanager
    def connected(self) -> Iterator[None]:
        """Talk to the other processes.

        Raises:
            UserError: in the first process, if another one is gone.
            SystemExit: in the others.
        """
        try:
            yield
        except RuntimeError:
            if self.first:
                raise UserError(
                    "training: the connection to another process broke; see what that one says, "
                    "and run again to go on from the last checkpoint"
                ) from None
            raise SystemExit(1) from None

    def in_turn(self, work: Callable[[], T]) -> T:
        """Do something in the first process, and when it succeeded in the others.

        A user's mistake is thereby reported once.

        Raises:
            SystemExit: in the other processes, if the first one failed.
        """
        if not self.first:
            if self.total([0])[0]:
                raise SystemExit(1)
            return work()
        try:
            result = work()
        except BaseException:
            self.total([1])
            raise
        self.total([0])
        return result

    def sum(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors of one type by their sums over the processes."""
        if self.count == 1:
            return
        for bucket in buckets(tensors):
            flat = torch.cat([tensor.reshape(-1) for tensor in bucket])
            with self.connected():
                dist.all_reduce(flat)
            pieces = flat.split([tensor.numel() for tensor in bucket])
            torch._foreach_copy_(
                bucket, [p.view_as(t) for p, t in zip(pieces, bucket, strict=True)]
            )

    def largest(self, scalar: Tensor) -> Tensor:
        """The largest of a scalar over the processes; NaN if it is NaN in any."""
        if self.count == 1:
            return scalar
        # A reduction by maximum need not keep NaN.
        scalars = [torch.empty_like(scalar) for _ in range(self.count)]
        with self.connected():
            dist.all_gather(scalars, scalar)
        return torch.stack(scalars).amax()


def buckets(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Cut a list of tensors, in order, into runs of about ``BUCKET_BYTES``."""
    bucket: list[Tensor] = []
    size = 0
    for tensor in tensors:
        bucket.append(tensor)
        size += tensor.nbytes
        if size >= BUCKET_BYTES:
            yield bucket
            bucket, size = [], 0
    if bucket:
        yield bucket


@contextmanager
def joined(device: str) -> Iterator[Processes]:
    """Join the processes that torchrun started; without it, be alone.

    Raises:
        UserError: in one process of each machine: for a GPU that is not there, a PyTorch without
            NCCL, or processes that do not find each other.
        SystemExit: in the others.
    """
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1:
        yield Processes(device=resolve_device(device))
        return
    try:
        processes = join(count, device)
    except UserError:
        if int(os.environ.get("LOCAL_RANK", "0")):
            raise SystemExit(1) from None
        raise
    try:
        yield processes
    except BaseException:
        # The GPUs of others may wait for this one's; leaving them takes no more than ending.
        dist.destroy_process_group(processes.host if processes.device.type == "cuda" else None)
        raise
    dist.destroy_process_group()


def join(count: int, device: str) -> Processes:
    place = resolve_device(device)
    if place.type == "cuda":
        here, gpus = int(os.environ["LOCAL_WORLD_SIZE"]), torch.cuda.device_count()
        if here > gpus:
            raise UserError(
                f"torchrun: {here} processes on a machine with {gpus} GPUs; start one a GPU "
                f"(--nproc-per-node {gpus}), or set CUDA_VISIBLE_DEVICES"
            )
        if not dist.is_nccl_available():
            raise UserError(
                "torchrun: this PyTorch has no NCCL, which several GPUs need; install PyTorch's "
                "CUDA build, or train on one GPU"
            )
        place = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(place)
    try:
        dist.init_process_group("nccl" if place.type == "cuda" else "gloo")
        host = dist.new_group(backend="gloo", timeout=PATIENCE)
    except (RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())[:160]
        raise UserError(
            f"torchrun: the {count} processes do not find each other ({reason}); check "
            "MASTER_ADDR and MASTER_PORT and that every node was started"
        ) from None
    return Processes(rank=dist.get_rank(), count=count, device=place, host=host)
