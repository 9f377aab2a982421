# SPDX-License-Identifier: Apache-2.0
"""Operators of random graphs (gen.py): each function draws one node, or a few, and tries to add it.

`bits` of a result is what makes it usable where a rounding error would change a decision: 0 = has rounding errors.
"""
import numpy as np
import onnx
from onnx import helper

TABLE = []


def op(weight=1):
    def add(f):
        TABLE.append((weight, f))
        return f
    return add


def draw(g):
    weights = np.array([w for w, _ in TABLE], float)
    TABLE[g.rng.choice(len(TABLE), p=weights / weights.sum())][1](g)


def captured(nodes):
    """Names that branches read from outside."""
    names = set()
    for n in nodes:
        for a in n.attribute:
            if a.type == onnx.AttributeProto.GRAPH:
                inner = {o for b in a.g.node for o in b.output}
                names |= {i for b in a.g.node for i in b.input} - inner | (captured(a.g.node) - inner)
    return names


def choice(g, items):
    return items[int(g.rng.integers(len(items)))]


def axis_of(g, v):
    a = int(g.rng.integers(v.rank))
    return a - v.rank if g.chance(0.4) else a


def is_float(v):
    return v.dtype.kind == "f"


# ---- pointwise ----

SMOOTH = "Sigmoid Tanh Softplus Softsign Erf Sin Cos Atan Elu Selu Celu HardSigmoid LeakyRelu Exp Sqrt Reciprocal Log " \
         "HardSwish Sinh Cosh Asinh Acosh Asin Acos Atanh Tan Gelu Mish".split()
KEEPS_BITS = "Relu Abs Neg Identity".split()


@op(6)
def smooth(g):
    name = choice(g, SMOOTH)
    attrs = {}
    if name in ("Elu", "Celu", "LeakyRelu", "HardSigmoid") and g.chance(0.5):
        attrs["alpha"] = float(g.rng.uniform(0.05, 1.5))
    if name == "Selu" and g.chance(0.3):
        attrs = {"alpha": 1.25, "gamma": 0.75}
    if name == "Gelu" and g.chance(0.5):
        attrs["approximate"] = "tanh"
    v = g.pick("f")
    if v and (name not in ("Reciprocal", "Log", "Sqrt") or away_from_zero(v)):
        g.try_node(name, [v], steady=True, **attrs)


def away_from_zero(v):
    """Rounding errors are not magnified too much by 1/v."""
    return all(np.abs(a).min() > 0.05 * np.abs(a).max() for a in v.data)


@op(3)
def exact_unary(g):
    v = g.pick("fi")
    if v:
        g.try_node(choice(g, KEEPS_BITS), [v], bits=v.bits)


@op(2)
def decide_unary(g):
    v = g.pick("f", exact=True)
    name = choice(g, "Floor Ceil Round Sign IsNaN IsInf ThresholdedRelu Shrink".split())
    if v:
        g.try_node(name, [v], bits=v.bits)


@op(1)
def logic(g):
    v = g.pick("b")
    w = v and partner(g, v)
    if v:
        if g.chance(0.3):
            g.try_node("Not", [v], bits=1)
        else:
            g.try_node(choice(g, ["And", "Or", "Xor"]), [v, w], bits=1)


def broadcast_shape(g, shape):
    """A shape that broadcasts with this one: some dims 1, leading ones left out; symbolic dims only as 1."""
    dims = [1 if d is None or g.chance(0.3) else d for d in shape]
    cut = int(g.rng.integers(0, len(dims) + 1)) if g.chance(0.4) else 0
    return dims[cut:]


def partner(g, v):
    """A second operand of v's type: another value that fits, or new constants."""
    if g.chance(0.5):
        w = g.pick(v.dtype.kind, dtype=v.dtype, test=lambda x: x is not v and fits(v, x))
        if w:
            return w
    shape = broadcast_shape(g, v.shape)
    if v.dtype.kind == "f" and not g.chance(0.4):
        return g.weights(shape, v.dtype)
    return g.const(g.data(v.dtype, shape), 5)


def fits(a, b):
    try:
        for i in range(2):
            np.broadcast_shapes(a.data[i].shape, b.data[i].shape)
        return True
    except ValueError:
        return False


