#include "tests/fuzz/graph_maker.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/base/error.h"
#include "engine/ir/schema.h"

namespace pare::fuzz {
namespace {

class Maker {
 public:
  Maker(const std::uint8_t* data, std::size_t size, Meaning meaning)
      : data_(data), size_(size), meaning_(meaning) {}

  Made run() {
    const ValueId x = input();
    values_ = {x};
    const int nodes = 1 + static_cast<int>(pick(8));
    for (int i = 0; i < nodes; ++i) step();
    made_.graph.outputs = {values_.back()};
    if (made_.graph.is_input(values_.back())) add("Identity", {values_.back()}, {});
    made_.graph.outputs = {values_.back()};
    return std::move(made_);
  }

 private:
  std::uint64_t pick(std::uint64_t count) {  // bytes that are missing count as 0
    const std::uint8_t byte = at_ < size_ ? data_[at_] : 0;
    ++at_;
    return byte % count;
  }
  std::int64_t number(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(pick(static_cast<std::uint64_t>(high - low + 1)));
  }

  Tensor floats(const Dims& dims) {
    Tensor t = Tensor::allocate(DType::kF32, dims);
    std::uint32_t state = static_cast<std::uint32_t>(pick(256)) * 2654435761u + 1;
    for (std::int64_t i = 0; i < t.size(); ++i) {
      state = state * 1664525u + 1013904223u;
      t.mut<float>()[i] = static_cast<float>(static_cast<int>(state >> 27) - 15) * 0.25F;
    }
    return t;
  }

  ValueId input() {
    Dims dims;
    const std::int64_t rank = number(1, 4);
    for (std::int64_t i = 0; i < rank; ++i) dims.push_back(number(1, 5));
    Value value;
    value.name = "x";
    value.dtype = DType::kF32;
    value.shape = Shape(dims);
    const ValueId id = made_.graph.add_value(value);
    made_.graph.inputs = {id};
    made_.inputs = {floats(dims)};
    return id;
  }

  // Appends a node with one wanted output; false, and nothing is left of it, when the shape rules refuse.
  bool add(const char* op, std::vector<ValueId> in, Attributes attrs, std::size_t outputs = 1) {
    Graph before = made_.graph;
    Node node;
    node.name = "n" + std::to_string(count_);
    node.op = op;
    node.in = std::move(in);
    node.attrs = std::move(attrs);
    for (std::size_t i = 0; i < outputs; ++i) {
      Value value;
      value.name = "v" + std::to_string(count_++);
      node.out.push_back(made_.graph.add_value(std::move(value)));
    }
    const ValueId out = node.out[0];
    try {
      made_.graph.add_node(std::move(node));
      infer_shapes(made_.graph);
      verify(made_.graph);
      const Value& result = made_.graph.value(out);
      std::int64_t elements = 1;
      bool known = result.dtype == DType::kF32 && result.shape.ranked && result.shape.rank() <= 5;
      for (const Dim& dim : result.shape.dims) {
        known = known && dim.known();
        elements *= known ? dim.value : 1;
      }
      if (known && elements <= 4096) {
        values_.push_back(out);
        return true;
      }
    } catch (const Error&) {
    }
    made_.graph = std::move(before);
    return false;
  }

  ValueId constant(Tensor t) {
    return made_.graph.add_constant("c" + std::to_string(count_++), std::move(t));
  }
  ValueId ints(std::vector<std::int64_t> v) { return constant(Tensor::ints(v)); }
  const Shape& shape(ValueId id) const { return made_.graph.value(id).shape; }
  std::int64_t size(ValueId id, int axis) const {
    return shape(id).dims[static_cast<std::size_t>(axis)].value;
  }

  bool may_window(ValueId x) const {
    if (meaning_ == Meaning::kAny) return true;
    for (int i = 1; i < shape(x).rank(); ++i)
      if (size(x, i) == 0) return false;
    return true;
  }

