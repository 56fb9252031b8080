"""Draws random programs: lines that build a graph, and lines that run sessions of it.

x, p, n = inputs()
i0 = integers(3)
v0 = tf.Variable(i0, name='v0', use_resource=True)
v1 = tf.Variable(i0, name='v1', use_resource=False)
o0 = tf.train.MomentumOptimizer(1.0, 1.0)
u0 = update(None, lambda: product(v0), lambda m: minimize(o0, m, [v0, v1]))
full = tf.train.Saver(everything())
---
s.run('u0', 5)
s.look()
s.load('v1', 4)
r.run('u0', 6)
"""

import random
from typing import NamedTuple, Tuple

OPTIMIZERS = (
    "tf.train.GradientDescentOptimizer(1.0)",
    "tf.train.GradientDescentOptimizer(2.0, use_locking=True)",
    "tf.train.MomentumOptimizer(1.0, 1.0)",
    "tf.train.MomentumOptimizer(1.0, 1.0, use_nesterov=True)",
    "tf.train.ProximalGradientDescentOptimizer(1.0, l1_regularization_strength=1.0)",
)
UNTRAINED = ("tf.int", "tf.bool", "float16", "Twin")  # said of variables that no optimizer is given
LOCAL = ", trainable=False, collections=['local_variables']"


class Program(NamedTuple):
    """A program.

    Attributes:
        seed: what it was drawn from.
        lines: statements that build the graph.
        runs: statements on the sessions `s` and `r` of one graph, and `o` of another one of the same program.
    """

    seed: int
    lines: Tuple[str, ...]
    runs: Tuple[str, ...]

    @property
    def text(self):
        """The program as a script."""
        return "\n".join([*self.lines, "---", *self.runs])


def draw(seed):
    """Returns the Program of a seed."""
    return Drawing(seed).program()


