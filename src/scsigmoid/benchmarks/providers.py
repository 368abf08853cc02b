"""The attention kernels that are compared, each behind one interface."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from scsigmoid.attention import BACKENDS
from scsigmoid.benchmarks import sigmoid_kernels as sigmoid
from scsigmoid.benchmarks import softmax_kernels as softmax
from scsigmoid.benchmarks.cases import Case
from scsigmoid.benchmarks.inputs import Inputs
from scsigmoid.benchmarks.sigmoid_kernels import Kernel
from scsigmoid.errors import UserError

#: Where FlexAttention is timed: it is compiled for each shape anew.
SOME_LENGTHS = (512, 4096, 16384)


def always(case: Case) -> bool:
    return True


def equal_lengths(case: Case) -> bool:
    return not case.uneven


def unequal_lengths(case: Case) -> bool:
    return case.uneven


def shape_of_the_paper(case: Case) -> bool:
    return case.batch == "paper"


def some_lengths(case: Case) -> bool:
    return case.batch == "paper" and case.length in SOME_LENGTHS


@dataclass(frozen=True)
class Provider:
    """An attention kernel.

    Attributes:
        name: as in the ``provider`` column.
        attention: ``sigmoid`` or ``softmax``.
        layout: of its tensors, see :meth:`Inputs.in_layout`.
        prepare: makes the kernel for a batch; raises
            :class:`~scsigmoid.benchmarks.sigmoid_kernels.Unavailable` if it cannot.
        backward_products: matrix products that its backward pass runs, five being counted.
        skips_padding: whether it leaves padding out.
        devices: device types on which it is of interest.
        suits: batches for which this is the form to time; another entry of the same name, or
            none, stands for the rest.
        matrices: n x n matrices of every sequence and head that it holds at once.  No CUDA graph
            is made of those with any, which would keep them; their runs are long beside their
            launch.
        compiled_for: what of a batch its compiled code depends on.
        chooses: whether that is a choice among many configurations, all compiled.
    """

    name: str
    attention: str
    layout: str
    prepare: Callable[[Inputs], Kernel]
    backward_products: int = 5
    skips_padding: bool = True
    devices: tuple[str, ...] = ("cuda", "cpu")
    suits: Callable[[Case], bool] = always
    matrices: int = 0
    compiled_for: Callable[[Case], Hashable] | None = None
    chooses: bool = False

    @property
    def layout_name(self) -> str:
        """``packed`` or ``padded``."""
        return "packed" if self.layout == "packed" else "padded"

    def executed(self, case: Case, direction: str) -> float:
        """Operations that it runs: its matrix products, the rounding to blocks not counted."""
        products = self.backward_products if direction == "backward" else 2
        return case.matrix_products(products, padded=not self.skips_padding)

    def matrix_bytes(self, case: Case, itemsize: int) -> int:
        """Memory of its n x n matrices, padding included."""
        return self.matrices * case.sequences * case.heads * case.length**2 * itemsize


def length_class(case: Case) -> Hashable:
    """triton-sigmoid compiles for classes of lengths, dense and padded."""
    limit = next((limit for limit in (512, 2048, 8192) if case.length <= limit), None)
    return case.head_dimension, case.uneven, limit


def our_paths() -> tuple[Provider, ...]:
    """This project's kernels by path, fastest first.

    The backward pass of ``triton`` computes scores and their gradients twice, for dQ and for dK
    and dV; that of ``hopper`` once.
    """
    return tuple(
        Provider(
            name,
            "sigmoid",
            layout,
            prepare,
            backward_products=products,
            devices=devices,
            suits=suits,
            compiled_for=lambda case: case.head_dimension,
        )
        for path, products in (("hopper", 5), ("triton", 7))
        for name, layout, prepare, devices, suits in (
            (path, "packed", sigmoid.ours(path), ("cuda", "cpu"), always),
            (path, "padded", sigmoid.ours_padded(path), ("cuda", "cpu"), shape_of_the_paper),
            (f"{path}_accurate", "packed", sigmoid.ours(path, accurate=True), ("cuda",), always),
        )
    )


#: The plain PyTorch ones save the scores and so run four products backward; the paper's kernel and
#: FlexAttention compute them twice, in separate loops for dQ and for dK and dV.
PROVIDERS = (
    *our_paths(),
    Provider("reference_sigmoid", "sigmoid", "packed", sigmoid.ours("reference"), devices=("cpu",)),
    Provider(
        "triton_sigmoid",
        "sigmoid",
        "padded",
        sigmoid.triton_sigmoid,
        backward_products=7,
        compiled_for=length_class,
        chooses=True,
    ),
    Provider("flash_sigmoid", "sigmoid", "padded", sigmoid.flash_sigmoid),
    Provider(
        "pytorch_sigmoid",
        "sigmoid",
        "heads",
        sigmoid.standard_sigmoid,
        backward_products=4,
        skips_padding=False,
        matrices=3,
    ),
    Provider(
        "pytorch",
        "softmax",
        "heads",
        softmax.standard_softmax,
        backward_products=4,
        skips_padding=False,
        matrices=3,
    ),
    Provider("sdpa", "softmax", "packed", softmax.packed("sdpa"), devices=("cpu",)),
    Provider("flash_attention_2", "softmax", "heads", softmax.flash_2, suits=equal_lengths),
    Provider(
        "flash_attention_2", "softmax", "packed", softmax.flash_2_packed, suits=unequal_lengths
    ),
    Provider("flash_attention_3", "softmax", "packed", softmax.flash_3),
    *(
        Provider(name, "softmax", "packed", softmax.packed(name))
        for name, backend in BACKENDS["softmax"].items()
        if backend.package
    ),
    Provider("cudnn", "softmax", "heads", softmax.cudnn, skips_padding=False),
    Provider(
        "flex",
        "softmax",
        "heads",
        softmax.flex,
        backward_products=7,
        suits=some_lengths,
        compiled_for=lambda case: case,
    ),
)


def chosen(names: Sequence[str] | None, device: str) -> list[Provider]:
    """The providers of interest on a type of device.

    Args:
        names: those to take; all where None.
        device: ``cuda`` or ``cpu``.

    Raises:
        UserError: if there is none of some name.
    """
    known = {provider.name: None for provider in PROVIDERS}
    for name in names or ():
        if name not in known:
            raise UserError(
                f"benchmarks.kernel.providers: unknown kernel {name!r}; take some of "
                f"{', '.join(known)}"
            )
    return [
        provider
        for provider in PROVIDERS
        if device in provider.devices and (names is None or provider.name in names)
    ]
