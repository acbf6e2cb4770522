// Types and sizes of a node's outputs when it runs: the same rules, with sizes and values that are there.
#include <algorithm>

#include "engine/base/error.h"
#include "engine/ir/node_label.h"
#include "engine/ir/schema.h"

namespace pare {
namespace {

const Shape kUnranked;

class RunInference final : public InferContext {
 public:
  RunInference(const Graph& graph, const Node& node, const std::vector<TensorView>& in)
      : graph_(graph), node_(node), in_(in), values_(in.size()), out_(node.out.size()) {
    for (const TensorView& view : in) shapes_.push_back(view.present() ? Shape(view.dims) : Shape());
  }

  const Node& node() const override { return node_; }
  bool has_input(int i) const override {
    return i >= 0 && i < static_cast<int>(in_.size()) && in_[static_cast<std::size_t>(i)].present();
  }
  DType in_dtype(int i) const override {
    return has_input(i) ? in_[static_cast<std::size_t>(i)].dtype : DType::kUndefined;
  }
  const Shape& in_shape(int i) const override {
    return has_input(i) ? shapes_[static_cast<std::size_t>(i)] : kUnranked;
  }

  const Tensor* in_value(int i) override {
    if (!has_input(i)) return nullptr;
    const auto at = static_cast<std::size_t>(i);
    const TensorView& view = in_[at];
    if (at >= node_.in.size() || !graph_.is_constant(node_.in[at])) read_values_ = true;
    if (values_[at].empty()) values_[at] = Tensor::share(view.dtype, view.dims, view.data, nullptr);
    return &values_[at];
  }

  bool in_ints(int i, std::vector<SymInt>& out) override {
    if (!has_input(i)) return false;
    const TensorView& view = in_[static_cast<std::size_t>(i)];
    const bool whole = (is_integer(view.dtype) && bits(view.dtype) >= 8) || view.dtype == DType::kBool;
    if (!whole || view.dims.size() > 1) return false;
    out.clear();
    for (const std::int64_t element : in_value(i)->to_ints()) out.push_back(SymInt::of(element));
    return true;
  }

  void set_out(int i, DType dtype, Shape shape) override {
    if (!wants_output(i)) return;
    if (!shape.ranked)
      throw make_error(ErrorCode::kUnsupported, "no rule gives the rank of output {}", i).at(label(node_));
    OutputType& out = out_[static_cast<std::size_t>(i)];
    out.dtype = dtype;
    out.dims.clear();
    for (const Dim& dim : shape.dims) out.dims.push_back(dim.value);
  }

  std::vector<OutputType> take() { return std::move(out_); }
  bool read_values() const { return read_values_; }

 private:
  const Graph& graph_;
  const Node& node_;
  const std::vector<TensorView>& in_;
  std::vector<Shape> shapes_;
  std::vector<Tensor> values_;
  std::vector<OutputType> out_;
  bool read_values_ = false;
};

}  // namespace

void InferContext::bad(const std::string& what) const {
  throw make_error(ErrorCode::kBadFile, "{}: {}", node().op, what).at(label(node()));
}

bool OutputType::open() const {
  return std::any_of(dims.begin(), dims.end(), [](std::int64_t d) { return d < 0; });
}

std::vector<OutputType> infer_node(const Graph& graph, const Node& node, const std::vector<TensorView>& in,
                                   bool* read_values) {
  const OpSchema* schema = find_schema(node.domain, node.op);
  if (schema == nullptr)
    throw make_error(ErrorCode::kUnsupported, "the operator {} is not known", node.op).at(label(node));
  RunInference run(graph, node, in);
  if (run.inputs() < schema->min_in)
    run.bad(fmt::format("has {} inputs, needs {} or more", run.inputs(), schema->min_in));
  schema->infer(run);
  if (read_values != nullptr) *read_values = run.read_values();
  std::vector<OutputType> out = run.take();
  for (std::size_t i = 0; i < out.size(); ++i)
    if (node.out[i] != ValueId::kNone && out[i].dtype == DType::kUndefined)
      throw make_error(ErrorCode::kUnsupported, "no rule gives output {}", i).at(label(node));
  return out;
}

}  // namespace pare
