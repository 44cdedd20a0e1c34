#include "codegen/cpu/nontemporal_stores.h"

#include "codegen/cpu/cost_model.h"

#include <algorithm>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace hindcast::codegen::cpu {
namespace {

constexpr int64_t kLine = 64;

#ifdef __SSE2__

constexpr bool kStreams = true;

// Writes whole cache lines; otherwise the processor writes each part of a line separately.
void copy_past_caches(char* to, const char* from, int64_t bytes) {
  const int64_t before = std::min(bytes, -static_cast<int64_t>(reinterpret_cast<uintptr_t>(to)) & (kLine - 1));
  std::memcpy(to, from, static_cast<size_t>(before));
  to += before;
  from += before;
  bytes -= before;
  for (; bytes >= kLine; bytes -= kLine, to += kLine, from += kLine) {
    const auto* parts = reinterpret_cast<const __m128i*>(from);
    auto* line = reinterpret_cast<__m128i*>(to);
    for (int i = 0; i < 4; ++i) _mm_stream_si128(line + i, _mm_loadu_si128(parts + i));
  }
  std::memcpy(to, from, static_cast<size_t>(bytes));
}

void finish_stores() { _mm_sfence(); }

#else

constexpr bool kStreams = false;

void copy_past_caches(char* to, const char* from, int64_t bytes) { std::memcpy(to, from, static_cast<size_t>(bytes)); }
void finish_stores() {}

#endif

}  // namespace

bool NontemporalStores::are_worth_it(int64_t bytes) { return kStreams && are_nontemporal_stores_worth_it(bytes); }

void NontemporalStores::add_new(const Pointers& pointers, size_t loads, size_t pointer, int64_t width) {
  const auto operands = c10::ArrayRef<char*>(pointers).slice(0, loads);
  if (std::find(operands.begin(), operands.end(), pointers[pointer]) == operands.end()) add(pointer, width);
}

NontemporalStores::Block::Block(const NontemporalStores& nontemporal, int64_t elements) {
  const auto bytes_of = [&](const Store& store) { return (elements * store.width + kLine - 1) / kLine * kLine; };
  int64_t bytes = nontemporal.empty() ? 0 : kLine;
  for (const Store& store : nontemporal.stores_) bytes += bytes_of(store);
  memory_.resize(static_cast<size_t>(bytes));
  char* here = memory_.data();
  here += -static_cast<int64_t>(reinterpret_cast<uintptr_t>(here)) & (kLine - 1);
  for (const Store& store : nontemporal.stores_) {
    places_.push_back({store.pointer, store.width, here, nullptr});
    here += bytes_of(store);
  }
}

NontemporalStores::Block::~Block() {
  if (!places_.empty()) finish_stores();
}

void NontemporalStores::Block::take_place_of(Pointers& pointers) {
  for (Place& place : places_) {
    place.there = pointers[place.pointer];
    pointers[place.pointer] = place.here;
  }
}

void NontemporalStores::Block::write(int64_t elements) const {
  for (const Place& place : places_) copy_past_caches(place.there, place.here, elements * place.width);
}

}  // namespace hindcast::codegen::cpu
