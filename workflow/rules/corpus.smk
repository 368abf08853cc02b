# Cells: the manifest that lists all files, the files, and the lock file with their checksums.
#
# No rule names `corpus.download`, so a change of these settings does not rerun jobs.


rule manifest:
    """List the files of the corpus, their role (training or evaluation) and their held-out cells."""
    input:
        user_files,
    output:
        manifest=f"{RESULTS}/corpus/manifest.csv",
        summary=f"{RESULTS}/corpus/manifest.json",
    log:
        f"{RESULTS}/logs/manifest.log",
    priority: 30  # report wrong files before a benchmark starts
    conda:
        ENVIRONMENT
    resources:
        **DOWNLOAD,
        **limits(mem_mb=4000, runtime=240, minutes_per_gb=10),  # hashes all cells of own files
    params:
        **({"manifest": content_of(CONFIG.corpus.manifest)} if CONFIG.corpus.manifest else {}),
        configuration=stored_configuration,
        settings=read("corpus", "corpus.embedded", "seed"),
        files=check.as_json(training_entries(CONFIG.corpus)),  # of `corpus.local`
    shell:
        "python -m scsigmoid manifest --configuration {params.configuration:q}"
        " --output {output.manifest:q} --summary {output.summary:q} --log {log:q}"


rule training_cells:
    """Download or link the training cells of one part."""
    input:
        f"{RESULTS}/corpus/manifest.csv",
    output:
        directory(f"{RESULTS}/corpus/training/part-{{part}}"),
    log:
        f"{RESULTS}/logs/training_cells/{{part}}.log",
    conda:
        ENVIRONMENT
    resources:
        **DOWNLOAD,
        **limits(mem_mb=8000),
    params:
        configuration=stored_configuration,
        settings=read("corpus.embedded", "seed"),
    shell:
        "python -m scsigmoid fetch --manifest {input:q} --part {wildcards.part}"
        " --configuration {params.configuration:q} --output {output:q} --log {log:q}"


# A new dataset does not rerun training: this rule does not depend on the manifest, and training
# does not depend on this rule. The rule evaluation_tokens checks that no cell was trained on.
rule evaluation_cells:
    """Download or make one evaluation dataset, and check its labels."""
    input:
        user_file_of_dataset,
    output:
        cells=f"{RESULTS}/corpus/evaluation/{{dataset}}.h5ad",
        metadata=f"{RESULTS}/corpus/evaluation/{{dataset}}.json",
        row=f"{RESULTS}/corpus/evaluation/{{dataset}}.csv",  # written next to the metadata
    log:
        f"{RESULTS}/logs/evaluation_cells/{{dataset}}.log",
    priority: 20  # report missing cell types before the training cells are downloaded
    conda:
        ENVIRONMENT
    resources:
        **DOWNLOAD,
        **limits(mem_mb=16000),
    params:
        configuration=stored_configuration,
        settings=read(
            "datasets.{dataset}.id",
            "datasets.{dataset}.file",
            "datasets.{dataset}.label",
            "datasets.{dataset}.types",
            "corpus.embedded",
            "seed",
        ),
        file=lambda wildcards: check.as_json(PLAN.held_out_cells(wildcards.dataset)),
    shell:
        "python -m scsigmoid fetch --dataset {wildcards.dataset}"
        " --configuration {params.configuration:q} --output {output.cells:q}"
        " --metadata {output.metadata:q} --log {log:q}"


rule lock:
    """Write the manifest with a checksum of every file. Later runs can use the lock as manifest."""
    input:
        manifest=f"{RESULTS}/corpus/manifest.csv",
        cells=result("corpus/training/part-{part}", part=PLAN.parts),
        metadata=result("corpus/evaluation/{dataset}.json", dataset=PLAN.datasets),
        rows=result("corpus/evaluation/{dataset}.csv", dataset=PLAN.datasets),
    output:
        f"{RESULTS}/corpus/lock.csv",
    log:
        f"{RESULTS}/logs/lock.log",
    conda:
        ENVIRONMENT
    resources:
        **limits(mem_mb=4000, runtime=30),
    shell:
        "python -m scsigmoid lock --manifest {input.manifest:q} --cells {input.cells:q}"
        " --metadata {input.metadata:q} --output {output:q} --log {log:q}"
