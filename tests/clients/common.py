"""What every part stands on: processes that end with their block, ports, waiting, and a check that did not hold."""

import contextlib
import signal
import socket
import subprocess
import sys
import time


class Failed(Exception):
    """A check that did not hold."""


def say(text):
    print(f"  {text}", flush=True)


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def wait_for(what, probe, seconds=30):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        found = probe()
        if found:
            return found
        time.sleep(0.1)
    raise Failed(f"{what} is not there after {seconds} s")


@contextlib.contextmanager
def process(name, command, log, **more):
    """Runs a command for the time of the block; SIGTERM ends it, SIGKILL when it does not listen."""
    with open(log, "wb") as output:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, **more)
        try:
            yield child
            if child.poll() is not None:
                raise Failed(f"{name} ended by itself with {child.returncode}")
        except BaseException:
            sys.stderr.write(f"--- the end of the log of {name}:\n{log.read_text()[-3000:]}\n")
            raise
        finally:
            if child.poll() is None:
                child.send_signal(signal.SIGTERM)
                try:
                    child.wait(40)
                except subprocess.TimeoutExpired:
                    child.kill()
                    child.wait()
