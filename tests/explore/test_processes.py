"""A process that works for another ends with it, however that ends."""

import subprocess
import sys

SERVICE = """
import os, signal
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from lora_watch.explore.processes import undisturbed

with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=undisturbed) as pool:
    pool.submit(os.getpid).result()
    pool.submit(signal.pause)
    print("working", flush=True)
    signal.pause()
"""


def test_a_service_that_is_killed_leaves_no_process_behind():
    service = subprocess.Popen([sys.executable, "-c", SERVICE], stdout=subprocess.PIPE, text=True)
    with service:
        assert service.stdout is not None
        assert service.stdout.readline() == "working\n"
        service.kill()
        assert service.communicate(timeout=60) == ("", None)  # its output ends when nobody has it open any more
