"""What C++ calls in Python: traced functions, the user's compilers, and what these return."""

import operator
import os
import sys
import time
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Optional

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from ._facts import PLAIN, Argument, Call, Shape, containers_in, is_by_value, weakly
from ._flatten import flatten, is_size, without_symbols
from ._higher_order import pass_over_the_recorders_keys
from ._kept_arguments import SetAttribute, mark_as, set_attributes_of_modules
from ._library import ops
from ._made_objects import TakenApart, is_new_in_each_call
from ._new_tensor import known_of_stand_ins
from ._noticed_grad import notices_gradients
from ._programs import Program
from ._random_state import random_states
from ._symbols_for_code import NOWHERE, gets_symbols, takes_symbols
from ._trace_state import EAGER, keep, kept, numbers_for_python, raised, thread

if TYPE_CHECKING:
    from ._aot import AotFunction

_clock = time.thread_time_ns
_is_traced = ops.train_is_traced.default._op


class Kind:
    """Everything needed to run the function for one kind of call."""

    def __init__(self, owner: "AotFunction", taken: Call) -> None:
        self._owner = weakref.ref(owner)
        self.shape = taken.shape()
        self._firsts = taken.firsts

    @property
    def owner(self) -> "AotFunction":
        owner = self._owner()
        assert owner is not None  # its __call__ is running
        return owner

    @property
    def function(self) -> Callable[..., Any]:
        return self.owner._function

    def run(self, tensors: Sequence[torch.Tensor], call: Optional[Call]) -> tuple[Any, bool]:
        """Runs the function on these tensors. True: it wrote to containers among the arguments, which follow its result."""
        if self._firsts is not None:
            tensors = [tensors[first] for first in self._firsts]
        if self.shape is None:
            return self.function(*tensors), False
        arguments = self.shape.with_tensors(tensors)
        before, _ = flatten(arguments)
        own = containers_in(arguments)
        try:
            result = self.function(*arguments[0], **arguments[1])
        except BaseException:
            if own and call is not None:
                call.arguments_after_error = arguments
            raise
        after, spec = flatten(arguments)
        if own and type(result) is not torch.Tensor:
            leaves, spec_of_result = tree_flatten(result, is_leaf=lambda value: id(value) in own or is_size(value))
            if any(id(leaf) in own for leaf in leaves):
                result = tree_unflatten([own.get(id(leaf), leaf) for leaf in leaves], spec_of_result)
        if spec == self.shape.spec and all(map(operator.is_, before, after)):
            return result, False
        return (result, arguments), True


def _text_of(leaf: Any) -> str:
    return f"{type(leaf).__name__} {leaf!r}" if is_by_value(leaf) or type(leaf) is Argument else f"at {id(leaf)}"


def _run_function(
    number: int, tensors: Sequence[torch.Tensor], keeps_errors: bool
) -> tuple[list[torch.Tensor], int, str, int, Optional[str]]:
    # The error of a trace that C++ has given up: its frames would keep their objects alive, such as guards of a dispatch state.
    thread.error = None
    try:
        call = thread.call if thread.call is not None and thread.call.kind == number else None
        if call is not None:
            call.was_run = True
            if call.tensors and len(tensors) == len(call.tensors) and all(map(operator.is_, tensors, call.tensors)):
                # No trace: the function gets its caller's arguments, and the caller its result.
                args, kwargs = call.arguments
                call.arguments_after_error = None
                call.result = call.owner.run_itself(args, kwargs)
                return [], EAGER, "", 0, None
        # A reset() on another thread may have dropped the kind since the call began.
        kind = kept[number] if call is None else kept.get(number) or Kind(call.owner, call)
        watches_draws = call is not None and not call.owner.draws_only_torchs
        before = random_states(call.generators()) if watches_draws else None
        if call is not None:
            for stand_in, given in zip(tensors, call.tensors):
                call.stand_ins.append((weakref.ref(stand_in), given))
                mark_as(given, stand_in)
        pass_over_the_recorders_keys()
        modules = len(sys.modules)
        start = _clock()
        sets: list[SetAttribute] = []
        try:
            owner = kind.owner
            with numbers_for_python(), known_of_stand_ins(), notices_gradients():
                result, writes = kind.run(tensors, call)
        finally:
            if call is not None:
                call.imports = call.imports or len(sys.modules) != modules
                sets = set_attributes_of_modules(kind.owner.objects_of(call.seen.state), tensors, call.tensors)
        kind.owner.own_ns = _clock() - start
        if watches_draws and before != random_states(call.generators()):
            call.draws = True
        if type(result) is torch.Tensor and not sets:
            return [result], 0, "", 0, None
        last = result[-owner.owned_results :] if owner.owned_results and not writes else ()
        owned = sum(isinstance(leaf, torch.Tensor) for leaf in last)
        objects = set() if call is None else set(map(id, call.objects))
        apart = TakenApart(result, lambda leaf: id(leaf) in objects or type(leaf) is Argument)
        if call is not None and any(map(is_new_in_each_call, apart.leaves)):
            known = objects.union(call.seen.state.names)
            if any(is_new_in_each_call(leaf) and id(leaf) not in known for leaf in apart.leaves):
                call.makes_objects = True
        del result, last
        apart.take_tensors(lambda leaf: weakly(leaf) if id(leaf) in objects else leaf)
        if owner.owned_results:  # the backward is over, also for tensors in objects
            freed = {id(tensor): tensor.detach() for tensor in apart.tensors if tensor.grad_fn is not None}
            apart.tensors = [freed.get(id(tensor), tensor) for tensor in apart.tensors]
        if call is not None:
            call.classes = [(number, type(tensor)) for number, tensor in enumerate(apart.tensors) if type(tensor) not in PLAIN]
            call.makes_objects = call.makes_objects or bool(call.classes)
        shape = Shape(apart.leaves, apart.places, apart.spec, writes, tuple(sets))
        text = "; ".join([apart.text(_text_of), *(one.text() for one in sets)])
        return apart.tensors, keep(shape), text, owned, None
    except BaseException as error:
        if not keeps_errors:
            raise
        return [], 0, "", 0, raised(error)


