#include "engine/ir/graph.h"

#include <algorithm>
#include <queue>
#include <set>

#include "engine/base/error.h"

namespace pare {
namespace {

std::size_t index(ValueId id) { return static_cast<std::size_t>(id); }
std::size_t index(NodeId id) { return static_cast<std::size_t>(id); }

}  // namespace

const char* name(ValueKind kind) {
  switch (kind) {
    case ValueKind::kTensor:
      return "tensor";
    case ValueKind::kSequence:
      return "sequence";
    case ValueKind::kOptional:
      return "optional";
    case ValueKind::kOptionalSequence:
      return "optional sequence";
  }
  return "?";
}

// --- Node

bool Node::has_attr(std::string_view key) const { return attrs.find(key) != attrs.end(); }

namespace {

template <typename T>
const T* attribute(const Node& node, std::string_view key, const char* type) {
  const auto it = node.attrs.find(key);
  if (it == node.attrs.end()) return nullptr;
  if (const T* value = std::get_if<T>(&it->second)) return value;
  throw make_error(ErrorCode::kBadFile, "attribute '{}' of {} is not {}", key, node.op, type)
      .at(fmt::format("node '{}'", node.name));
}

}  // namespace

std::int64_t Node::attr(std::string_view key, std::int64_t otherwise) const {
  const auto* value = attribute<std::int64_t>(*this, key, "an integer");
  return value != nullptr ? *value : otherwise;
}

float Node::attr(std::string_view key, float otherwise) const {
  const auto* value = attribute<float>(*this, key, "a float");
  return value != nullptr ? *value : otherwise;
}

std::string Node::attr(std::string_view key, const char* otherwise) const {
  const auto* value = attribute<std::string>(*this, key, "a string");
  return value != nullptr ? *value : otherwise;
}

std::vector<std::int64_t> Node::attr_ints(std::string_view key) const {
  const auto* value = attribute<std::vector<std::int64_t>>(*this, key, "a list of integers");
  return value != nullptr ? *value : std::vector<std::int64_t>{};
}

std::vector<float> Node::attr_floats(std::string_view key) const {
  const auto* value = attribute<std::vector<float>>(*this, key, "a list of floats");
  return value != nullptr ? *value : std::vector<float>{};
}

const Tensor* Node::attr_tensor(std::string_view key) const {
  return attribute<Tensor>(*this, key, "a tensor");
}

// --- values

ValueId Graph::add_value(Value value) {
  value.name = unique_name(value.name);
  value.producer = NodeId::kNone;
  const auto id = static_cast<ValueId>(values_.size());
  by_name_.emplace(value.name, id);
  values_.push_back(std::move(value));
  users_.emplace_back();
  return id;
}

ValueId Graph::add_constant(std::string constant_name, Tensor tensor) {
  Value value;
  value.name = std::move(constant_name);
  value.dtype = tensor.dtype();
  value.shape = Shape(tensor.dims());
  value.constant = std::move(tensor);
  return add_value(std::move(value));
}

Value& Graph::value(ValueId id) {
  PARE_ASSERT(index(id) < values_.size());
  return values_[index(id)];
}

const Value& Graph::value(ValueId id) const {
  PARE_ASSERT(index(id) < values_.size());
  return values_[index(id)];
}

ValueId Graph::find_value(std::string_view value_name) const {
  const auto it = by_name_.find(value_name);
  return it == by_name_.end() ? ValueId::kNone : it->second;
}

void Graph::rename(ValueId id, std::string new_name) {
  Value& v = value(id);
  if (v.name == new_name) return;
  by_name_.erase(v.name);
  v.name = unique_name(new_name);
  by_name_.emplace(v.name, id);
}

std::string Graph::unique_name(std::string_view base) {
  constexpr int kOften = 8;
  std::string candidate(base.empty() ? "value" : base);
  if (by_name_.find(candidate) == by_name_.end()) return candidate;
  const auto known = last_suffix_.find(candidate);
  for (int i = known == last_suffix_.end() ? 1 : known->second + 1;; ++i) {
    std::string numbered = fmt::format("{}_{}", candidate, i);
    if (by_name_.find(numbered) != by_name_.end()) continue;
    if (i > kOften) last_suffix_[candidate] = i;
    return numbered;
  }
}

// --- nodes

void Graph::add_use(ValueId id, NodeId node_id, int slot) {
  auto& places = nodes_[index(node_id)].use_places;
  const auto s = static_cast<std::size_t>(slot);
  if (s >= places.size()) places.resize(s + 1, -1);
  if (id == ValueId::kNone) return;
  places[s] = static_cast<std::int32_t>(users_[index(id)].size());
  users_[index(id)].push_back({node_id, slot});
}

// Values with many users would make removing them quadratic: there the last user takes the free place.
void Graph::drop_use(ValueId id, NodeId node_id, int slot) {
  constexpr std::size_t kMany = 64;
  if (id == ValueId::kNone) return;
  auto& list = users_[index(id)];
  const auto place =
      static_cast<std::size_t>(nodes_[index(node_id)].use_places.at(static_cast<std::size_t>(slot)));
  PARE_ASSERT(place < list.size() && list[place].node == node_id && list[place].slot == slot);
  if (list.size() > kMany) {
    list[place] = list.back();
    list.pop_back();
  } else {
    list.erase(list.begin() + static_cast<std::ptrdiff_t>(place));
  }
  const std::size_t end = list.size() > kMany ? std::min(place + 1, list.size()) : list.size();
  for (std::size_t i = place; i < end; ++i)
    nodes_[index(list[i].node)].use_places[static_cast<std::size_t>(list[i].slot)] =
        static_cast<std::int32_t>(i);
}

NodeId Graph::link(Node new_node, std::int32_t before) {
  const auto id = static_cast<NodeId>(nodes_.size());
  for (const ValueId in : new_node.in)
    if (in != ValueId::kNone) PARE_ASSERT(index(in) < values_.size());
  for (std::size_t i = 0; i < new_node.out.size(); ++i) {
    if (new_node.out[i] == ValueId::kNone) continue;
    Value& result = value(new_node.out[i]);
    PARE_ASSERT(result.producer == NodeId::kNone && !result.is_constant());
    result.producer = id;
    result.producer_slot = static_cast<int>(i);
  }
  NodeSlot slot;
  slot.node = std::move(new_node);
  slot.alive = true;
  slot.next = before;
  slot.previous = before < 0 ? last_ : nodes_[static_cast<std::size_t>(before)].previous;
  const auto self = static_cast<std::int32_t>(id);
  (slot.previous < 0 ? first_ : nodes_[static_cast<std::size_t>(slot.previous)].next) = self;
  (before < 0 ? last_ : nodes_[static_cast<std::size_t>(before)].previous) = self;
  nodes_.push_back(std::move(slot));
  const Node& kept = nodes_.back().node;
  for (std::size_t i = 0; i < kept.in.size(); ++i) add_use(kept.in[i], id, static_cast<int>(i));
  ++live_;
  return id;
}

NodeId Graph::add_node(Node new_node) { return link(std::move(new_node), -1); }

NodeId Graph::insert_before(NodeId where, Node new_node) {
  PARE_ASSERT(alive(where));
  return link(std::move(new_node), static_cast<std::int32_t>(where));
}

NodeId Graph::insert_after(NodeId where, Node new_node) {
  PARE_ASSERT(alive(where));
  return link(std::move(new_node), nodes_[index(where)].next);
}

void Graph::remove_node(NodeId id) {
  PARE_ASSERT(alive(id));
  NodeSlot& slot = nodes_[index(id)];
  for (std::size_t i = 0; i < slot.node.in.size(); ++i) drop_use(slot.node.in[i], id, static_cast<int>(i));
  for (const ValueId out : slot.node.out)
    if (out != ValueId::kNone) value(out).producer = NodeId::kNone;
  (slot.previous < 0 ? first_ : nodes_[static_cast<std::size_t>(slot.previous)].next) = slot.next;
  (slot.next < 0 ? last_ : nodes_[static_cast<std::size_t>(slot.next)].previous) = slot.previous;
  slot.alive = false;
  slot.node = Node{};
  slot.use_places = {};
  --live_;
}

Node& Graph::node(NodeId id) {
  PARE_ASSERT(alive(id));
  return nodes_[index(id)].node;
}

const Node& Graph::node(NodeId id) const {
  PARE_ASSERT(alive(id));
  return nodes_[index(id)].node;
}

bool Graph::alive(NodeId id) const { return index(id) < nodes_.size() && nodes_[index(id)].alive; }

std::vector<NodeId> Graph::nodes() const {
  std::vector<NodeId> ids;
  ids.reserve(live_);
  for (std::int32_t i = first_; i >= 0; i = nodes_[static_cast<std::size_t>(i)].next)
    ids.push_back(static_cast<NodeId>(i));
  return ids;
}

void Graph::set_input(NodeId id, int slot, ValueId to) {
  Node& n = node(id);
  const auto s = static_cast<std::size_t>(slot);
  if (s >= n.in.size()) n.in.resize(s + 1, ValueId::kNone);
  if (n.in[s] == to) return;
  drop_use(n.in[s], id, slot);
  n.in[s] = to;
  add_use(to, id, slot);
}

void Graph::set_output(NodeId id, int slot, ValueId to) {
  Node& n = node(id);
  const auto s = static_cast<std::size_t>(slot);
  if (s >= n.out.size()) n.out.resize(s + 1, ValueId::kNone);
  if (n.out[s] == to) return;
  if (n.out[s] != ValueId::kNone) value(n.out[s]).producer = NodeId::kNone;
  n.out[s] = to;
  if (to == ValueId::kNone) return;
  Value& result = value(to);
  PARE_ASSERT(result.producer == NodeId::kNone && !result.is_constant());
  result.producer = id;
  result.producer_slot = slot;
}

void Graph::replace_uses(ValueId from, ValueId to) {
  PARE_ASSERT(from != to);
  const std::vector<Use> uses = std::move(users_[index(from)]);
  users_[index(from)].clear();
  for (const Use& use : uses) {
    node(use.node).in[static_cast<std::size_t>(use.slot)] = to;
    add_use(to, use.node, use.slot);
  }
  for (ValueId& output : outputs)
    if (output == from) output = to;
}

// --- structure

const std::vector<Use>& Graph::users(ValueId id) const {
  PARE_ASSERT(index(id) < users_.size());
  return users_[index(id)];
}

bool Graph::is_output(ValueId id) const {
  return std::find(outputs.begin(), outputs.end(), id) != outputs.end();
}
bool Graph::is_input(ValueId id) const { return std::find(inputs.begin(), inputs.end(), id) != inputs.end(); }

NodeId Graph::only_user(ValueId id) const {
  const std::vector<Use>& uses = users(id);
  return uses.size() == 1 && !is_output(id) ? uses[0].node : NodeId::kNone;
}

void Graph::sort() {
  // Kahn's algorithm; among the ready nodes the one that stands first today goes first.
  const std::vector<NodeId> order = nodes();
  std::vector<std::size_t> place(nodes_.size()), waiting(nodes_.size());
  for (std::size_t i = 0; i < order.size(); ++i) place[index(order[i])] = i;
  std::priority_queue<std::size_t, std::vector<std::size_t>, std::greater<>> ready;
  for (const NodeId id : order) {
    std::size_t count = 0;
    for (const ValueId in : node(id).in)
      if (in != ValueId::kNone && value(in).producer != NodeId::kNone) ++count;
    waiting[index(id)] = count;
    if (count == 0) ready.push(place[index(id)]);
  }
  std::vector<NodeId> sorted;
  sorted.reserve(order.size());
  while (!ready.empty()) {
    const NodeId id = order[ready.top()];
    ready.pop();
    sorted.push_back(id);
    for (const ValueId out : node(id).out) {
      if (out == ValueId::kNone) continue;
      for (const Use& use : users(out))
        if (--waiting[index(use.node)] == 0) ready.push(place[index(use.node)]);
    }
  }
  if (sorted.size() != order.size()) {
    for (const NodeId id : order)
      if (waiting[index(id)] != 0)
        throw make_error(ErrorCode::kBadFile, "the graph has a cycle through a {} node", node(id).op)
            .at(fmt::format("node '{}'", node(id).name));
  }
  std::int32_t previous = -1;
  first_ = last_ = -1;
  for (const NodeId id : sorted) {
    NodeSlot& slot = nodes_[index(id)];
    slot.previous = previous;
    slot.next = -1;
    (previous < 0 ? first_ : nodes_[static_cast<std::size_t>(previous)].next) = static_cast<std::int32_t>(id);
    previous = last_ = static_cast<std::int32_t>(id);
  }
}

void Graph::drop_unused_values() {
  std::set<ValueId> kept(outputs.begin(), outputs.end());
  kept.insert(inputs.begin(), inputs.end());
  for (const Capture& capture : captures) kept.insert(capture.inner);
  for (std::size_t i = 0; i < values_.size(); ++i) {
    Value& v = values_[i];
    if (v.producer != NodeId::kNone || !users_[i].empty() || kept.count(static_cast<ValueId>(i)) != 0)
      continue;
    const auto it = by_name_.find(v.name);
    if (it != by_name_.end() && it->second == static_cast<ValueId>(i)) by_name_.erase(it);
    v = Value{};
  }
}

}  // namespace pare
