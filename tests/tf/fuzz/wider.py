"""Draws what drawing.py does not, for the seeds from 1000 on; the programs of the seeds before stay what they were.

Control flow of version 2, learning rates that follow the global step, sparse gradients, optimizers in conditionals, in
loops and in functions, writes of what another write gave, more dtypes, assertions that stop a step half way, values
that are fed in the middle of a step, variables that are initialized again, sharded Savers.
"""

import re

from fuzz import drawing

FIRST = 1000  # seed
DTYPES = ("tf.int64", "tf.bfloat16", "tf.float64", "tf.bool")
FOLLOWING = (
    "tf.train.GradientDescentOptimizer(rate)",
    "tf.train.MomentumOptimizer(rate, 1.0)",
)
SCATTERS = (
    "tf.scatter_sub(%s, [3, 3], m[:2])",
    "tf.scatter_max(%s, [1, 2], m[:2])",
    "tf.scatter_min(%s, [0], m[:1])",
    "tf.scatter_nd_add(%s, [[0, 1], [2, 3]], m[0, :2])",
    "tf.scatter_nd_update(%s, [[1], [3]], m[:2])",
)


def draw(seed):
    """Returns the Program of a seed."""
    return _Wider(seed).program() if seed >= FIRST else drawing.draw(seed)


class _Wider(drawing.Drawing):
    def __init__(self, seed):
        super().__init__(seed)
        self._is_v2 = self._likely(0.3)
        self._lines += ["tf.enable_control_flow_v2()"] if self._is_v2 else []
        self._lines.append("step = counter()")
        self._optimizer_ways = (*drawing.OPTIMIZERS, *FOLLOWING, *FOLLOWING)
        self._asserting = []  # steps that an assertion may stop

    def _kind(self):
        return self._is_v2 or super()._kind()  # functions take no references

    # the graph

    def _makers(self):
        return [*super()._makers(), *[self._of_dtype] * 2]

    def _of_dtype(self):
        start, dtype = self._one(*self._starts), self._one(*DTYPES)
        self._others.append(self._new("tf.cast(%s, %s)" % (start, dtype), self._kind(), drawing.LOCAL)[0])

    def _write_of_other(self, v):
        if "tf.bool" in self._said_of(v):
            return "tf.assign(%s, m > 0.0)" % v
        if any(dtype in self._said_of(v) for dtype in DTYPES):
            return "tf.assign_add(%s, tf.cast(m, %s.dtype.base_dtype))" % (v, v)
        return super()._write_of_other(v)

    def _writers(self):
        ways = [self._scattered, self._after_another, self._minimized_when, self._minimized_when]
        return [*super()._writers(), *ways, *[self._of_resource] * 3]

    def _value(self):
        self._last_value = super()._value()
        return self._last_value

    def _minimized(self, v):
        text = super()._minimized(v)
        said = " ".join(self._said_of(name) for name in re.findall(r"\w+", text) if re.match(r"[ov]\d", name))
        # TensorFlow does not cast its rates to the variable's dtype
        return self._assigned(v) if "Proximal" in said and "tf.float64" in said else text

    def _scattered(self, v):
        return self._one(*SCATTERS) % v

    def _after_another(self, v):
        others = [name for name in self._plain if name != v]
        return "tf.assign_add(%s, tf.assign(%s, m))" % (v, self._one(*others)) if others else self._assigned(v)

    def _minimized_when(self, v):
        way = self._one("sometimes", "repeatedly")
        # TensorFlow takes no gradient in a loop of what another loop gave
        return "%s(lambda: %s)" % ("sometimes" if "matrix" in self._last_value else way, self._minimized(v))

    def _of_resource(self, v):
        if v not in self._resources:
            return self._minimized(v)
        rows = "minimize_rows(%s, m, %s)" % (self._one(*self._optimizers), v)
        return self._one(rows, rows, "in_function(lambda t: %s.assign_add(t), m)" % v)

    def _around(self):
        super()._around()
        if self._likely(0.2):
            before, v = self._one("None", *self._steps), self._one(*self._plain)
            text = "update(%s, lambda: asserting(product(%s)), lambda m: %s)" % (before, v, self._write())
            self._asserting.append(self._add("a", text))

    def _savers_of(self):
        super()._savers_of()
        if self._likely(0.2):
            self._savers.append(self._add("shard", "tf.train.Saver(everything(), sharded=True)"))

    # the runs

    def _calls(self):
        ways = [*super()._calls(), self._initialized, self._fed]
        return ways + ([self._asserted] * 3 if self._asserting else [])

    def _asserted(self):
        return "run('%s', %d)" % (self._one(*self._asserting), self._number())

    def _initialized(self):
        able = [name for name in self._plain if name not in self._adders]
        return "start('%s')" % self._one(*able)

    def _fed(self):
        """A step whose value is fed; one that waits for another step would no longer."""
        able = [name for name in self._steps if "update(None" in self._said_of(name)]
        return "fed('%s', %d)" % (self._one(*able), self._number())
