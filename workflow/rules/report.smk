# Tables, figures, and the report page.


# The registry of tables and figures names the settings that each reads.
rule table:
    """Make one table."""
    input:
        inputs_of("table"),
    output:
        csv=report(
            f"{RESULTS}/tables/{{name}}.csv",
            caption="../report/caption.rst",
            category="Tables",
            labels={"table": "{name}"},
        ),
        md=f"{RESULTS}/tables/{{name}}.md",
    log:
        f"{RESULTS}/logs/tables/{{name}}.log",
    wildcard_constraints:
        name=names_of("table"),
    conda:
        ENVIRONMENT
    resources:
        **limits(mem_mb=2000, runtime=10),
        at_once=1,
    params:
        settings=read_by_entry("table"),
        caption=lambda wildcards: registry.caption("table", wildcards.name, PLAN),
        configuration=stored_configuration,
    shell:
        "python -m scsigmoid table {wildcards.name} --configuration {params.configuration:q}"
        " --output {output.csv:q} --log {log:q}"


rule figure:
    """Make one figure."""
    input:
        inputs_of("figure"),
    output:
        png=report(
            f"{RESULTS}/figures/{{name}}.png",
            caption="../report/caption.rst",
            category="Figures",
            labels={"figure": "{name}"},
        ),
        pdf=f"{RESULTS}/figures/{{name}}.pdf",
        txt=f"{RESULTS}/figures/{{name}}.txt",
    log:
        f"{RESULTS}/logs/figures/{{name}}.log",
    wildcard_constraints:
        name=names_of("figure"),
    conda:
        ENVIRONMENT
    resources:
        **limits(mem_mb=2000, runtime=10),
        at_once=1,
    params:
        settings=read_by_entry("figure"),
        caption=lambda wildcards: registry.caption("figure", wildcards.name, PLAN),
        configuration=stored_configuration,
    shell:
        "python -m scsigmoid figure {wildcards.name} --configuration {params.configuration:q}"
        " --output {output.png:q} --log {log:q}"


rule report_page:
    """Write report.html: all tables and figures on one page."""
    input:
        tables=result("tables/{name}.csv", name=TABLES),
        pages=result("tables/{name}.md", name=TABLES),
        figures=result("figures/{name}.{suffix}", name=FIGURES, suffix=["png", "txt"]),
    output:
        report(f"{RESULTS}/report.html", caption="../report/caption.rst", category="Report"),
    log:
        f"{RESULTS}/logs/report.log",
    conda:
        ENVIRONMENT
    resources:
        **limits(mem_mb=2000, runtime=10),
    params:
        caption="All figures and tables, the settings and the versions on one page.",
        # All, but not the reasons of choices: they may differ between runs with the same settings.
        settings=check.as_json(CONFIG.model_dump(exclude_defaults=True, exclude={"choices"})),
        configuration=stored_configuration,
    shell:
        "python -m scsigmoid report --configuration {params.configuration:q} --output {output:q} --log {log:q}"
