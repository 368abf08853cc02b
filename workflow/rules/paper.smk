# The paper: tables, figures, claims, report.


rule configuration:
    output:
        f"{RESULTS}/config.yaml",
    log:
        f"{RESULTS}/logs/configuration.log",
    conda:
        ENVIRONMENT
    params:
        settings=settings(),
    shell:
        "python -m scsigmoid configuration --settings {params.settings:q} --output {output:q} 2> {log:q}"


# Tables and figures read the stored configuration for titles and labels; what may make them run
# again is their inputs and the settings named in `params`, hence `ancient`.
rule table:
    input:
        results=table_inputs,
        configuration=ancient(f"{RESULTS}/config.yaml"),
    output:
        csv=report(
            f"{RESULTS}/tables/{{name}}.csv",
            caption="../report/table.rst",
            category="Tables",
            labels={"table": "{name}"},
        ),
        md=f"{RESULTS}/tables/{{name}}.md",
        tex=f"{RESULTS}/tables/{{name}}.tex",
    log:
        f"{RESULTS}/logs/tables/{{name}}.log",
    conda:
        ENVIRONMENT
    params:
        settings=table_settings,
    shell:
        "python -m scsigmoid table {wildcards.name} --configuration {input.configuration:q} --output {output.csv:q} 2> {log:q}"


rule figure:
    input:
        results=figure_inputs,
        configuration=ancient(f"{RESULTS}/config.yaml"),
    output:
        png=report(
            f"{RESULTS}/figures/{{name}}.png",
            caption="../report/figure.rst",
            category="Figures",
            labels={"figure": "{name}"},
        ),
        pdf=f"{RESULTS}/figures/{{name}}.pdf",
    log:
        f"{RESULTS}/logs/figures/{{name}}.log",
    conda:
        ENVIRONMENT
    params:
        settings=figure_settings,
    shell:
        "python -m scsigmoid figure {wildcards.name} --configuration {input.configuration:q} --output {output.png:q}"
        " 2> {log:q}"


rule claims:
    input:
        results=result("{path}", path=PLAN.claim_inputs()),
        configuration=ancient(f"{RESULTS}/config.yaml"),
    output:
        report(f"{RESULTS}/claims.csv", caption="../report/claims.rst", category="Claims"),
    log:
        f"{RESULTS}/logs/claims.log",
    conda:
        ENVIRONMENT
    params:
        settings=settings(*PLAN.claim_settings()),
    shell:
        "python -m scsigmoid claims --configuration {input.configuration:q} --output {output:q} 2> {log:q}"


rule report_page:
    input:
        tables=result("tables/{name}.csv", name=PLAN.tables),
        figures=result("figures/{name}.png", name=PLAN.figures),
        claims=f"{RESULTS}/claims.csv",
        configuration=f"{RESULTS}/config.yaml",
    output:
        f"{RESULTS}/report.html",
    log:
        f"{RESULTS}/logs/report.log",
    conda:
        ENVIRONMENT
    shell:
        "python -m scsigmoid report --configuration {input.configuration:q} --output {output:q} 2> {log:q}"
