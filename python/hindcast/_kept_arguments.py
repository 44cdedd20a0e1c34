"""Arguments that a function keeps: ``layer.weight = w``, ``history.append(x)``.

A traced call passes stand-ins to the function. When the call is done, the function's objects must hold the caller's tensors instead.

- Attributes of modules: calls that run a program set them, too. A call is compared by the whole ``__dict__`` of a module (hindcast._walk), so a
  function that reads an attribute that an earlier call has set is traced for each value of it.
- All else: C++ finds that a stand-in is still held, and the function runs eagerly. Stand-ins are replaced in attributes, closures and globals of what
  the function sees, and in the lists, dicts and deques that these hold.
"""

import types
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Optional

import torch

from ._containers import dict_of
from ._mentioned_names import mentioned

_DICTS_OF_A_MODULE = ("_parameters", "_buffers")
_MOST_IN_A_CONTAINER = 10000


def mark_as(given: torch.Tensor, stand_in: Any) -> None:
    """For type(), and for isinstance() with Parameter and Buffer, which checks these attributes."""
    if type(given) is torch.nn.Parameter:
        stand_in.__class__ = torch.nn.Parameter
    elif isinstance(given, torch.nn.Parameter):
        stand_in._is_param = True
    elif isinstance(given, torch.nn.Buffer):
        stand_in._is_buffer, stand_in.persistent = True, given.persistent


def _dicts_of(module: torch.nn.Module) -> Iterator[tuple[Optional[str], dict[str, Any]]]:
    own = module.__dict__
    yield None, own
    for which in _DICTS_OF_A_MODULE:
        if type(own.get(which)) is dict:
            yield which, own[which]


def _is_set_by_code(module: torch.nn.Module, name: str) -> bool:
    """Whether a descriptor's __set__ assigns it."""
    return any(hasattr(vars(base).get(name), "__set__") for base in type(module).__mro__)


class SetAttribute(NamedTuple):
    module: weakref.ref[torch.nn.Module]
    which: Optional[str]  # one of its dicts; None: its own
    name: str
    argument: int  # its number among the tensors of the call

    def run(self, given: Sequence[torch.Tensor]) -> None:
        module = self.module()
        if module is not None:
            attributes = module.__dict__ if self.which is None else module.__dict__[self.which]
            attributes[self.name] = given[self.argument]

    def text(self) -> str:
        return f"sets {self.name} in {self.which} of {id(self.module())} to tensor {self.argument}"


def set_attributes_of_modules(objects: Iterable[Any], stand_ins: Sequence[torch.Tensor], given: Sequence[torch.Tensor]) -> list[SetAttribute]:
    """Sets each attribute that is a stand-in to the caller's tensor, and returns what was set."""
    numbers = {id(stand_in): number for number, stand_in in enumerate(stand_ins)}
    found = []
    for module in objects:
        if not isinstance(module, torch.nn.Module):
            continue
        for which, attributes in _dicts_of(module):
            for name, attribute in attributes.items():
                number = numbers.get(id(attribute))
                if number is not None and not _is_set_by_code(module, name):
                    found.append(SetAttribute(weakref.ref(module), which, name, number))
    for one in found:
        one.run(given)
    return found


_REPLACED = frozenset((list, deque, dict))  # containers in which stand-ins are replaced


def _replace_values(container: Any, by_id: dict[int, torch.Tensor], places: Optional[Iterable[Any]] = None) -> None:
    """`places`: the relevant names of a dict; default: all."""
    if places is None:
        kind = type(container)
        if kind not in _REPLACED or len(container) > _MOST_IN_A_CONTAINER:
            return
        if by_id.keys().isdisjoint(map(id, container.values() if kind is dict else container)):
            return
        places = list(container) if kind is dict else range(len(container))
    for place in places:
        new = by_id.get(id(container[place]))
        if new is not None:
            container[place] = new


def _replace_in_cells(function: types.FunctionType, by_id: dict[int, torch.Tensor]) -> None:
    for cell in function.__closure__ or ():
        try:
            value = cell.cell_contents
        except ValueError:  # an empty cell
            continue
        if id(value) in by_id:
            cell.cell_contents = by_id[id(value)]
        else:
            _replace_values(value, by_id)


def replace_stand_ins(objects: Iterable[Any], stand_ins: Iterable[tuple[weakref.ref[torch.Tensor], torch.Tensor]]) -> None:
    """Replaces stand-ins in the objects. `stand_ins`: each with the caller's tensor."""
    alive = [(stand_in(), given) for stand_in, given in stand_ins]
    by_id = {id(stand_in): given for stand_in, given in alive if stand_in is not None}
    if not by_id:
        return
    names_in: dict[int, tuple[dict[str, Any], set[str]]] = {}  # global variables that the functions mention, by their dict
    for value in objects:
        dicts = [attributes for _, attributes in _dicts_of(value)] if isinstance(value, torch.nn.Module) else [dict_of(value)]
        for attributes in dicts:
            _replace_values(attributes, by_id)
            for each in list(attributes.values()) if attributes is not None else ():
                if type(each) in _REPLACED:
                    _replace_values(each, by_id)
        if isinstance(value, types.FunctionType):
            code = value.__code__
            _, names = names_in.setdefault(id(value.__globals__), (value.__globals__, set()))
            names.update(mentioned(code).globals, code.co_names)  # read, and written
            _replace_in_cells(value, by_id)
    for variables, names in names_in.values():
        places = [name for name in names if name in variables]
        _replace_values(variables, by_id, places)
        for name in places:
            _replace_values(variables[name], by_id)
