# Tokens: gene statistics, the vocabulary with the medians of genes, and ranked gene tokens.


rule gene_statistics:
    """Count cells and collect normalized counts of each gene in one part."""
    input:
        f"{RESULTS}/corpus/training/part-{{part}}",
    output:
        f"{RESULTS}/tokens/statistics/part-{{part}}.arrow",
    log:
        f"{RESULTS}/logs/gene_statistics/{{part}}.log",
    conda:
        ENVIRONMENT
    resources:
        **limits(mem_mb=8000, runtime=240),
    params:
        configuration=stored_configuration,
        settings=read("tokens.minimum_genes"),
    shell:
        "python -m scsigmoid statistics --cells {input:q}"
        " --configuration {params.configuration:q} --output {output:q} --log {log:q}"


rule vocabulary:
    """Choose the genes with a token, and compute their medians."""
    input:
        statistics=result("tokens/statistics/part-{part}.arrow", part=PLAN.parts),
        genes=local(CONFIG.tokens.vocabulary.genes) if CONFIG.tokens.vocabulary.genes else [],
    output:
        f"{RESULTS}/tokens/vocabulary.parquet",
    log:
        f"{RESULTS}/logs/vocabulary.log",
    conda:
        ENVIRONMENT
    resources:
        # Two seconds for each part, 2 GB for any number of parts.
        **limits(mem_mb=4000, runtime=30 + len(PLAN.parts) // 10),
    params:
        **({"initial": initial_checksum(PLAN.initial)} if PLAN.initial else {}),
        **(
            {"genes": content_of(CONFIG.tokens.vocabulary.genes)}
            if CONFIG.tokens.vocabulary.genes
            else {}
        ),
        configuration=stored_configuration,
        settings=read("tokens.minimum_cells", "tokens.vocabulary"),
    shell:
        "python -m scsigmoid vocabulary --statistics {input.statistics:q}"
        " --configuration {params.configuration:q} --output {output:q} --log {log:q}"


rule training_tokens:
    """Tokenize and shuffle the training cells of one part."""
    input:
        cells=f"{RESULTS}/corpus/training/part-{{part}}",
        vocabulary=f"{RESULTS}/tokens/vocabulary.parquet",
    output:
        directory(f"{RESULTS}/tokens/training/part-{{part}}"),
    log:
        f"{RESULTS}/logs/training_tokens/{{part}}.log",
    conda:
        ENVIRONMENT
    resources:
        **limits(mem_mb=8000, runtime=240),
    params:
        configuration=stored_configuration,
        settings=read("tokens.minimum_genes", "tokens.shard_cells"),
    shell:
        "python -m scsigmoid tokenize --cells {input.cells:q} --vocabulary {input.vocabulary:q}"
        " --configuration {params.configuration:q} --output {output:q} --log {log:q}"


rule evaluation_tokens:
    """Tokenize one evaluation dataset."""
    input:
        cells=f"{RESULTS}/corpus/evaluation/{{dataset}}.h5ad",
        metadata=f"{RESULTS}/corpus/evaluation/{{dataset}}.json",
        row=f"{RESULTS}/corpus/evaluation/{{dataset}}.csv",  # read next to the metadata
        manifest=f"{RESULTS}/corpus/manifest.csv",
        vocabulary=f"{RESULTS}/tokens/vocabulary.parquet",
    output:
        directory(f"{RESULTS}/tokens/evaluation/{{dataset}}"),
    log:
        f"{RESULTS}/logs/evaluation_tokens/{{dataset}}.log",
    priority: 20  # report errors in evaluation files before training
    conda:
        ENVIRONMENT
    resources:
        **limits(mem_mb=8000, runtime=240),
    params:
        version=2,
        configuration=stored_configuration,
        settings=read("tokens.shard_cells"),
    shell:
        "python -m scsigmoid tokenize --cells {input.cells:q} --metadata {input.metadata:q}"
        " --manifest {input.manifest:q} --vocabulary {input.vocabulary:q}"
        " --configuration {params.configuration:q} --output {output:q} --log {log:q}"


rule sequence_lengths:
    """Count the training cells of each sequence length."""
    input:
        result("tokens/training/part-{part}", part=PLAN.parts),
    output:
        f"{RESULTS}/tokens/lengths.parquet",
    log:
        f"{RESULTS}/logs/sequence_lengths.log",
    conda:
        ENVIRONMENT
    resources:
        **limits(mem_mb=4000, runtime=60),
    shell:
        "python -m scsigmoid lengths --tokens {input:q} --output {output:q} --log {log:q}"
