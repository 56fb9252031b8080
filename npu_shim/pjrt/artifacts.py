"""StableHLO portable artifacts: read and written with what jaxlib ships."""

from __future__ import annotations

from typing import Any

MESH = "sdy.mesh"  # names the devices that a program divides itself among
FUNCTION = "func.func"
ADDS = (
    "#stablehlo.scatter<update_window_dims = [%s], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], "
    "index_vector_dim = 1>"
)
OLDEST = "1.0.0"  # a version of StableHLO that every supported release of JAX reads


def for_older(artifact: bytes) -> bytes:
    """Returns an artifact in a version that older releases of JAX read too; as it is where that cannot express it."""
    from jax.interpreters import mlir
    from jaxlib.mlir import ir

    with mlir.make_ir_context() as context:
        context.attach_diagnostic_handler(lambda _: True)  # nobody need read it
        try:
            return portable(parsed(artifact), OLDEST)
        except (ValueError, RuntimeError, ir.MLIRError):
            return artifact


def portable(module: Any, target: str) -> bytes:
    """Returns an MLIR module of StableHLO as a portable artifact of that version, within its context.

    One that has more than StableHLO's dialect, such as what Shardy's says of devices, or a scan of JAX's own for GPUs,
    is for the release of JAX that reads it here.
    """
    from jax.interpreters import mlir
    from jaxlib import _jax
    from jaxlib.mlir.dialects import stablehlo as dialect

    if target == newest():
        mixed: bytes = _jax.mlir.serialize_portable_artifact(mlir.module_to_bytecode(module), target, True)
        return mixed
    artifact: bytes = dialect.serialize_portable_artifact(module, target)
    return artifact


def newest() -> str:
    """Returns the version of StableHLO that this jaxlib has, for what it reads itself."""
    from jaxlib.mlir.dialects import stablehlo as dialect

    version: str = dialect.get_current_version()
    return version


def parsed(artifact: bytes) -> Any:
    """Returns a StableHLO portable artifact as an MLIR module, within an MLIR context."""
    from jaxlib import _jax
    from jaxlib.mlir import ir

    module = _jax.mlir.deserialize_portable_artifact(artifact)
    return ir.Module.parse(module) if isinstance(module, (bytes, str)) else module  # a module since JAX 0.10 or so


def functions(module: Any) -> list[Any]:
    """Returns the functions of an MLIR module."""
    return [operation for operation in module.body.operations if operation.operation.name == FUNCTION]


def name(function: Any) -> str:
    """Returns a function's name in its module."""
    return str(function.attributes["sym_name"]).strip('"')


def place_mesh(ir: Any, module: Any, other: Any) -> None:
    """Copies the mesh of devices that another MLIR module names into a module, once."""
    meshes = [operation for operation in other.body.operations if operation.operation.name == MESH]
    if meshes and all(operation.operation.name != MESH for operation in module.body.operations):
        meshes[0].operation.clone(ir.InsertionPoint.at_block_begin(module.body))


def adds_rows(operation: Any) -> bool:
    """Whether an operation adds rows [r, ...] to those of a table [v, ...], by their numbers [r, 1]."""
    if operation.name != "stablehlo.scatter" or len(operation.operands) != 3:
        return False
    ids, rows = (value.type for value in list(operation.operands)[1:])
    windows = ", ".join(map(str, range(1, rows.rank)))
    is_form = str(operation.attributes["scatter_dimension_numbers"]) == ADDS % windows and list(ids.shape[1:]) == [1]
    inner = [one.operation.name for one in operation.regions[0].blocks[0].operations]
    return is_form and inner[:-1] == ["stablehlo.add"]
