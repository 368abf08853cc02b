# Training: four models for the comparison, two for the stress test.


# Checkpoints lie beside the outputs and are not among them: Snakemake deletes the outputs of a
# failed job, and a run that was cut off goes on from its last checkpoint.
rule train:
    input:
        tokens=result("tokens/training/part-{part}", part=PLAN.parts),
        vocabulary=f"{RESULTS}/tokens/vocabulary.parquet",
    output:
        model=f"{RESULTS}/training/{{model}}/model.safetensors",
        journal=f"{RESULTS}/training/{{model}}/journal.csv",
    log:
        f"{RESULTS}/logs/train/{{model}}.log",
    conda:
        ENVIRONMENT
    resources:
        gpu=accelerators,
        mem_mb=4000,
    params:
        settings=training_settings,
    shell:
        "python -m scsigmoid train --model {wildcards.model} --tokens {input.tokens:q}"
        " --vocabulary {input.vocabulary:q} --settings {params.settings:q}"
        " --output $(dirname {output.model:q}) --log {log:q}"
