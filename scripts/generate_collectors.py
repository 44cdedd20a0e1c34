#!/usr/bin/env python3
"""Writes hindcast's typed collectors from LibTorch's generated/Functions.h.

    generate_collectors.py <Functions.h> <out_dir>
    generate_collectors.py --samples <Functions.h> <out.cpp>

For every node class of the header: a function that hands each data member to a FieldSink, the names of
those members, a function that prefetches what they lead to, and a row that ties these to the class's
type_info (capture/backward/typed_collectors.h has the contract). Classes go to typed_collectors_0.cpp .. _3.cpp,
so that four compilers can share the work; typed_collectors_table.cpp lists the four blocks.

LibTorch's own generator emits a class's members, its compiled_args() and its packed argument list from
one loop, in one order: saved inputs by name, then saved outputs by name. Only the sizes of tensor-list
arguments (`size_t X_size_`) are declared last and packed first.

A class that cannot be read with certainty, or that has a member of an unknown type, gets no collector
and a line on stdout; hindcast then uses LibTorch's visitor for it. Python 3.10, no other package.

With --samples: one function per class that makes a node and fills each member with values that occur
nowhere else (tests/capture/sample_nodes.h), so that a test can check every collector against LibTorch.
"""

import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

SHARDS = 4

# Which FieldSink method takes a member of this type. Types are written without a leading `::`.
SINK_OF_TYPE = {
    "SavedVariable": "saved",
    "at::Tensor": "tensor",
    "c10::SymInt": "size",
    "std::vector<c10::SymInt>": "sizes",
    "std::optional<c10::SymInt>": "optional_size",
    "c10::OptionalArray<c10::SymInt>": "optional_sizes",
    "std::vector<std::vector<c10::SymInt>>": "nested_sizes",
    "at::Scalar": "scalar",
    "double": "scalar",
    "std::optional<at::Scalar>": "optional_scalar",
    "std::optional<double>": "optional_scalar",
    "std::vector<at::Scalar>": "scalars",
    "torch::autograd::generated::TypeAndSize": "type_and_size",
    "std::vector<torch::autograd::generated::TypeAndSize>": "types_and_sizes",
    "at::TensorGeometry": "geometry",
    "bool": "constant",
    "int64_t": "constant",
    "size_t": "constant",
    "std::string": "constant",
    "std::optional<std::string>": "constant",
    "std::optional<bool>": "constant",
    "std::optional<int64_t>": "constant",
    "std::vector<int64_t>": "constant",
    "std::vector<std::vector<int64_t>>": "constant",
    "c10::OptionalArray<int64_t>": "constant",
    "at::ScalarType": "constant",
    "std::optional<at::ScalarType>": "constant",
    "std::vector<at::ScalarType>": "constant",
    "at::Layout": "constant",
    "at::MemoryFormat": "constant",
    "std::optional<at::MemoryFormat>": "constant",
    "at::TensorOptions": "constant",
}
SAVED_LIST = "std::vector<SavedVariable>"

# Members that are read through a pointer: what capture/backward/prefetch.h takes.
PREFETCHED = {"SavedVariable", SAVED_LIST, "at::Tensor", "std::vector<c10::SymInt>"}

# What a class may declare besides data. Anything else with a parenthesis makes the class unreadable.
METHODS = {"apply", "apply_with_saved", "compiled_args", "name", "release_variables", "will_release_variables"}

# A base that adds no data members of its own.
BASES = {"Node", "TraceableFunction"}


class Unreadable(Exception):
    """This class gets no collector; the text says why."""


@dataclass
class NodeClass:
    name: str
    members: list[str] = field(default_factory=list)  # in packed order
    calls: list[str] = field(default_factory=list)  # sink calls, one per member
    prefetched: list[str] = field(default_factory=list)

    @property
    def field_names(self) -> list[str]:
        return [member.removesuffix("_") for member in self.members]


def find_classes(header: str) -> list[tuple[str, str, str]]:
    """(name, base, text between the braces) of each class, in the order of the header."""
    start = re.compile(r"^struct TORCH_API (\w+) : public ([\w:]+) \{$", re.M)
    found = []
    for match in start.finditer(header):
        end = matching_brace(header, match.end() - 1)
        found.append((match[1], match[2], header[match.end() : end]))
    return found