class Drawing:
    """Draws the Program of a seed."""

    def __init__(self, seed):
        self._seed, self._random = seed, random.Random(seed)
        self._lines, self._runs = ["x, p, n = inputs()"], []
        self._optimizer_ways = OPTIMIZERS
        self._plain, self._others = [], []  # names of variables: float32 matrices in one piece; the rest
        self._resources, self._starts, self._optimizers, self._steps = set(), [], [], []
        self._evals, self._adders, self._savers, self._special = [], [], ["full"], []
        self._seeds = iter(range(seed % 89 + 1, 10**6))
        self._saved = []

    def program(self):
        """Returns the Program."""
        for _ in range(self._between(1, 2)):
            self._start()
        for _ in range(self._between(2, 4)):
            self._variable()
        for _ in range(self._between(1, 2)):
            self._optimizers.append(self._add("o", self._one(*self._optimizer_ways)))
        for _ in range(self._between(1, 3)):
            self._update()
        self._around()
        self._savers_of()
        for _ in range(self._between(3, 6)):
            self._run()
        self._runs += ["s.look()", "s.save('full', 9)", "elsewhere('full', 9)"]
        return Program(self._seed, tuple(self._lines), tuple(self._runs))

    # chance

    def _one(self, *ways):
        return self._random.choice(ways)

    def _between(self, least, most):
        return self._random.randint(least, most)

    def _likely(self, chance):
        return self._random.random() < chance

    def _some(self, names, most=2):
        return self._random.sample(names, min(len(names), self._between(1, most)))

    def _number(self):
        return next(self._seeds)

    # the graph

    def _add(self, letter, text):
        name = letter + str(sum(line.startswith(letter) and line[len(letter)].isdigit() for line in self._lines))
        self._lines.append("%s = %s" % (name, text))
        return name

    def _start(self):
        lines = [*["integers(%d)" % self._number()] * 3, "chance(%d)" % self._number(), "tf.zeros([4, 4])"]
        lines += ["%s + 1.0" % name for name in self._starts] + ["tf.identity(%s)" % name for name in self._starts]
        self._starts.append(self._add("i", self._one(*lines)))

    def _variable(self):
        self._one(*self._makers())() if self._plain else self._matrix()

    def _makers(self):
        """What makes a variable."""
        makers = [*[self._matrix] * 6, self._partitioned, self._unknown, self._local, self._int, self._half]
        return makers + [self._of_another] * 2 + [self._contained, self._twin]

    def _new(self, start, resource, more=""):
        name = "v%d" % (len(self._plain) + len(self._others))
        text = "tf.Variable(%s, name='%s', use_resource=%s%s)" % (start, name, resource, more)
        return self._add("v", text), resource

    def _keep(self, kept):
        name, resource = kept
        self._plain.append(name)
        if resource:
            self._resources.add(name)

    def _kind(self):
        return self._likely(0.6)

    def _matrix(self):
        self._keep(self._new(self._one(*self._starts), self._kind()))

    def _of_another(self):
        other = self._one(*self._plain)
        # not initialized_value(): TensorFlow may read a reference variable while its first value is being written
        start = self._one("%s.initial_value", "%s.initial_value", "%s.initial_value * 2.0")
        self._keep(self._new(start % other, self._kind()))

    def _contained(self):
        name = "v%d" % (len(self._plain) + len(self._others))
        start, resource = self._one(*self._starts), self._kind()
        text = "tf.Variable(%s, name='%s', use_resource=%s)" % (start, name, resource)
        self._keep((self._add("v", "within('A', lambda: %s)" % text), resource))

    def _twin(self):
        if self._resources:
            of = self._one(*sorted(self._resources))
            self._others.append(self._add("v", "Twin(%s, 'B%d', %d)" % (of, self._number(), self._number())))

    def _partitioned(self):
        name, kind = "v%d" % (len(self._plain) + len(self._others)), self._kind()
        start = self._one(*self._starts)
        cut = "tf.fixed_size_partitioner(%d)" % self._one(2, 4)
        text = "tf.get_variable('%s', initializer=%s, partitioner=%s, use_resource=%s)"
        self._others.append(self._add("v", text % (name, start, cut, kind)))

    def _unknown(self):
        start = "unknown(%d)" % self._number()
        self._others.append(self._new(start, self._kind(), ", validate_shape=False")[0])

    def _local(self):
        self._keep(self._new(self._one(*self._starts), self._kind(), LOCAL))

    def _int(self):
        self._others.append(self._new("tf.cast(%s, tf.int32)" % self._one(*self._starts), self._kind(), LOCAL)[0])

    def _half(self):
        self._others.append(self._new("tf.cast(%s, tf.float16)" % self._one(*self._starts), self._kind())[0])

    def _said_of(self, name):
        """The line that made a variable."""
        return next(line for line in self._lines if line.startswith(name + " = "))

    def _update(self):
        before = self._one("None", self._steps[-1]) if self._steps else "None"
        text = "update(%s, lambda: %s, lambda m: %s)" % (before, self._value(), self._write())
        self._steps.append(self._add("u", text))

    def _value(self):
        everything = self._plain + self._others
        ways = [*["product(%s)" % ", ".join(self._some(everything))] * 4, "read(%s)" % self._one(*everything)]
        ways += ["matrix(%d, %s)" % (self._number(), ", ".join(self._some(self._plain, 3)))] * 2
        ways += ["python(product(%s))" % self._one(*everything)]
        return self._one(*ways)

    def _write(self):
        if self._others and self._likely(0.3):
            return self._write_of_other(self._one(*self._others))
        v = self._one(*self._plain)
        return self._one(*self._writers())(v)

    def _writers(self):
        """What writes a variable, and gives the text."""
        return [*[self._minimized] * 6, self._assigned, self._assigned, self._rows, self._flow, self._average]

    def _minimized(self, v):
        everything = self._plain + self._others
        able = [name for name in everything if not any(said in self._said_of(name) for said in UNTRAINED)]
        others = self._some(able)
        counted = ", counted=True" if self._likely(0.3) else ""
        return "minimize(%s, m, [%s]%s)" % (self._one(*self._optimizers), ", ".join(others), counted)

    def _assigned(self, v):
        other = self._one(*self._plain)
        return self._one("tf.assign(%s, m)", "tf.assign_add(%s, m)", "through_alias(%s, m)",
                         "tf.assign_sub(%%s, read(%s))" % other) % v  # fmt: skip

    def _rows(self, v):
        ways = ("tf.scatter_add(%s, [0, 2], m[:2])", "tf.scatter_update(%s, [1], m[:1])", "%s[1:3].assign(m[1:3])",
                "%s[0].assign(m[3])")  # fmt: skip
        return self._one(*ways) % v

    def _flow(self, v):
        names = [v, *self._some(self._plain)]
        return "written(%d, m, %s)" % (self._number(), ", ".join(names))

    def _average(self, v):
        ways = ["tf.metrics.mean(m)[1]", "tf.metrics.accuracy(m > 0.0, m > 1.0)[1]"]
        ways += ["tf.train.ExponentialMovingAverage(0.5).apply([%s])" % v] * 2 if v in self._resources else []
        return self._one(*ways)

    def _write_of_other(self, v):
        text = self._said_of(v)
        if "partitioner" in text:
            return self._one("assign_parts(%s, m)" % v, self._minimized(v))
        if "int32" in text or "float16" in text:
            return "tf.assign_add(%s, tf.cast(m, %s.dtype.base_dtype))" % (v, v)
        return "%s.assign_add(m)" % v

    def _around(self):
        """What stands beside the steps: evaluations, what threads run, what waits, what runs another step."""
        for _ in range(self._between(0, 2)):
            self._evals.append(self._add("e", "tf.identity(%s)" % self._value()))
        if self._likely(0.25):
            v, still = self._one(*self._plain), self._add("k", "tf.Variable(integers(%d), name='k')" % self._number())
            self._adders = [self._add("t", "adding(%s, %s)" % (v, still)), self._add("t", "counting(%s)" % v)]
        if self._likely(0.06):
            v = self._one(*self._plain)
            self._special.append(
                "s.waits('%s')" % self._add("w", "update(None, lambda: waiting(%s), lambda m: %s)" % (v, self._write()))
            )
        if self._likely(0.06):
            k = self._add("k", "tf.Variable(integers(%d), name='inner')" % self._number())
            inner = "update(None, lambda: clip(tf.matmul(python(product(%s)), read(%s))), lambda m: tf.assign(%s, m))"
            inner = self._add("n", inner % (k, k, k))
            v = self._one(*self._plain)
            outer = "update(None, lambda: clip(tf.matmul(calling(product(%s), '%s'), read(%s))), lambda m: %s)"
            self._special.append("s.nested('%s', %d)" % (
                self._add("n", outer % (v, inner, v, "tf.assign(%s, m)" % v)), self._number()))  # fmt: skip

    def _savers_of(self):
        self._lines.append("full = tf.train.Saver(everything())")
        if self._likely(0.3):
            some = self._some(self._plain)
            pairs = ", ".join("'renamed/%s': %s" % (name, name) for name in some)
            self._savers.append(self._add("part", "tf.train.Saver({%s})" % pairs))

    # the runs

    def _run(self):
        session = self._one(*["s"] * 8, "r", "o")
        text = self._one(*self._calls())()
        if self._special and self._likely(0.5):
            session, text = self._special.pop().split(".", 1)
        self._runs.append("%s.%s" % (session, text))
        if self._likely(0.85):
            self._runs.append("%s.look()" % session)

    def _calls(self):
        """What a session can be told, each gives the text."""
        ways = [*[self._stepped] * 10, self._loaded, self._loaded, self._saved_to, self._restored]
        ways += [self._evaluated] if self._evals else []
        ways += [self._threads] * 4 if self._adders else []
        return ways + [self._other_way] * 2

    def _stepped(self):
        wanted = "'%s', %d" % (self._one(*self._steps), self._number())
        return "run(%s)" % wanted

    def _evaluated(self):
        return "run('%s', %d)" % (self._one(*self._evals), self._number())

    def _other_way(self):
        """A step by another call than run()."""
        step, number = self._one(*self._steps), self._number()
        ways = ("call('%s', %d)", "trace('%s', %d)", "several('%s', %d)", "timed('%s', %d)", "bare('%s', %d)")
        return self._one(*ways) % (step, number)

    def _loaded(self):
        able = [name for name in self._plain if name not in self._adders]
        return "load('%s', %d)" % (self._one(*able), self._number())

    def _saved_to(self):
        saver, number = self._one(*self._savers), len(self._saved)
        self._saved.append((saver, number))
        return "save('%s', %d)" % (saver, number)

    def _restored(self):
        if not self._saved:
            return self._saved_to()
        return "restore('%s', %d)" % self._one(*self._saved)

    def _threads(self):
        return "threads('%s', '%s', %d, %d)" % (*self._adders, self._between(3, 6), self._number())
