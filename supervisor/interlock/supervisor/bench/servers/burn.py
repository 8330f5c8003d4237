"""Burns a share of one core, like a program that has nothing to do with Interlock."""

import sys
import time

if __name__ == "__main__":
    SHARE = float(sys.argv[1])
    PERIOD = 0.02
    while True:
        until = time.thread_time() + SHARE * PERIOD
        started = time.monotonic()
        while time.thread_time() < until:
            pass
        time.sleep(max(0.0, PERIOD - (time.monotonic() - started)))