def matching_brace(text: str, opening: int) -> int:
    depth = 0
    for position in range(opening, len(text)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return position
    raise SystemExit(f"generate_collectors: no closing brace for the one at offset {opening}; is the header cut off?")


def declarations(body: str) -> list[str]:
    """The class's declarations, without inline bodies, comments and the `#endif` of the Windows variant."""
    body = re.sub(r"//[^\n]*|/\*.*?\*/", " ", body, flags=re.S)
    body = re.sub(r"^#endif$", "", body, count=1, flags=re.M)
    if "#" in body:
        raise Unreadable("it has a preprocessor line inside")
    flat, position = "", 0
    while position < len(body):
        if body[position] == "{":
            position = matching_brace(body, position)
            flat += ";"
        else:
            flat += body[position]
        position += 1
    return [" ".join(statement.split()) for statement in flat.split(";") if statement.strip()]


def data_members(name: str, body: str) -> list[tuple[str, str]]:
    """(type, name) of each data member."""
    members = []
    for declaration in declarations(body):
        if declaration.startswith("using "):
            continue
        if "(" in declaration:
            method = re.search(r"(\w+)\s*\(", declaration)
            if method and method[1] in METHODS | {name}:
                continue
            raise Unreadable(f"it declares `{declaration}`")
        member = re.fullmatch(r"([\w:<>, ]+?) (\w+)(?: = [\w:.+-]+)?", declaration)
        if not member or member[1].split()[0] in {"static", "mutable", "const", "friend", "struct", "enum", "typedef"}:
            raise Unreadable(f"it declares `{declaration}`")
        members.append((re.sub(r"(?<![\w>])::", "", member[1]), member[2]))
    return members


def read_class(name: str, base: str, body: str) -> NodeClass:
    if base not in BASES:
        raise Unreadable(f"its base {base} may have members of its own")
    members = data_members(name, body)
    names = {member for _, member in members}
    # Bookkeeping, not fields: the flag beside a list, and the engine's keep_graph as the node sees it.
    flags = {f"{member}released_" if member.endswith("_") else f"{member}_released_"
             for kind, member in members if kind.startswith("std::vector<")}
    saved = [(kind, member) for kind, member in members if member not in flags and member != "retain_variables"]

    list_sizes = [entry for entry in saved if is_list_size(entry)]
    values = [entry for entry in saved if not is_list_size(entry)]
    if saved != values + list_sizes:
        raise Unreadable("a tensor-list size stands among its saved values, so their order is not the packed one")

    result = NodeClass(name)
    for kind, member in list_sizes + values:
        result.members.append(member)
        if kind in PREFETCHED:
            result.prefetched.append(member)
        if kind == SAVED_LIST:
            released = f"{member}released_"
            if released not in names:
                raise Unreadable(f"its list {member} has no {released}")
            result.calls.append(f"sink.saved_list(n.{member}, n.{released});")
        elif kind in SINK_OF_TYPE:
            result.calls.append(f"sink.{SINK_OF_TYPE[kind]}(n.{member});")
        else:
            raise Unreadable(f"member {member} has the type {kind}, which FieldSink does not take")
    return result


def is_list_size(entry: tuple[str, str]) -> bool:
    return entry[0] == "size_t" and entry[1].endswith("_size_")


BANNER = "// Written by scripts/generate_collectors.py from LibTorch's generated/Functions.h. Do not edit.\n\n"


def shard_source(shard: int, classes: list[NodeClass]) -> str:
    lines = [
        '#include "capture/backward/field_sink.h"',
        '#include "capture/backward/prefetch.h"',
        '#include "capture/backward/typed_collectors.h"',
        "",
        "#include <torch/csrc/autograd/generated/Functions.h>",
        "",
        "namespace hindcast::capture {",
        "",
        "namespace {",
        "",
        "namespace generated = torch::autograd::generated;",
        "using torch::autograd::Node;",
        "",
    ]
    for node_class in classes:
        if node_class.members:
            lines += [
                f"void collect_{node_class.name}(const Node& node, FieldSink& sink) {{",
                f"  const auto& n = static_cast<const generated::{node_class.name}&>(node);",
                *(f"  {call}" for call in node_class.calls),
                "}",
                f"constexpr const char* kFieldsOf{node_class.name}[] = {{",
                *(f'    "{name}",' for name in node_class.field_names),
                "};",
                "",
            ]
        else:
            lines += [f"void collect_{node_class.name}(const Node&, FieldSink&) {{}}", ""]
        if node_class.prefetched:
            lines += [
                f"void prefetch_{node_class.name}(const Node& node) {{",
                f"  const auto& n = static_cast<const generated::{node_class.name}&>(node);",
                *(f"  prefetch(n.{member});" for member in node_class.prefetched),
                "}",
                "",
            ]
    lines += ["const TypedCollector kCollectors[] = {"]
    for node_class in classes:
        name = node_class.name
        fields = f"kFieldsOf{name}" if node_class.members else "nullptr"
        prefetch = f"prefetch_{name}" if node_class.prefetched else "nullptr"
        lines += [f'    {{&typeid(generated::{name}), "{name}", collect_{name}, {fields}, {len(node_class.members)}, {prefetch}}},']
    lines += [
        "};",
        "",
        "}  // namespace",
        "",
        f"std::span<const TypedCollector> typed_collectors_{shard}() {{ return kCollectors; }}",
        "",
        "}  // namespace hindcast::capture",
        "",
    ]
    return BANNER + "\n".join(lines)


def table_source() -> str:
    lines = [
        '#include "capture/backward/typed_collectors.h"',
        "",
        "namespace hindcast::capture {",
        "",
        *(f"std::span<const TypedCollector> typed_collectors_{shard}();" for shard in range(SHARDS)),
        "",
        "std::span<const std::span<const TypedCollector>> typed_collectors() {",
        "  static const std::span<const TypedCollector> blocks[] = {",
        *(f"      typed_collectors_{shard}()," for shard in range(SHARDS)),
        "  };",
        "  return blocks;",
        "}",
        "",
        "}  // namespace hindcast::capture",
        "",
    ]
    return BANNER + "\n".join(lines)


def samples_source(classes: list[NodeClass]) -> str:
    lines = [
        '#include "tests/capture/sample_nodes.h"',
        "",
        "#include <torch/csrc/autograd/generated/Functions.h>",
        "",
        "namespace hindcast::tests {",
        "",
        "namespace {",
        "",
        "namespace generated = torch::autograd::generated;",
        "using torch::autograd::Node;",
        "",
    ]
    for node_class in classes:
        parameter = "SampleValues& values" if node_class.members else "SampleValues&"
        lines += [
            f"Node* make_{node_class.name}({parameter}) {{",
            f"  auto* n = new generated::{node_class.name};",
            *(f"  values.fill(n->{member});" for member in node_class.members),
            "  return n;",
            "}",
        ]
    lines += [
        "",
        "const SampleNode kSamples[] = {",
        *(f'    {{"{node_class.name}", make_{node_class.name}}},' for node_class in classes),
        "};",
        "",
        "}  // namespace",
        "",
        "std::span<const SampleNode> sample_nodes() { return kSamples; }",
        "",
        "}  // namespace hindcast::tests",
        "",
    ]
    return BANNER + "\n".join(lines)


def write_if_changed(path: Path, text: str) -> None:
    """An unchanged file keeps its time stamp, so that a rerun of the generator compiles nothing."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def main(arguments: list[str]) -> None:
    wants_samples = arguments[:1] == ["--samples"]
    if wants_samples:
        arguments = arguments[1:]
    if len(arguments) != 2:
        raise SystemExit("usage: generate_collectors.py <path of torch/csrc/autograd/generated/Functions.h> <out_dir>\n"
                         "       generate_collectors.py --samples <path of the same> <out.cpp>")
    header, out = Path(arguments[0]), Path(arguments[1])
    if not header.is_file():
        raise SystemExit(f"generate_collectors: {header} is not a file; pass Functions.h of the LibTorch to build with")

    found, classes = find_classes(header.read_text()), []
    for name, base, body in found:
        try:
            classes.append(read_class(name, base, body))
        except Unreadable as why:
            print(f"generate_collectors: {name} keeps LibTorch's visitor: {why}")
    if not classes:
        raise SystemExit(f"generate_collectors: no node class was understood in {header} ({len(found)} found); "
                         "its format differs from LibTorch 2.11's, for which this script was written")

    if wants_samples:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_if_changed(out, samples_source(classes))
        return
    out.mkdir(parents=True, exist_ok=True)
    size = -(-len(classes) // SHARDS)
    for shard in range(SHARDS):
        block = classes[shard * size : (shard + 1) * size]
        write_if_changed(out / f"typed_collectors_{shard}.cpp", shard_source(shard, block))
    write_if_changed(out / "typed_collectors_table.cpp", table_source())
    print(f"generate_collectors: {len(classes)} of {len(found)} node classes have a typed collector")


if __name__ == "__main__":
    main(sys.argv[1:])
