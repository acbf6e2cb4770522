// One walk in order. `twin[v]` is the channels-last value that holds what the plain value v holds. A node
// that can work channels-last and has a twin among its inputs does so and gives its output a twin; any
// other node gets plain inputs, made by a ToPlain where only the twin exists. A model that keeps its images
// channels-last and transposes them around its convolutions loses those Transposes.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "engine/base/error.h"
#include "engine/build/lower/lowering.h"
#include "engine/run/evaluate.h"

namespace pare::lowering {
namespace {

// [N,C,H,W] -> [N,H,W,C]: where each plain axis goes.
constexpr std::array<std::int64_t, 4> kAxisOf = {0, 3, 1, 2};

bool is_transpose(const Node& node, const std::vector<std::int64_t>& perm) {
  return node.is("Transpose") && node.attr_ints("perm") == perm;
}

bool is_unary(const Node& node) {
  static const char* const kOps[] = {
      "Relu", "Clip", "Sigmoid", "Tanh",      "HardSwish", "HardSigmoid", "Gelu", "Erf",      "Sqrt",
      "Exp",  "Neg",  "Abs",     "LeakyRelu", "Elu",       "Softplus",    "Mish", "Identity", "Reciprocal",
      "Log",  "Selu", "Floor",   "Ceil",      "Sign",      "Cast",        "Swish"};
  if (!node.domain.empty()) return false;
  return std::any_of(std::begin(kOps), std::end(kOps), [&](const char* op) { return node.op == op; });
}

bool is_binary(const Node& node) {
  static const char* const kOps[] = {"Add", "Mul", "Sub", "Div", "Max", "Min"};
  if (!node.domain.empty() || node.in.size() != 2) return false;
  return std::any_of(std::begin(kOps), std::end(kOps), [&](const char* op) { return node.op == op; });
}

bool is_quantizer(const Node& node) {
  return node.is("QuantizeLinear") || node.is("DequantizeLinear") || node.is("pare", "FakeQuant");
}

class Assigner {
 public:
  Assigner(Graph& graph, std::vector<ValueId>& twin) : graph_(graph), source_twin_(twin) {
    for (const Capture& capture : graph.captures) captured_.insert(capture.inner);
  }

  void run() {
    for (const NodeId id : graph_.nodes()) {
      if (!graph_.alive(id)) continue;
      if (!visit(id)) make_inputs_plain(id);
    }
    for (const ValueId plain : bypassed_)
      if (graph_.users(plain).empty() && !graph_.is_output(plain) && graph_.producer(plain) != NodeId::kNone)
        graph_.remove_node(graph_.producer(plain));
    for (const ValueId out : std::vector<ValueId>(graph_.outputs)) {
      if (has_plain(out) || !has_twin(out)) continue;
      add_to_plain(out, NodeId::kNone);
    }
    for (const auto& [plain, physical] : twins_)
      if (static_cast<std::size_t>(plain) < source_twin_.size() && !has_plain(plain))
        source_twin_[static_cast<std::size_t>(plain)] = physical;
  }

 private:
  bool has_twin(ValueId id) const { return twins_.find(id) != twins_.end(); }
  bool has_plain(ValueId id) const {
    return graph_.producer(id) != NodeId::kNone || graph_.is_input(id) || graph_.is_constant(id) ||
           captured_.count(id) != 0;
  }
  bool is_map(ValueId id) const { return id != ValueId::kNone && graph_.value(id).shape.rank() == 4; }

  static Shape physical(const Shape& plain) {
    return Shape({plain.dims[0], plain.dims[2], plain.dims[3], plain.dims[1]});
  }

  ValueId new_twin(ValueId plain) {
    Value value = graph_.value(plain);
    value.name += "_nhwc";
    value.constant = {};
    value.shape = physical(value.shape);
    value.layout = Layout::kChannelsLast;
    const ValueId id = graph_.add_value(std::move(value));
    twins_[plain] = id;
    return id;
  }