  // A constant that broadcasts: some sizes 1, some axes missing in front.
  ValueId operand(ValueId x) {
    const int rank = shape(x).rank(), skip = static_cast<int>(number(0, rank));
    Dims dims;
    for (int i = skip; i < rank; ++i) dims.push_back(pick(2) == 0 ? 1 : size(x, i));
    return constant(floats(dims));
  }

  void step() {
    const ValueId x = values_[values_.size() - 1 - std::min<std::size_t>(pick(3), values_.size() - 1)];
    const int rank = shape(x).rank();
    const auto axis = [&] { return number(-rank, std::max(rank - 1, 0)); };
    switch (pick(12)) {
      case 0: {
        static const char* const kOps[] = {"Relu",     "Sigmoid",   "Tanh",        "Neg",      "Abs",
                                           "Erf",      "LeakyRelu", "HardSwish",   "Softplus", "Gelu",
                                           "Identity", "Elu",       "HardSigmoid", "Softsign"};
        add(kOps[pick(std::size(kOps))], {x}, {});
        return;
      }
      case 1:
      case 2: {
        static const char* const kOps[] = {"Add", "Sub", "Mul", "Max", "Min"};
        const ValueId other = pick(2) == 0 ? operand(x) : values_[pick(values_.size())];
        if (pick(2) == 0)
          add(kOps[pick(std::size(kOps))], {x, other}, {});
        else
          add(kOps[pick(std::size(kOps))], {other, x}, {});
        return;
      }
      case 3: {
        static const char* const kOps[] = {"ReduceSum", "ReduceMean", "ReduceMax",
                                           "ReduceMin", "ReduceL1",   "ReduceSumSquare"};
        add(kOps[pick(std::size(kOps))], {x, ints({axis()})}, {{"keepdims", number(0, 1)}});
        return;
      }
      case 4:
        if (rank == 0) return;  // ONNX has no Softmax of a number
        add(pick(2) == 0 ? "Softmax" : "LogSoftmax", {x}, {{"axis", axis()}});
        return;
      case 5: {
        std::vector<std::int64_t> perm(static_cast<std::size_t>(rank));
        std::iota(perm.begin(), perm.end(), 0);
        for (std::size_t i = 1; i < perm.size(); ++i) std::swap(perm[i], perm[pick(i + 1)]);
        add("Transpose", {x}, {{"perm", perm}});
        return;
      }
      case 6:
        return move(x, rank);
      case 7:
        return convolve(x, rank);
      case 8: {
        if (rank == 0) return;
        const std::int64_t k = size(x, rank - 1), n = number(1, 5);
        if (rank == 2 && pick(2) == 0) {
          const bool t = pick(2) == 0;
          const ValueId w = constant(floats(t ? Dims{n, k} : Dims{k, n}));
          add("Gemm", {x, w, constant(floats({n}))}, {{"transB", std::int64_t{t}}});
        } else {
          add("MatMul", {x, constant(floats({k, n}))}, {});
        }
        return;
      }
      case 9:
        return pool(x, rank);
      case 10: {
        if (rank < 2) return;
        const std::int64_t c = size(x, 1);
        Tensor variance = floats({c});
        for (std::int64_t i = 0; i < c; ++i)
          variance.mut<float>()[i] = std::fabs(variance.as<float>()[i]) + 0.5F;
        add("BatchNormalization",
            {x, constant(floats({c})), constant(floats({c})), constant(floats({c})),
             constant(std::move(variance))},
            {});
        return;
      }
      default: {
        if (rank == 0) return;
        const std::int64_t last = size(x, rank - 1);
        add("LayerNormalization", {x, constant(floats({last})), constant(floats({last}))},
            {{"axis", std::int64_t{-1}}, {"epsilon", 0.5F}});
        return;
      }
    }
  }

