"""Findings: evidence → cause → remedy with predicted effect. Pure: frames and values in, values out."""
