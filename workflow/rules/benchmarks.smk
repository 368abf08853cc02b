# Speed: the attention kernel alone, and training steps.


rule benchmark_kernel:
    """Time the attention kernels."""
    output:
        table=f"{RESULTS}/benchmarks/kernel.csv",
        machine=f"{RESULTS}/benchmarks/kernel.json",
    log:
        f"{RESULTS}/logs/benchmark_kernel.log",
    priority: 10  # before training, whose priority is 0
    conda:
        ENVIRONMENT
    resources:
        **gpu_resources(GPUS),
        **limits(mem_mb=16000, runtime=240),
        alone=1,
    params:
        name="kernel",
        settings=read("benchmarks.kernel", "device"),
        configuration=stored_configuration,
    shell:
        "python -m scsigmoid benchmark-{params.name:q} --configuration {params.configuration:q}"
        " --output {output.table:q} --machine {output.machine:q} --log {log:q}"


use rule benchmark_kernel as benchmark_training with:
    """Time training steps of several model sizes."""
    output:
        table=f"{RESULTS}/benchmarks/training.csv",
        machine=f"{RESULTS}/benchmarks/training.json",
    log:
        f"{RESULTS}/logs/benchmark_training.log",
    params:
        name="training",
        settings=read(
            "benchmarks.training",
            "architecture.dropout",
            "architecture.layer_norm_epsilon",
            "architecture.initializer_range",
            "architecture.variants",
            *[f"sizes.{name}" for name in CONFIG.benchmarks.training.sizes],
            "training.weight_decay",
            "training.betas",
            "training.epsilon",
            "training.gradient",
            "training.clipping",
            "training.mask_fraction",
            "training.mask_replacement",
            "training.execution.threads",
            "training.execution.deterministic",
            "device",
            "seed",
        ),
        configuration=stored_configuration,
