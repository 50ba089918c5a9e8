"""Who listens to a call? torch's dispatcher costs more than a small scan, and is needed only where someone does."""

from __future__ import annotations

import torch

_PLAIN = (torch.Tensor, torch.nn.Parameter)


def nobody_listens(tensors):
    """Is everything that a call with these tensors (None among them) does decided by what is in their memory?

    Not so with torch.compile, modes (fake tensors, tracing, counting), function transforms, forward-mode derivatives,
    and tensors that are more than memory (subclasses, a pending minus sign). Gradients are the caller's to look at.
    """
    if (
        torch.compiler.is_compiling()
        or torch._C._len_torch_dispatch_stack()
        or torch._C._len_torch_function_stack()
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch._C._get_tracing_state() is not None
        or torch.autograd.forward_ad._current_level >= 0
    ):
        return False
    for tensor in tensors:
        if tensor is not None and (
            tensor.__class__ not in _PLAIN
            or tensor.is_neg()
            or not (tensor.is_cuda or tensor.is_cpu)
            or tensor.layout is not torch.strided
        ):
            return False
    return True


def refuse_tangents(op, tensors):
    """RuntimeError if a tensor carries a forward-mode derivative: torch would drop it without a word."""
    if torch.autograd.forward_ad._current_level >= 0:
        for tensor in tensors:
            if tensor is not None and torch.autograd.forward_ad.unpack_dual(tensor).tangent is not None:
                raise RuntimeError(f"{op} has no forward-mode derivative (jvp): an input carries a tangent")
