"""The configuration: schema, reading and checking, and the files that it asks for."""
