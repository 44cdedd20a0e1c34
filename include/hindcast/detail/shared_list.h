#pragma once
// A copy-on-write list: copies share their elements until one of them changes an element.
//
// A graph and what a pass made of it differ in a few rows of thousands: keeping both must not take twice the memory.

#include <hindcast/detail/footprint.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <functional>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

namespace hindcast::base {

/// Read like a std::vector. Only edit() and the functions that add elements give write access. As thread-safe as a vector.
template <class T>
class SharedList {
  // Storage of elements, which never move. Freed when no list refers to it: its neighbours may keep alive an element that all lists have
  // replaced.
  class Arena {
   public:
    T* add(T element) {
      constexpr size_t kLeast = 4, kMost = 1024;  // few blocks: has() scans them
      if (blocks_.empty() || blocks_.back().size() == blocks_.back().capacity()) reserve(std::clamp(size_, kLeast, kMost));
      ++size_;
      return &blocks_.back().emplace_back(std::move(element));
    }
    void reserve(size_t size) { blocks_.emplace_back().reserve(size); }
    // Elements added last are looked up most.
    bool has(const T* element) const {
      return std::any_of(blocks_.rbegin(), blocks_.rend(), [&](const auto& block) {
        return !std::less<>()(element, block.data()) && std::less<>()(element, block.data() + block.size());
      });
    }
    template <class OfElement>
    size_t footprint(OfElement of_element) const {
      size_t bytes = sizeof(*this) + base::footprint(blocks_);
      for (const auto& block : blocks_) {
        bytes += base::footprint(block);
        for (const T& element : block) bytes += of_element(element);
      }
      return bytes;
    }

   private:
    std::vector<std::vector<T>> blocks_;
    size_t size_ = 0;
  };

 public:
  using value_type = T;

  class const_iterator {
   public:
    using iterator_category = std::forward_iterator_tag;
    using value_type = T;
    using difference_type = std::ptrdiff_t;
    using pointer = const T*;
    using reference = const T&;
    const_iterator() = default;
    explicit const_iterator(typename std::vector<T*>::const_iterator at) : at_(at) {}
    reference operator*() const { return **at_; }
    pointer operator->() const { return *at_; }
    const_iterator& operator++() { return ++at_, *this; }
    const_iterator operator++(int) { return const_iterator(at_++); }
    difference_type operator-(const_iterator other) const { return at_ - other.at_; }
    bool operator==(const const_iterator&) const = default;

   private:
    typename std::vector<T*>::const_iterator at_;
  };

  SharedList() = default;
  SharedList(const SharedList& other) : elements_(other.elements_) { borrow(other); }
  SharedList(SharedList&&) noexcept = default;
  SharedList& operator=(const SharedList& other) { return *this = SharedList(other); }
  SharedList& operator=(SharedList&&) noexcept = default;
  ~SharedList() = default;

  size_t size() const { return elements_.size(); }
  bool empty() const { return elements_.empty(); }
  const T& operator[](size_t i) const { return *elements_[i]; }
  const T& front() const { return *elements_.front(); }
  const T& back() const { return *elements_.back(); }
  const_iterator begin() const { return const_iterator(elements_.begin()); }
  const_iterator end() const { return const_iterator(elements_.end()); }

  /// Makes the element this list's own: other lists that share it keep the old value.
  T& edit(size_t i) {
    if (is_own(elements_[i])) return *elements_[i];
    Arena& arena = own();
    if (!arena.has(elements_[i])) elements_[i] = arena.add(T(std::as_const(*elements_[i])));
    return *elements_[i];
  }
  T& edit_back() { return edit(size() - 1); }

  T& push_back(T element) { return *elements_.emplace_back(own().add(std::move(element))); }
  T& emplace_back() { return push_back(T()); }
  /// Appends an element of another list, shared with it.
  void share(const SharedList& list, size_t i) {
    borrow(list);
    elements_.push_back(list.elements_[i]);
  }
  void insert_front(std::vector<T> elements) {
    std::vector<T*> made;
    for (T& element : elements) made.push_back(own().add(std::move(element)));
    elements_.insert(elements_.begin(), made.begin(), made.end());
  }
  /// Drops the elements after the first `size`.
  void truncate(size_t size) {
    for (size_t i = size; i < elements_.size(); ++i) forget(elements_[i]);
    elements_.resize(size);
  }
  void clear() { *this = {}; }
  /// `indices`: a set of positions.
  template <class Indices>
  void erase_all(const Indices& indices) {
    size_t i = 0;
    std::erase_if(elements_, [&](T* element) {
      const bool is_erased = indices.contains(static_cast<typename Indices::key_type>(i++));
      if (is_erased) forget(element);
      return is_erased;
    });
  }
  void reserve(size_t size) { elements_.reserve(size); }
  /// Moves all elements into one block, in memory that no other list shares. Invalidates references to elements.
  void compact() {
    auto arena = std::make_shared<Arena>();
    arena->reserve(size());
    const bool all_own = borrowed_.empty() && owns();
    for (T*& element : elements_) element = arena->add(all_own ? std::move(*element) : T(std::as_const(*element)));
    elements_.shrink_to_fit();
    own_ = std::move(arena);
    borrowed_.clear();
  }

  /// Bytes; `of_element` gives those that an element owns beside itself. Memory that `beside` holds too is not counted.
  template <class OfElement>
  size_t footprint(const SharedList* beside, OfElement of_element) const {
    size_t bytes = base::footprint(elements_);
    for_each_arena([&](const std::shared_ptr<Arena>& arena) {
      if (beside == nullptr || !beside->holds(arena)) bytes += arena->footprint(of_element);
    });
    return bytes;
  }

 private:
  // No other list has it. A list in another thread may have released it just now: the fence orders that list's reads before our writes.
  bool owns() const {
    if (own_.use_count() != 1) return false;
    std::atomic_thread_fence(std::memory_order_acquire);
    return true;
  }
  bool is_own(const T* element) const { return owns() && own_->has(element); }
  Arena& own() {
    if (owns()) return *own_;
    constexpr size_t kMostBorrowed = 16;
    if (borrowed_.size() == kMostBorrowed) {  // drops elements that copies of copies have replaced
      compact();
    } else {
      if (own_) borrowed_.push_back(std::move(own_));
      own_ = std::make_shared<Arena>();
    }
    return *own_;
  }
  // Frees what the element holds now, before its neighbours are freed.
  void forget(T* element) {
    if (is_own(element)) *element = T();
  }
  bool holds(const std::shared_ptr<Arena>& arena) const {
    return own_ == arena || std::find(borrowed_.begin(), borrowed_.end(), arena) != borrowed_.end();
  }
  template <class Visit>
  void for_each_arena(Visit visit) const {
    if (own_) visit(own_);
    std::for_each(borrowed_.begin(), borrowed_.end(), visit);
  }
  void borrow(const SharedList& other) {
    other.for_each_arena([&](const std::shared_ptr<Arena>& arena) {
      if (!holds(arena)) borrowed_.push_back(arena);
    });
  }

  std::vector<T*> elements_;
  std::shared_ptr<Arena> own_;                    // null, or where new elements go; copies of the list may share it
  std::vector<std::shared_ptr<Arena>> borrowed_;  // arenas of elements shared from other lists
};

}  // namespace hindcast::base
