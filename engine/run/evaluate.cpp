#include "engine/run/evaluate.h"

#include "engine/base/error.h"
#include "engine/ir/schema.h"
#include "engine/ops/registry.h"

namespace pare {
namespace {

class OwnedOutputs final : public OutputAllocator {
 public:
  OwnedOutputs(const std::vector<OutputType>& types, std::vector<Tensor>& outputs)
      : types_(types), outputs_(outputs) {}
  void* allocate(int i, const Dims& dims) override {
    const auto at = static_cast<std::size_t>(i);
    outputs_[at] = Tensor::allocate(types_[at].dtype, dims);
    return outputs_[at].view().data;
  }

 private:
  const std::vector<OutputType>& types_;
  std::vector<Tensor>& outputs_;
};

const Kernel& last_that_takes(const OpCall& call) {
  const Kernel* last = &cpu_registry().pick(call, Backend::kCpu, true);  // or Error with every reason
  for (const Kernel* kernel : cpu_registry().candidates(call.node->domain, call.node->op, Backend::kCpu))
    if (kernel->why_not(call).empty()) last = kernel;
  return *last;
}

std::vector<Tensor> evaluate(const Graph& graph, const Node& node, const std::vector<Tensor>& inputs,
                             bool by_reference) {
  PARE_ASSERT(inputs.size() == node.in.size());
  std::vector<TensorView> in, out;
  for (const Tensor& tensor : inputs) in.push_back(tensor.empty() ? TensorView{} : tensor.view());
  bool reads_values = false;
  const std::vector<OutputType> types = infer_node(graph, node, in, &reads_values);
  std::vector<Tensor> outputs;
  for (const OutputType& type : types) {
    const bool made_in_run = type.open() || type.dtype == DType::kUndefined;
    outputs.push_back(made_in_run ? Tensor() : Tensor::allocate(type.dtype, type.dims));
    out.push_back(made_in_run ? TensorView{type.dtype, type.dims, nullptr} : outputs.back().view());
  }
  OwnedOutputs allocator(types, outputs);
  ThreadPool pool(1);
  Scratch scratch;
  OpCall call{&node, in, out, &pool, &scratch, nullptr, nullptr, &allocator, 0};
  const Kernel& kernel =
      by_reference ? last_that_takes(call) : cpu_registry().pick(call, Backend::kCpu, true);
  if (kernel.alias >= 0) {
    const Tensor& source = inputs[static_cast<std::size_t>(kernel.alias)];
    const std::int64_t offset = kernel.alias_offset != nullptr ? kernel.alias_offset(call) : 0;
    const auto* begin = static_cast<const std::byte*>(source.data()) + offset;
    outputs[0] = Tensor::share(types[0].dtype, types[0].dims, begin, nullptr).clone();
    return outputs;
  }
  std::shared_ptr<const void> prepared;
  if (kernel.prepare != nullptr) prepared = kernel.prepare(call);
  call.prepared = prepared.get();
  kernel.run(call);
  return outputs;
}

}  // namespace

std::vector<Tensor> evaluate_node(const Graph& graph, const Node& node, const std::vector<Tensor>& inputs) {
  return evaluate(graph, node, inputs, false);
}

std::vector<Tensor> evaluate_node_by_reference(const Graph& graph, const Node& node,
                                               const std::vector<Tensor>& inputs) {
  return evaluate(graph, node, inputs, true);
}

bool is_foldable(const Graph& graph, const Node& node) {
  const OpSchema* schema = find_schema(node.domain, node.op);
  if (schema == nullptr || !schema->deterministic || (!schema->tensors && node.op != "Identity"))
    return false;
  for (const ValueId in : node.in)
    if (in != ValueId::kNone && !graph.is_constant(in)) return false;
  for (const auto& [key, attribute] : node.attrs)
    if (std::holds_alternative<std::shared_ptr<Graph>>(attribute)) return false;
  return true;
}

std::vector<Tensor> evaluate_constant_node(const Graph& graph, const Node& node) {
  std::vector<Tensor> inputs;
  for (const ValueId in : node.in)
    inputs.push_back(in == ValueId::kNone ? Tensor{} : graph.value(in).constant);
  return evaluate_node(graph, node, inputs);
}

}  // namespace pare
