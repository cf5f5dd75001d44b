"""Frames in, frames out: one file per metric. No clock, no files, no settings, no logging."""
