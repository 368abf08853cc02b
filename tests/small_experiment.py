"""A small experiment whose stages run one by one, for tests of faults."""

import shutil
from pathlib import Path
from typing import Any

from forked import forked

from scsigmoid.cli import main
from scsigmoid.config.check import as_json, as_yaml, load
from scsigmoid.config.plan import Plan

MODEL, DATASET, PART = "sigmoid_2k", "heart_oft", "part-00000"
# Stages in order, with their outputs.
OUTPUTS = {
    "manifest": ["corpus/manifest.csv", "corpus/manifest.json"],
    "fetch": [f"corpus/training/{PART}"],
    "fetch-evaluation": [f"corpus/evaluation/{DATASET}.h5ad", f"corpus/evaluation/{DATASET}.json"],
    "statistics": [f"tokens/statistics/{PART}.arrow"],
    "vocabulary": ["tokens/vocabulary.parquet"],
    "tokenize": [f"tokens/training/{PART}"],
    "tokenize-evaluation": [f"tokens/evaluation/{DATASET}"],
    "train": [f"training/{MODEL}/model.safetensors"],
    "embeddings": [f"embeddings/{DATASET}/{MODEL}.h5ad"],
    "validation-loss": [f"metrics/loss/{MODEL}.csv", f"metrics/loss/{MODEL}.parquet"],
    "table": ["tables/evaluation_datasets.csv", "tables/evaluation_datasets.md"],
}


class Line:
    """The stages of a small experiment, below one results folder."""

    def __init__(self, results: Path, overrides: dict[str, Any]) -> None:
        results.mkdir(parents=True, exist_ok=True)
        self.results = results
        config = load(overrides=overrides)
        self.plan = Plan(config)
        (results / "config.yaml").write_text(as_yaml(config))

    def path(self, name: str) -> str:
        return str(self.results / name)

    def settings(self, rule: str) -> list[str]:
        return ["--settings", as_json(self.plan.settings_of(rule, DATASET))]

    def arguments(self, stage: str) -> list[str]:
        """Return the command of a stage, as in its rule."""
        output = ["--output", self.path(OUTPUTS[stage][0])]
        stored = ["--configuration", self.path("config.yaml")]
        manifest = ["--manifest", self.path("corpus/manifest.csv")]
        vocabulary = ["--vocabulary", self.path("tokens/vocabulary.parquet")]
        facts = ["--metadata", self.path(f"corpus/evaluation/{DATASET}.json")]
        arguments = {
            "manifest": [*stored, "--summary", self.path("corpus/manifest.json")],
            "fetch": [*manifest, "--part", "00000", *stored],
            "fetch-evaluation": ["--dataset", DATASET, *stored, *facts],
            "statistics": [
                *("--cells", self.path(f"corpus/training/{PART}")),
                *self.settings("gene_statistics"),
            ],
            "vocabulary": [
                *("--statistics", self.path(f"tokens/statistics/{PART}.arrow")),
                *self.settings("vocabulary"),
            ],
            "tokenize": [
                *("--cells", self.path(f"corpus/training/{PART}"), *vocabulary),
                *self.settings("training_tokens"),
            ],
            "tokenize-evaluation": [
                *("--cells", self.path(f"corpus/evaluation/{DATASET}.h5ad"), *facts),
                *(*vocabulary, *self.settings("evaluation_tokens")),
            ],
            "train": [
                *("--model", MODEL, "--tokens", self.path(f"tokens/training/{PART}")),
                *(*vocabulary, "--settings"),
                as_json({f"models.{MODEL}": self.plan.run(MODEL)}),
            ],
            "embeddings": [
                *("--checkpoint", self.path(f"training/{MODEL}/model.safetensors")),
                *("--tokens", self.path(f"tokens/evaluation/{DATASET}")),
                *("--cells", self.path(f"corpus/evaluation/{DATASET}.h5ad")),
                *self.settings("embeddings_of_pair"),
            ],
            "validation-loss": [
                *("--dataset", DATASET),
                *("--checkpoint", self.path(f"training/{MODEL}/model.safetensors")),
                *("--tokens", self.path(f"tokens/evaluation/{DATASET}")),
                *self.settings("validation_loss_of_model"),
            ],
            "table": ["evaluation_datasets", *stored],
        }[stage]
        if stage == "train":
            output = ["--output", self.path(f"training/{MODEL}")]
        return [stage.removesuffix("-evaluation"), *arguments, *output]

    def run(self, stage: str) -> int:
        """Run a stage in its own process. Return the exit code."""
        return forked(lambda: main(self.arguments(stage)))

    def remove(self, stage: str) -> None:
        """Remove the outputs of a stage, as Snakemake does after a failed job."""
        for name in OUTPUTS[stage]:
            path = self.results / name
            if path.is_dir():
                shutil.rmtree(path)
            path.unlink(missing_ok=True)
        if stage == "train":
            shutil.rmtree(self.results / "training" / MODEL, ignore_errors=True)

    def bytes(self, stage: str) -> dict[str, bytes]:
        """Return the content of the output files of a stage, by name."""
        contents = {}
        for name in OUTPUTS[stage]:
            path = self.results / name
            for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
                if file.is_file():
                    contents[str(file.relative_to(self.results))] = file.read_bytes()
        return contents
