#pragma once

/// Legal access to the few LibTorch members that the hit path needs and LibTorch keeps private.
///
/// Unpacking a SavedVariable costs an allocation for an output, a version check and a reference
/// count; the key and the guards only need to look. So we read the members in place.
///
/// The mechanism: access rules do not apply to the arguments of an explicit template instantiation
/// ([temp.spec.general]), which here defines a friend that returns the pointer to member. No cast, no
/// assumption about layout: if LibTorch renames a member, this header fails to compile.
/// Everything folds to one load. Nothing here may be called while another thread can release the
/// node's variables: hold node_mutex(node).

#include <mutex>

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>

namespace hindcast::capture {

namespace access {

template <class Tag, typename Tag::Pointer kMember>
struct Grant {
  friend constexpr typename Tag::Pointer pointer_to(Tag) { return kMember; }
};

template <class Member>
using SavedVariablePointer = Member torch::autograd::SavedVariable::*;

struct Data {
  using Pointer = SavedVariablePointer<at::Tensor>;
  friend constexpr Pointer pointer_to(Data);
};
struct SavedVersion {
  using Pointer = SavedVariablePointer<uint32_t>;
  friend constexpr Pointer pointer_to(SavedVersion);
};
struct WasDefaultConstructed {
  using Pointer = SavedVariablePointer<bool>;
  friend constexpr Pointer pointer_to(WasDefaultConstructed);
};

template struct Grant<Data, &torch::autograd::SavedVariable::data_>;
template struct Grant<SavedVersion, &torch::autograd::SavedVariable::saved_version_>;
template struct Grant<WasDefaultConstructed, &torch::autograd::SavedVariable::was_default_constructed_>;

// Node::mutex_ is protected, so a derived class may name it; the pointer it forms is one to a member
// of Node and applies to any node.
struct NodeMutex : torch::autograd::Node {
  static std::mutex& of(torch::autograd::Node& node) { return node.*(&NodeMutex::mutex_); }
};

}  // namespace access

/// The saved tensor, or its detached twin for an output; undefined if none was saved, if it was
/// released, or if saved-tensor hooks hold it. get_raw_data() gives the same, but counts a reference.
inline const at::Tensor& saved_data(const torch::autograd::SavedVariable& variable) { return variable.*pointer_to(access::Data{}); }

/// The tensor's version when it was saved; unpack() throws when it has moved on, so a hit must compare.
inline uint32_t saved_version(const torch::autograd::SavedVariable& variable) { return variable.*pointer_to(access::SavedVersion{}); }

/// True if there never was a tensor. Distinguishes "None was saved", which is fine, from "already released", which is the stock engine's
/// "second time" error.
inline bool was_default_constructed(const torch::autograd::SavedVariable& variable) {
  return variable.*pointer_to(access::WasDefaultConstructed{});
}

/// The lock under which a node's saved variables are read and released, and `.grad` is accumulated.
/// Node::operator() and release_variables() take it themselves: never hold it around them.
inline std::mutex& node_mutex(torch::autograd::Node& node) { return access::NodeMutex::of(node); }

}  // namespace hindcast::capture
