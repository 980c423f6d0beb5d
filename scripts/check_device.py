"""Check that a device without host memory gives the same tokens as the CPU, over ggml's RPC backend on loopback.

Usage: python scripts/check_device.py [MODEL.gguf]

Needs a llama-cpp-python that was built with CMAKE_ARGS="-DGGML_RPC=ON". Starts ggml's RPC server in a child process,
runs `octavo run` on it and on the CPU, and compares greedy tokens: rounding differs, so drawn ones may not be the
same. The server computes on this machine's CPU, but its buffers are out of reach, as those of a GPU are.
"""

from __future__ import annotations

import ctypes
import json
import multiprocessing
import socket
import subprocess
import sys
import time

import click

PROMPT = "Why is the sky blue? Explain it to a child in a few sentences."
ARGUMENTS = ["--temperature", "0", "--max-tokens", "48", "--context", "2048", "--json"]


def serve(address: str) -> None:
    """Run ggml's RPC server on the local CPU until killed."""
    from engine import ggml  # noqa: PLC0415 - only the child loads native code
    from engine.devices import cpu_device  # noqa: PLC0415

    registry = ggml.backend_reg_by_name(b"RPC")
    if not registry:
        sys.exit('This llama-cpp-python has no RPC: reinstall it with CMAKE_ARGS="-DGGML_RPC=ON".')
    start = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p)(
        ggml.backend_reg_get_proc_address(registry, b"ggml_backend_rpc_start_server")
    )
    devices = (ctypes.c_void_p * 1)(cpu_device().handle)
    start(address.encode(), None, 2, 1, ctypes.addressof(devices))


def wait_for(port: int, server: multiprocessing.process.BaseProcess) -> None:
    for _ in range(100):
        if not server.is_alive():
            sys.exit("The RPC server did not start.")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    sys.exit("The RPC server does not answer.")


def generate(model: str | None, *options: str) -> dict[str, object]:
    command = [sys.executable, "-m", "app", "run", *([model] if model else []), PROMPT, *ARGUMENTS, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr)
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


@click.command(help=__doc__)
@click.argument("model", required=False)
def main(model: str | None) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = f"127.0.0.1:{port}"
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(address,), daemon=True)
    server.start()
    wait_for(port, server)
    local = generate(model, "--device", "CPU")
    remote = generate(model, "--device", address)
    forked = generate(model, "--device", address, "-n", "3")
    server.kill()
    print(f"CPU:              {local['token_ids']}")
    print(f"{address}:  {remote['token_ids']}")
    if remote["token_ids"] != local["token_ids"]:
        sys.exit("The tokens differ.")
    if forked["token_ids"] != [remote["token_ids"]] * 3:
        sys.exit("Three answers to one prompt differ from the one answer on the same device.")
    print(f"The same {len(local['token_ids'])} tokens, and three answers that share their prompt give them too.")


if __name__ == "__main__":
    main()
