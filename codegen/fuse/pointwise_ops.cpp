#include "codegen/fuse/pointwise_ops.h"

#include "codegen/fuse/pointwise_builders.h"
#include "base/fork.h"

#include <initializer_list>
#include <string>
#include <unordered_map>
#include <utility>

namespace hindcast::codegen {
namespace {

/// By an operator's name and overload, such as "aten::add.Tensor".
using PointwiseTable = std::unordered_map<std::string, PointwiseOp>;

struct PointwiseTables {
  PointwiseTable of_numbers, of_complex;

  struct AtenOp {
    const char* name;
    PointwiseOp (*how)(const Functor&);
  };
  void add(const Functor& functor, std::initializer_list<AtenOp> ops) {
    PointwiseTable& table = functor.domain == Functor::Domain::COMPLEX ? of_complex : of_numbers;
    for (const AtenOp& op : ops) table.emplace(op.name, op.how(functor));
  }
};

PointwiseTables make_tables() {
  PointwiseTables tables;
  const Functor* functor = kFunctors.data();
#define HC_ATEN(op, how) {"aten::" op, builders::how},
#define HC_OP(name, operands, scalars, domain, result, cost, ...) tables.add(*functor++, {__VA_ARGS__});
#include "base/pointwise_ops.def"
  const Functor& bernoulli = *find_functor("philox_bernoulli");
  tables.of_numbers.emplace("hindcast::philox_bernoulli", builders::bernoulli(bernoulli));
  tables.of_numbers.emplace("hindcast::philox_dropout", builders::philox_dropout(bernoulli));
  return tables;
}

const PointwiseTables& tables() {
  static constinit base::MadeOnce<const PointwiseTables> tables;
  return tables.by(make_tables);
}

const PointwiseOp* find(const PointwiseTable& table, const c10::OperatorName& name) {
  const auto found = table.find(name.overload_name.empty() ? name.name : name.name + "." + name.overload_name);
  return found == table.end() ? nullptr : &found->second;
}

}  // namespace

const PointwiseOp* find_pointwise_op(const c10::OperatorName& name) { return find(tables().of_numbers, name); }
const PointwiseOp* find_complex_op(const c10::OperatorName& name) { return find(tables().of_complex, name); }

}  // namespace hindcast::codegen
