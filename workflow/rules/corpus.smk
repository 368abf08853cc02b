# Cells: which files (the manifest), and the files themselves.


rule manifest:
    input:
        user_files,
    output:
        f"{RESULTS}/corpus/manifest.csv",
    log:
        f"{RESULTS}/logs/manifest.log",
    conda:
        ENVIRONMENT
    params:
        settings=settings("corpus", "datasets", "seed"),
    shell:
        "python -m scsigmoid manifest --settings {params.settings:q} --output {output:q} --log {log:q}"


rule training_cells:
    input:
        f"{RESULTS}/corpus/manifest.csv",
    output:
        directory(f"{RESULTS}/corpus/training/part-{{part}}"),
    log:
        f"{RESULTS}/logs/training_cells/{{part}}.log",
    conda:
        ENVIRONMENT
    resources:
        mem_mb=2000,
    params:
        settings=settings("corpus", "seed"),
    shell:
        "python -m scsigmoid fetch --manifest {input:q} --part {wildcards.part}"
        " --settings {params.settings:q} --output {output:q} --log {log:q}"


rule evaluation_cells:
    input:
        f"{RESULTS}/corpus/manifest.csv",
    output:
        cells=f"{RESULTS}/corpus/evaluation/{{dataset}}.h5ad",
        facts=f"{RESULTS}/corpus/evaluation/{{dataset}}.json",
    log:
        f"{RESULTS}/logs/evaluation_cells/{{dataset}}.log",
    conda:
        ENVIRONMENT
    resources:
        mem_mb=2000,
    params:
        settings=settings("corpus", "seed"),
    shell:
        "python -m scsigmoid fetch --manifest {input:q} --dataset {wildcards.dataset}"
        " --settings {params.settings:q} --output {output.cells:q} --facts {output.facts:q}"
        " --log {log:q}"
