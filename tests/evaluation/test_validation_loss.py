"""Validation loss compared with a loop over cells, trials and masked positions."""

import math

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from configurations import write_configuration
from scipy import stats
from torch.nn.functional import cross_entropy

from scsigmoid.cli import main
from scsigmoid.config.schema import ValidationLoss
from scsigmoid.errors import UserError
from scsigmoid.evaluation.validation_loss import cell_losses, validation_loss
from scsigmoid.model.loss import masked_losses
from scsigmoid.model.masking import Masking
from scsigmoid.model.weights import load_encoder, shrink
from scsigmoid.records.measurements import donor_mean, read_measurements
from scsigmoid.seeds import derive
from scsigmoid.tokens.store import TokenStore

SETTINGS = ValidationLoss(trials=3, mask_fraction=0.3, confidence=0.95, batch_tokens=40)
MASK_SEED = derive(42, "validation_loss", "toy")


def run(checkpoint, store, folder, settings=SETTINGS, seed=42):
    model = checkpoint.parent.name
    csv, parquet = folder / f"{model}.csv", folder / f"{model}.parquet"
    validation_loss(checkpoint, store, "toy", settings, seed, "cpu", csv, parquet)
    return read_measurements(csv)[0], pq.read_table(parquet)


def brute_force(checkpoint, store, seed):
    """Compute the loss of each cell in float64, one cell and trial at a time."""
    encoder, metadata = load_encoder(checkpoint)
    encoder = encoder.double()
    tokens = TokenStore.open(store)
    losses = []
    for row, cell in enumerate(tokens.metadata(["cell"])["cell"]):
        cls = np.full(int(metadata["cls_token"]), 2)  # one or no token
        genes = tokens.cells([row], metadata["context"] - len(cls)).tokens
        sequence = np.concatenate([cls, genes.astype(np.int64)])
        trials = []
        for trial in range(SETTINGS.trials):
            masking = Masking(
                seed=seed, draw=trial, fraction=SETTINGS.mask_fraction, replacement="mask",
                vocabulary_size=40,
            )  # fmt: skip
            masked, positions, targets = masking.mask(
                sequence, np.array([cell]), np.array([0, len(sequence)])
            )
            with torch.no_grad():
                hidden = encoder(
                    torch.from_numpy(masked), torch.arange(len(sequence)),
                    torch.tensor([0, len(sequence)], dtype=torch.int32), len(sequence),
                )  # fmt: skip
                logits = encoder.output(hidden)[positions]
            trials.append(float(cross_entropy(logits, torch.from_numpy(targets).long())))
        losses.append(sum(trials) / len(trials))
    return np.array(losses)


@pytest.mark.parametrize("arm", ["sigmoid", "softmax", "softmax without cls"])
def test_equals_brute_force(make_model, store, tmp_path, arm):
    checkpoint = make_model(arm.split()[0], cls_token="without" not in arm)
    row, table = run(checkpoint, store, tmp_path)
    expected = brute_force(checkpoint, store, MASK_SEED)
    assert table["cell"].to_pylist() == list(range(0, 36, 3))
    np.testing.assert_allclose(table["loss"].to_numpy(), expected, rtol=2e-5)
    assert row.value == pytest.approx(expected.mean(), rel=1e-5)
    assert (row.metric, row.n, row.seed, row.context) == ("validation_loss", 12, 42, 16)
    assert row.attention == arm.split()[0]


def test_intervals(checkpoint, make_store, tmp_path):
    """The interval over donors, and the interval over trials, which have different masks."""
    donors = ["A"] * 5 + ["B"] * 4 + ["C"] * 3
    store = make_store(donors=donors)
    _, table = run(checkpoint, store, tmp_path, SETTINGS.model_copy(update={"confidence": 0.9}))
    assert table["donor"].to_pylist() == donors
    cells, over_donors, masks = read_measurements(tmp_path / f"{checkpoint.parent.name}.csv")
    names = ("validation_loss", "validation_loss_over_donors", "validation_loss_over_masks")
    assert (cells.metric, over_donors.metric, masks.metric) == names
    losses = table["loss"].to_numpy()
    assert cells.value == losses.mean()
    assert math.isnan(cells.low)
    assert over_donors.interval == donor_mean(losses, np.array(donors), 0.9).interval
    assert (cells.n, over_donors.n) == (12, 3)
    encoder, _ = load_encoder(checkpoint)
    tokens, trials = TokenStore.open(store), []
    # The loss of trial i is the difference of the sums over i and over i - 1 trials.
    for count in range(1, 4):
        settings = SETTINGS.model_copy(update={"trials": count})
        loss_sum = cell_losses(encoder, tokens, settings, MASK_SEED)[0].mean() * count
        trials.append(loss_sum - sum(trials))
    low, high = stats.t.interval(0.9, 2, np.mean(trials), stats.sem(trials))
    assert (masks.low, masks.high) == pytest.approx((low, high), rel=1e-5)
    assert masks.value == cells.value == pytest.approx(np.mean(trials), rel=1e-6)


def test_model_without_output_layer(make_model, store, tmp_path):
    small = tmp_path / "sigmoid_toy/small.safetensors"
    shrink(make_model("sigmoid"), small)
    with pytest.raises(UserError, match=r"small\.safetensors: has no output layer"):
        run(small, store, tmp_path)


def test_command_for_several_models_equals_separate_calls(make_model, store, tmp_path, capsys):
    models = {f"{name}_toy": make_model(name) for name in ("sigmoid", "softmax")}
    evaluation = {"validation_loss": SETTINGS.model_dump()}
    configuration = write_configuration(tmp_path, evaluation=evaluation)
    command = ["validation-loss", "--dataset", "toy", "--tokens", str(store), "--configuration"]
    command += [str(configuration), "--checkpoint", *map(str, models.values()), "--output"]
    together = tmp_path / "results/together"
    assert main([*command, *(str(together / f"{name}.csv") for name in models)]) == 0
    for name, checkpoint in models.items():
        alone = tmp_path / "results/alone"
        run(checkpoint, store, alone)
        for file in (f"{name}.csv", f"{name}.parquet"):
            assert (together / file).read_bytes() == (alone / file).read_bytes()
    source = read_measurements(together / "softmax_toy.csv")[0].source
    assert source == "training/softmax_toy/model.safetensors tokens/evaluation/toy"
    assert main([*command, str(together / "sigmoid_toy.csv")]) == 1
    assert "1 files for 2 checkpoints" in capsys.readouterr().err


def test_one_compiled_graph_equals_eager(make_model, store):
    """On a GPU, compiling again for every batch would take minutes."""
    torch.compiler.reset()
    encoder, _ = load_encoder(make_model("sigmoid"))
    tokens = TokenStore.open(store)
    graphs = torch._dynamo.utils.counters["stats"]
    graphs.clear()
    compute = torch.compile(masked_losses, dynamic=True, backend="aot_eager")
    losses, _ = cell_losses(encoder, tokens, SETTINGS, 7, compute)
    assert graphs["unique_graphs"] == 1
    np.testing.assert_allclose(losses, cell_losses(encoder, tokens, SETTINGS, 7)[0], rtol=1e-5)
    torch.compiler.reset()
