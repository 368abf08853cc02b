"""Tables, figures and the report page of any run, from its result files alone."""
