#pragma once
// Values of several types, by number. A skeleton (codegen/device/skeletons) has such values per load and per store of a body.

#include "codegen/device/types.h"

namespace hindcast::device {

/// A number as a type, so that a lambda's parameter can be a template argument.
template <int kNumber>
struct Index {
  HC_DEVICE_MEMBER constexpr operator int() const { return kNumber; }
};

template <int... kNumbers>
struct Indices {};
template <int kCount, int... kNumbers>
struct IndicesBelow : IndicesBelow<kCount - 1, kCount - 1, kNumbers...> {};
template <int... kNumbers>
struct IndicesBelow<0, kNumbers...> {
  using Type = Indices<kNumbers...>;
};
template <int kCount>
using Below = typename IndicesBelow<kCount>::Type;

template <int... kNumbers>
constexpr bool contains(Indices<kNumbers...>, int number) {
  return ((kNumbers == number) || ...);
}

template <int... kNumbers, class Function>
HC_DEVICE void for_each(Indices<kNumbers...>, Function function) {
  (function(Index<kNumbers>()), ...);
}
/// Calls `function(Index<0>()), function(Index<1>()), ...`, in this order.
template <int kCount, class Function>
HC_DEVICE void for_each_below(Function function) {
  for_each(Below<kCount>(), function);
}

template <int kNumber, class T>
struct Item {
  T value;
};
template <class Numbers, class... T>
struct Items;
template <int... kNumbers, class... T>
struct Items<Indices<kNumbers...>, T...> : Item<kNumbers, T>... {};
template <class... T>
using Pack = Items<Below<sizeof...(T)>, T...>;

template <int kNumber, class T>
HC_DEVICE T& get(Item<kNumber, T>& item) {
  return item.value;
}
template <int kNumber, class T>
HC_DEVICE const T& get(const Item<kNumber, T>& item) {
  return item.value;
}

template <class T>
struct Is {
  using Type = T;
};
template <class... T>
struct Types {
  static constexpr int kCount = sizeof...(T);
  using Items = Pack<Is<T>...>;
  /// Pack<Of<T>...>.
  template <template <class> class Of>
  using PackOf = Pack<Of<T>...>;
};
template <int kNumber, class T>
HC_DEVICE Is<T> type_of(Item<kNumber, Is<T>>) {
  return {};
}
template <int kNumber, class List>
using At = typename decltype(type_of<kNumber>(typename List::Items()))::Type;

}  // namespace hindcast::device
