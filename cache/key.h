#pragma once
// The key of one backward: everything that decides which graph is captured, as bytes, and their XXH3-128.
//
// In the key, appended by capture/ in this order:
//   the state of the call   what a replay does not check again: options of the guard, autocast, deterministic and precision
//                           switches, default dtype, accumulate or return; with nodes on an accelerator, the accelerator's own
//                           switches; if code that is looked into may be unloaded, the number of unloaded libraries
//   roots and results       the node inputs at which the backward starts, and which gradients grad() returns
//   each node, in the order of execution
//                           its class, how it is captured (typed, visited, opaque), which kinds of hooks it has, its
//                           edges as numbers of nodes, dtype, device, layout and rank of its incoming gradients, and its
//                           constants (integers that are not sizes, flags, strings, dtypes, the number of saved tensors)
//
// Left out, because each variant of the entry guards them as facts before anything runs:
//   sizes, strides and layout of saved tensors and of root gradients; SymInt fields; the values of scalars
// Left out, because they never change which steps run:
//   the values of tensors; addresses of nodes and tensors; the streams of nodes, which each run reads (hooks/node_streams.h); what a hook
//   does (it is called, not captured; the types of traceable ones are in); whether a leaf's .grad is defined (AccumulateGrad checks that
//   when it runs)
//
// Two backwards with equal bytes have the same nodes, wired the same way. The hash only finds candidates: bytes are always compared. The
// bytes contain addresses of type_info, so no key may outlive the process. A library that is loaded in place of an unloaded one may reuse
// its addresses: the number of unloaded libraries distinguishes the two.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace hindcast::cache {

/// An append-only byte buffer, cleared and refilled by every backward: it keeps its capacity, and growing does not zero-fill. Functions are
/// named as in std::vector.
class KeyBytes {
 public:
  KeyBytes() = default;
  KeyBytes(const KeyBytes& other) { append(other.data(), other.size()); }
  KeyBytes(KeyBytes&& other) noexcept { swap(other); }
  KeyBytes& operator=(KeyBytes other) noexcept {
    swap(other);
    return *this;
  }

  const uint8_t* data() const { return bytes_.get(); }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  uint8_t operator[](size_t i) const { return bytes_[i]; }
  uint8_t& operator[](size_t i) { return bytes_[i]; }
  const uint8_t* begin() const { return data(); }
  const uint8_t* end() const { return data() + size_; }

  void clear() { size_ = 0; }
  void reserve(size_t capacity) {
    if (capacity > capacity_) grow(capacity);
  }
  /// Truncates, or extends with zeros.
  void resize(size_t size) {
    if (size > size_) {
      const size_t added = size - size_;
      std::memset(extend(added), 0, added);
    } else {
      size_ = size;
    }
  }
  void append(const void* bytes, size_t count) {
    if (count != 0) std::memcpy(extend(count), bytes, count);
  }
  /// Extends by `count` bytes, which the caller writes.
  uint8_t* extend(size_t count) {
    const size_t at = size_;
    if (count > capacity_ - at) [[unlikely]]
      grow(at + count);
    size_ = at + count;
    return bytes_.get() + at;
  }
  void swap(KeyBytes& other) noexcept {
    bytes_.swap(other.bytes_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
  }

 private:
  void grow(size_t least);

  std::unique_ptr<uint8_t[]> bytes_;
  size_t size_ = 0;
  size_t capacity_ = 0;
};

/// A value fully described by its bytes: no padding, no pointers. Floating-point numbers compare by bits: 0.0 and -0.0 differ, a NaN equals
/// itself.
template <class T>
concept KeyValue = std::has_unique_object_representations_v<T> || std::is_same_v<T, float> || std::is_same_v<T, double>;

template <KeyValue T>
inline void append(KeyBytes& key, const T& value) {
  std::memcpy(key.extend(sizeof(T)), &value, sizeof(T));
}

inline void append_bytes(KeyBytes& key, const void* bytes, size_t count) { key.append(bytes, count); }

/// A count, an index or another usually small number: one byte below 253, otherwise a mark and 2, 4 or 8 bytes. The encoding is
/// prefix-free, so a sequence of numbers can be read in only one way.
inline void append_size(KeyBytes& key, uint64_t value) {
  constexpr uint8_t kTwoBytes = 253, kFourBytes = 254, kEightBytes = 255;
  const auto marked = [&key](uint8_t mark, auto number) {
    append(key, mark);
    append(key, number);
  };
  if (value < kTwoBytes) [[likely]]
    append(key, static_cast<uint8_t>(value));
  else if (value <= UINT16_MAX)
    marked(kTwoBytes, static_cast<uint16_t>(value));
  else if (value <= UINT32_MAX)
    marked(kFourBytes, static_cast<uint32_t>(value));
  else
    marked(kEightBytes, value);
}

/// Its length, then its characters.
inline void append_string(KeyBytes& key, std::string_view text) {
  append_size(key, text.size());
  append_bytes(key, text.data(), text.size());
}

struct KeyHash {
  uint64_t low = 0;
  uint64_t high = 0;
  friend bool operator==(const KeyHash&, const KeyHash&) = default;
};

/// XXH3-128.
KeyHash hash_of(std::span<const uint8_t> bytes);

/// A non-owning key, for look-ups. Made by view_of(), or by a test with a hash of its own.
struct KeyView {
  KeyHash hash;
  std::span<const uint8_t> bytes;

  /// Compares the hash first, then every byte.
  friend bool operator==(const KeyView& a, const KeyView& b) {
    return a.hash == b.hash && a.bytes.size() == b.bytes.size() &&
           (a.bytes.empty() || std::memcmp(a.bytes.data(), b.bytes.data(), a.bytes.size()) == 0);
  }
};

/// Valid until `key` changes.
KeyView view_of(const KeyBytes& key);

/// An owning key, as the cache keeps it.
class Key {
 public:
  explicit Key(KeyView view) : hash_(view.hash), bytes_(view.bytes.begin(), view.bytes.end()) {}

  KeyView view() const { return {hash_, bytes_}; }
  const KeyHash& hash() const { return hash_; }
  std::span<const uint8_t> bytes() const { return bytes_; }
  friend bool operator==(const Key& a, const Key& b) { return a.view() == b.view(); }

 private:
  KeyHash hash_;
  std::vector<uint8_t> bytes_;
};

}  // namespace hindcast::cache
