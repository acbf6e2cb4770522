// What the IR knows about each operator before any kernel: arity, and how outputs' types and shapes
// follow from the inputs. One rule serves both graphs (symbolic sizes) and runs (numbers).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/ir/graph.h"

namespace pare {

// One element of a small integer tensor as far as it is known: a number (of any sign), the size named by a
// symbol, or neither.
struct SymInt {
  bool known = false;
  std::int64_t value = 0;  // when known
  std::string symbol;      // when not known; "" = nothing is

  static SymInt of(std::int64_t v) { return {true, v, {}}; }
  static SymInt of(const Dim& dim) { return dim.known() ? of(dim.value) : SymInt{false, 0, dim.symbol}; }
  Dim dim() const { return known ? Dim::of(value) : Dim{-1, symbol}; }  // only where value >= 0
};

// What an inference rule sees of one node. Dims may be symbolic; tensors may be known or not.
class InferContext {
 public:
  virtual ~InferContext() = default;

  virtual const Node& node() const = 0;
  int inputs() const { return static_cast<int>(node().in.size()); }
  int outputs() const { return static_cast<int>(node().out.size()); }
  virtual bool has_input(int i) const = 0;  // present: in range and not left out
  bool wants_output(int i) const {
    return i < outputs() && node().out[static_cast<std::size_t>(i)] != ValueId::kNone;
  }
  virtual DType in_dtype(int i) const = 0;
  virtual const Shape& in_shape(int i) const = 0;
  virtual ValueKind in_kind(int) const { return ValueKind::kTensor; }
  // The input's value when it is known now: a constant; in a run, any input. nullptr otherwise.
  // Rules ask for it only where the output shape depends on it (Reshape's shape, Slice's starts).
  virtual const Tensor* in_value(int i) = 0;
  // An integer tensor of rank <= 1 and a known number of elements, each known or a symbol or neither (Shape
  // -> Gather -> Concat chains); false when not even that is known. Covers in_value() too.
  virtual bool in_ints(int i, std::vector<SymInt>& out) = 0;

  virtual void set_out(int i, DType dtype, Shape shape) = 0;  // an output out of range or unwanted: ignored
  // Behind set_out, where the output is no tensor: dtype and shape are those of its elements then.
  virtual void set_kind(int, ValueKind) {}
  [[noreturn]] void bad(const std::string& what) const;  // Error kBadFile naming node and op
};

struct OpSchema {
  std::string_view domain, op;
  int min_in, max_in;  // max -1: any number
  int min_out, max_out;
  void (*infer)(InferContext&);
  bool deterministic = true;  // false: random, never folded or merged
  bool tensors = true;        // false: sequences and optionals too; engine/run does it without a kernel
};

// nullptr when the IR does not know the operator.
const OpSchema* find_schema(std::string_view domain, std::string_view op);
const std::vector<const OpSchema*>& all_schemas();  // sorted by domain, op

// Fills dtype and shape of every value from inputs and constants, subgraphs included (a subgraph that other
// graphs share is copied first). Sizes already declared (by the file) are kept where the rule knows less; a
// contradiction is Error kBadFile naming the node and both shapes. Small integer tensors are followed through
// arithmetic, so a shape computed in the graph gives symbols. Unknown operators leave their outputs as
// declared.
void infer_shapes(Graph& graph);

// The same, and what is known of each small integer tensor, by value id. Of this graph only: to look into
// a subgraph, infer the whole, then ask for the subgraph.
using KnownInts = std::vector<std::optional<std::vector<SymInt>>>;
KnownInts infer_ints(Graph& graph);

struct OutputType {
  DType dtype = DType::kUndefined;
  Dims dims;  // -1: the data alone decides

  bool open() const;  // a size is -1
};
// The same rules with numbers, for one node of a run. `in[i]` has data, always. `read_values` is set
// when a rule looked at an input's data (so the result holds for these values only). Sizes that no rule
// gives, since they take the operator's own work (NonZero, Unique), come back as -1.
// Error kBadFile (shape contradiction) or kUnsupported (a type or rank that the rule cannot give).
std::vector<OutputType> infer_node(const Graph& graph, const Node& node, const std::vector<TensorView>& in,
                                   bool* read_values);

}  // namespace pare
