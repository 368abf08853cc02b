"""The timings that the kernel's claims are about."""

from collections.abc import Sequence

from scsigmoid.benchmarks.rows import KernelRow
from scsigmoid.paper.claims.estimate import Estimate, absent
from scsigmoid.paper.labels import provider_label
from scsigmoid.paper.reported import reported
from scsigmoid.paper.results import Results
from scsigmoid.paper.speed import PAPER, measured, our_path

KERNEL = ("tables/kernel_speed.csv", "benchmarks/kernel.json")
FLASH = ("flash_attention_2", "flash_sigmoid")
# The paper's kernel; ours stands for it.
OURS = "triton_sigmoid"


def provider_of(results: Results, provider: str) -> str:
    """The provider that stands for one of the paper: for its own kernel ours does."""
    return our_path(results) if provider == OURS else provider


def timings(results: Results, provider: str) -> list[KernelRow]:
    """The timings of a provider at the paper's shapes; ``triton_sigmoid`` is our kernel.

    Where a shape was timed packed and padded, the packed layout counts: it is what the models use,
    and both count valid tokens only.
    """
    name = provider_of(results, provider)
    found: dict[tuple[object, ...], KernelRow] = {}
    for row in measured(results.kernel):
        if row.provider == name and row.batch in PAPER:
            kept = found.get(row.shape)
            if kept is None or kept.layout != "packed":
                found[row.shape] = row
    return list(found.values())


def untimed(results: Results, provider: str) -> Estimate:
    """A provider that could not run, with its own note."""
    name = provider_of(results, provider)
    notes = {row.note for row in results.kernel if row.provider == name and row.note}
    reason = f" ({'; '.join(sorted(notes))})" if notes else ""
    return absent(f"no time of {provider_label(name)}{reason}", *KERNEL)


def at_peak(rows: list[KernelRow], direction: str) -> KernelRow | None:
    """The timing at the paper's peak shape, or at the longest one where that was not run."""
    chosen = [row for row in rows if row.direction == direction and row.padding == 0]
    shape = reported()["tflops"]["shape"]
    if not chosen:
        return None
    return max(
        chosen,
        key=lambda row: (row.length, row.head_dimension == shape["head_dimension"]),
    )


def shape_note(row: KernelRow) -> str:
    """The kernel and the shape in words."""
    return f"{kernel_note(row)}, {row.length:,} tokens, head dimension {row.head_dimension}"


def kernel_note(row: KernelRow) -> str:
    """The kernel, which may stand for the paper's, and the GPU in words."""
    return f"{provider_label(row.provider)} on {row.device}"


def compared(
    results: Results, against: Sequence[str], padding: float | None = None
) -> list[tuple[KernelRow, list[KernelRow]]]:
    """Our timings, of one padding or all, each with the others' of the same shape and pass."""
    others = [row for provider in against for row in timings(results, provider)]
    pairs = [
        (ours, [other for other in others if other.shape == ours.shape])
        for ours in timings(results, OURS)
        if padding in (None, ours.padding)
    ]
    return [(ours, same) for ours, same in pairs if same]
