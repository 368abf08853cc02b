"""The model file that training starts from (``training.initial``), read without PyTorch."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from scsigmoid.config.schema import Attention, Config, Count, Size
from scsigmoid.errors import UserError
from scsigmoid.files import METADATA_KEY, sha256

LARGEST_HEADER = 100_000_000  # bytes, the limit of safetensors
# Files of the models that the package contains, by name.
PACKAGED = {path.stem: path for path in (Path(__file__).parents[1] / "data").glob("*.safetensors")}


class Header(BaseModel):
    """The metadata of a model file that other settings are chosen from."""

    attention: Attention
    context: Count
    vocabulary_size: Count
    size: Size


def initial_path(name: str) -> Path:
    """Return the model file that ``training.initial`` names: a packaged model, or a path."""
    return PACKAGED[name] if name in PACKAGED else Path(name).expanduser()


def read_header(path: str | Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the metadata of a model file, and dtype and shape of each tensor by name.

    The package safetensors is not used, because Snakemake may be installed without it. Raise
    OSError, or ValueError if the file is not a model.
    """
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(min(size, LARGEST_HEADER)))
    try:
        return dict(json.loads(header["__metadata__"][METADATA_KEY])), header
    except (KeyError, TypeError) as error:
        raise ValueError("it has no metadata of scsigmoid") from error


def check_header(metadata: dict[str, Any], tensors: dict[str, Any]) -> None:
    """Raise ValueError if metadata of a model are missing or wrong, or do not fit its tensors."""
    try:
        header = Header.model_validate(metadata, strict=True)
    except ValidationError as error:
        problem = error.errors()[0]
        setting = ".".join(map(str, problem["loc"]))
        raise ValueError(f"{setting} in its header: {problem['msg']}") from None
    size = header.size
    expected = {
        "token_embedding.weight": [header.vocabulary_size, size.hidden],
        "position_embedding.weight": [header.context, size.hidden],
        f"blocks.{size.layers - 1}.expansion.weight": [size.feed_forward, size.hidden],
    }
    for name, shape in expected.items():
        if (found := tensors.get(name, {}).get("shape")) != shape:
            raise ValueError(f"tensor {name} has shape {found}, its header says {shape}")


def initial_header(name: str) -> dict[str, Any]:
    """Return the metadata of an initial model. Raise a UserError if it is missing or no model."""
    path = initial_path(name)
    try:
        metadata, tensors = read_header(path)
        check_header(metadata, tensors)
        return metadata
    except OSError as error:
        model = path / "model.safetensors" if path.is_dir() else "a model.safetensors"
        raise UserError(
            f"training.initial: {path}: {error.strerror}; give {model}, or the name of a packaged "
            f"model ({', '.join(sorted(PACKAGED))})"
        ) from None
    except (ValueError, TypeError, AttributeError) as error:
        raise UserError(
            f"training.initial: {path}: damaged, or not a model of this project ({error}); give a "
            "model.safetensors that training wrote"
        ) from None


def initial_checksum(name: str) -> str:
    """Return the SHA-256 of the file of an initial model. Raise a UserError if it is missing."""
    initial_header(name)
    path = initial_path(name)
    state = path.stat()
    return checksum_of(path, state.st_mtime_ns, state.st_size)


@cache
def checksum_of(path: Path, changed: int, size: int) -> str:
    """Return the SHA-256 of a file. A file that has changed is read again."""
    return sha256(path)


def find_initial_problems(config: Config, name: str, initial: str) -> Iterator[str]:
    """Yield messages about settings of a model that differ from its initial model."""
    header = initial_header(initial)
    model, size, architecture = config.models[name], config.size_of(name), config.architecture
    settings = {
        f"models.{name}.attention": (model.attention, header.get("attention")),
        f"models.{name}.context": (model.context, header.get("context")),
        f"sizes.{model.size or architecture.size}": (size.model_dump(), header["size"]),
        "tokens.cls": (config.tokens.cls, header.get("cls_token")),
        "architecture.variants": (architecture.variants, header.get("variants")),
        "architecture.layer_norm_epsilon": (
            architecture.layer_norm_epsilon,
            header.get("layer_norm_epsilon"),
        ),
    }
    for setting, (value, expected) in settings.items():
        if value != expected:
            yield (
                f"{setting}: is {value}, but the initial model {initial} has {expected}; set this "
                "value, or training.initial: null"
            )
