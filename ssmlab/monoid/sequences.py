"""Sequences of elements: an array, or a (nested) tuple of arrays, time on axis 0."""
import numpy as np


def each(function, *trees):
    """Apply `function` to the arrays that stand at the same place of equally built tuples."""
    if isinstance(trees[0], tuple):
        return tuple(each(function, *parts) for parts in zip(*trees, strict=True))
    return function(*trees)


def arrays(tree):
    """The arrays of a sequence, in order."""
    return [array for part in tree for array in arrays(part)] if isinstance(tree, tuple) else [tree]


def layout(tree):
    """How tuples, dtypes and the shape of one time step are built, as a text: "(float64, float64[3])"."""
    if isinstance(tree, tuple):
        return "(" + ", ".join(layout(part) for part in tree) + ")"
    if not isinstance(tree, np.ndarray):
        return f"a {type(tree).__name__}, no array"
    return f"{tree.dtype}{list(tree.shape[1:]) or ''}"


def as_sequence(monoid, items):
    """Turn what a caller may pass (lists, strings, tuples) into arrays; the caller's arrays are not copied yet."""
    if monoid.objects:
        return boxed(items)
    sequence = as_arrays(items)
    shapes = [array.shape for array in arrays(sequence)]
    if not shapes or () in shapes:
        raise ValueError(f"items have shapes {shapes}: each must have time on axis 0 (a tuple means a tuple of arrays)")
    if len({shape[0] for shape in shapes}) != 1:
        raise ValueError(f"items have shapes {shapes}: their lengths on axis 0 must be equal")
    return sequence


def as_arrays(items):
    """Arrays in place of lists. Texts of fixed width become objects, because joined texts outgrow it."""
    if isinstance(items, tuple):
        return tuple(as_arrays(part) for part in items)
    array = np.asarray(items)
    return array.astype(object) if array.dtype.kind in "SU" else array


def boxed(items):
    """A new object array with one entry an element, also where the elements are tuples or lists themselves."""
    items = list(items)
    box = np.empty(len(items), object)
    for t, item in enumerate(items):
        box[t] = item
    return box


def settled(monoid, sequence):
    """Copy `sequence` into arrays whose dtypes and shapes a combine keeps (an int b beside a float a becomes float)."""
    for _ in range(3):
        empty = each(lambda array: array[:0], sequence)
        combined = monoid.combine_slices(empty, empty)
        if layout(combined) == layout(sequence):
            return each(np.array, sequence)
        if not _alike(sequence, combined):
            break
        sequence = each(fitted, sequence, combined)
    raise ValueError(f"combine of {monoid.name!r} took {layout(sequence)} and returned {layout(combined)}: "
                     "it must return what it takes")


def _alike(tree, other):
    """Whether `other` has arrays where `tree` has, and steps to whose shape those of `tree` broadcast."""
    if isinstance(tree, tuple):
        return (isinstance(other, tuple) and len(tree) == len(other)
                and all(_alike(*parts) for parts in zip(tree, other, strict=True)))
    if not isinstance(other, np.ndarray) or other.ndim != tree.ndim:
        return False
    return all(old in (1, new) for old, new in zip(tree.shape[1:], other.shape[1:], strict=True))


def fitted(array, like):
    """`array` with the dtype of `like`, its steps broadcast to the shape of the steps of `like`."""
    return np.broadcast_to(array, (len(array), *like.shape[1:])).astype(like.dtype)


def identity_step(monoid, like):
    """The identity as a sequence of length 1 that fits the sequence `like`."""
    return _step(monoid.identity, like, monoid.name)


def _step(element, like, name):
    if isinstance(like, tuple):
        if not isinstance(element, tuple) or len(element) != len(like):
            raise ValueError(f"identity of {name!r} has {element!r} where the items have a tuple of {len(like)}")
        return tuple(_step(part, array, name) for part, array in zip(element, like, strict=True))
    step = np.empty((1, *like.shape[1:]), like.dtype)
    if like.dtype == object and not isinstance(element, np.ndarray):
        step.fill(element)
        return step
    element = np.asarray(element)
    try:
        with np.errstate(invalid="ignore"):         # -inf cast to an integer: the comparison below refuses it in words
            step[...] = element.astype(like.dtype)
    except ValueError as error:
        raise ValueError(f"identity of {name!r} has shape {element.shape}, "
                         f"one step of the items has {like.shape[1:]}") from error
    if not np.all(step == element):
        raise ValueError(f"identity of {name!r} is {element}: items of dtype {like.dtype} cannot hold it")
    return step
