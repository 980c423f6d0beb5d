"""ctypes declarations of the ggml functions that the engine calls.

Names drop ggml's prefix: `ggml_mul_mat` is `ggml.mul_mat`. Tensors, contexts, graphs, buffers, backends
and devices are plain addresses (int). Dimensions follow ggml: ne[0] is the contiguous one, and a
matrix of a linear layer is [n_in, n_out]. Headers: ggml.h, ggml-alloc.h, ggml-backend.h of ggml 0.25.3.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from engine.native import library

_Pointer = ctypes.c_void_p
_Int = ctypes.c_int
_Int64 = ctypes.c_int64
_Size = ctypes.c_size_t
_Float = ctypes.c_float
_Bool = ctypes.c_bool
_Text = ctypes.c_char_p

# Tensor types (enum ggml_type).
F32, F16, Q8_0, I32, I64 = 0, 1, 8, 26, 27

# Kinds of device (enum ggml_backend_dev_type).
DEVICE_CPU, DEVICE_GPU, DEVICE_IGPU, DEVICE_ACCEL = 0, 1, 2, 3

BUFFER_USAGE_WEIGHTS = 1
STATUS_SUCCESS, STATUS_ABORTED = 0, 1
PREC_F32 = 10
HINT_HADAMARD = 1


class InitParams(ctypes.Structure):
    """struct ggml_init_params."""

    _fields_ = (("mem_size", _Size), ("mem_buffer", _Pointer), ("no_alloc", _Bool))


class DeviceCaps(ctypes.Structure):
    """struct ggml_backend_dev_caps."""

    _fields_ = (
        ("asynchronous", _Bool),
        ("host_buffer", _Bool),
        ("buffer_from_host_ptr", _Bool),
        ("events", _Bool),
    )


class DeviceProps(ctypes.Structure):
    """struct ggml_backend_dev_props."""

    _fields_ = (
        ("name", _Text),
        ("description", _Text),
        ("memory_free", _Size),
        ("memory_total", _Size),
        ("type", _Int),
        ("device_id", _Text),
        ("caps", DeviceCaps),
    )


class ComputePlan(ctypes.Structure):
    """struct ggml_cplan: how the CPU computes a graph. work_data: memory of `work_size` bytes that the caller gives."""

    _fields_ = (
        ("work_size", _Size),
        ("work_data", _Pointer),
        ("n_threads", _Int),
        ("threadpool", _Pointer),
        ("abort_callback", _Pointer),
        ("abort_callback_data", _Pointer),
        ("use_ref", _Bool),
    )


class TensorHead(ctypes.Structure):
    """The first fields of struct ggml_tensor."""

    _fields_ = (("type", _Int), ("buffer", _Pointer), ("ne", _Int64 * 4), ("nb", _Size * 4))


def head(tensor: int) -> TensorHead:
    """Type, buffer, dimensions and strides of a tensor, as a live view."""
    return TensorHead.from_address(tensor)


def _declare(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    function: Callable[..., Any] = getattr(library, "ggml_" + name)
    function.restype = result  # type: ignore[attr-defined]
    function.argtypes = arguments  # type: ignore[attr-defined]
    return function


# Contexts and tensors
init = _declare("init", _Pointer, InitParams)
free = _declare("free", None, _Pointer)
tensor_overhead = _declare("tensor_overhead", _Size)
graph_overhead_custom = _declare("graph_overhead_custom", _Size, _Size, _Bool)
new_tensor_1d = _declare("new_tensor_1d", _Pointer, _Pointer, _Int, _Int64)
new_tensor_2d = _declare("new_tensor_2d", _Pointer, _Pointer, _Int, _Int64, _Int64)
new_tensor_3d = _declare("new_tensor_3d", _Pointer, _Pointer, _Int, _Int64, _Int64, _Int64)
new_tensor_4d = _declare("new_tensor_4d", _Pointer, _Pointer, _Int, _Int64, _Int64, _Int64, _Int64)
set_input = _declare("set_input", None, _Pointer)
set_output = _declare("set_output", None, _Pointer)
nbytes = _declare("nbytes", _Size, _Pointer)
get_data = _declare("get_data", _Pointer, _Pointer)
type_name = _declare("type_name", _Text, _Int)
is_contiguous = _declare("is_contiguous", _Bool, _Pointer)
blck_size = _declare("blck_size", _Int64, _Int)
row_size = _declare("row_size", _Size, _Int, _Int64)

# Operations
get_rows = _declare("get_rows", _Pointer, _Pointer, _Pointer, _Pointer)
set_rows = _declare("set_rows", _Pointer, _Pointer, _Pointer, _Pointer, _Pointer)
add = _declare("add", _Pointer, _Pointer, _Pointer, _Pointer)
mul = _declare("mul", _Pointer, _Pointer, _Pointer, _Pointer)
mul_mat = _declare("mul_mat", _Pointer, _Pointer, _Pointer, _Pointer)
mul_mat_set_hint = _declare("mul_mat_set_hint", None, _Pointer, _Int)
rms_norm = _declare("rms_norm", _Pointer, _Pointer, _Pointer, _Float)
swiglu = _declare("swiglu", _Pointer, _Pointer, _Pointer)
swiglu_split = _declare("swiglu_split", _Pointer, _Pointer, _Pointer, _Pointer)
rope_ext = _declare("rope_ext", _Pointer, _Pointer, _Pointer, _Pointer, _Pointer, _Int, _Int, _Int, *([_Float] * 6))
soft_max_ext_inplace = _declare("soft_max_ext_inplace", _Pointer, _Pointer, _Pointer, _Pointer, _Float, _Float)
flash_attn_ext = _declare("flash_attn_ext", _Pointer, *([_Pointer] * 5), _Float, _Float, _Float)
prec_set_acc = _declare("prec_set_acc", _Bool, _Pointer, _Int)
cont = _declare("cont", _Pointer, _Pointer, _Pointer)
cont_3d = _declare("cont_3d", _Pointer, _Pointer, _Pointer, _Int64, _Int64, _Int64)
cpy = _declare("cpy", _Pointer, _Pointer, _Pointer, _Pointer)
cast = _declare("cast", _Pointer, _Pointer, _Pointer, _Int)
concat = _declare("concat", _Pointer, _Pointer, _Pointer, _Pointer, _Int)
acc_inplace = _declare("acc_inplace", _Pointer, _Pointer, _Pointer, _Pointer, _Size, _Size, _Size, _Size)
set_inplace = _declare("set_inplace", _Pointer, _Pointer, _Pointer, _Pointer, _Size, _Size, _Size, _Size)
permute = _declare("permute", _Pointer, _Pointer, _Pointer, _Int, _Int, _Int, _Int)
transpose = _declare("transpose", _Pointer, _Pointer, _Pointer)
reshape_2d = _declare("reshape_2d", _Pointer, _Pointer, _Pointer, _Int64, _Int64)
reshape_3d = _declare("reshape_3d", _Pointer, _Pointer, _Pointer, _Int64, _Int64, _Int64)
view_2d = _declare("view_2d", _Pointer, _Pointer, _Pointer, _Int64, _Int64, _Size, _Size)
view_3d = _declare("view_3d", _Pointer, _Pointer, _Pointer, _Int64, _Int64, _Int64, _Size, _Size, _Size)

# Graphs
new_graph_custom = _declare("new_graph_custom", _Pointer, _Pointer, _Size, _Bool)
build_forward_expand = _declare("build_forward_expand", None, _Pointer, _Pointer)

# Buffers
backend_buft_alloc_buffer = _declare("backend_buft_alloc_buffer", _Pointer, _Pointer, _Size)
backend_buft_name = _declare("backend_buft_name", _Text, _Pointer)
backend_buft_is_host = _declare("backend_buft_is_host", _Bool, _Pointer)
backend_buffer_free = _declare("backend_buffer_free", None, _Pointer)
backend_buffer_get_base = _declare("backend_buffer_get_base", _Pointer, _Pointer)
backend_buffer_get_size = _declare("backend_buffer_get_size", _Size, _Pointer)
backend_buffer_clear = _declare("backend_buffer_clear", None, _Pointer, ctypes.c_uint8)
backend_buffer_set_usage = _declare("backend_buffer_set_usage", None, _Pointer, _Int)
backend_alloc_ctx_tensors_from_buft = _declare("backend_alloc_ctx_tensors_from_buft", _Pointer, _Pointer, _Pointer)
backend_tensor_alloc = _declare("backend_tensor_alloc", _Int, _Pointer, _Pointer, _Pointer)
backend_tensor_set = _declare("backend_tensor_set", None, _Pointer, _Pointer, _Size, _Size)
backend_tensor_get = _declare("backend_tensor_get", None, _Pointer, _Pointer, _Size, _Size)

# Devices and backends
backend_dev_count = _declare("backend_dev_count", _Size)
backend_dev_get = _declare("backend_dev_get", _Pointer, _Size)
backend_dev_by_type = _declare("backend_dev_by_type", _Pointer, _Int)
backend_dev_get_props = _declare("backend_dev_get_props", None, _Pointer, ctypes.POINTER(DeviceProps))
backend_dev_backend_reg = _declare("backend_dev_backend_reg", _Pointer, _Pointer)
backend_dev_buffer_type = _declare("backend_dev_buffer_type", _Pointer, _Pointer)
backend_dev_buffer_from_host_ptr = _declare(
    "backend_dev_buffer_from_host_ptr", _Pointer, _Pointer, _Pointer, _Size, _Size
)
backend_dev_init = _declare("backend_dev_init", _Pointer, _Pointer, _Text)
backend_dev_supports_op = _declare("backend_dev_supports_op", _Bool, _Pointer, _Pointer)
backend_reg_dev_count = _declare("backend_reg_dev_count", _Size, _Pointer)
backend_reg_dev_get = _declare("backend_reg_dev_get", _Pointer, _Pointer, _Size)
backend_reg_by_name = _declare("backend_reg_by_name", _Pointer, _Text)
backend_reg_get_proc_address = _declare("backend_reg_get_proc_address", _Pointer, _Pointer, _Text)
backend_free = _declare("backend_free", None, _Pointer)

# Memory for the nodes of a graph, and the CPU's way of computing them
gallocr_new = _declare("gallocr_new", _Pointer, _Pointer)
gallocr_alloc_graph = _declare("gallocr_alloc_graph", _Bool, _Pointer, _Pointer)
gallocr_get_buffer_size = _declare("gallocr_get_buffer_size", _Size, _Pointer, _Int)
gallocr_free = _declare("gallocr_free", None, _Pointer)
graph_plan = _declare("graph_plan", ComputePlan, _Pointer, _Int, _Pointer)
graph_compute = _declare("graph_compute", _Int, _Pointer, ctypes.POINTER(ComputePlan))

# Scheduler: runs each node of a graph on the first backend that can
backend_sched_new = _declare(
    "backend_sched_new", _Pointer, ctypes.POINTER(_Pointer), ctypes.POINTER(_Pointer), _Int, _Size, _Bool, _Bool
)
backend_sched_free = _declare("backend_sched_free", None, _Pointer)
backend_sched_reset = _declare("backend_sched_reset", None, _Pointer)
backend_sched_alloc_graph = _declare("backend_sched_alloc_graph", _Bool, _Pointer, _Pointer)
backend_sched_graph_compute = _declare("backend_sched_graph_compute", _Int, _Pointer, _Pointer)


def reinterpret(context: int, tensor: int, number_type: int, size: int) -> int:
    """A view of a tensor of up to three dimensions with its rows taken for numbers of another type, of `size` bytes."""
    shape = head(tensor)
    view: int = view_3d(context, tensor, *shape.ne[:3], shape.nb[1], shape.nb[2], 0)
    changed = head(view)
    changed.ne[0] = row_size(shape.type, shape.ne[0]) // size
    changed.type, changed.nb[0] = number_type, size
    return view
