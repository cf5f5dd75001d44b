"""
Cache and router policies, replayed exactly: the simulator, what-ifs and the inference of residency all run these kernels.

``Trace`` goes into ``replay`` (a fleet of pods, with or without a router) or into the one-pass curves of ``stack`` and
``locality``.
"""
