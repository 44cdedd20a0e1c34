#include "codegen/cuda/kernels.h"

#include "base/fork.h"
#include "base/fork_gate.h"
#include "base/log.h"
#include "codegen/cuda/source.h"
#include "codegen/kernel/kernel_object.h"
#include "codegen/kernel/kernel_table.h"

#include <algorithm>
#include <exception>

namespace hindcast::codegen::cuda {
namespace {

// Used only inside the compilers' fork gate, so that its lock is free at a fork.
KernelTable& table() {
  static constinit base::MadeOnce<KernelTable> table;
  return table.get();
}

/// Counts an entry point that a call requested, until it is compiled or has failed.
struct AskedFor {
  AskedFor() { ++count; }
  ~AskedFor() { --count; }
  AskedFor(const AskedFor&) = delete;
  AskedFor& operator=(const AskedFor&) = delete;
  static inline std::atomic<int> count = 0;
};

}  // namespace

bool compiles_for_calls() { return AskedFor::count.load(std::memory_order_relaxed) != 0; }

void CudaKernel::compile(Entries entries) const {
  const base::InsideCompiler inside;
  const std::lock_guard lock(compiling_);
  Entries missing;
  entries.for_each([&](Entry entry) {
    if (function(entry) == nullptr) missing.add({entry});
  });
  if (missing.empty()) return;
  load_object(MachineCompiler(machine_), source_of(body_, missing), source_of(body_),
              [&](std::string_view object) { load(object, missing); });
}

void CudaKernel::load(std::string_view object, Entries entries) const {
  const std::shared_ptr<const Module> module = machine_.load(object);
  std::array<void*, kEntries> found = {};
  entries.for_each([&](Entry entry) { found[static_cast<size_t>(entry)] = module->function(name_of(entry)); });
  modules_.push_back(module);
  bytes_ += object.size();
  entries.for_each([&](Entry entry) {
    const auto i = static_cast<size_t>(entry);
    loaded_[i].module = module.get();
    loaded_[i].registers = module->registers(found[i]);
    loaded_[i].function.store(found[i], std::memory_order_release);
  });
}

Registers CudaKernel::registers() const {
  Registers all = {};
  for (size_t i = 0; i < kEntries; ++i) all[i] = loaded_[i].function.load(std::memory_order_acquire) == nullptr ? 0 : loaded_[i].registers;
  return all;
}

void CudaKernel::ask_for(Entry entry) const {
  if (later_ == nullptr || asked_[static_cast<size_t>(entry)].exchange(true, std::memory_order_relaxed)) return;
  const auto compile_it = [kernel = weak_from_this(), entry, asked = std::make_shared<const AskedFor>()] {
    const auto held = kernel.lock();
    if (held == nullptr) return;
    try {
      const AskedBy asked_by(held->asked_by_);  // needed here, since this is another thread
      held->compile({entry});
    } catch (const std::exception& error) {
      HC_LOG(CompiledAutograd, Warning, "calls do without the entry point {} of a kernel: {}", name_of(entry), error.what());
    }
  };
  later_({.run = compile_it, .is_wanted = [kernel = weak_from_this()] { return !kernel.expired(); }});
}

size_t CudaKernel::footprint_of_one(long holders) const { return bytes_ / static_cast<size_t>(std::max(holders, 1L)); }

std::shared_ptr<const CudaKernel> kernel_of(const Body& body, RunLater later, std::string& why_not) {
  const base::InsideCompiler inside;
  const Machine* const with = machine(&why_not);
  if (with == nullptr) return nullptr;
  const Entries at_once = later == nullptr ? entries_of(body) : first_entries_of(body);
  try {
    const auto make = [&] {
      auto made = std::make_shared<const CudaKernel>(*with, body, later);
      made->compile(at_once);
      return made;
    };
    auto kernel = std::static_pointer_cast<const CudaKernel>(table().find_or_make(source_of(body), make));
    kernel->compile(at_once);  // a kernel found in the table may have fewer entry points
    return kernel;
  } catch (const std::exception& error) {
    why_not = error.what();
    return nullptr;
  }
}

Shape shape_of(const Body& body) {
  return {vector_length(body), vector_length(body) * items_in_flight(body), items_of_nest(body), elements_one_by_one(body),
          most_threads_of_row(body)};
}

}  // namespace hindcast::codegen::cuda
