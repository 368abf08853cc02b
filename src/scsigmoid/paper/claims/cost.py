"""Measures of training cost (section 4), from the throughput benchmark and the training journals.

What times the host instead of the GPU, or could not be measured, is left out by name; where a count
needs it, it counts as unknown.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from scsigmoid.benchmarks.rows import ThroughputRow
from scsigmoid.config.check import model_training
from scsigmoid.measurements import Interval
from scsigmoid.paper.claims.kernel import KERNEL, padded_gain
from scsigmoid.paper.claims.rules import AbsentError, Estimate, above, counted, measure
from scsigmoid.paper.labels import ATTENTIONS, context_label
from scsigmoid.paper.reported import Claim, reported
from scsigmoid.paper.results import Results
from scsigmoid.paper.speed import Cost, costs, hours_of, named_context, next_steps, row_label
from scsigmoid.paper.statistics import ratio_interval

THROUGHPUT = ("tables/training_cost.csv", "benchmarks/throughput.json")
CLOCK = "wall clock of the whole training run"
#: A case of which nothing is known: possible, not certain.
UNKNOWN = (False, False, True)


def configurations(results: Results) -> list[tuple[str, int]]:
    """Every size and context that the benchmark was to measure."""
    settings = results.config.benchmarks.throughput
    return list(itertools.product(settings.sizes, settings.contexts))


def place(cost: Cost) -> tuple[str, int]:
    return cost.size, cost.context


def known(results: Results) -> tuple[list[Cost], str]:
    """The costs that count, and in words those that do not, and what differs from the paper."""
    found = [clocked(results, cost) for cost in costs(results)]
    kept = [cost for cost in found if not cost.host_bound]
    left_out = [name for cost in found for name in cost.host_bound]
    notes = [f"left out, {host(left_out)}"] if left_out else []
    measured = {place(cost) for cost in found}
    missing = [one for one in configurations(results) if one not in measured]
    if missing:
        words = (f"{size} at {context_label(context)}" for size, context in missing)
        notes.append(f"not measured: {', '.join(words)}")
    notes += dict.fromkeys(note for cost in kept for note in differing(cost))
    return kept, "; ".join(notes)


def differing(cost: Cost, arms: Sequence[str] = ATTENTIONS) -> list[str]:
    """What differs from the paper's runs, in one arm or in both."""
    notes = []
    if "softmax" in arms and cost.softmax.backend != "flex":
        notes.append(
            f"softmax by {cost.softmax.backend} on {cost.softmax.layout} sequences, not by the "
            "paper's FlexAttention"
        )
    if not cost.sigmoid.note.startswith(CLOCK):
        notes.append(f"one {cost.sigmoid.device} without communication, not the paper's 16 H100")
        if arms == ATTENTIONS and not cost.paired:
            notes.append("arms compared unpaired, as the readings are not kept")
    return notes


def cost_of(results: Results, claim: Claim) -> Cost:
    """The cost of the claim's size and context.

    Raises:
        AbsentError: if it was not measured.
    """
    context = named_context(results.config, claim.of["context"])
    for cost in costs(results):
        if place(cost) == (claim.of["size"], context):
            return clocked(results, cost)
    raise AbsentError("this size and context was not measured")


def clocked(results: Results, cost: Cost) -> Cost:
    """The cost by the clocks of the training runs, where the paper's is and both are complete."""
    wanted = [
        row["wall_clock"]
        for row in reported()["gpu_hours"]
        if (row["size"], row["context"]) == place(cost)
    ]
    if not any(wanted):
        return cost
    sigmoid, softmax = (run_of(results, arm) for arm in (cost.sigmoid, cost.softmax))
    if sigmoid is None or softmax is None:
        return cost
    (ours, own), (theirs, other) = sigmoid, softmax
    confidence = results.config.benchmarks.throughput.confidence
    share, paired = Interval(own.gpu_hours / other.gpu_hours), len(ours) == len(theirs) > 1
    if paired:
        share = ratio_interval(ours * own.gpu_hours, theirs * other.gpu_hours, confidence)
    return Cost(cost.size, cost.context, own, other, share, paired)


def run_of(results: Results, arm: ThroughputRow) -> tuple[np.ndarray, ThroughputRow] | None:
    """What each logged step took of a model's whole run, as shares, and its row; None without one.

    The run must be as long as the paper's, and on the benchmark's kind of GPU.
    """
    config = results.config
    for name, paper in reported()["models"].items():
        wanted = (arm.attention, arm.context, arm.size)
        own = (paper["attention"], paper["context"], config.architecture.size)
        path = f"training/{name}/journal.csv"
        if own != wanted or name not in config.models or not (results.folder / path).exists():
            continue
        journal = results.journal(name)
        steps, seconds = int(journal["step"][-1]), journal["seconds"]
        complete = steps >= paper["steps"] and seconds[-1] > 0
        if not complete or journal.header.get("device") != arm.device:
            return None
        devices = int(journal.header.get("processes", 1))
        cells = steps * model_training(config, name).global_batch
        hours = float(seconds[-1]) / 3600 * devices * arm.projected_cells / cells
        note = f"{CLOCK} on {devices} {arm.device}"
        shares = np.diff(seconds, prepend=0.0) / seconds[-1]
        return shares, replace(
            arm, gpu_hours=hours, gpu_hours_low=math.nan, gpu_hours_high=math.nan, note=note
        )
    return None