@op(8)
def arithmetic(g):
    v = g.pick("fiu")
    if not v:
        return
    w = partner(g, v)
    name = choice(g, ["Add", "Sub", "Mul", "Div", "Max", "Min"])
    if name == "Div" and v.dtype.kind != "f":
        w = g.const((np.abs(g.data(v.dtype, broadcast_shape(g, v.shape))) + 1).astype(v.dtype), 5)
    if name == "Div" and v.dtype.kind == "f" and not away_from_zero(w):
        return
    both = v.bits and w.bits
    bits = {"Add": max(v.bits, w.bits) + 1, "Sub": max(v.bits, w.bits) + 1, "Mul": v.bits + w.bits, "Div": 0,
            "Max": max(v.bits, w.bits), "Min": max(v.bits, w.bits)}[name] if both else 0
    if v.dtype.kind != "f":
        bits = 1
    g.try_node(name, [v, w] if name == "Div" or g.chance(0.7) else [w, v], bits=bits)


@op(2)
def variadic(g):
    v = g.pick("f")
    if v:
        more = [partner(g, v) for _ in range(int(g.rng.integers(0, 3)))]
        g.try_node(choice(g, ["Max", "Min", "Sum", "Mean"]), [v, *more])


@op(2)
def power(g):
    v = g.pick("f", test=away_from_zero)
    if v:
        w = choice(g, [2.0, 3.0, 0.5, -1.0, 1.5])
        g.try_node("Pow", [v, g.const(np.array(w, v.dtype)) if g.chance(0.7) else partner(g, v)])


@op(2)
def compare(g):
    v = g.pick("fiub", exact=True)
    if v:
        w = partner(g, v)
        if not w.bits:
            w = g.const(g.data(v.dtype, broadcast_shape(g, v.shape)), 5)
        names = ["Equal"] if v.dtype.kind == "b" else "Equal Less Greater LessOrEqual GreaterOrEqual".split()
        g.try_node(choice(g, names), [v, w], bits=1)


@op(2)
def where(g):
    c = g.pick("b")
    if c:
        v = g.pick("fi", test=lambda x: fits(x, c)) or g.weights(broadcast_shape(g, c.shape))
        w = partner(g, v)
        g.try_node("Where", [c, v, w], bits=max(v.bits, w.bits) if v.bits and w.bits else 0)


@op(1)
def integers(g):
    v = g.pick("iu")
    if not v:
        return
    name = choice(g, ["Mod", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "Abs", "Sign"])
    if name in ("BitwiseNot", "Abs", "Sign"):
        g.try_node(name, [v], bits=1)
        return
    w = partner(g, v)
    attrs = {}
    if name == "Mod":
        w = g.const((np.abs(g.data(v.dtype, broadcast_shape(g, v.shape))) + 1).astype(v.dtype))
        attrs = {"fmod": 1} if g.chance(0.3) else {}
    if name == "BitShift":
        w = g.const((np.abs(g.data(v.dtype, broadcast_shape(g, v.shape))) % 4).astype(v.dtype))
        attrs = {"direction": choice(g, ["LEFT", "RIGHT"])}
    g.try_node(name, [v, w], bits=1, **attrs)


@op(3)
def cast(g):
    v = g.pick("fiub")
    if not v:
        return
    T = onnx.TensorProto
    floats, whole = [T.FLOAT, T.FLOAT, T.DOUBLE, T.FLOAT16], [T.INT32, T.INT64, T.INT8, T.UINT8, T.BOOL]
    to = choice(g, floats + whole) if v.bits else choice(g, floats)
    if to in whole and is_float(v):
        if min(a.min() for a in v.data) < 0 and to == T.UINT8:
            return  # what C leaves undefined
        if max(np.abs(a).max() for a in v.data) > 100:
            return
    bits = v.bits if to in (T.FLOAT, T.DOUBLE) or to in whole else 0
    g.try_node("Cast", [v], bits=bits, to=to)


@op(1)
def prelu(g):
    v = g.pick("f", ranks=(1, 5))
    if v:
        g.try_node("PRelu", [v, g.weights(broadcast_shape(g, v.shape), v.dtype)])


@op(2)
def clip(g):
    v = g.pick("fi")
    if v:
        lo, hi = (g.const(np.array(x, v.dtype), 5) for x in sorted(g.data(v.dtype, (2,))))
        g.try_node("Clip", [v, lo if g.chance(0.8) else None, hi], bits=v.bits and max(v.bits, 5))


# ---- moves ----

ANY = "fiub"


