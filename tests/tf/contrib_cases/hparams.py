"""tf.contrib.training.HParams, whose answers and errors are texts."""

from . import case


@case
def hparams(tf, contrib):
    make, out = contrib.training.HParams, []

    def of(function):
        try:
            out.append(str(function()))
        except Exception as error:
            out.append("%s: %s" % (type(error).__name__, error))

    def fresh():
        return make(a=1, b=2.5, c="text", d=True, e=[1, 2], f=["x"], g=None)

    for text in ("a=3,b=1e-3,c=x y,d=false", "e=[4,5,6],f=[u,v]", "a=2.5", "a=1,a=2", "nope=1", "a", "d=maybe", "d=0",
                 "e[1]=7", "e=3", "c=", "a=[1]", "e[0]=[1]", "b=3", "e[1]=1,e[1]=2", "c=a=b", "e=[]"):  # fmt: skip
        of(lambda: sorted(fresh().parse(text).values().items(), key=str))  # noqa: B023
    for name, value in (
        ("a", 2.0),
        ("a", "2"),
        ("b", 2),
        ("c", 1),
        ("d", 1),
        ("e", 1),
        ("e", [1.5]),
        ("g", "any"),
        ("z", 1),
    ):
        of(lambda: fresh().override_from_dict({name: value}).get(name))  # noqa: B023
    of(lambda: fresh().to_json(sort_keys=True))
    of(lambda: repr(fresh()))
    of(lambda: fresh().parse_json('{"a": 4}').a)
    of(lambda: fresh().get("a", "x"))
    of(lambda: fresh().get("zz", "x"))
    of(lambda: fresh().add_hparam("a", 3))
    of(lambda: fresh().add_hparam("values", 3))
    of(lambda: fresh().add_hparam("h", []))
    of(lambda: "a" in fresh())
    of(lambda: contrib.training.parse_values("a=1,b=2,e[3]=4", {"a": int, "e": float}, ignore_unknown=True))
    return tf.constant(out)


@case
def hparams_as_protos(tf, contrib):
    make = contrib.training.HParams
    values = make(rate=0.5, steps=3, name="a", fast=True, sizes=[1, 2], rates=[0.25], names=["x", "y"], flags=[False])
    proto = values.to_proto()
    again = make(hparam_def=type(proto).FromString(proto.SerializeToString()))
    lines = ["%s %r" % item for item in sorted(again.values().items())]
    lines += ["%s %s" % (name, value.WhichOneof("kind")) for name, value in sorted(proto.hparam.items())]
    return [tf.constant(line) for line in lines] + [tf.constant(len(proto.SerializeToString()))]
