"""Processes that are begun for one answer: their memory goes back once they are done."""

import os
import signal
from multiprocessing import parent_process
from multiprocessing.process import BaseProcess
from threading import Thread


def undisturbed() -> None:
    """
    How a process that works for the service begins: Ctrl-C is for the service, which lets what runs end. It ends with the
    service, though, however that ends: one that was killed would leave it and its memory behind.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    service = parent_process()
    if service is not None:
        Thread(target=_end_with, args=(service,), name="end-with-service", daemon=True).start()


def _end_with(service: BaseProcess) -> None:
    service.join()
    os._exit(1)
