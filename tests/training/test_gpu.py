"""Training on GPUs: losses equal to the CPU's, compiled graphs, CUDA graphs, and resuming."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_training import assert_same_run, changed, masked_batch, train_command, with_values
from torch._inductor.utils import fresh_cache

from scsigmoid.config.schema import Size
from scsigmoid.model.devices import be_deterministic
from scsigmoid.model.encoder import Encoder
from scsigmoid.training.journal import read_journal
from scsigmoid.training.loop import train
from scsigmoid.training.run import TrainingRun
from scsigmoid.training.step import Trainer

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def graphs() -> int:
    """Return the number of graphs compiled since the counters were cleared."""
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])


@pytest.fixture(autouse=True)
def reset_torch() -> Iterator[None]:
    """Start without compiled graphs, and leave deterministic mode at the end."""
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch.use_deterministic_algorithms(False)
    from torch._inductor import config

    if hasattr(config, "deterministic"):
        config.deterministic = False


def on_gpu(run: TrainingRun, attention: str, dropout: float, **training: Any) -> TrainingRun:
    return replace(
        run,
        attention=attention,
        device="cuda",
        size=Size(layers=2, hidden=64, heads=1, feed_forward=128),
        architecture=run.architecture.model_copy(update={"dropout": dropout}),
        training=with_values(run.training, log_every=1, learning_rate=1e-3, **training),
    )


@pytest.mark.parametrize("attention", ["sigmoid", "softmax"])
def test_losses_equal_the_cpu_also_after_resuming(run, corpus, tmp_path, attention):
    run = on_gpu(run, attention, dropout=0.1)
    train(replace(run, device="cpu"), *corpus, tmp_path / "cpu")
    train(changed(run, steps=14), *corpus, tmp_path / "cuda")
    assert graphs() == 1
    train(run, *corpus, tmp_path / "cuda")
    cpu, _ = read_journal(tmp_path / "cpu" / "journal.csv")
    gpu, header = read_journal(tmp_path / "cuda" / "journal.csv")
    # bfloat16 rounds at 2^-9, and differences grow over 20 steps.
    np.testing.assert_allclose(cpu["loss"], gpu["loss"], rtol=0.01)
    assert header["backend"] in ("triton", "hopper", "sdpa", "fa4")
    assert (gpu["peak_memory_gb"] > 0).all()


@pytest.mark.parametrize("attention", ["sigmoid", "softmax"])
def test_one_graph_serves_all_lengths(run, attention):
    """From single cells of 2 tokens to batches of 60,000, forward and backward.

    Torch's compiler would treat sizes of 1, and reductions of less and of more than 5 million
    elements, differently.
    """
    size = Size(layers=1, hidden=768, heads=12, feed_forward=768)
    run = replace(on_gpu(run, attention, dropout=0.02), size=size, context=1000)
    settings = run.encoder_settings(2000)
    trainer = Trainer(Encoder(settings).initialize(1), run.training, 42, torch.device("cuda"))
    cells = [[999] * 20, [1], [4, 9], [999] * 60, [999], [999] * 3, [1, 1, 1], [500, 30, 7]]
    batches = [masked_batch(genes, settings.vocabulary_size) for genes in cells]
    # Each batch alone (small batches by CUDA graphs), then all as micro-batches of a step.
    steps = [*([batch] for batch in batches), batches]
    for step, micro_batches in enumerate(steps, start=1):
        assert torch.isfinite(trainer.step(step, micro_batches).loss)
    masked = [len(batch.masked) * 768 for batch in batches]
    assert min(masked) < 5 * 2**20 < max(masked)
    assert graphs() == 1


@pytest.mark.parametrize("attention", ["sigmoid", "softmax"])
def test_cuda_graphs_are_bit_identical_to_their_kernels(run, attention):
    """The losses are also close to the losses of batches without padding."""
    size = Size(layers=2, hidden=128, heads=2, feed_forward=256)
    run = replace(on_gpu(run, attention, dropout=0.1), size=size, context=600)
    settings = run.encoder_settings(2000)
    generator = np.random.default_rng(0)
    cells = [generator.integers(1, 600, 1 + step % 3).tolist() for step in range(20)]
    batches = [masked_batch(genes, settings.vocabulary_size).pinned() for genes in cells]
    be_deterministic()
    losses = {}
    for mode in ("graphs", "kernels", "unpadded"):
        trainer = Trainer(Encoder(settings).initialize(1), run.training, 42, torch.device("cuda"))
        if mode == "unpadded":
            trainer.graphed_tokens = 0
        trainer.prepare(batches[:1])
        recorder = trainer._graphs
        assert (recorder is None) == (mode == "unpadded")
        if mode == "kernels":
            recorder.recording = False
            recorder._recorded.clear()
        losses[mode] = [float(trainer.step(n, [batch]).loss) for n, batch in enumerate(batches, 1)]
        if mode == "graphs":
            assert recorder.recording
            assert len(recorder._recorded) > 5
    assert losses["graphs"] == losses["kernels"]
    np.testing.assert_allclose(losses["graphs"], losses["unpadded"], rtol=0.01)


@pytest.mark.parametrize("attention", ["sigmoid", "softmax"])
def test_a_resumed_run_is_bit_identical_in_deterministic_mode(run, corpus, tmp_path, attention):
    run = on_gpu(run, attention, dropout=0.1, deterministic=True)
    train(run, *corpus, tmp_path / "whole")
    assert torch.are_deterministic_algorithms_enabled()
    train(changed(run, steps=11), *corpus, tmp_path / "parts")
    # Compile again, as a new process would.
    torch.compiler.reset()
    train(run, *corpus, tmp_path / "parts")
    assert_same_run(tmp_path / "whole", tmp_path / "parts")


@pytest.mark.parametrize(
    ("attention", "gradient", "context"),
    [("sigmoid", "mean", 1000), ("softmax", "mean", 1000), ("sigmoid", "sum", 8200)],
)
def test_code_compiled_for_other_cells_does_not_change_a_deterministic_run(
    run, attention, gradient, context
):
    """PyTorch's cache may contain code that another run of the model compiled for larger batches.

    Once, this changed the losses of a resumed run.
    """
    size = Size(layers=2, hidden=768, heads=12, feed_forward=768)
    run = on_gpu(run, attention, dropout=0.1, gradient=gradient)
    run = replace(run, size=size, context=context)
    settings = run.encoder_settings(2000)
    be_deterministic()

    def weights_after(genes: Sequence[int]) -> list[torch.Tensor]:
        torch.compiler.reset()
        encoder = Encoder(settings).initialize(1)
        trainer = Trainer(encoder, run.training, 42, torch.device("cuda"))
        trainer.graphed_tokens = 0
        for step in range(1, 4):
            trainer.step(step, [masked_batch(genes, settings.vocabulary_size)])
        return [parameter.detach().cpu() for parameter in encoder.parameters()]

    with fresh_cache():
        alone = weights_after([30, 40])
    with fresh_cache():
        weights_after([999] * 60)
        torch._dynamo.utils.counters.clear()
        after_another = weights_after([30, 40])
        assert torch._dynamo.utils.counters["aot_autograd"]["autograd_cache_hit"]
    assert all(map(torch.equal, alone, after_another))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_two_gpus_have_the_losses_of_one_and_resume(run, corpus, tmp_path):
    """A resumed run has the same bits, because deterministic mode is on."""
    run = on_gpu(run, "sigmoid", dropout=0.1, deterministic=True)

    def in_two(steps: int, output: Path) -> None:
        arguments = train_command(changed(run, steps=steps), corpus, output)
        subprocess.run([sys.executable, "-m", "scsigmoid", *arguments], check=True, timeout=300)

    in_two(20, tmp_path / "whole")
    in_two(11, tmp_path / "parts")
    in_two(20, tmp_path / "parts")
    train(run, *corpus, tmp_path / "one")
    assert_same_run(tmp_path / "whole", tmp_path / "parts")
    whole, header = read_journal(tmp_path / "whole/journal.csv")
    one, _ = read_journal(tmp_path / "one/journal.csv")
    assert header["processes"] == "2"
    np.testing.assert_allclose(whole["loss"], one["loss"], rtol=0.01)
