"""
A recording of a real vLLM: ``events/`` holds segments of event log v1 as the agent wrote them, ``metrics/`` pages of the
engine's own ``/metrics``, named by the µs UTC at which they were read.
"""

from pathlib import Path

RECORDING = Path(__file__).parent / "recording"
"""The recording that ships with the package."""
