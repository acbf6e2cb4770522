// What the rules of raising share. Only raise*.cpp include this.
#pragma once

#include <string>
#include <utility>
#include <variant>

#include "engine/base/error.h"
#include "graphsurgeon/onnx/raise/raise.h"

namespace pare {

// A rule rewrites the node in place; it returns false when it has appended everything itself.
using RaiseRule = bool (*)(Raiser&, Node&);

struct RaiseEntry {
  const char* op;
  int below;  // applies to nodes of opsets below this one
  RaiseRule rule;
};

// The rules of opsets below 7 (raise_oldest.cpp); they come before all others.
struct RaiseList {
  const RaiseEntry* first;
  std::size_t count;
};
RaiseList oldest_rules();

bool raise_scan_8(Raiser&, Node&);  // raise_bodies.cpp
bool raise_group_normalization(Raiser&, Node&);
bool raise_batch_normalization(Raiser&, Node&);

// A scalar. Error kUnsupported, naming `what`, for types without arithmetic.
Tensor typed_number(DType type, float value, const char* what);

std::string raised_name(const Node& node);  // its name, or its operator

// Takes an attribute off the node; false when it is not there. Error kBadFile when it has another type.
template <typename T>
bool take(Node& node, const char* key, T& out) {
  const auto it = node.attrs.find(key);
  if (it == node.attrs.end()) return false;
  T* value = std::get_if<T>(&it->second);
  if (value == nullptr) fail(ErrorCode::kBadFile, "attribute '{}' has the wrong type", key);
  out = std::move(*value);
  node.attrs.erase(it);
  return true;
}

inline void put_input(Node& node, std::size_t slot, ValueId id) {
  if (node.in.size() <= slot) node.in.resize(slot + 1, ValueId::kNone);
  node.in[slot] = id;
}

// Appends a node with one output, which stands for "what" of `node`, and returns that output.
ValueId emit_step(Raiser& r, const Node& node, const char* what, const char* op, std::vector<ValueId> in,
                  Attributes attrs = {});

}  // namespace pare
