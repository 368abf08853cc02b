"""Constants, inputs and backends shared by the tests on a GPU."""

import functools

import cases
import pytest
import torch

from scsigmoid.attention import BACKENDS as BACKENDS_OF
from scsigmoid.attention import choose_backend
from scsigmoid.errors import UserError
from scsigmoid.kernels import version_of

#: Sigmoid backends, which must pass the same tests.
BACKENDS = ("triton", "hopper")
JAGGED = [777, 1, 130, 0, 512, 63, 1200]
#: Largest relative error: rounding of P and of the results to the dtype of the inputs.
TOLERANCE = {torch.bfloat16: 6e-3, torch.float16: 4e-3, torch.float32: 1e-5}

inputs = functools.partial(cases.inputs, device="cuda")


def require(backend, attention="sigmoid"):
    """Return the name of a backend if it runs on this GPU.

    Skip the test if the backend does not support the GPU or its optional package is not installed.
    Fail the test if the backend does not run for another reason.
    """
    properties = BACKENDS_OF[attention][backend]
    capability = torch.cuda.get_device_capability()
    if properties.needs_exact_capability and capability != properties.capability:
        pytest.skip(f"{backend} does not support GPUs of compute capability {capability}")
    if properties.package and not version_of(properties.package):
        pytest.skip(f"{properties.package} is not installed")
    try:
        return choose_backend(attention, backend, torch.device("cuda"))
    except UserError as error:
        pytest.fail(str(error))
