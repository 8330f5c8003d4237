"""Settings that all tests share."""

from hypothesis import HealthCheck, settings

# How fast examples come depends on what else the machine does, so it says nothing about the code.
settings.register_profile(
    "shared-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("shared-machine")

# A tool, not a test: it fits the gate's numbers, for which it needs numpy.
collect_ignore = ["bench/gate_fit.py", "bench/gate_vectors.py"]
