"""Groups and schedule against hand-computed values."""

from dataclasses import replace

import pytest
import torch

from scsigmoid.config.schema import Training
from scsigmoid.model.encoder import Encoder
from scsigmoid.training.optimiser import learning_rate, make_optimiser, parameter_groups
from scsigmoid.training.run import TrainingRun


def test_warm_up_is_linear_then_constant(training: Training):
    settings = replace(training, learning_rate=1e-4, warmup_steps=4)
    rates = [learning_rate(step, settings) for step in range(1, 7)]
    assert rates == pytest.approx([0.25e-4, 0.5e-4, 0.75e-4, 1e-4, 1e-4, 1e-4])
    assert learning_rate(1, replace(settings, warmup_steps=0)) == 1e-4


def test_matrices_and_embeddings_decay_and_nothing_else(run: TrainingRun):
    encoder = Encoder(run.encoder_settings(64))
    decayed, kept = parameter_groups(encoder, 0.1)
    names = {id(parameter): name for name, parameter in encoder.named_parameters()}
    assert decayed["weight_decay"] == 0.1
    assert kept["weight_decay"] == 0.0
    assert {names[id(p)] for p in kept["params"]} == {
        name for name in names.values() if name.endswith(".bias") or "norm" in name
    }
    assert len(decayed["params"]) + len(kept["params"]) == len(names)


def test_step_is_adamw(training: Training):
    """One step against the formula of Loshchilov and Hutter, in float64."""
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2).double()
    before = [p.detach().clone() for p in model.parameters()]
    optimiser = make_optimiser(model, training)
    model(torch.ones(1, 3).double()).square().sum().backward()
    gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    optimiser.step()
    rate, (b1, b2) = training.learning_rate, training.betas
    for parameter, old, gradient in zip(model.parameters(), before, gradients, strict=True):
        decay = training.weight_decay if parameter.ndim == 2 else 0.0
        mean = (1 - b1) * gradient / (1 - b1)
        square = (1 - b2) * gradient**2 / (1 - b2)
        expected = old * (1 - rate * decay) - rate * mean / (square.sqrt() + training.epsilon)
        torch.testing.assert_close(parameter.detach(), expected)
