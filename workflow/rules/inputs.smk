"""Functions that return the inputs of rules, and changes of the user's files."""

import os
import re
import sys
from functools import cache
from pathlib import Path

from snakemake.io import contains_wildcard


def content_of(path):
    """Return the checksum of a small file of the user, for `params`, or "" without a file."""
    return sha256(Path(path)) if path and os.path.isfile(path) else ""


def input_files():
    """Return the paths of the user's files in the configuration, of 10x folders their files."""
    own = local_files.own_files(CONFIG)
    files = [path for file in own for path in local_files.files_of(file.path)]
    files += map(Path, filter(None, (CONFIG.corpus.manifest, CONFIG.tokens.vocabulary.genes)))
    files += [initial_path(PLAN.initial)] if PLAN.initial else []
    if wrong := first_few(filter(contains_wildcard, files)):
        stop(f"{wrong}: Snakemake would take the braces for a wildcard; rename the file or folder")
    return files


@cache
def force_if_replaced(manifest):
    """Run a job again if one of the user's files was replaced by an older file."""
    path = modified(manifest)
    if workflow.is_main_process and not workflow.touch:
        if replaced := local_files.replaced_files(Path(path)):
            names = ", ".join(map(str, replaced))
            print(f"{path}: made again, because files were replaced: {names}", file=sys.stderr)
            workflow.dag.forcefiles.add(path)


def user_files(wildcards):
    """Return the user's own files that the manifest depends on: training files, or a manifest."""
    if CONFIG.corpus.source == "local":
        # `held_out: true` means that all cells of a file are held out.
        files = local_files.expand(CONFIG.corpus.local)
        training_files = [file for file in files if file.held_out is not True]
        force_if_replaced("corpus/manifest.csv")
        return [str(path) for file in training_files for path in local_files.files_of(file.path)]
    if CONFIG.corpus.manifest:
        return [local(CONFIG.corpus.manifest)]  # `local` keeps a module from adding its prefix
    return []


def user_file_of_dataset(wildcards):
    """Return the user's own files with the held-out cells of a dataset, or []."""
    file = PLAN.held_out_files.get(wildcards.dataset)
    if file:
        force_if_replaced(f"corpus/evaluation/{wildcards.dataset}.csv")
    return [str(path) for path in local_files.files_of(file.path)] if file else []


def study_journals(wildcards):
    """Return the journals of a study's runs, or stop if the configuration has no study."""
    if not PLAN.study_runs:
        stop("the configuration has no study; add one, as in workflow/studies/arms.yaml")
    return result("training/{model}/journal.csv", model=PLAN.study_runs)


def stability_figure(wildcards):
    """Return the figure of the stress test, or stop if no model is in it."""
    if not PLAN.stress_models:
        stop("stress_test: no model is in the stress test; set models.<name>.stress: true for one")
    return result("figures/stability.png")


def mmd_embeddings(wildcards):
    """Return the embeddings that MMD compares, or stop if MMD is not possible."""
    for problem in combinations.find_mmd_problems(CONFIG):
        stop(problem)
    return result(
        "embeddings/{dataset}/{model}.h5ad", dataset=wildcards.dataset, model=CONFIG.evaluation.pair
    )


def inputs_of(kind):
    """Return a function of wildcards: it returns the inputs of a table or figure, if it exists."""

    def inputs(wildcards):
        try:
            return result("{path}", path=registry.find(kind, wildcards.name, PLAN).inputs)
        except UserError as error:
            stop(error)

    return inputs


def names_of(kind):
    """Return the constraint of the wildcard `name`. Unknown names are an error (`inputs_of`).

    In a module, they may be files of the other workflow. Input files of the user are not matched.
    """
    known = registry.entries(kind, PLAN)
    if IS_MODULE:
        return "|".join(known)
    names = [
        re.sub(r"\W", ".", path.name)  # Snakemake does not accept all characters in constraints
        for path in input_files()
        if path.parent == Path(RESULTS, f"{kind}s") and path.stem not in known
    ]
    return f"(?!(?:{'|'.join(names)})$)[^/]+" if names else "[^/]+"
