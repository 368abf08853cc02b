import textwrap

# Named targets: `snakemake --cores all <name>` makes the files of a target and their inputs.
DESCRIPTIONS = {
    "corpus": "Training cells, evaluation datasets and the lock file.",
    "tokens": "Token stores, and the figure of sequence lengths.",
    "training": "All models.",
    "stress_test": "The models with stress: true, and the figure of their losses.",
    "embeddings": "The embeddings of all datasets with all evaluated models.",
    "validation_loss": "Table and figure of validation losses.",
    "scib": "Table and figure of the scIB metrics.",
    "mmd": "Tables of the MMD between cell types.",
    "umap": "Figures of the UMAP coordinates.",
    "kernel_speed": "Table and figures of the kernel benchmark.",
    "training_speed": "Tables and figure of the training benchmark.",
    "tables": "All tables.",
    "figures": "All figures.",
}
FILES = {
    "corpus": [
        *result("corpus/training/part-{part}", part=PLAN.parts),
        *result("corpus/evaluation/{dataset}.h5ad", dataset=PLAN.datasets),
        *LOCK_FILE,
    ],
    "tokens": [
        *result("tokens/training/part-{part}", part=PLAN.parts),
        *result("tokens/evaluation/{dataset}", dataset=PLAN.datasets),
        f"{RESULTS}/figures/sequence_lengths.png",
    ],
    "training": result("training/{model}/model.safetensors", model=CONFIG.models),
    "stress_test": stability_figure,
    "embeddings": result(
        "embeddings/{dataset}/{model}.h5ad", dataset=PLAN.datasets, model=PLAN.evaluated_models
    ),
    "validation_loss": result("{path}", path=["tables/validation_loss.csv", "figures/loss.png"]),
    "scib": result("{path}", path=["tables/scib.csv", "figures/scib.png"]),
    # Without a dataset for MMD, request all datasets: the rule for MMD then reports the reason.
    "mmd": result("tables/mmd_{dataset}.csv", dataset=PLAN.datasets_of("mmd") or PLAN.datasets),
    "umap": result("figures/umap_{dataset}.png", dataset=PLAN.datasets_of("umap")),
    "kernel_speed": result(
        "{path}", path=["tables/kernel_speed.csv", "figures/tflops.png", "figures/latency.png"]
    ),
    "training_speed": [
        *result("tables/{name}.csv", name=["training_cost", "training_speed"]),
        *result("figures/gpu_hours.png"),
    ],
    "tables": result("tables/{name}.csv", name=TABLES),
    "figures": result("figures/{name}.png", name=FIGURES),
}
for target, files in FILES.items():

    rule:
        name:
            target
        input:
            files,
        localrule: True

    # A docstring in the loop would be the same for all targets.
    getattr(rules, target).rule.docstring = DESCRIPTIONS[target]


def list_targets(only_targets=False):
    """Print a line per target, and the names of all other rules (`snakemake --list`)."""
    targets = ["all", *DESCRIPTIONS, "study"]
    for target in targets:
        print(f"{target:16} {getattr(rules, target).rule.docstring}")
    others = sorted(rule.name for rule in workflow.rules if rule.name not in targets)
    if not only_targets:
        print(textwrap.fill(f"Other rules: {', '.join(others)}", width=80))


if not IS_MODULE:
    workflow.list_rules = list_targets  # Snakemake's list is longer than a screen
