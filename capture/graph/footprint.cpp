#include "hindcast/detail/footprint.h"
#include "hindcast/graph.h"

namespace hindcast::capture {
namespace {

using base::footprint;
using base::footprint_beyond;

size_t of_args(const std::vector<Arg>& args) {
  size_t bytes = footprint(args);
  for (const Arg& arg : args) bytes += footprint_beyond<2>(arg.values) + footprint_beyond<2>(arg.exprs);
  return bytes;
}

size_t of_value(const Value& value) { return footprint(value.sizes) + footprint(value.strides); }

size_t of_instr(const Instr& instr) {
  size_t bytes = of_args(instr.args) + footprint_beyond<2>(instr.inputs) + footprint_beyond<2>(instr.outputs) + footprint(instr.views);
  for (const ViewStep& view : instr.views) bytes += of_args(view.args);
  return bytes;
}

}  // namespace

size_t Graph::footprint(const Graph* beside) const {
  using base::footprint;
  constexpr size_t kHashNode = 64;  // per expression, in the table that finds equal ones
  size_t bytes = sizeof(*this) + footprint(inputs) + footprint(outputs) + footprint(unbacked) + footprint(origins);
  bytes += values.footprint(beside ? &beside->values : nullptr, of_value) + instrs.footprint(beside ? &beside->instrs : nullptr, of_instr);
  if (beside == nullptr || beside->symbols != symbols) bytes += symbols->size() * (sizeof(Expr) + kHashNode);
  for (const std::string& name : origins) bytes += name.capacity() > 15 ? name.capacity() + base::kBlockOverhead : 0;
  return bytes;
}

}  // namespace hindcast::capture
