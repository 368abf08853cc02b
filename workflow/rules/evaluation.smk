# Evaluation: embeddings, validation loss, scIB, MMD, UMAP.


rule embeddings:
    input:
        model=f"{RESULTS}/training/{{model}}/model.safetensors",
        tokens=f"{RESULTS}/tokens/evaluation/{{dataset}}",
        cells=f"{RESULTS}/corpus/evaluation/{{dataset}}.h5ad",
    output:
        f"{RESULTS}/embeddings/{{dataset}}/{{model}}.h5ad",
    log:
        f"{RESULTS}/logs/embeddings/{{dataset}}/{{model}}.log",
    benchmark:
        f"{RESULTS}/resources/embeddings/{{dataset}}/{{model}}.tsv"
    conda:
        ENVIRONMENT
    resources:
        gpu=accelerators,
        mem_mb=2000,
    params:
        settings=settings("evaluation.embeddings", "device"),
    shell:
        "python -m scsigmoid embeddings --model {wildcards.model} --checkpoint {input.model:q}"
        " --tokens {input.tokens:q} --cells {input.cells:q} --settings {params.settings:q}"
        " --output {output:q} --log {log:q}"


rule validation_loss_of_model:
    input:
        model=f"{RESULTS}/training/{{model}}/model.safetensors",
        tokens=f"{RESULTS}/tokens/evaluation/{{dataset}}",
    output:
        summary=f"{RESULTS}/metrics/validation_loss/{{dataset}}/{{model}}.csv",
        cells=f"{RESULTS}/metrics/validation_loss/{{dataset}}/{{model}}.parquet",
    log:
        f"{RESULTS}/logs/validation_loss/{{dataset}}/{{model}}.log",
    benchmark:
        f"{RESULTS}/resources/validation_loss_of_model/{{dataset}}/{{model}}.tsv"
    conda:
        ENVIRONMENT
    resources:
        gpu=accelerators,
        mem_mb=2000,
    params:
        settings=settings("evaluation.validation_loss", "seed", "device"),
    shell:
        "python -m scsigmoid validation-loss --dataset {wildcards.dataset} --model {wildcards.model}"
        " --checkpoint {input.model:q} --tokens {input.tokens:q} --settings {params.settings:q}"
        " --output {output.summary:q} --cells {output.cells:q} --log {log:q}"


rule neighbours:
    input:
        embeddings=result("embeddings/{{dataset}}/{model}.h5ad", model=CONFIG.evaluation.pair),
        cells=f"{RESULTS}/corpus/evaluation/{{dataset}}.h5ad",
    output:
        directory(f"{RESULTS}/neighbours/{{dataset}}"),
    log:
        f"{RESULTS}/logs/neighbours/{{dataset}}.log",
    benchmark:
        f"{RESULTS}/resources/neighbours/{{dataset}}.tsv"
    conda:
        ENVIRONMENT
    resources:
        gpu=accelerators,
        mem_mb=3000,
    params:
        settings=settings(
            "evaluation.scib.neighbours",
            "evaluation.scib.variance",
            "evaluation.scib.controls",
            "evaluation.pair",
            "seed",
            "device",
        ),
    shell:
        "python -m scsigmoid neighbours --embeddings {input.embeddings:q} --cells {input.cells:q}"
        " --settings {params.settings:q} --output {output:q} --log {log:q}"


rule silhouette:
    input:
        f"{RESULTS}/neighbours/{{dataset}}",
    output:
        f"{RESULTS}/metrics/silhouette_label/{{dataset}}.csv",
    log:
        f"{RESULTS}/logs/silhouette_label/{{dataset}}.log",
    benchmark:
        f"{RESULTS}/resources/silhouette/{{dataset}}.tsv"
    conda:
        ENVIRONMENT
    resources:
        gpu=accelerators,
        mem_mb=3000,
    params:
        settings=settings("device"),
    shell:
        "python -m scsigmoid silhouette --dataset {wildcards.dataset} --neighbours {input:q}"
        " --settings {params.settings:q} --output {output:q} --log {log:q}"


