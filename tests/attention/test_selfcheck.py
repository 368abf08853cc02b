"""The check of the kernels with an untested version of Triton."""

import types

import pytest
import torch
import triton
from oracle import gradients
from triton.compiler.errors import CompilationError

from scsigmoid.attention import choose_backend, ops, problem, reference, selfcheck
from scsigmoid.errors import UserError

CPU = torch.device("cpu")


def lengths(problem):
    return (problem.ends_q - problem.starts_q).tolist()


class Kernels:
    """Kernels that multiply the results of the formula by ``factors`` of O, dQ, dK and dV."""

    def __init__(self, *factors, error=None):
        self.factors, self.error, self.calls = factors, error, 0

    def forward(self, q, k, v, problem):
        self.calls += 1
        if self.error is not None:
            raise self.error
        return (self.factors[0] * gradients(q, k, v, q, lengths(problem))[0]).to(q.dtype)

    def backward(self, grad, q, k, v, problem, bias_grad):
        results = gradients(q, k, v, grad, lengths(problem))[1:]
        pairs = zip(self.factors[1:], results, strict=True)
        return *((factor * x).to(q.dtype) for factor, x in pairs), None, None


@pytest.fixture
def check(monkeypatch, tmp_path):
    """Check simulated kernels of backend ``triton`` as in a new process."""
    monkeypatch.setattr(selfcheck, "TRITON", ())
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "some GPU")

    def check_kernels(kernels, *case, backend="triton"):
        modules = {"reference": reference, backend: kernels}
        monkeypatch.setattr(ops, "launcher", modules.__getitem__)
        selfcheck.find_failure.cache_clear()
        with triton.knobs.cache.scope():
            triton.knobs.cache.dir = str(tmp_path)
            return selfcheck.find_failure(backend, CPU, *case)

    yield check_kernels
    selfcheck.find_failure.cache_clear()


def test_correct_kernels_are_checked_once(check):
    kernels, broken = Kernels(1, 1, 1, 1), Kernels(error=RuntimeError("must not be called"))
    with torch.autocast("cpu", torch.bfloat16), torch.inference_mode():
        assert check(kernels) == ""
    assert kernels.calls > 0
    assert check(broken) == ""


@pytest.mark.parametrize("index", range(4))
@pytest.mark.parametrize("factor", [1.1, float("nan")])
def test_wrong_results_are_found(check, index, factor):
    factors = [1.0] * 4
    factors[index] = factor
    name = ("O", "dQ", "dK", "dV")[index]
    assert f"relative error of {name} " in check(Kernels(*factors))
    assert f"relative error of {name} " in check(Kernels(1, 1, 1, 1))  # the stored result


@pytest.mark.parametrize(
    "error",
    [
        CompilationError("tile_of(out)", types.SimpleNamespace(), "failed"),
        RuntimeError("PassManager::run failed"),
        AttributeError("no attribute 'packed_metadata' failed"),
    ],
)
def test_errors_of_the_compiler_are_found(check, error):
    message = check(Kernels(error=error))
    assert f"({type(error).__name__}: " in message
    assert " failed); tested versions:" in message


def test_a_full_gpu_is_not_a_failure_of_the_kernels(check):
    with pytest.raises(torch.OutOfMemoryError):
        check(Kernels(error=torch.OutOfMemoryError("full")))
    assert check(Kernels(1, 1, 1, 1)) == ""


def test_tested_versions_are_not_checked(check, monkeypatch):
    version = ".".join(triton.__version__.split(".")[:2])
    monkeypatch.setattr(selfcheck, "TRITON", (version,))
    kernels = Kernels(error=RuntimeError("must not be called"))
    assert check(kernels) == ""
    assert kernels.calls == 0


class Causal:
    """Kernels that compute the formula, but without a causal mask if ``ignores_it``."""

    def __init__(self, ignores_it):
        self.ignores_it = ignores_it

    def forward(self, q, k, v, problem):
        is_causal = problem.is_causal and not self.ignores_it
        return reference.forward(q, k, v, problem._replace(is_causal=is_causal))

    def backward(self, grad, q, k, v, problem, *rest, **options):
        is_causal = problem.is_causal and not self.ignores_it
        problem = problem._replace(is_causal=is_causal)
        return reference.backward(grad, q, k, v, problem, *rest, **options)


@pytest.mark.parametrize("option", [problem.CAUSAL, problem.KEY_BIAS])
def test_options_and_widths_are_checked_alone(check, option):
    assert check(Causal(ignores_it=False), 64, option) == ""
    broken = Kernels(error=RuntimeError("failed"))
    assert check(broken, 64, option) == ""  # the stored result
    assert "RuntimeError: failed" in check(broken, 256, option)
    assert "RuntimeError: failed" in check(broken, 64)


def test_a_mask_that_is_ignored_is_found(check):
    message = check(Causal(ignores_it=True), 64, problem.CAUSAL)
    assert "relative error of O at head dimension 64" in message


def test_portable_kernels_replace_failing_kernels(gpu):
    gpu.failures["hopper"] = "its kernels fail"
    with pytest.warns(UserWarning, match="hopper is not available: its kernels fail; a slower"):
        assert gpu.choose() == "triton"
    with pytest.raises(UserError, match="its kernels fail; use 'triton'"):
        choose_backend("sigmoid", "hopper", torch.device("cuda", 0))


@pytest.mark.parametrize("requested", ["auto", "triton"])
@pytest.mark.parametrize("capability", [(8, 0), (9, 0)])
@pytest.mark.filterwarnings("ignore:sigmoid attention. backend hopper is not available")
def test_failing_portable_kernels_are_an_error(gpu, requested, capability):
    gpu.capability = capability
    gpu.failures = dict.fromkeys(("hopper", "triton"), "its kernels fail")
    with pytest.raises(UserError, match="its kernels fail; use a tested version or 'reference'"):
        gpu.choose(requested)
