"""The ways to train the same encoder that are compared: an attention kernel and a layout."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from scsigmoid.attention import BACKENDS
from scsigmoid.benchmarks import padded_kernels
from scsigmoid.benchmarks.padded import PaddedAttention, PaddedEncoder, padded
from scsigmoid.benchmarks.sigmoid_kernels import Unavailable, imported
from scsigmoid.errors import UserError
from scsigmoid.model.encoder import Encoder
from scsigmoid.model.sizes import EncoderSettings
from scsigmoid.training.batches import Batch
from scsigmoid.training.devices import backend_of


@dataclass(frozen=True)
class Stack:
    """An attention kernel and a layout.

    Attributes:
        kernel: its name, as in the column.
        attention: ``sigmoid`` or ``softmax``.
        devices: device types on which it is of interest.
        backend: this project's backend that computes it, for packed batches.
        padded: how it is computed, for padded batches.
        package: the package that has the kernel, where it is an optional one.
    """

    kernel: str
    attention: str
    devices: tuple[str, ...]
    backend: str = "reference"
    padded: PaddedAttention | None = None
    package: str = ""

    @property
    def layout(self) -> str:
        """``packed`` or ``padded``."""
        return "packed" if self.padded is None else "padded"

    @property
    def name(self) -> str:
        """Kernel and layout, in words."""
        return f"{self.kernel}, {self.layout}"

    def settings(self, like: EncoderSettings) -> EncoderSettings:
        """The encoder's settings with this attention."""
        return replace(like, attention=self.attention, backend=self.backend)

    def encoder(self, like: EncoderSettings, device: torch.device) -> Encoder:
        """The encoder, with weights that torch draws.

        Raises:
            Unavailable: if this device, or what is installed, has no such kernel.
        """
        settings = self.settings(like)
        if self.package:
            imported(self.package)
        with device:
            if self.padded is not None:
                return PaddedEncoder(settings, self.padded)
            try:
                backend_of(settings, device)
            except UserError as error:
                raise Unavailable(str(error)) from None
            return Encoder(settings)

    def batch(self, packed: Batch, context: int) -> Batch:
        """A packed batch in this layout."""
        return packed if self.padded is None else padded(packed, context)


#: Ours first, and of each attention the one that others are checked against.
STACKS = (
    Stack("hopper", "sigmoid", ("cuda",), backend="hopper"),
    Stack("triton", "sigmoid", ("cuda",), backend="triton"),
    Stack("reference", "sigmoid", ("cpu",)),
    *(
        Stack(name, attention, ("cuda",), backend=name)
        for attention, backends in BACKENDS.items()
        for name, backend in backends.items()
        if backend.package
    ),
    Stack("varlen", "softmax", ("cuda",), backend="sdpa"),
    Stack("sdpa", "softmax", ("cpu",), backend="sdpa"),
    Stack("flex", "softmax", ("cuda",), backend="flex"),
    Stack("flex", "softmax", ("cuda",), padded=padded_kernels.FLEX),
    Stack("sdpa", "softmax", ("cpu",), padded=padded_kernels.SDPA),
    Stack("reference", "sigmoid", ("cpu",), padded=padded_kernels.OURS),
    Stack(
        "triton_sigmoid",
        "sigmoid",
        ("cuda",),
        padded=padded_kernels.PUBLISHED,
        package="triton_sigmoid",
    ),
)


def chosen_stacks(kernels: Sequence[str] | None, device: str) -> list[Stack]:
    """The stacks of interest on a type of device.

    Args:
        kernels: names of the kernels to take; all where None.
        device: ``cuda`` or ``cpu``.

    Raises:
        UserError: if there is none of some name.
    """
    known = dict.fromkeys(stack.kernel for stack in STACKS)
    for kernel in kernels or ():
        if kernel not in known:
            raise UserError(
                f"benchmarks.training.kernels: unknown kernel {kernel!r}; take some of "
                f"{', '.join(known)}"
            )
    return [
        stack
        for stack in STACKS
        if device in stack.devices and (kernels is None or stack.kernel in kernels)
    ]
