"""Where tensors live and graphs run: CPU, Metal, CUDA, or a remote ggml RPC server, as ggml reports them."""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass

from engine import ggml
from engine.errors import DeviceError

_KINDS = {
    ggml.DEVICE_CPU: "cpu",
    ggml.DEVICE_GPU: "gpu",
    ggml.DEVICE_IGPU: "gpu",
    ggml.DEVICE_ACCEL: "accelerator",
}
_RPC_ADDRESS = re.compile(r"^[\w.\-\[\]:]+:\d+$")


@dataclass(frozen=True)
class Device:
    """One ggml device. Memory in bytes; 0 where the device does not tell.

    is_host: its buffers are ordinary memory of this process, so numpy can look into them.
    maps_host_memory: it can use memory that we mapped (`buffer_from_host_ptr`).
    """

    name: str
    kind: str
    description: str
    memory_free: int
    memory_total: int
    is_host: bool
    maps_host_memory: bool
    handle: int
    buffer_type: int


def list_devices() -> list[Device]:
    """Devices that can hold a model, in ggml's order; accelerators that only help the CPU are left out."""
    handles = [ggml.backend_dev_get(i) for i in range(ggml.backend_dev_count())]
    return [device for device in map(_describe, handles) if device.kind != "accelerator"]


def cpu_device() -> Device:
    """The CPU, which ggml always has."""
    return _describe(ggml.backend_dev_by_type(ggml.DEVICE_CPU))


def find_device(name: str | None) -> Device:
    """The device called `name` (any case), the server at HOST:PORT, or for None the first GPU, else the CPU.

    Raises DeviceError when there is none.
    """
    devices = list_devices()
    if name is None:
        return next((device for device in devices if device.kind == "gpu"), cpu_device())
    for device in devices:
        if device.name.lower() == name.lower():
            return device
    if _RPC_ADDRESS.match(name):
        return _connect(name)
    raise DeviceError(f"There is no device '{name}': use one of {', '.join(device.name for device in devices)}.")


def _describe(handle: int) -> Device:
    props = ggml.DeviceProps()
    ggml.backend_dev_get_props(handle, ctypes.byref(props))
    buffer_type = ggml.backend_dev_buffer_type(handle)
    return Device(
        name=props.name.decode(),
        kind=_KINDS.get(props.type, "accelerator"),
        description=props.description.decode(),
        memory_free=props.memory_free,
        memory_total=props.memory_total,
        is_host=ggml.backend_buft_is_host(buffer_type),
        maps_host_memory=props.caps.buffer_from_host_ptr,
        handle=handle,
        buffer_type=buffer_type,
    )


def _connect(address: str) -> Device:
    """The first device of a ggml RPC server."""
    registry = ggml.backend_reg_by_name(b"RPC")
    if not registry:
        raise DeviceError(
            f"Cannot use the server {address}: this llama-cpp-python was built without RPC; "
            'reinstall it with CMAKE_ARGS="-DGGML_RPC=ON".'
        )
    add_server = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_char_p)(
        ggml.backend_reg_get_proc_address(registry, b"ggml_backend_rpc_add_server")
    )
    server = add_server(address.encode())
    if not server or ggml.backend_reg_dev_count(server) == 0:
        raise DeviceError(f"No ggml RPC server answers at {address}: start one there, or check the address.")
    return _describe(ggml.backend_reg_dev_get(server, 0))