@measure(*THROUGHPUT)
def gpu_hours(results: Results, claim: Claim) -> Estimate:
    """Hours of one device for all cells."""
    cost = cost_of(results, claim)
    row = getattr(cost, claim.of["attention"])
    clock = row.note if row.note.startswith(CLOCK) else "projected"
    note = "; ".join([clock, *differing(cost, (row.attention,))])
    bound = [row_label(row)] if row.host_bound else []
    return Estimate(hours_of(row), note, evidence(cost), host(bound))


def host(bound: Sequence[str]) -> str:
    """What times the host's launches, in words; empty where nothing does."""
    return f"bound by the host: {', '.join(bound)}" if bound else ""


def evidence(cost: Cost) -> tuple[str, ...]:
    """The benchmark, and the journals that a cost comes from."""
    journals = (
        f"training/{name}/journal.csv"
        for name, model in reported()["models"].items()
        if cost.sigmoid.note.startswith(CLOCK) and model["context"] == cost.context
    )
    return *THROUGHPUT, *journals


def saving(cost: Cost, found: Interval) -> Estimate:
    """What sigmoid saves at one size and context."""
    return Estimate(found, "; ".join(differing(cost)), evidence(cost), host(cost.host_bound))


@measure(*THROUGHPUT)
def gpu_hours_saved(results: Results, claim: Claim) -> Estimate:
    """Percent of the hours that sigmoid saves."""
    cost = cost_of(results, claim)
    return saving(cost, cost.saved)


@measure(*THROUGHPUT)
def hours_saved(results: Results, claim: Claim) -> Estimate:
    cost = cost_of(results, claim)
    return saving(cost, cost.hours)


@measure(*THROUGHPUT)
def largest_saving(results: Results, _: Claim) -> Estimate:
    """The largest percentage of hours that sigmoid saves anywhere."""
    found, note = known(results)
    if not found:
        raise AbsentError("; ".join(filter(None, ["no configuration counts", note])))
    best = max(found, key=lambda cost: cost.saved.value)
    return Estimate(best.saved, f"{best.size} at {best.context:,} tokens; {note}")


@measure(*THROUGHPUT)
def faster_configurations(results: Results, _: Claim) -> Estimate:
    """In how many configurations sigmoid takes fewer hours: certainly, and possibly."""
    found, note = known(results)
    saved = {place(cost): above(cost.saved, 0) for cost in found}
    cases = [saved.get(one, UNKNOWN) for one in configurations(results)]
    words = f"certain and possible ones of {len(cases)} configurations; {note}"
    return Estimate(counted(cases), words)


@measure(*THROUGHPUT)
def saving_growth(results: Results, claim: Claim) -> Estimate:
    """Points by which the saving grows from the first to the second context."""
    found, note = known(results)
    wanted = [named_context(results.config, context) for context in claim.of["contexts"]]
    saved = {cost.context: cost.saved for cost in found if cost.size == claim.of["size"]}
    if any(context not in saved for context in wanted):
        raise AbsentError("; ".join(filter(None, ["not measured at both contexts", note])))
    short, long = (saved[context] for context in wanted if context is not None)
    return Estimate(long.minus(short), note)


@measure(*THROUGHPUT)
def growing_savings(results: Results, _: Claim) -> Estimate:
    """Steps to the next size or context at which the hours saved rise: certainly, and possibly."""
    found, note = known(results)
    hours = {place(cost): cost.hours for cost in found}
    cases = []
    for step in next_steps(configurations(results), lambda one: one):
        less, more = map(hours.get, step)
        cases.append(above(more.minus(less), 0) if less and more else UNKNOWN)
    if all(case is UNKNOWN for case in cases):
        raise AbsentError("fewer than two configurations count")
    return Estimate(counted(cases), f"certain and possible ones of {len(cases)} steps; {note}")


@measure(*THROUGHPUT)
def gain_beside_kernel(results: Results, claim: Claim) -> Estimate:
    """Largest gain of training throughput less the kernel's mean gain over FlashAttention-2.

    In points; the kernel's gain is that on padded sequences.
    """
    kernel, (found, note) = padded_gain(results, claim).value, known(results)
    if not found:
        raise AbsentError("no configuration counts")
    best = min(found, key=lambda cost: cost.share.value).share
    gain = best.map(lambda share: (1 / share - 1) * 100)
    words = f"training gains up to {gain.value:.1f} %, the kernel {kernel.value:.1f} %; {note}"
    return Estimate(gain.minus(kernel), words, (*KERNEL, *THROUGHPUT))