  // The channels-last value of a plain rank-4 one; made before `where` if it is not there yet.
  ValueId twin_of(ValueId plain, NodeId where) {
    const auto it = twins_.find(plain);
    if (it != twins_.end()) return it->second;
    Node node;
    const NodeId from = graph_.producer(plain);
    if (from != NodeId::kNone && is_transpose(graph_.node(from), {0, 3, 1, 2})) {
      node.op = "Identity";  // what the Transpose reads is the channels-last value
      node.in = {graph_.node(from).in[0]};
      bypassed_.push_back(plain);
    } else {
      node.domain = "pare";
      node.op = "ToChannelsLast";
      node.in = {plain};
    }
    node.name = graph_.value(plain).name + "_to_nhwc";
    node.out = {new_twin(plain)};
    const ValueId id = node.out[0];
    graph_.insert_before(where, std::move(node));
    return id;
  }

  void add_to_plain(ValueId plain, NodeId where) {
    Node node;
    node.domain = "pare";
    node.op = "ToPlain";
    node.name = graph_.value(plain).name + "_to_nchw";
    node.in = {twins_.at(plain)};
    node.out = {plain};
    if (where == NodeId::kNone) {
      graph_.add_node(std::move(node));
    } else {
      graph_.insert_before(where, std::move(node));
    }
  }

  void make_inputs_plain(NodeId id) {
    const std::vector<ValueId> in = graph_.node(id).in;
    for (const ValueId v : in)
      if (v != ValueId::kNone && !has_plain(v) && has_twin(v)) add_to_plain(v, id);
  }

  // Puts `node` (with channels-last inputs already) in the place of `id`.
  void replace(NodeId id, Node node) {
    const ValueId plain_out = graph_.node(id).out[0];
    node.out = {new_twin(plain_out)};
    graph_.insert_before(id, std::move(node));
    graph_.remove_node(id);
  }

  bool visit(NodeId id) {
    const Node node = graph_.node(id);
    if (node.is("pare", "ToPlain")) {
      twins_[node.out[0]] = node.in[0];
      graph_.remove_node(id);
      return true;
    }
    if (node.is("pare", "ToChannelsLast")) {
      const auto it = twins_.find(node.in[0]);
      if (it == twins_.end()) {
        twins_[node.in[0]] = node.out[0];
        return true;
      }
      graph_.remove_node(id);
      graph_.replace_uses(node.out[0], it->second);
      return true;
    }
    if (node.is("pare", "Conv") || node.is("pare", "ConvTranspose")) return visit_conv(id, node);
    if (node.out.empty() || node.out[0] == ValueId::kNone || !is_map(node.out[0])) return false;
    if (node.is("MaxPool") || node.is("AveragePool") || node.is("GlobalAveragePool"))
      return visit_pool(id, node);
    bool any_twin = false;
    for (const ValueId in : node.in) any_twin = any_twin || (in != ValueId::kNone && has_twin(in));
    if (!any_twin) return false;
    if (is_transpose(node, {0, 2, 3, 1})) {  // the channels-last value is what it would write
      graph_.set_input(id, 0, twins_.at(node.in[0]));
      graph_.node(id).op = "Identity";
      graph_.node(id).attrs.clear();
      return true;
    }
    if (is_unary(node) || is_quantizer(node) || node.is("pare", "QLookup")) return visit_unary(id, node);
    if (node.is("pare", "QAdd")) return visit_code_sum(id, node);
    if (is_binary(node)) return visit_binary(id, node);
    if (node.is("Concat")) return visit_concat(id, node);
    if (node.is("ReduceMean")) return visit_reduce(id, node);
    if (node.is("Resize")) return visit_resize(id, node);
    if (node.is("BatchNormalization") && node.out.size() == 1) return visit_batchnorm(id, node);
    return false;
  }

  bool visit_conv(NodeId id, const Node& node) {
    Node changed = node;
    changed.in[0] = twin_of(node.in[0], id);
    if (node.in.size() > 3 && node.in[3] != ValueId::kNone) changed.in[3] = twin_of(node.in[3], id);
    replace(id, std::move(changed));
    return true;
  }

