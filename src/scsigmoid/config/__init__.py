"""The configuration: its schema (plain dataclasses), how it is read and checked, and its plan."""
