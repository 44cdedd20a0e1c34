#include "codegen/cpu/partial_results.h"

#include "base/check.h"
#include "codegen/cpu/leaf_writes.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace hindcast::codegen::cpu {
namespace {

using Kind = Reduction::Kind;

template <class T>
T* numbers(char* memory) {
  return reinterpret_cast<T*>(memory);
}

template <class T>
void fill(char* memory, T value, int64_t count) {
  std::fill_n(numbers<T>(memory), count, value);
}

// NaN propagates.
template <class T>
void merge_extremes(char* to, char* from, int64_t count, bool max) {
  for (int64_t i = 0; i < count; ++i) {
    T& kept = numbers<T>(to)[i];
    const T other = numbers<T>(from)[i];
    if (other != other || (max ? other > kept : other < kept)) kept = other;
  }
}

bool has_mean_beside(const Body& body, size_t m2) {
  for (size_t i = 0; i < body.stores.size(); ++i) {
    const BodyStore& store = body.stores[i];
    if (store.extent == Extent::Columns && store.over_rows == Kind::Mean && m2_beside(body, i) == m2) return true;
  }
  return false;
}

struct Pair {
  char *mean, *m2;  // m2 may be nullptr
};

// Merges two samples by Welford's method.
template <class T>
void merge_pairs(Pair to, int64_t rows_before, Pair from, int64_t rows, int64_t count) {
  const T share = static_cast<T>(rows) / static_cast<T>(rows_before + rows);
  for (int64_t i = 0; i < count; ++i) {
    const T distance = numbers<T>(from.mean)[i] - numbers<T>(to.mean)[i];
    if (to.m2 != nullptr) {
      // Without rows before, there is no mean, and its distance to the other may be infinite.
      const T between = rows_before == 0 ? T(0) : distance * distance * (static_cast<T>(rows_before) * share);
      numbers<T>(to.m2)[i] += numbers<T>(from.m2)[i] + between;
    }
    numbers<T>(to.mean)[i] += distance * share;
  }
}

}  // namespace

PartialResults::PartialResults(const Body& body) : type_(body.compute), width_(static_cast<int64_t>(c10::elementSize(body.compute))) {
  for (size_t i = 0; i < body.stores.size(); ++i) {
    const BodyStore& store = body.stores[i];
    if (!store.is_over_rows()) continue;
    HC_CHECK(store.over_rows == Kind::Sum || !c10::isComplexType(type_), "complex numbers have no order");
    const auto m2 = store.over_rows == Kind::Mean ? m2_beside(body, i) : std::nullopt;
    HC_CHECK(store.over_rows != Kind::M2 || has_mean_beside(body, i), "an M2 over rows without its mean");
    stores_.push_back({i, body.loads.size() + i, store.over_rows, m2 ? body.loads.size() + *m2 : 0});
  }
}

int64_t PartialResults::bytes(const Counts& counts) const {
  int64_t bytes = 0;
  for (const Store& store : stores_) bytes += counts[store.index] * width_;
  return bytes;
}

void PartialResults::move_to(char* memory, Pointers& pointers, const Counts& counts) const {
  for (const Store& store : stores_) {
    pointers[store.pointer] = memory;
    memory += counts[store.index] * width_;
  }
}

void PartialResults::advance(Pointers& pointers, const Counts& counts) const {
  for (const Store& store : stores_) pointers[store.pointer] += counts[store.index] * width_;
}

void PartialResults::clear(const Pointers& pointers, const Counts& counts) const {
  for (const Store& store : stores_) {
    char* const memory = pointers[store.pointer];
    const int64_t count = counts[store.index];
    if (count == 0) continue;
    if (store.kind != Kind::Max && store.kind != Kind::Min) {
      std::memset(memory, 0, static_cast<size_t>(count * width_));
    } else if (type_ == at::kDouble) {
      const double infinity = std::numeric_limits<double>::infinity();
      fill(memory, store.kind == Kind::Max ? -infinity : infinity, count);
    } else {
      const float infinity = std::numeric_limits<float>::infinity();
      fill(memory, store.kind == Kind::Max ? -infinity : infinity, count);
    }
  }
}

void PartialResults::merge(const Pointers& to, int64_t rows_before, const Pointers& from, int64_t rows, const Counts& counts) const {
  for (const Store& store : stores_) {
    char *const mine = to[store.pointer], *const other = from[store.pointer];
    const int64_t count = counts[store.index];
    switch (store.kind) {
      case Kind::Sum:
        add_elements(type_, mine, other, count);
        break;
      case Kind::Max:
      case Kind::Min:
        (type_ == at::kDouble ? merge_extremes<double> : merge_extremes<float>)(mine, other, count, store.kind == Kind::Max);
        break;
      case Kind::Mean: {
        const bool has_m2 = store.m2_pointer != 0;
        const Pair all{mine, has_m2 ? to[store.m2_pointer] : nullptr}, more{other, has_m2 ? from[store.m2_pointer] : nullptr};
        (type_ == at::kDouble ? merge_pairs<double> : merge_pairs<float>)(all, rows_before, more, rows, count);
        break;
      }
      case Kind::M2:
        break;  // merged with its Mean
      case Kind::Largest:
      case Kind::Powers:
        break;  // only over a row
    }
  }
}

}  // namespace hindcast::codegen::cpu
