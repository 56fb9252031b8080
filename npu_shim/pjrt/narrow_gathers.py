"""Parameters of which each device has a part travel to the layers in the dtype in which these take them. Needs JAX.

    main(w: f32): a = convert w to bf16; .. a ..; w - update  ->  main(w: f32, a: bf16): .. a ..; w - update

Who calls the program casts the own part and gathers that: half the bytes of float32. What stays of the parameter itself
is its update, which each device computes for its part. A parameter with other uses is gathered as it is.
"""

from __future__ import annotations

from typing import Any, Collection

from npu_shim.pjrt import artifacts

CAST = "stablehlo.convert"
NARROW = {"bf16": "bfloat16", "f16": "float16"}
# of a parameter's other uses: what computes each of its elements for itself
ELEMENTWISE = {
    "stablehlo." + name for name in ("add", "subtract", "multiply", "divide", "maximum", "minimum", "select", "abs",
                                     "negate", "sqrt", "rsqrt", "sign", "compare")
}  # fmt: skip


def split(artifact: bytes, numbers: Collection[int]) -> tuple[bytes, list[tuple[int, str]]]:
    """Gives a program its parameters' casts as arguments of their own, behind all others.

    Args:
        artifact: bytes of a StableHLO portable artifact.
        numbers: of the arguments that are parameters.

    Returns:
        (the artifact, for each new argument the number of its parameter and its dtype's name).
    """
    from jax.interpreters import mlir
    from jaxlib.mlir import ir

    with mlir.make_ir_context() as context, context, ir.Location.unknown():
        module = artifacts.parsed(artifact)
        main = next(one for one in module.body.operations if str(one.attributes["sym_name"]).strip('"') == "main")
        block = main.regions[0].blocks[0]
        casts = [(number, _casts(block.arguments[number])) for number in sorted(numbers)]
        taken = [(number, some) for number, some in casts if some]
        if not taken:
            return artifact, []
        dtypes = [NARROW[str(some[0].results[0].type.element_type)] for _, some in taken]
        for _, some in taken:
            argument = block.add_argument(some[0].results[0].type, ir.Location.unknown())
            for cast in some:
                cast.results[0].replace_all_uses_with(argument)
                cast.erase()
        _describe(ir, main, block)
        return artifacts.portable(module, artifacts.newest()), [(n, dtype) for (n, _), dtype in zip(taken, dtypes)]


def _casts(argument: Any) -> list[Any]:
    """The operations that cast an argument to one narrow dtype; none where it has other uses than its update."""
    users = [use.owner for use in argument.uses]
    casts = [user for user in users if user.name == CAST]
    dtypes = {str(cast.results[0].type.element_type) for cast in casts}
    others = {user.name for user in users if user.name != CAST}
    return casts if len(dtypes) == 1 and dtypes <= NARROW.keys() and others <= ELEMENTWISE else []


def _describe(ir: Any, main: Any, block: Any) -> None:
    """Makes what a function says of its arguments that of its block."""
    results = ir.FunctionType(main.attributes["function_type"].value).results
    main.attributes["function_type"] = ir.TypeAttr.get(
        ir.FunctionType.get([argument.type for argument in block.arguments], results)
    )
    if "arg_attrs" in main.attributes:
        said = list(ir.ArrayAttr(main.attributes["arg_attrs"]))
        more = [ir.DictAttr.get({})] * (len(block.arguments) - len(said))
        main.attributes["arg_attrs"] = ir.ArrayAttr.get(said + more)
