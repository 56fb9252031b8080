"""What typed code does with npu_shim: mypy --strict and pyright accept each call. See test_typed_consumer.py."""

from __future__ import annotations

import pathlib
from typing import Any, Iterator

import npu_shim
from npu_shim import ConfigError, PlanError, VerifyError, compile_step, loss_scale, pjrt
from npu_shim.loss_scale import AccumulatingOptimizer, LossScaleOptimizer


def rewritten(graph_def: Any) -> tuple[Any, int]:
    graph, plan = npu_shim.rewrite(
        graph_def, ["loss"], feeds=("x",), device="GPU", precision_mode="allow_mix_precision"
    )
    return graph, len(list(plan.decisions()))


def trained(session: Any, loss: Any, train_op: Any, x: Any) -> float:
    step = compile_step(session, [loss, train_op], feeds=[x], iterations_per_loop=10, memory="auto")
    values: Any = step({x: 1.0})
    step.save("trained")
    return float(values[0])


def whole_script() -> None:
    npu_shim.enable(precision_mode="allow_mix_precision", loss_scale="auto", engine="pjrt")
    npu_shim.enable()
    npu_shim.disable()
    npu_shim.patch()
    npu_shim.unpatch()


def lists() -> list[str]:
    low: list[str] = npu_shim.get_white_list()
    kept: list[str] = npu_shim.get_black_list()
    config = npu_shim.amp_level("O2")
    npu_shim.custom_mixed_precision(config, white_list=["Add"], black_list=kept, dtype="bfloat16")
    problems: tuple[str, ...] = npu_shim.check_config(config)
    return [*low, *problems]


def scaled(optimizer: Any, loss: Any, variables: list[Any]) -> Any:
    manager = loss_scale.ExponentialUpdateLossScaleManager(2.0**15, 1000, decr_ratio=0.5)
    fixed = loss_scale.FixedLossScaleManager(loss_scale=1024.0)
    wrapped = LossScaleOptimizer(AccumulatingOptimizer(optimizer, every=4), manager, protect_update_ops=True)
    gradients = loss_scale.scaled_gradients(loss, variables, fixed.get_loss_scale())
    clipped, norm = loss_scale.clip_by_global_norm(gradients, 1.0)
    return wrapped.apply_gradients(list(zip(clipped, variables))), norm


def schedule() -> float:
    state = loss_scale.initial_state(loss_scale.policy("apex", growth_interval=10), 2.0**16)
    for finite in (True, False, True):
        state = loss_scale.next_state(state, finite)
    until: int | None = loss_scale.skipped_until(state)
    return float(state.loss_scale) + (until or 0)


def checkpoints(folder: pathlib.Path, graph: Any) -> list[str]:
    npu_shim.migrate_checkpoint(str(folder / "float32"), str(folder / "float16"), to="float16")
    npu_shim.init_from_checkpoint(str(folder / "float16"), {"/": "/"})
    npu_shim.CastingSaverBuilder(init_missing_loss_scale=True)
    with npu_shim.master_weights("float16"), npu_shim.casting_initializers():
        getter = npu_shim.get_custom_getter("bfloat16", keep_float32_statistics=False)
    taken = npu_shim.master_weights_report(graph)
    return [str(one) for one in taken] + ([] if getter is None else ["a getter"])


def kept(x: Any) -> Iterator[Any]:
    with npu_shim.to_float("float16"):
        yield npu_shim.embedding_lookup(x, [1, 2])
    yield npu_shim.master_of(x)


def ranges(session: Any, fetches: Any) -> str:
    hook = npu_shim.Calibration(steps=10, path="ranges.json")
    measured: npu_shim.Calibration = npu_shim.calibrate(session, fetches, steps=3)
    return hook.as_text() + measured.as_text()


def elsewhere(feeds: dict[str, Any]) -> Any:
    program = pjrt.load("exported")
    losses = program.run(feeds)
    program.save("trained.npz")
    return losses["loss:0"]


def careful(graph_def: Any) -> str:
    try:
        npu_shim.rewrite(graph_def, ["loss"])
    except (ConfigError, PlanError, VerifyError) as reason:
        return str(reason)
    return npu_shim.__version__
