# Speed: the attention kernel alone, and training steps.


rule benchmark_kernel:
    output:
        table=f"{RESULTS}/benchmarks/kernel.csv",
        machine=f"{RESULTS}/benchmarks/kernel.json",
    log:
        f"{RESULTS}/logs/benchmark_kernel.log",
    benchmark:
        f"{RESULTS}/resources/benchmark_kernel.tsv"
    priority: 10
    conda:
        ENVIRONMENT
    resources:
        gpu=accelerators,
        mem_mb=4000,
        alone=1,
    params:
        settings=settings("benchmarks.kernel", "device"),
    shell:
        "python -m scsigmoid benchmark-kernel --settings {params.settings:q}"
        " --output {output.table:q} --machine {output.machine:q} --log {log:q}"


rule benchmark_throughput:
    output:
        table=f"{RESULTS}/benchmarks/throughput.csv",
        machine=f"{RESULTS}/benchmarks/throughput.json",
    log:
        f"{RESULTS}/logs/benchmark_throughput.log",
    benchmark:
        f"{RESULTS}/resources/benchmark_throughput.tsv"
    priority: 10
    conda:
        ENVIRONMENT
    resources:
        gpu=accelerators,
        mem_mb=4000,
        alone=1,
    params:
        settings=settings(
            "benchmarks.throughput", "sizes", "architecture", "training", "seed", "device"
        ),
    shell:
        "python -m scsigmoid benchmark-throughput --settings {params.settings:q}"
        " --output {output.table:q} --machine {output.machine:q} --log {log:q}"


rule benchmark_training:
    output:
        table=f"{RESULTS}/benchmarks/training.csv",
        machine=f"{RESULTS}/benchmarks/training.json",
    log:
        f"{RESULTS}/logs/benchmark_training.log",
    benchmark:
        f"{RESULTS}/resources/benchmark_training.tsv"
    priority: 10
    conda:
        ENVIRONMENT
    resources:
        gpu=accelerators,
        mem_mb=4000,
        alone=1,
    params:
        settings=settings(
            "benchmarks.training", "sizes", "architecture", "training", "seed", "device"
        ),
    shell:
        "python -m scsigmoid benchmark-training --settings {params.settings:q}"
        " --output {output.table:q} --machine {output.machine:q} --log {log:q}"