@op(4)
def transpose(g):
    v = g.pick(ANY, ranks=(1, 6))
    if v:
        perm = [int(i) for i in g.rng.permutation(v.rank)]
        attrs = {"perm": perm} if g.chance(0.9) else {}
        g.try_node("Transpose", [v], bits=v.bits, **attrs)


@op(4)
def reshape(g):
    v = g.pick(ANY, ranks=(1, 6))
    if not v:
        return
    shape = v.shape
    a = int(g.rng.integers(0, v.rank))
    b = int(g.rng.integers(a, v.rank)) + 1
    dims = [0 if g.chance(0.5) else d for d in shape[:a]]
    run = shape[a:b]
    if None in run or g.chance(0.4):
        dims += [-1]
    else:
        n = int(np.prod(run))
        divisors = [d for d in range(1, n + 1) if n % d == 0]
        d = choice(g, divisors)
        dims += [d, n // d]
    dims = [d if d is not None else 0 for d in dims]
    tail = list(shape[b:])
    if None in tail or -1 not in dims and None in dims:
        if -1 in dims or tail.count(None) > 1:
            return
        tail = [d if d is not None else -1 for d in tail]
    g.try_node("Reshape", [v, g.ints(dims + tail)], bits=v.bits)


@op(2)
def reshape_by_shape(g):
    """The exporters' idiom: Shape, Slice or Gather, Concat, Reshape."""
    v = g.pick(ANY, ranks=(2, 5))
    if not v:
        return
    s = g.try_node("Shape", [v], bits=8)
    if not s:
        return
    if g.chance(0.5):
        first = g.try_node("Slice", [s[0], g.ints([0]), g.ints([1])], bits=8)
    else:
        d = g.try_node("Gather", [s[0], g.const(np.array(0, np.int64))], bits=8, axis=0)
        first = d and g.try_node("Unsqueeze", [d[0], g.ints([0])], bits=8)
    if first:
        parts = [first[0], g.ints([-1])]
        c = g.try_node("Concat", parts if g.chance(0.8) else parts[::-1], bits=8, axis=0)
        if c:
            g.try_node("Reshape", [v, c[0]], bits=v.bits)


@op(1)
def shape_use(g):
    v = g.pick(ANY, ranks=(1, 5))
    if not v:
        return
    s = g.try_node("Shape", [v], bits=8)
    if not s:
        return
    what = choice(g, ["ConstantOfShape", "Expand", "Size", "Cast"])
    if what == "ConstantOfShape":
        g.try_node(what, s, bits=5, value=helper.make_tensor("v", onnx.TensorProto.FLOAT, [1], [0.5]))
    elif what == "Expand":
        g.try_node(what, [g.weights([1] * v.rank, exact=True), s[0]], bits=5)
    elif what == "Size":
        g.try_node(what, [v], bits=8)
    else:
        g.try_node("Cast", s, bits=8, to=onnx.TensorProto.FLOAT)


@op(2)
def squeeze(g):
    v = g.pick(ANY, ranks=(0, 5))
    if not v:
        return
    ones = [i for i, d in enumerate(v.shape) if d == 1]
    if ones and g.chance(0.6):
        axes = [i - v.rank if g.chance(0.3) else i for i in ones if g.chance(0.7)] or ones[:1]
        g.try_node("Squeeze", [v, g.ints(axes)], bits=v.bits)
    else:
        n = int(g.rng.integers(1, 3))
        axes = sorted(int(a) for a in g.rng.choice(v.rank + n, n, replace=False))
        g.try_node("Unsqueeze", [v, g.ints(axes)], bits=v.bits)


@op(1)
def flatten(g):
    v = g.pick(ANY, ranks=(1, 5))
    if v:
        g.try_node("Flatten", [v], bits=v.bits, axis=int(g.rng.integers(0, v.rank + 1)))


@op(3)
def concat(g):
    v = g.pick(ANY, ranks=(1, 5))
    if not v:
        return
    axis = axis_of(g, v)
    parts = [v]
    for _ in range(int(g.rng.integers(1, 3))):
        w = g.pick(v.dtype.kind, dtype=v.dtype, test=lambda x: joins(v, x, axis))
        shape = [d for d in v.shape]
        shape[axis] = int(g.rng.integers(1, 4))
        if None not in shape and g.chance(0.4):
            w = g.const(g.data(v.dtype, shape), 5)
        if w:
            parts.append(w)
    g.rng.shuffle(parts)
    g.try_node("Concat", parts, bits=max(p.bits for p in parts) if all(p.bits for p in parts) else 0, axis=axis)


def joins(a, b, axis):
    if a.rank != b.rank:
        return False
    for i in range(2):
        s, t = list(a.data[i].shape), list(b.data[i].shape)
        s[axis] = t[axis] = 0
        if s != t:
            return False
    return True


@op(2)
def split(g):
    v = g.pick(ANY, ranks=(1, 5))
    if not v:
        return
    axis = axis_of(g, v)
    d = v.shape[axis]
    if d is None or d < 2:
        return
    if g.chance(0.5) or g.opset < 18:
        a = int(g.rng.integers(1, d))
        g.try_node("Split", [v, g.ints([a, d - a])], n_out=2, bits=v.bits, axis=axis)
    else:
        n = int(g.rng.integers(2, d + 1))
        g.try_node("Split", [v], n_out=n, bits=v.bits, axis=axis, num_outputs=n)


@op(4)
def slice_(g):
    v = g.pick(ANY, ranks=(1, 5))
    if not v:
        return
    axes = sorted(int(a) for a in g.rng.choice(v.rank, int(g.rng.integers(1, v.rank + 1)), replace=False))
    starts, ends, steps = [], [], []
    for a in axes:
        d = min(x.shape[a] for x in v.data)
        step = choice(g, [1, 1, 1, 2, 3, -1, -2])
        lo = int(g.rng.integers(0, d))
        if v.shape[a] is None:  # a dim of 1 that is only so at these sizes never stretches
            start, end, step = choice(g, [(0, 1, 1), (lo, 2 ** 63 - 1, 1), (0, -1, 1), (0, 2 ** 31 - 1, 2), (-1, -2 ** 63 + 1, -1)])
        elif step > 0:
            start, end = lo, choice(g, [2 ** 63 - 1, -1, lo + 1, lo + 2])
        else:
            start, end = choice(g, [-1, lo, 2 ** 31 - 1]), choice(g, [-2 ** 63 + 1, 0, -d - 1])
        starts.append(start if start < 0 or g.chance(0.7) or start > d or v.shape[a] is None else start - d)
        ends.append(end)
        steps.append(step)
    axes = [a - v.rank if g.chance(0.3) else a for a in axes]
    g.try_node("Slice", [v, g.ints(starts), g.ints(ends), g.ints(axes), g.ints(steps)], bits=v.bits)


@op(2)
def pad(g):
    v = g.pick(ANY, ranks=(1, 5))
    if not v:
        return
    mode = choice(g, ["constant", "constant", "reflect", "edge"])
    pads = [int(x) for x in g.rng.integers(0, 3, 2 * v.rank)]
    if g.chance(0.2) and mode == "constant":
        pads[int(g.rng.integers(len(pads)))] = -1
    more = [g.const(np.array(1, v.dtype))] if mode == "constant" and g.chance(0.5) else []
    g.try_node("Pad", [v, g.ints(pads), *more], bits=v.bits, mode=mode)


@op(2)
def expand(g):
    v = g.pick(ANY, ranks=(0, 4))
    if v:
        shape = [int(g.rng.integers(1, 4)) if d == 1 else 1 for d in v.shape]
        shape = [int(x) for x in g.rng.integers(1, 3, int(g.rng.integers(0, 2)))] + shape
        g.try_node("Expand", [v, g.ints(shape)], bits=v.bits)


@op(1)
def tile(g):
    v = g.pick(ANY, ranks=(1, 4))
    if v:
        g.try_node("Tile", [v, g.ints(g.rng.integers(1, 4, v.rank))], bits=v.bits)


@op(3)
def gather(g):
    v = g.pick(ANY, ranks=(1, 4))
    if not v:
        return
    axis = axis_of(g, v)
    d = min(x.shape[axis] for x in v.data)
    shape = [int(x) for x in g.rng.integers(1, 4, int(g.rng.integers(0, 3)))]
    index = g.rng.integers(-d, d, shape).astype(choice(g, [np.int64, np.int32]))
    g.try_node("Gather", [v, g.const(index)], bits=v.bits, axis=axis)


@op(1)
def gather_elements(g):
    v = g.pick(ANY, ranks=(1, 4))
    if not v:
        return
    axis = axis_of(g, v)
    small = [min(x.shape[i] for x in v.data) for i in range(v.rank)]
    shape = [int(g.rng.integers(1, s + 1)) for s in small]
    index = g.rng.integers(-small[axis], small[axis], shape)
    g.try_node("GatherElements", [v, g.const(index)], bits=v.bits, axis=axis)


@op(1)
def gather_nd(g):
    v = g.pick(ANY, ranks=(1, 4))
    if not v:
        return
    k = int(g.rng.integers(1, v.rank + 1))
    small = [min(x.shape[i] for x in v.data) for i in range(k)]
    n = [int(x) for x in g.rng.integers(1, 4, int(g.rng.integers(0, 3)))]
    index = np.stack([g.rng.integers(-s, s, n) for s in small], axis=-1)
    g.try_node("GatherND", [v, g.const(index)], bits=v.bits)


@op(1)
def scatter(g):
    v = g.pick("fi", ranks=(1, 4))
    if not v:
        return
    small = [min(x.shape[i] for x in v.data) for i in range(v.rank)]
    if g.chance(0.5):
        axis = axis_of(g, v)
        shape = [int(g.rng.integers(1, s + 1)) for s in small]
        shape[axis] = 1  # no index twice, so that the order does not matter
        index = g.rng.integers(0, small[axis], shape)
        attrs = {"reduction": choice(g, ["add", "mul"])} if g.opset >= 16 and g.chance(0.3) else {}
        g.try_node("ScatterElements", [v, g.const(index), g.const(g.data(v.dtype, shape), 5)], bits=0 if attrs else v.bits and max(v.bits, 5),
                   axis=axis, **attrs)
    elif None not in v.shape[1:]:
        rows = g.rng.permutation(small[0])[: int(g.rng.integers(1, small[0] + 1))]
        g.try_node("ScatterND", [v, g.const(rows[:, None].astype(np.int64)), g.const(g.data(v.dtype, [len(rows)] + v.shape[1:]), 5)],
                   bits=v.bits and max(v.bits, 5))


@op(1)
def depth_space(g):
    v = g.pick("f", ranks=(4, 4))
    if v:
        if g.chance(0.5):
            g.try_node("DepthToSpace", [v], bits=v.bits, blocksize=2, mode=choice(g, ["DCR", "CRD"]))
        else:
            g.try_node("SpaceToDepth", [v], bits=v.bits, blocksize=2)


@op(1)
def trilu(g):
    v = g.pick("fi", ranks=(2, 4))
    if v:
        k = [g.const(np.array(int(g.rng.integers(-2, 3)), np.int64))] if g.chance(0.5) else []
        g.try_node("Trilu", [v, *k], bits=v.bits, upper=int(g.rng.integers(2)))


@op(1)
def one_hot(g):
    v = g.pick("i", ranks=(0, 3))
    if v:
        g.try_node("OneHot", [v, g.const(np.array(5, np.int64)), g.const(np.array([0.25, 2], np.float32))], bits=5,
                   axis=int(g.rng.integers(-1, v.rank + 1)))


@op(2)
def resize(g):
    v = g.pick("f", ranks=(3, 4))
    if not v:
        return
    scales = [1.0, 1.0] + [choice(g, [1.0, 2.0, 0.5, 1.5]) for _ in range(v.rank - 2)]
    mode = choice(g, ["nearest", "linear", "linear", "cubic"])
    ct = choice(g, ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"])
    attrs = {"mode": mode, "coordinate_transformation_mode": ct}
    if ct == "align_corners":  # ONNX Runtime rounds a size before it is used, the standard does not
        scales = [max(1.0, np.round(s)) for s in scales]
    if mode == "nearest":
        attrs["nearest_mode"] = choice(g, ["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"])
        scales = [min(2.0, np.floor(s) or 1.0) for s in scales]
        attrs["coordinate_transformation_mode"] = "asymmetric"
    g.try_node("Resize", [v, None, g.const(np.array(scales, np.float32))], **attrs)


# ---- reductions and norms ----

REDUCE = "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceSumSquare".split()


@op(6)
def reduce(g):
    v = g.pick("fi", ranks=(1, 5))
    if not v:
        return
    name = choice(g, REDUCE if is_float(v) else ["ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSumSquare"])
    n = int(g.rng.integers(0, v.rank + 1))
    axes = [int(a) - (v.rank if g.chance(0.3) else 0) for a in g.rng.choice(v.rank, n, replace=False)]
    attrs = {"keepdims": int(g.rng.integers(2))} if g.chance(0.8) else {}
    inputs = [v]
    if name == "ReduceSum" or g.opset >= 18:
        if axes:
            inputs.append(g.ints(axes))
        elif g.chance(0.3):
            attrs["noop_with_empty_axes"] = 1
    elif axes:
        attrs["axes"] = axes
    keeps = name in ("ReduceMax", "ReduceMin")
    g.try_node(name, inputs, bits=v.bits if keeps or v.dtype.kind == "i" else 0, **attrs)


@op(2)
def arg(g):
    v = g.pick("fi", ranks=(1, 4), exact=True)
    if v:
        attrs = {"select_last_index": 1} if g.chance(0.3) else {}
        g.try_node(choice(g, ["ArgMax", "ArgMin"]), [v], bits=8, axis=axis_of(g, v), keepdims=int(g.rng.integers(2)), **attrs)


@op(3)
def softmax(g):
    v = g.pick("f", ranks=(1, 4))
    if v:
        g.try_node(choice(g, ["Softmax", "LogSoftmax"]), [v], axis=axis_of(g, v))


@op(1)
def cumsum(g):
    v = g.pick("fi", ranks=(1, 4))
    if v:
        g.try_node("CumSum", [v, g.const(np.array(axis_of(g, v), np.int64))], exclusive=int(g.rng.integers(2)), reverse=int(g.rng.integers(2)))


@op(1)
def topk(g):
    v = g.pick("fi", ranks=(1, 3), exact=True)
    if v:
        axis = axis_of(g, v)
        k = int(g.rng.integers(1, min(x.shape[axis] for x in v.data) + 1))
        g.try_node("TopK", [v, g.ints([k])], n_out=2, bits=v.bits, axis=axis, largest=int(g.rng.integers(2)))


@op(3)
def norm(g):
    v = g.pick("f", ranks=(2, 4))
    if not v:
        return
    name = choice(g, ["LayerNormalization", "InstanceNormalization", "BatchNormalization", "LpNormalization", "LRN",
                      "MeanVarianceNormalization", "GroupNormalization"])
    c = v.shape[1]
    if name == "LayerNormalization" and g.opset >= 17:
        axis = int(g.rng.integers(1, v.rank))
        shape = v.shape[axis:]
        if None in shape:
            return
        g.try_node(name, [v, g.weights(shape, v.dtype)] + ([g.weights(shape, v.dtype)] if g.chance(0.6) else []),
                   axis=axis - v.rank if g.chance(0.5) else axis, epsilon=1e-2)
    elif name == "LpNormalization":
        g.try_node(name, [v], axis=axis_of(g, v), p=int(g.rng.integers(1, 3)))
    elif name == "LRN":
        g.try_node(name, [v], size=int(choice(g, [1, 3, 5])), alpha=0.01, bias=1.5)
    elif name == "MeanVarianceNormalization":
        g.try_node("Add", [v, g.weights([1] * v.rank, v.dtype)])  # (the norm itself divides by a deviation of 0 too often)
    elif c is not None and name != "LayerNormalization":
        if name == "InstanceNormalization":
            g.try_node(name, [v, g.weights([c], v.dtype), g.weights([c], v.dtype)], epsilon=0.1)
        elif name == "BatchNormalization":
            var = g.const(g.rng.uniform(0.5, 2, c).astype(v.dtype))
            g.try_node(name, [v, g.weights([c], v.dtype), g.weights([c], v.dtype), g.weights([c], v.dtype), var])
        elif g.opset >= 21 and v.rank > 2:
            groups = choice(g, [d for d in range(1, c + 1) if c % d == 0])
            g.try_node(name, [v, g.weights([c], v.dtype), g.weights([c], v.dtype)], num_groups=groups, epsilon=0.1)


# ---- matmul, convolution, recurrent layers ----

@op(5)
def matmul(g):
    v = g.pick("f", ranks=(1, 4))
    if not v:
        return
    w = g.pick("f", ranks=(2, 4), dtype=v.dtype, test=lambda x: all(a.shape[-1] == b.shape[-2] for a, b in zip(v.data, x.data)))
    k = v.shape[-1]
    if not w or g.chance(0.5):
        if k is None:
            return
        batch = broadcast_shape(g, v.shape[:-2]) if v.rank > 2 and g.chance(0.3) else []
        w = g.weights([*batch, k, int(choice(g, [1, 3, 8, 17, 33]))], v.dtype)
        if g.chance(0.1):
            w = g.weights([k], v.dtype)
    g.try_node("MatMul", [v, w])


@op(2)
def gemm(g):
    v = g.pick("f", ranks=(2, 2))
    if not v:
        return
    ta, tb = int(g.rng.integers(2)), int(g.rng.integers(2))
    k = v.shape[0 if ta else 1]
    if k is None:
        return
    n = int(choice(g, [1, 4, 16, 19]))
    c = [g.weights(choice(g, [[n], [1, n], [], [1, 1]]), v.dtype)] if g.chance(0.7) else []
    attrs = {"alpha": 0.5, "beta": 1.5} if g.chance(0.4) else {}
    g.try_node("Gemm", [v, g.weights([n, k] if tb else [k, n], v.dtype), *c], transA=ta, transB=tb, **attrs)


@op(1)
def einsum(g):
    v = g.pick("f", ranks=(2, 3))
    if not v or None in v.shape:
        return
    k = v.shape[-1]
    if v.rank == 2:
        eq = choice(g, ["ij->ji", "ij,jk->ik", "ij,kj->ik", "ij->i", "ij,ij->ij"])
    else:
        eq = choice(g, ["bij,jk->bik", "bij->bji", "bij,bkj->bik", "bij->b"])
    if "," in eq:
        size = dict(zip(eq.split(",")[0], v.shape))
        size.setdefault("k", 3)
        w = g.weights([size[c] for c in eq.split("->")[0].split(",")[1]], v.dtype)
        g.try_node("Einsum", [v, w], equation=eq)
    else:
        g.try_node("Einsum", [v], equation=eq)


@op(1)
def matmul_integer(g):
    v = g.pick("iu", ranks=(1, 3), test=lambda x: x.dtype.itemsize == 1 and x.shape[-1] is not None)
    if v:
        w = g.const(g.rng.integers(-100, 100, [v.shape[-1], 5]).astype(np.int8))
        zero = [g.const(np.array(3, v.dtype))] if g.chance(0.5) else []
        g.try_node("MatMulInteger", [v, w, *zero], bits=1)


@op(1)
def dequantize(g):
    v = g.pick("iu", ranks=(1, 3), test=lambda x: x.dtype.itemsize == 1)
    if v:
        g.try_node("DequantizeLinear", [v, g.const(np.array(0.25, np.float32)), g.const(np.array(2, v.dtype))], bits=v.bits)


@op(2)
def quantize(g):
    v = g.pick("f", ranks=(1, 4), exact=True, dtype=np.dtype(np.float32))
    if v:
        g.try_node("QuantizeLinear", [v, g.const(np.array(choice(g, [0.25, 0.5, 1]), np.float32)),
                                      g.const(np.array(3, choice(g, [np.int8, np.uint8])))], bits=8)


def windows(g, v, kernel):
    """Attributes that convolution and pooling share."""
    n = v.rank - 2
    attrs = {}
    if g.chance(0.5):
        attrs["strides"] = [int(x) for x in g.rng.integers(1, 4, n)]
    if g.chance(0.3):
        attrs["dilations"] = [int(x) for x in g.rng.integers(1, 3, n)]
    if g.chance(0.6):
        if g.chance(0.3) and "dilations" not in attrs:
            attrs["auto_pad"] = choice(g, ["SAME_UPPER", "SAME_LOWER", "VALID"])
            if "strides" in attrs:  # (with gaps between windows ONNX Runtime shifts them by a negative pad)
                attrs["strides"] = [min(s, k) for s, k in zip(attrs["strides"], kernel)]
        else:
            attrs["pads"] = [int(g.rng.integers(0, kernel[i % n])) for i in range(2 * n)]
    return attrs


def reaches(v, kernel, attrs):
    """Every window has its place (where it has not, ONNX Runtime rounds the size towards zero, not down)."""
    dilations = attrs.get("dilations", [1] * len(kernel))
    return all(a.shape[2 + i] > (k - 1) * d for a in v.data for i, (k, d) in enumerate(zip(kernel, dilations)))


@op(6)
def conv(g):
    v = g.pick("f", ranks=(3, 5))
    if not v or v.shape[1] is None:
        return
    c = v.shape[1]
    kernel = [int(x) for x in g.rng.integers(1, 4, v.rank - 2)]
    attrs = windows(g, v, kernel)
    groups = choice(g, [d for d in range(1, c + 1) if c % d == 0]) if g.chance(0.4) else 1
    if groups != 1:
        attrs["group"] = groups
    if g.chance(0.3):
        out = groups * int(g.rng.integers(1, 4))
        if "auto_pad" not in attrs and g.chance(0.3):
            attrs["output_padding"] = [0] * len(kernel)
        w, name = g.weights([c, out // groups, *kernel], v.dtype), "ConvTranspose"
    else:
        if not reaches(v, kernel, attrs):
            return
        out = groups * int(choice(g, [1, 1, 2, 3, 16, 20]))
        w, name = g.weights([out, c // groups, *kernel], v.dtype), "Conv"
    bias = [g.weights([out], v.dtype)] if g.chance(0.5) else []
    if g.chance(0.7):
        attrs["kernel_shape"] = kernel
    g.try_node(name, [v, w, *bias], **attrs)


@op(4)
def pool(g):
    v = g.pick("f", ranks=(3, 5))
    if not v:
        return
    if g.chance(0.2):
        g.try_node(choice(g, ["GlobalAveragePool", "GlobalMaxPool"]), [v])
        return
    kernel = [int(x) for x in g.rng.integers(1, 4, v.rank - 2)]
    attrs = windows(g, v, kernel)
    name = choice(g, ["MaxPool", "AveragePool", "LpPool"])
    if name != "MaxPool" and not (name == "AveragePool" and g.opset >= 19):
        attrs.pop("dilations", None)
    if not reaches(v, kernel, attrs):
        return
    if name == "AveragePool" and g.chance(0.5):
        attrs["count_include_pad"] = 1
    if name != "LpPool" and g.chance(0.3):
        attrs["ceil_mode"] = 1
    g.try_node(name, [v], bits=v.bits if name == "MaxPool" else 0, kernel_shape=kernel, **attrs)


@op(1)
def recurrent(g):
    v = g.pick("f", ranks=(3, 3), dtype=np.dtype(np.float32))
    if not v or v.shape[2] is None:
        return
    name = choice(g, ["LSTM", "GRU", "RNN"])
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[name]
    direction = choice(g, ["forward", "reverse", "bidirectional"])
    d, h = 2 if direction == "bidirectional" else 1, int(choice(g, [1, 3, 8]))
    inputs = [v, g.weights([d, gates * h, v.shape[2]]), g.weights([d, gates * h, h])]
    if g.chance(0.6):
        inputs.append(g.weights([d, 2 * gates * h]))
    attrs = {"linear_before_reset": 1} if name == "GRU" and g.chance(0.5) else {}
    g.try_node(name, inputs, n_out=3 if name == "LSTM" else 2, hidden_size=h, direction=direction, **attrs)


@op(1)
def if_(g):
    """Branches read values from outside."""
    v = g.pick("f", ranks=(1, 4))
    c = g.pick("b", ranks=(0, 0))
    if not c:
        x = g.pick("f", exact=True)
        m = x and g.try_node("ReduceMax", [x], bits=x.bits, keepdims=0)
        r = m and g.try_node("Greater", [m[0], g.const(np.array(1.5, x.dtype), 5)], bits=1)
        c = r[0] if r else None
    if not v or not c or c.const:
        return
    branches = {}
    for name in ("then_branch", "else_branch"):
        out = g.name("b")
        node = helper.make_node(choice(g, ["Sigmoid", "Neg", "Tanh", "Abs"]), [v.name], [out], name=g.name("n_"))
        branches[name] = helper.make_graph([node], name, [], [onnx.ValueInfoProto(name=out)])
    add_if(g, c, v, branches)


def add_if(g, c, v, branches):
    """As Graph.try_node, for a node that reads v only inside."""
    from gen import Value, session  # (gen imports this file)
    out = g.name("v")
    node = helper.make_node("If", [c.name], [out], name=g.name("if_"), **branches)
    try:
        s = session(g.model([node], [], [c.name, v.name], [out], {c.name: c, v.name: v}))
        data = [s.run([out], {c.name: c.data[i], v.name: v.data[i]})[0] for i in range(2)]
    except Exception:  # whatever ONNX Runtime says: not this node
        return
    c.used = v.used = True
    g.nodes.append(node)
    g.values.append(Value(out, data, 0))
