"""Compilers for the function of a row of bench/peers.py, forward and backward: each takes the row and returns a function of the same
arguments."""

import torch


def aot_inductor(row):
    """torch.compile without Dynamo: the forward's operators as a graph, then AOT autograd with Inductor."""
    from torch._inductor.compile_fx import compile_fx
    from torch.fx.experimental.proxy_tensor import make_fx

    inputs = [*row.leaves, *row.constants]
    compiled = []

    def function(*arguments):
        if not compiled:
            graph = make_fx(lambda *values: row.function(*values), pre_dispatch=True)(*inputs)
            compiled.append(compile_fx(graph, inputs))
        return compiled[0](*arguments)

    return function


def torch_compile(row):
    return torch.compile(row.function)


def functorch_inductor(row):
    """functorch's aot_function with the row's partition; Inductor compiles both halves."""
    from functorch.compile import aot_function, default_partition, min_cut_rematerialization_partition
    from torch._guards import TracingContext, detect_fake_mode, tracing
    from torch._inductor.compile_fx import compile_fx_inner
    from torch._inductor.decomposition import select_decomp_table
    from torch._inductor.fx_passes.joint_graph import joint_graph_passes
    from torch._inductor.virtualized import V
    from torch._subclasses.fake_tensor import FakeTensorMode

    chosen = {"standard": default_partition, "min_cut": min_cut_rematerialization_partition}[row.partition]

    def partition(joint, inputs, **options):
        with V.set_fake_mode(detect_fake_mode(inputs)):
            joint_graph_passes(joint)  # creates the random operators that Inductor knows
        return chosen(joint, inputs, **options)

    def compiler(is_backward):
        def compiled(graph, inputs):
            with V.set_fake_mode(detect_fake_mode(inputs)):
                return compile_fx_inner(graph, inputs, is_backward=is_backward)

        return compiled

    compiled = aot_function(row.function, compiler(False), compiler(True), partition, select_decomp_table())
    first = [True]

    def function(*arguments):
        if not first:
            return compiled(*arguments)
        first.clear()
        # Tells the backward which strides Inductor gave the forward's results.
        with tracing(TracingContext(FakeTensorMode())):
            return compiled(*arguments)

    return function


def aot_function(row):
    import hindcast

    return hindcast.aot_function(row.function, partition_fn=getattr(hindcast.partition, row.partition))
