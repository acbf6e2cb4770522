#include "graphsurgeon/forms/tensorrt_forms.h"

#include "engine/base/error.h"
#include "graphsurgeon/forms/qoperator_tools.h"

namespace pare {
namespace {

constexpr const char* kDomain = "trt";

class ToTensorRT {
 public:
  ToTensorRT(Graph& graph, QuantizedFormReport& report) : graph_(graph), report_(report) {}

  void run() {
    for (const NodeId id : graph_.nodes()) {
      if (!graph_.alive(id)) continue;
      if (graph_.node(id).is("QuantizeLinear"))
        quantize(id);
      else if (graph_.node(id).is("DequantizeLinear"))
        dequantize(id);
    }
    remove_unread(graph_, {"QuantizeLinear", "DequantizeLinear", "Cast", "Div", "Max", "Mul", "Reshape",
                           "ReduceMax", "Abs", "Pad", "Shape", "Concat"});
    graph_.drop_unused_values();
  }

 private:
  DType type(ValueId id) const { return id == ValueId::kNone ? DType::kUndefined : graph_.value(id).dtype; }

  const Node* producer(ValueId id) const {
    const NodeId node = id == ValueId::kNone ? NodeId::kNone : graph_.producer(id);
    return node == NodeId::kNone ? nullptr : &graph_.node(node);
  }

  static Attributes kept(const Node& node, std::initializer_list<const char*> keys) {
    Attributes attrs;
    for (const char* key : keys)
      if (const auto it = node.attrs.find(key); it != node.attrs.end()) attrs[key] = it->second;
    return attrs;
  }

  // A node in place of another; `extra` are further outputs that nobody produced before.
  void replace(NodeId id, const char* op, std::vector<ValueId> in, Attributes attrs,
               const std::vector<ValueId>& extra = {}) {
    const Node old = graph_.node(id);
    Node node;
    node.domain = kDomain;
    node.op = op;
    node.name = old.name;
    node.in = std::move(in);
    node.attrs = std::move(attrs);
    Value held = graph_.value(old.out[0]);
    held.name += "_trt";
    node.out = {graph_.add_value(std::move(held))};
    node.out.insert(node.out.end(), extra.begin(), extra.end());
    const NodeId made = graph_.insert_before(id, std::move(node));
    graph_.remove_node(id);
    graph_.set_output(made, 0, old.out[0]);
    ++report_.converted[op];
  }

  ValueId scales_value(ValueId codes, const char* suffix, DType dtype) {
    Value value;
    value.name = graph_.value(codes).name + suffix;
    value.dtype = dtype;
    return graph_.add_value(std::move(value));
  }

  void quantize(NodeId id) {
    const Node node = graph_.node(id);
    const DType code = type(node.out[0]);
    if (graph_.is_constant(node.in[0])) return;
    const bool constant_scale = graph_.is_constant(node.in[1]);
    if (code == DType::kE2M1 && !constant_scale) {
      // Its scale: DequantizeLinear(E4M3 codes, global).
      const NodeId wide = graph_.producer(node.in[1]);
      if (wide == NodeId::kNone || !graph_.node(wide).is("DequantizeLinear") ||
          type(graph_.node(wide).in[0]) != DType::kE4M3FN)
        return leave(node, "its block scales are not made in the form of NVFP4");
      const ValueId global = graph_.node(wide).in[1];
      const ValueId scales = scales_value(node.out[0], "_scales", DType::kE4M3FN);
      Attributes attrs = kept(node, {"axis", "block_size"});
      attrs["scale_type"] = static_cast<std::int64_t>(DType::kE4M3FN);
      replace(id, "TRT_FP4DynamicQuantize", {node.in[0], global}, std::move(attrs), {scales});
      // The scale that DequantizeLinear reads comes from these scales, behind the new node.
      Node again = graph_.node(wide);
      graph_.remove_node(wide);
      const ValueId result = again.out[0];
      again.in[0] = scales;
      Value held = graph_.value(result);
      held.name += "_trt";
      again.out = {graph_.add_value(std::move(held))};
      const NodeId made = graph_.insert_after(graph_.producer(node.out[0]), std::move(again));
      graph_.set_output(made, 0, result);
      return;
    }
    if (code == DType::kE4M3FN && type(node.in[1]) == DType::kE8M0 && !constant_scale) {
      const ValueId bytes = scales_value(node.out[0], "_scales", DType::kU8);
      mx_scales_[node.in[1]] = bytes;
      replace(id, "TRT_MXFP8DynamicQuantize", {node.in[0]}, kept(node, {"axis", "block_size"}), {bytes});
      return;
    }
    if (code == DType::kE4M3FN && constant_scale && type(node.in[1]) == DType::kF32)
      replace(id, "TRT_FP8QuantizeLinear", {node.in[0], node.in[1]}, kept(node, {"axis"}));
  }

  void dequantize(NodeId id) {
    const Node node = graph_.node(id);
    const DType code = type(node.in[0]), scale = type(node.in[1]);
    const Attributes attrs = kept(node, {"axis", "block_size"});
    if (scale == DType::kE8M0) {
      if (code != DType::kE4M3FN) return leave(node, "TensorRT has power-of-two scales for MXFP8 only");
      ValueId bytes = ValueId::kNone;
      if (graph_.is_constant(node.in[1])) {
        const Tensor& powers = graph_.value(node.in[1]).constant;
        const auto owner = std::make_shared<Tensor>(powers);
        bytes = graph_.add_constant(graph_.value(node.in[1]).name + "_bytes",
                                    Tensor::share(DType::kU8, powers.dims(), powers.data(), owner));
      } else if (const auto it = mx_scales_.find(node.in[1]); it != mx_scales_.end()) {
        bytes = it->second;
      }
      if (bytes == ValueId::kNone) return leave(node, "its block scales are computed");
      return replace(id, "TRT_MXFP8DequantizeLinear", {node.in[0], bytes}, attrs);
    }
    if (scale != DType::kF32) return;
    // E4M3 scales of NVFP4 stay standard, as their codes do.
    const bool scales_of_fp4 = !graph_.users(node.out[0]).empty() && [&] {
      for (const Use& use : graph_.users(node.out[0])) {
        const Node& reader = graph_.node(use.node);
        if (!reader.is("DequantizeLinear") && !reader.is("QuantizeLinear")) return false;
      }
      return true;
    }();
    if (code == DType::kE4M3FN && !scales_of_fp4)
      replace(id, "TRT_FP8DequantizeLinear", {node.in[0], node.in[1]}, attrs);
    else if (code == DType::kI4 && node.attr("block_size", std::int64_t{0}) > 0)
      replace(id, "TRT_INT4DequantizeLinear", {node.in[0], node.in[1]}, attrs);
  }

  void leave(const Node& node, const char* why) {
    report_.left.push_back({node.name.empty() ? graph_.value(node.out[0]).name : node.name, why});
  }

  Graph& graph_;
  QuantizedFormReport& report_;
  std::map<ValueId, ValueId> mx_scales_;  // E8M0 scales of the chain, and the uint8 ones in their place
};

}  // namespace

QuantizedFormReport to_tensorrt_forms(Graph& graph) {
  QuantizedFormReport report;
  for_each_graph(graph, [&](Graph& one) { ToTensorRT(one, report).run(); });
  return report;
}

}  // namespace pare
