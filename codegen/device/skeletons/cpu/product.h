#pragma once
// A matrix product whose elements a body uses: row by row of a block that has just been computed.

#include "codegen/device/products.h"
#include "codegen/device/skeletons/cpu/dense.h"

namespace hindcast::device::cpu {

/// The addresses of a row's elements from `column` on. Broadcast loads have one number per row.
template <class Body, int... kLoad, int... kStore>
HC_DEVICE void set_row(Addresses<kTensors<Body>>& addresses, char* const* pointers, const long* row_strides, long row, long column,
                       Indices<kLoad...>, Indices<kStore...>) {
  const auto set = [&](int pointer, long bytes) __attribute__((always_inline)) {
    addresses.of[pointer] = pointers[pointer] + row * row_strides[pointer] + column * bytes;
  };
  (set(kLoad, OneOf<kLoad, typename Body::Loads>::Type::kIsBroadcast ? 0 : sizeof(LoadType<Body, kLoad>)), ...);
  (set(kLoads<Body> + kStore, sizeof(typename StoreOf<Body, kStore>::Type)), ...);
}

template <class Body>
HC_DEVICE void run_product(ProductArguments arguments) {
  using T = typename Body::Product;
  const auto finish = [&](const T* product, long row, long column, long count) __attribute__((always_inline)) {
    Addresses<kTensors<Body>> addresses;
    set_row<Body>(addresses, arguments.pointers, arguments.row_strides, row, column, Below<kLoads<Body>>(), Below<kStores<Body>>());
    typename Body::Row numbers;
    Body::begin(numbers, AtNumbers<Body>{arguments.scalars, addresses.of});
    DenseLoops<Body, false>{numbers, addresses.of, product}.template run<false>(0, count);
  };
  const Factors<T> factors = {static_cast<const T*>(arguments.a), static_cast<const T*>(arguments.b), arguments.a_step, arguments.b_step,
                              arguments.depth};
  multiply<Body::kIsATransposed, Body::kIsBTransposed>(*static_cast<const ProductBlocks<T>*>(arguments.blocks), factors, arguments.begin,
                                                       arguments.end, arguments.columns, reinterpret_cast<T*>(arguments.scratch), finish);
}

}  // namespace hindcast::device::cpu