# One clustering gives both metrics.
rule leiden:
    input:
        f"{RESULTS}/neighbours/{{dataset}}",
    output:
        nmi=f"{RESULTS}/metrics/leiden_nmi/{{dataset}}.csv",
        ari=f"{RESULTS}/metrics/leiden_ari/{{dataset}}.csv",
    log:
        f"{RESULTS}/logs/leiden/{{dataset}}.log",
    benchmark:
        f"{RESULTS}/resources/leiden/{{dataset}}.tsv"
    conda:
        ENVIRONMENT
    resources:
        mem_mb=3000,
    params:
        settings=settings("seed"),
    shell:
        "python -m scsigmoid leiden --dataset {wildcards.dataset} --neighbours {input:q}"
        " --settings {params.settings:q} --nmi {output.nmi:q} --ari {output.ari:q} --log {log:q}"


# Two that the paper does not have; made where evaluation.scib.metrics names them.
rule kmeans:
    input:
        f"{RESULTS}/neighbours/{{dataset}}",
    output:
        nmi=f"{RESULTS}/metrics/kmeans_nmi/{{dataset}}.csv",
        ari=f"{RESULTS}/metrics/kmeans_ari/{{dataset}}.csv",
    log:
        f"{RESULTS}/logs/kmeans/{{dataset}}.log",
    benchmark:
        f"{RESULTS}/resources/kmeans/{{dataset}}.tsv"
    conda:
        ENVIRONMENT
    resources:
        mem_mb=3000,
    shell:
        "python -m scsigmoid kmeans --dataset {wildcards.dataset} --neighbours {input:q}"
        " --nmi {output.nmi:q} --ari {output.ari:q} --log {log:q}"


rule clisi:
    input:
        f"{RESULTS}/neighbours/{{dataset}}",
    output:
        f"{RESULTS}/metrics/clisi/{{dataset}}.csv",
    log:
        f"{RESULTS}/logs/clisi/{{dataset}}.log",
    benchmark:
        f"{RESULTS}/resources/clisi/{{dataset}}.tsv"
    conda:
        ENVIRONMENT
    resources:
        mem_mb=3000,
    shell:
        "python -m scsigmoid clisi --dataset {wildcards.dataset} --neighbours {input:q}"
        " --output {output:q} --log {log:q}"


rule mmd_of_dataset:
    input:
        result("embeddings/{{dataset}}/{model}.h5ad", model=CONFIG.evaluation.pair),
    output:
        f"{RESULTS}/metrics/mmd/{{dataset}}.csv",
    log:
        f"{RESULTS}/logs/mmd/{{dataset}}.log",
    benchmark:
        f"{RESULTS}/resources/mmd_of_dataset/{{dataset}}.tsv"
    conda:
        ENVIRONMENT
    resources:
        gpu=accelerators,
        mem_mb=3000,
    params:
        settings=lambda wildcards: settings(
            "mmd", "seed", "device", f"datasets.{wildcards.dataset}.types"
        ),
    shell:
        "python -m scsigmoid mmd --dataset {wildcards.dataset} --embeddings {input:q}"
        " --settings {params.settings:q} --output {output:q} --log {log:q}"


rule umap_of_dataset:
    input:
        result("embeddings/{{dataset}}/{model}.h5ad", model=CONFIG.evaluation.pair),
    output:
        result("metrics/umap/{{dataset}}/{model}.parquet", model=CONFIG.evaluation.pair),
    log:
        f"{RESULTS}/logs/umap/{{dataset}}.log",
    benchmark:
        f"{RESULTS}/resources/umap_of_dataset/{{dataset}}.tsv"
    conda:
        ENVIRONMENT
    resources:
        mem_mb=3000,
    params:
        settings=settings("umap", "seed"),
    shell:
        "python -m scsigmoid umap --embeddings {input:q} --settings {params.settings:q}"
        " --output {output:q} --log {log:q}"