def _run_compiler(number: int, graph: int, examples: Sequence[Optional[torch.Tensor]]) -> tuple[int, Optional[str]]:
    try:
        made = kept[number](Program(graph), examples)
        if made is None:
            return 0, None
        if not callable(made):
            raise TypeError(f"the compiler returned {made!r}, expected a callable or None")
        return keep(made), None
    except Exception as error:
        return 0, f"{type(error).__name__}: {error}"


def _run_program(number: int, tensors: Sequence[Optional[torch.Tensor]], keeps_errors: bool) -> tuple[list[Any], Optional[str]]:
    try:
        return list(kept[number](list(tensors))), None
    except BaseException as error:
        if not keeps_errors:
            raise
        return [], raised(error)


_NOT_USERS = tuple(os.path.dirname(module.__file__) + os.sep for module in (torch, sys.modules[__package__]) if module.__file__)
_OF_DYNAMO = os.path.join(os.path.dirname(torch.__file__), "_dynamo") + os.sep


def _line() -> str:
    """The position in the innermost traced function; an empty text: none is traced."""
    found = by = ""
    frame = sys._getframe(1) if thread.call is not None else None
    while frame is not None and frame.f_code is not _run_function.__code__:
        code = frame.f_code
        if not found and not code.co_filename.startswith(_NOT_USERS):
            found = f"{code.co_filename}:{frame.f_lineno}, in {code.co_name}{by}"
        elif not found and code.co_filename.startswith(_OF_DYNAMO):
            by = ", which calls a function of torch.compile's: pass that function itself"
        frame = frame.f_back
    return found if frame is not None else ""


def _tell_stand_ins_from_fake_tensors() -> None:
    """From 2.15 on, there are FakeTensors in C++, with the dispatch key of stand-ins: ``print(x)`` would show no numbers for either."""
    is_fake = getattr(torch._C, "_is_fake_tensor", None)
    if is_fake is None:
        return

    def is_fake_tensor(tensor: torch.Tensor) -> bool:
        return bool(is_fake(tensor)) and not (thread.numbers is not None and _is_traced())

    torch._C._is_fake_tensor = is_fake_tensor  # type: ignore[attr-defined]


_tell_stand_ins_from_fake_tensors()


def _takes_symbols(is_symbol: Sequence[bool], is_steady: Sequence[bool]) -> int:
    numbers = thread.numbers
    if numbers is None:
        return NOWHERE
    with numbers.paused():
        which, are_given_to_code = takes_symbols(sys._getframe(1), is_symbol, is_steady)
    return which if not are_given_to_code or numbers.watch() else NOWHERE


@gets_symbols
def _number_in_place_of(placeholder: Any) -> tuple[Any, Any]:
    """A number, and a symbol in its place, or 0. PyTorch passes the number or symbol itself where it knows the placeholder."""
    number = getattr(placeholder, "_wrapped_number", placeholder)
    if type(number) is torch.SymInt:
        return 0, number
    return number.item() if isinstance(number, torch.Tensor) else without_symbols(number), 0


_kernels = torch.library.Library("hindcast", "FRAGMENT")  # keeps the kernels registered
_kernels.impl("aot_python_function", _run_function, "CPU")
_kernels.impl("aot_python_line", _line, "CPU")
_kernels.impl("aot_python_takes_symbols", _takes_symbols, "CPU")
_kernels.impl("aot_python_number_in_place_of", _number_in_place_of, "CPU")
_kernels.impl("aot_python_compiler", _run_compiler, "CPU")
_kernels.impl("aot_python_program", _run_program, "CPU")
