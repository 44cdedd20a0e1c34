#pragma once
// Why a backward was not found in the cache: as data for stats() and tests, and as a sentence for the logs, in the terms of PyTorch's
// compiled autograd tutorial.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace hindcast::cache {

// enumerator, how its sentence goes on after "Cache miss due to "
#define HC_MISS_KINDS(X)             \
  X(NewNode, "new autograd node")    \
  X(ChangedShapes, "changed shapes") \
  X(ChangedScalar, "changed scalar") \
  X(ChangedTensor, "changed tensor") \
  X(FailedGuard, "failed guard")     \
  X(LimitReached, "limit reached")

/// One reason. Which fields count depends on the kind:
///
///   NewNode        node, node_call, key_size, previous_key_sizes
///   ChangedShapes  node, node_call, size_index; made_dynamic, or before and after of a size that stays static
///   ChangedScalar  node, node_call, what ("other"), before, after, lifted
///   ChangedTensor  node, node_call, what ("self dtype Float -> Double"), or what ("self strides"), before and after
///   FailedGuard    node, node_call, what (the condition in words: "s0 == s1"), before, after
///   LimitReached   node, node_call, limit: what changed would need one variant too many
struct Miss {
  enum class Kind : uint8_t {
#define HC_ENUMERATOR(enumerator, words) enumerator,
    HC_MISS_KINDS(HC_ENUMERATOR)
#undef HC_ENUMERATOR
  };

  Kind kind = Kind::NewNode;
  std::string node;        // LibTorch's name of the node
  uint32_t node_call = 0;  // its place in the order of execution; 0 is GraphRoot

  size_t key_size = 0;                     // bytes that the node put into the key
  std::vector<size_t> previous_key_sizes;  // the same for nodes of its class at its place, in cached graphs that agree up to it

  uint32_t size_index = 0;  // index among the sizes of the whole backward
  bool made_dynamic = true;
  bool lifted = true;

  std::string what;
  std::string before;
  std::string after;

  size_t limit = 0;
  bool repeated = false;  // LimitReached: already reported for this structure
};

/// The enumerator's name, as stats() shows it.
const char* name(Miss::Kind kind);

std::string sentence(const Miss& miss);

}  // namespace hindcast::cache
