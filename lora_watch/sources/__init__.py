"""Rows from outside: one exposition parser, one file per system."""
