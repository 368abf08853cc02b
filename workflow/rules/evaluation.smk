# Evaluation: embeddings, validation loss, scIB, MMD, UMAP.


# scIB, MMD and UMAP compare the models of a pair, so one job embeds a dataset with both models.
rule embeddings_of_pair:
    """Embed the cells of one dataset with both models of the pair."""
    input:
        models=result("training/{model}/model.safetensors", model=CONFIG.evaluation.pair),
        tokens=f"{RESULTS}/tokens/evaluation/{{dataset}}",
        cells=f"{RESULTS}/corpus/evaluation/{{dataset}}.h5ad",
    output:
        result("embeddings/{{dataset}}/{model}.h5ad", model=CONFIG.evaluation.pair),
    log:
        f"{RESULTS}/logs/embeddings/{{dataset}}.log",
    conda:
        ENVIRONMENT
    resources:
        **gpu_resources(GPUS),
        **limits(mem_mb=16000, runtime=240, input_factor=2),
    params:
        checkpoints=lambda wildcards, input: input.models,
        settings=read("evaluation.embeddings"),
        configuration=stored_configuration,
    shell:
        "python -m scsigmoid embeddings --checkpoint {params.checkpoints:q} --tokens {input.tokens:q}"
        " --cells {input.cells:q} --configuration {params.configuration:q}"
        " --output {output:q} --log {log:q}"


# For all other models, the models of a study, and snapshots. Snapshots are not outputs of a rule, so
# the job depends on the model, which is written after all its snapshots.
use rule embeddings_of_pair as embeddings_of_model with:
    """Embed the cells of one dataset with one model or snapshot."""
    input:
        models=f"{RESULTS}/training/{{model}}/model.safetensors",
        tokens=f"{RESULTS}/tokens/evaluation/{{dataset}}",
        cells=f"{RESULTS}/corpus/evaluation/{{dataset}}.h5ad",
    output:
        f"{RESULTS}/embeddings/{{dataset}}/{{model}}{{snapshot}}.h5ad",
    log:
        f"{RESULTS}/logs/embeddings/{{dataset}}/{{model}}{{snapshot}}.log",
    params:
        checkpoints=lambda wildcards, input: input.models.replace(
            "model.safetensors", f"model{wildcards.snapshot}.safetensors"
        ),


if PLAN.initial:

    use rule embeddings_of_pair as embeddings_of_initial with:
        """Embed the cells of one dataset with the model that training starts from."""
        input:
            tokens=f"{RESULTS}/tokens/evaluation/{{dataset}}",
            cells=f"{RESULTS}/corpus/evaluation/{{dataset}}.h5ad",
            vocabulary=f"{RESULTS}/tokens/vocabulary.parquet",
        output:
            f"{RESULTS}/embeddings/{{dataset}}/initial.h5ad",
        log:
            f"{RESULTS}/logs/embeddings/{{dataset}}/initial.log",
        params:
            initial=initial_checksum(PLAN.initial),
            checkpoints=lambda wildcards, input: [
                initial_path(PLAN.initial),
                "--vocabulary",
                input.vocabulary,
            ],


ruleorder: embeddings_of_pair > embeddings_of_model


# One job for each model, so that a new model does not rerun the jobs of the other models.
rule validation_loss_of_model:
    """Compute the validation loss of one model on one dataset."""
    input:
        model=f"{RESULTS}/training/{{model}}/model.safetensors",
        tokens=f"{RESULTS}/tokens/evaluation/{{dataset}}",
    output:
        summary=f"{RESULTS}/metrics/validation_loss/{{dataset}}/{{model}}.csv",
        cells=f"{RESULTS}/metrics/validation_loss/{{dataset}}/{{model}}.parquet",
    log:
        f"{RESULTS}/logs/validation_loss/{{dataset}}/{{model}}.log",
    conda:
        ENVIRONMENT
    resources:
        **gpu_resources(GPUS),
        **limits(mem_mb=16000, runtime=240),
    params:
        version=3,
        settings=read("evaluation.validation_loss", "seed"),
        configuration=stored_configuration,
    shell:
        "python -m scsigmoid validation-loss --dataset {wildcards.dataset}"
        " --checkpoint {input.model:q} --tokens {input.tokens:q}"
        " --configuration {params.configuration:q} --output {output.summary:q} --log {log:q}"


rule scib_of_dataset:
    """Compute the scIB metrics of one dataset."""
    input:
        embeddings=result(
            "embeddings/{{dataset}}/{model}.h5ad",
            model=[*CONFIG.evaluation.pair, *(["initial"] if PLAN.initial else [])],
        ),
        cells=f"{RESULTS}/corpus/evaluation/{{dataset}}.h5ad",
    output:
        result("metrics/{metric}/{{dataset}}.csv", metric=CONFIG.evaluation.scib.metrics),
    log:
        f"{RESULTS}/logs/scib/{{dataset}}.log",
    conda:
        ENVIRONMENT
    resources:
        **limits(mem_mb=16000, runtime=240, input_factor=4),
    params:
        version=5,
        settings=read(
            # Not `metrics`: each has its output. A metric that is added has none.
            "evaluation.scib.neighbors",
            "evaluation.scib.variance",
            "evaluation.scib.controls",
            "datasets.{dataset}.batch",
            "evaluation.pair",
            "corpus.source",
            "seed",
        ),
        configuration=stored_configuration,
    shell:
        "python -m scsigmoid scib --embeddings {input.embeddings:q} --cells {input.cells:q}"
        " --configuration {params.configuration:q} --output {output:q} --log {log:q}"


rule mmd_of_dataset:
    """Compute the MMD between cell types of one dataset."""
    input:
        mmd_embeddings,
    output:
        f"{RESULTS}/metrics/mmd/{{dataset}}.csv",
    log:
        f"{RESULTS}/logs/mmd/{{dataset}}.log",
    conda:
        ENVIRONMENT
    resources:
        **gpu_resources(GPUS),
        **limits(mem_mb=16000, runtime=240, input_factor=4),
    params:
        settings=read(
            # Not `estimator`, which the tables show, nor `datasets`, which choose the jobs.
            "evaluation.mmd.resamples",
            "evaluation.mmd.confidence",
            "evaluation.mmd.minimum_cells",
            "evaluation.mmd.block_cells",
            "datasets.{dataset}.types",
            "seed",
        ),
        configuration=stored_configuration,
    shell:
        "python -m scsigmoid mmd --dataset {wildcards.dataset} --embeddings {input:q}"
        " --configuration {params.configuration:q} --output {output:q} --log {log:q}"


rule umap_of_dataset:
    """Compute the UMAP coordinates of one dataset."""
    input:
        result("embeddings/{{dataset}}/{model}.h5ad", model=CONFIG.evaluation.pair),
    output:
        result("metrics/umap/{{dataset}}/{model}.parquet", model=CONFIG.evaluation.pair),
    log:
        f"{RESULTS}/logs/umap/{{dataset}}.log",
    conda:
        ENVIRONMENT
    resources:
        **limits(mem_mb=16000, runtime=240, input_factor=4),
    params:
        settings=read(
            "evaluation.umap.neighbors",
            "evaluation.umap.minimum_distance",
            "evaluation.umap.variance",
            "datasets.{dataset}.batch",
            "seed",
        ),
        configuration=stored_configuration,
    shell:
        "python -m scsigmoid umap --dataset {wildcards.dataset} --embeddings {input:q}"
        " --configuration {params.configuration:q} --output {output:q} --log {log:q}"