  void move(ValueId x, int rank) {
    const std::int64_t a = rank == 0 ? 0 : number(0, rank - 1);
    switch (pick(8)) {
      case 0:
        add("Reshape",
            {x, ints(pick(2) == 0 ? std::vector<std::int64_t>{-1} : std::vector<std::int64_t>{0, -1})}, {});
        return;
      case 1:
        add("Concat", {x, values_[pick(values_.size())]}, {{"axis", a}});
        return;
      case 2:
        add("Slice",
            {x, ints({number(-3, 3)}), ints({number(-3, 5)}), ints({a}), ints({pick(2) == 0 ? 1 : -1})}, {});
        return;
      case 3: {
        std::vector<std::int64_t> pads(2 * static_cast<std::size_t>(rank), 0);
        for (auto& p : pads) p = number(0, 2);
        static const char* const kModes[] = {"constant", "edge", "reflect"};
        add("Pad", {x, ints(pads)}, {{"mode", std::string(kModes[pick(3)])}});
        return;
      }
      case 4:
        add("Unsqueeze", {x, ints({number(-rank - 1, rank)})}, {});
        return;
      case 5:
        add("Squeeze", {x, ints({a})}, {});
        return;
      case 6:
        add("Flatten", {x}, {{"axis", number(0, rank)}});
        return;
      default:
        if (rank > 0 && size(x, static_cast<int>(a)) == 0) return;  // no index is inside an empty axis
        add("Gather", {x, ints({number(-1, 0), 0})}, {{"axis", a}});
        return;
    }
  }

  void convolve(ValueId x, int rank) {
    if (rank < 3 || rank > 4 || !may_window(x)) return;
    const std::int64_t c = size(x, 1);
    const bool depthwise = pick(3) == 0 && c > 0, transposed = pick(4) == 0;  // no group of no channels
    const std::int64_t out = depthwise ? c : number(1, 6), group = depthwise ? c : 1;
    Dims w = transposed ? Dims{c, out / group} : Dims{out, c / group};
    std::vector<std::int64_t> strides, dilations, pads;
    for (int i = 2; i < rank; ++i) {
      w.push_back(number(1, 3));
      strides.push_back(number(1, 2));
      dilations.push_back(number(1, 2));
    }
    for (int i = 0; i < 2 * (rank - 2); ++i) pads.push_back(number(0, 1));
    std::vector<ValueId> in = {x, constant(floats(w))};
    if (pick(2) == 0) in.push_back(constant(floats({out})));
    add(transposed ? "ConvTranspose" : "Conv", std::move(in),
        {{"strides", strides}, {"dilations", dilations}, {"pads", pads}, {"group", group}});
  }

  void pool(ValueId x, int rank) {
    if (rank < 3 || !may_window(x)) return;
    if (pick(4) == 0) {
      add(pick(2) == 0 ? "GlobalAveragePool" : "GlobalMaxPool", {x}, {});
      return;
    }
    std::vector<std::int64_t> kernel, strides;
    for (int i = 2; i < rank; ++i) {
      kernel.push_back(number(1, 3));
      strides.push_back(number(1, 2));
    }
    add(pick(2) == 0 ? "MaxPool" : "AveragePool", {x},
        {{"kernel_shape", kernel}, {"strides", strides}, {"ceil_mode", number(0, 1)}});
  }

  const std::uint8_t* data_;
  std::size_t size_, at_ = 0;
  Meaning meaning_;
  Made made_;
  std::vector<ValueId> values_;
  int count_ = 0;
};

}  // namespace

Made make_graph(const std::uint8_t* data, std::size_t size, Meaning meaning) {
  return Maker(data, size, meaning).run();
}

bool close(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t o = 0; o < a.size(); ++o) {
    if (a[o].dtype() != b[o].dtype() || a[o].dims() != b[o].dims()) return false;
    const float *p = a[o].as<float>(), *q = b[o].as<float>();
    float largest = 0;
    for (std::int64_t i = 0; i < a[o].size(); ++i)
      if (std::isfinite(q[i])) largest = std::max(largest, std::fabs(q[i]));
    if (largest > 1e6F) continue;
    for (std::int64_t i = 0; i < a[o].size(); ++i) {
      if (std::isnan(p[i]) && std::isnan(q[i])) continue;
      if (p[i] == q[i]) continue;
      if (!(std::fabs(p[i] - q[i]) <= 1e-3F * largest + 1e-5F)) return false;
    }
  }
  return true;
}

}  // namespace pare::fuzz
