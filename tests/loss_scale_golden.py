"""Reads the golden loss-scale traces: cases, scripts, and the policy each case stands for. No TensorFlow."""

import dataclasses
import re

import reference_material

from npu_shim.loss_scale.managers import schedule

OVERFLOWS = {"I": float("inf"), "N": float("nan"), "O": float("inf")}

MINDSPORE = {
    "DynamicLossScaleManager.update_loss_scale": "mindspore-manager",
    "nn.DynamicLossScaleUpdateCell": "mindspore-cell",
    "amp.DynamicLossScaler.adjust": "mindspore-scaler",
}

# golden trace column -> what our state calls it (a function of schedule.LossScaleState)
COLUMNS = {
    "loss_scale": lambda s: float(s.loss_scale),
    "scale_value": lambda s: float(s.loss_scale),
    "good_steps": lambda s: s.good_steps,
    "counter": lambda s: s.good_steps,
    "bad_steps": lambda s: s.bad_steps,
    "bad_step": lambda s: s.bad_steps,
    "cur_iter": lambda s: s.step + 1,
    "current_iterator_step": lambda s: s.step + 1,
    "last_overflow_iter": lambda s: s.last_overflow,
    "last_overflow_iterator_step": lambda s: s.step - s.good_steps,
}


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    rule: schedule.Policy
    init: float
    symbols: tuple
    columns: tuple
    trace: tuple
    error: object = None
    grappler: str = ""

    @property
    def rows(self):
        """dict of step to its row's values, step and symbol taken off."""
        return {row[0]: row[2:] for row in self.trace}


def symbols(script):
    """ "2F I" -> ("F", "F", "I")."""
    steps = []
    for token in script.split():
        count, symbol = re.fullmatch(r"(\d*)([FINO])", token).groups()
        steps += [symbol] * int(count or 1)
    return tuple(steps)


def contrib_rule(params):
    return schedule.policy(
        "contrib",
        growth_interval=params["incr_every_n_steps"],
        backoff_interval=params.get("decr_every_n_nan_or_inf", 2),
        growth_factor=params.get("incr_ratio", 2),
        backoff_factor=params.get("decr_ratio", 0.8),
    )


def contrib_cases():
    section = reference_material.table("loss_scale_tf115")["sections"]["contrib_exponential_update"]
    columns = ("loss_scale", "good_steps", "bad_steps", "global_step", "w")
    return [
        Case(
            c["name"],
            contrib_rule(c["params"]),
            c["params"]["init_loss_scale"],
            symbols(c["script"]),
            columns,
            c["trace"],
        )
        for c in section["cases"]
    ]


def experimental_cases():
    section = reference_material.table("loss_scale_tf115")["sections"]["experimental_dynamic"]
    cases = []
    for c in section["cases"]:
        params = c["params"]
        rule = schedule.policy(
            "experimental",
            growth_interval=params["increment_period"],
            growth_factor=params["multiplier"],
            backoff_factor=params["multiplier"],
            backoff="divide" if c["grappler"] == "constant_folding=OFF" else "reciprocal",
        )
        columns = ("loss_scale", "good_steps", "global_step", "w")
        script = symbols(c["script"])
        cases.append(Case(c["name"], rule, params["initial_loss_scale"], script, columns, c["trace"]))
    return cases


def mindspore_cases():
    cases = []
    for c in reference_material.table("loss_scale_mindspore")["cases"]:
        for one in c["implementations"]:
            name = MINDSPORE[one["implementation"].split(" ")[0]]
            params = c["params"]
            rule = schedule.policy(
                name,
                growth_interval=params["scale_window"],
                growth_factor=params["scale_factor"],
                backoff_factor=params["scale_factor"],
            )
            columns = tuple(one["columns"][2:])
            trace = [[*row[:2], float(row[2]), *row[3:]] for row in one["trace"]]
            script = symbols(c["script"])
            label = "%s/%s" % (c["name"], name)
            cases.append(Case(label, rule, params["init_loss_scale"], script, columns, trace, one["error"]))
    return cases