  bool visit_pool(NodeId id, const Node& node) {
    const bool float32 = graph_.value(node.in[0]).dtype == DType::kF32;
    if (!has_twin(node.in[0]) || !float32 || node.out.size() != 1 ||
        node.attr("auto_pad", "NOTSET") != "NOTSET")
      return false;
    for (const std::int64_t d : node.attr_ints("dilations"))
      if (d != 1) return false;
    Node changed = node;
    changed.domain = "pare";
    changed.in[0] = twins_.at(node.in[0]);
    replace(id, std::move(changed));
    return true;
  }

  bool visit_unary(NodeId id, const Node& node) {
    if (!has_twin(node.in[0])) return false;
    Node changed = node;
    changed.in[0] = twins_.at(node.in[0]);
    if (is_quantizer(node)) {
      const std::int64_t scale_rank = graph_.value(node.in[1]).shape.rank();
      const bool per_tensor = graph_.is_constant(node.in[1]) && graph_.value(node.in[1]).constant.size() == 1;
      if (!per_tensor) {
        const std::int64_t axis = node.attr("axis", std::int64_t{1});
        if (scale_rank != 1 || axis < 0 || axis > 3) return false;
        changed.attrs["axis"] = kAxisOf[static_cast<std::size_t>(axis)];
      }
    }
    replace(id, std::move(changed));
    return true;
  }

  // A constant that broadcasts against [N,C,H,W], reshaped and transposed to do so against [N,H,W,C].
  ValueId constant_twin(ValueId id) {
    const Tensor& tensor = graph_.value(id).constant;
    if (tensor.size() == 1) return id;
    if (tensor.dims().size() > 4 || bits(tensor.dtype()) % 8 != 0) return ValueId::kNone;
    Dims four(4 - tensor.dims().size(), 1);
    four.insert(four.end(), tensor.dims().begin(), tensor.dims().end());
    Node transpose;
    transpose.op = "Transpose";
    transpose.attrs["perm"] = std::vector<std::int64_t>{0, 2, 3, 1};
    transpose.in = {id};
    transpose.out = {id};  // any value: an output that nobody wants is not computed
    Tensor moved = evaluate_node(graph_, transpose, {tensor.reshaped(four)})[0];
    return graph_.add_constant(graph_.value(id).name + "_nhwc", std::move(moved));
  }

  bool visit_binary(NodeId id, const Node& node) {
    Node changed = node;
    for (const ValueId in : node.in)
      if (!graph_.is_constant(in) && !is_map(in)) return false;
    for (ValueId& in : changed.in) {
      in = graph_.is_constant(in) ? constant_twin(in) : twin_of(in, id);
      if (in == ValueId::kNone) return false;
    }
    replace(id, std::move(changed));
    return true;
  }

  bool visit_code_sum(NodeId id, const Node& node) {
    Node changed = node;
    for (const std::size_t i : {std::size_t{0}, std::size_t{3}}) changed.in[i] = twin_of(node.in[i], id);
    replace(id, std::move(changed));
    return true;
  }

  bool visit_concat(NodeId id, const Node& node) {
    for (const ValueId in : node.in)
      if (!is_map(in) || !has_twin(in)) return false;
    std::int64_t axis = node.attr("axis", std::int64_t{0});
    if (axis < 0) axis += 4;
    Node changed = node;
    for (ValueId& in : changed.in) in = twins_.at(in);
    changed.attrs["axis"] = kAxisOf[static_cast<std::size_t>(axis)];
    replace(id, std::move(changed));
    return true;
  }

