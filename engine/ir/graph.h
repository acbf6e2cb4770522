// The one graph of pare: CNNs, encoders and language models, whatever file they came from.
//
//   Value  an edge: a name, a dtype, a shape; a constant, a graph input, or one node's output (SSA)
//   Node   an operator in its canonical form (the meaning of the newest opset), by (domain, op)
//   Graph  owns both in arrays; everything refers to them by index, so a graph is copied by copying
//
// Ids stay valid when others are removed. nodes() walks the live nodes in an order in which producers
// stand before consumers; edits keep that order, or call sort() before anyone looks.
//
// A subgraph (If, Loop, Scan) is an attribute. What it captures from outside are further inputs of its
// node, behind the declared ones, so that users() is complete; Graph::captures says which is which.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "engine/base/tensor.h"
#include "engine/ir/shape.h"

namespace pare {

class Graph;

enum class ValueId : std::int32_t { kNone = -1 };
enum class NodeId : std::int32_t { kNone = -1 };

using Attribute = std::variant<std::int64_t, float, std::string, std::vector<std::int64_t>,
                               std::vector<float>, std::vector<std::string>, Tensor, std::shared_ptr<Graph>>;
using Attributes = std::map<std::string, Attribute, std::less<>>;

// How a rank-4 (or N-d) activation lies in memory. Shapes of kChannelsLast values are physical:
// [N,H,W,C]. Only lowered graphs (engine/build) hold such values.
enum class Layout : std::uint8_t { kPlain, kChannelsLast };

// What a value holds. dtype and shape of a sequence are those of its elements (the shape as far as they have
// it in common), of an optional those of what it holds when it does.
enum class ValueKind : std::uint8_t { kTensor, kSequence, kOptional, kOptionalSequence };
const char* name(ValueKind kind);  // "tensor", "sequence", "optional", "optional sequence"

struct Value {
  std::string name;    // unique in its graph
  std::string origin;  // the name in the source model, "" when it has no counterpart there
  DType dtype = DType::kUndefined;
  Shape shape;
  Tensor constant;  // not empty: a constant
  Layout layout = Layout::kPlain;
  ValueKind kind = ValueKind::kTensor;
  NodeId producer = NodeId::kNone;  // kept by Graph
  int producer_slot = 0;            // which output of it

  bool is_constant() const { return !constant.empty(); }
};

struct Node {
  std::string name;    // may be empty
  std::string domain;  // "" = ai.onnx; "pare" = made by lowering, never written to a file
  std::string op;
  std::vector<ValueId> in;   // kNone: an optional input left out. Captured values stand last
  std::vector<ValueId> out;  // kNone: an optional output nobody wants
  int declared_inputs = -1;  // in.size() before captures; -1: no captures
  Attributes attrs;
  std::shared_ptr<const Graph> fallback;  // the operator's function body, run when no kernel takes it

  bool is(std::string_view op_name) const { return domain.empty() && op == op_name; }
  bool is(std::string_view domain_name, std::string_view op_name) const {
    return domain == domain_name && op == op_name;
  }
  // The attribute, or the default when it is absent. Error kBadFile when it has another type.
  bool has_attr(std::string_view key) const;
  std::int64_t attr(std::string_view key, std::int64_t otherwise) const;
  float attr(std::string_view key, float otherwise) const;
  std::string attr(std::string_view key, const char* otherwise) const;
  std::vector<std::int64_t> attr_ints(std::string_view key) const;  // {} when absent
  std::vector<float> attr_floats(std::string_view key) const;
  const Tensor* attr_tensor(std::string_view key) const;  // nullptr when absent
};

struct Use {
  NodeId node;
  int slot;
};

struct Capture {
  int input;      // index in the owning node's `in`
  ValueId inner;  // the value that stands for it inside
};

class Graph {
 public:
  std::string name;
  std::vector<ValueId> inputs;                  // without constants
  std::vector<ValueId> outputs;                 // a value may stand here twice
  std::vector<Capture> captures;                // subgraphs only
  int opset = 0;                                // ai.onnx opset of the source file; 0 when there was none
  std::map<std::string, std::string> metadata;  // metadata_props of the source file

  // --- values
  ValueId add_value(Value value);                         // the name is made unique by a suffix if taken
  ValueId add_constant(std::string name, Tensor tensor);  // dtype and shape come from the tensor
  Value& value(ValueId id);
  const Value& value(ValueId id) const;
  std::size_t value_count() const { return values_.size(); }  // ids are 0 .. count-1, unused ones included
  ValueId find_value(std::string_view value_name) const;      // kNone when there is none
  void rename(ValueId id, std::string new_name);              // made unique like add_value
  std::string unique_name(std::string_view base);

  // --- nodes
  // Appends, or inserts before/after another. Outputs must be values without a producer.
  NodeId add_node(Node node);
  NodeId insert_before(NodeId where, Node node);
  NodeId insert_after(NodeId where, Node node);
  void remove_node(NodeId id);  // its outputs lose their producer
  Node& node(NodeId id);        // do not change in/out through this: use set_input and set_output
  const Node& node(NodeId id) const;
  bool alive(NodeId id) const;
  std::size_t node_count() const { return live_; }
  std::size_t node_capacity() const { return nodes_.size(); }  // ids are below this
  std::vector<NodeId> nodes() const;  // live nodes in order; a copy, so edits while walking are safe

  void set_input(NodeId id, int slot, ValueId value);   // grows `in` with kNone as needed
  void set_output(NodeId id, int slot, ValueId value);  // the old output loses its producer
  // Every use of `from` (subgraph captures and graph outputs included) becomes one of `to`.
  void replace_uses(ValueId from, ValueId to);

  // --- structure
  // Nodes only; each (node, slot) once, in the order in which they came unless they are many.
  const std::vector<Use>& users(ValueId id) const;
  bool is_output(ValueId id) const;
  bool is_input(ValueId id) const;
  NodeId producer(ValueId id) const { return value(id).producer; }
  // The only user of a value that is no graph output, else kNone.
  NodeId only_user(ValueId id) const;
  bool is_constant(ValueId id) const { return id != ValueId::kNone && value(id).is_constant(); }

  void sort();                // stable topological order; Error kBadFile naming a node of a cycle
  void drop_unused_values();  // constants without users lose their data

 private:
  struct NodeSlot {
    Node node;
    std::vector<std::int32_t> use_places;  // of each input in the list of its value's users
    bool alive = false;
    std::int32_t previous = -1, next = -1;  // the order
  };
  struct NameHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  template <typename T>
  using ByName = std::unordered_map<std::string, T, NameHash, std::equal_to<>>;
  NodeId link(Node node, std::int32_t before);
  void add_use(ValueId id, NodeId node, int slot);
  void drop_use(ValueId id, NodeId node, int slot);

  std::vector<Value> values_;
  std::vector<std::vector<Use>> users_;
  std::vector<NodeSlot> nodes_;
  std::int32_t first_ = -1, last_ = -1;
  std::size_t live_ = 0;
  ByName<ValueId> by_name_;
  ByName<int> last_suffix_;  // of names that were taken often: where to go on looking for a free one
};

// Checks what every pass and kernel takes for granted: SSA, order, ids in range, use lists, unique names,
// known operators (schema.h), arity, constants whose tensor fits dtype and shape. Error kBadFile on the
// first violation, naming the node. Subgraphs included.
void verify(const Graph& graph);

// A readable listing, one node a line; equal graphs give equal text. Constants by dtype, shape, hash.
std::string to_text(const Graph& graph);

}  // namespace pare