  // Scales or sizes of all four axes, known now.
  bool visit_resize(NodeId id, const Node& node) {
    if (!has_twin(node.in[0]) || graph_.value(node.in[0]).dtype != DType::kF32) return false;
    if (node.has_attr("axes") || node.attr("coordinate_transformation_mode", "") == "tf_crop_and_resize")
      return false;
    Node changed = node;
    changed.in[0] = twins_.at(node.in[0]);
    if (changed.in.size() > 1) changed.in[1] = ValueId::kNone;
    for (std::size_t i = 2; i < changed.in.size(); ++i) {
      const ValueId in = node.in[i];
      if (in == ValueId::kNone) continue;
      if (!graph_.is_constant(in) || graph_.value(in).constant.dims() != Dims{4}) return false;
      const Tensor& plain = graph_.value(in).constant;
      const std::size_t bytes = static_cast<std::size_t>(plain.bytes()) / 4;
      Tensor moved = Tensor::allocate(plain.dtype(), {4});
      for (const std::size_t axis : {std::size_t{0}, std::size_t{1}, std::size_t{2}, std::size_t{3}})
        std::memcpy(moved.mut<std::byte>() + static_cast<std::size_t>(kAxisOf[axis]) * bytes,
                    plain.as<std::byte>() + axis * bytes, bytes);
      changed.in[i] = graph_.add_constant(graph_.value(in).name + "_nhwc", std::move(moved));
    }
    replace(id, std::move(changed));
    return true;
  }

  // The mean over height and width; other axes stay plain.
  bool visit_reduce(NodeId id, const Node& node) {
    if (node.attr("keepdims", std::int64_t{1}) != 1 || node.in.size() != 2 || !graph_.is_constant(node.in[1]))
      return false;
    std::vector<std::int64_t> axes = graph_.value(node.in[1]).constant.to_ints();
    for (std::int64_t& axis : axes) axis = axis < 0 ? axis + 4 : axis;
    std::sort(axes.begin(), axes.end());
    if (axes != std::vector<std::int64_t>{2, 3}) return false;
    Node changed = node;
    changed.domain = "pare";
    changed.op = "GlobalAveragePool";
    changed.attrs.clear();
    changed.in = {twins_.at(node.in[0])};
    replace(id, std::move(changed));
    return true;
  }

  // Inference form: y = x * a + b with a and b per channel, which is the last axis now.
  bool visit_batchnorm(NodeId id, const Node& node) {
    for (std::size_t i = 1; i < 5; ++i)
      if (i >= node.in.size() || !graph_.is_constant(node.in[i]) ||
          graph_.value(node.in[i]).dtype != DType::kF32)
        return false;
    if (node.attr("training_mode", std::int64_t{0}) != 0) return false;
    const auto data = [&](std::size_t i) { return graph_.value(node.in[i]).constant.as<float>(); };
    const std::int64_t channels = graph_.value(node.in[1]).constant.size();
    std::vector<float> a(static_cast<std::size_t>(channels)), b(a.size());
    const double epsilon = static_cast<double>(node.attr("epsilon", 1e-5f));
    for (std::size_t c = 0; c < a.size(); ++c) {
      const double scale = data(1)[c] / std::sqrt(static_cast<double>(data(4)[c]) + epsilon);
      a[c] = static_cast<float>(scale);
      b[c] = static_cast<float>(data(2)[c] - static_cast<double>(data(3)[c]) * scale);
    }
    Value between = graph_.value(node.out[0]);
    between.name += "_scaled";
    between.origin.clear();
    between.shape = physical(between.shape);
    between.layout = Layout::kChannelsLast;
    Node mul, add;
    mul.op = "Mul";
    mul.name = node.name + "_scale";
    mul.in = {twins_.at(node.in[0]),
              graph_.add_constant(node.name + "_a", Tensor::from(DType::kF32, {channels}, a))};
    mul.out = {graph_.add_value(between)};
    add.op = "Add";
    add.name = node.name;
    add.in = {mul.out[0], graph_.add_constant(node.name + "_b", Tensor::from(DType::kF32, {channels}, b))};
    graph_.insert_before(id, std::move(mul));
    replace(id, std::move(add));
    return true;
  }

  Graph& graph_;
  std::vector<ValueId>& source_twin_;
  std::map<ValueId, ValueId> twins_;
  std::set<ValueId> captured_;
  std::vector<ValueId> bypassed_;  // outputs of Transposes that convolutions no longer read
};

}  // namespace

void assign_layout(Graph& graph, std::vector<ValueId>& twin) { Assigner(graph, twin).run(); }

}  // namespace pare::lowering
