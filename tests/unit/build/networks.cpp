#include "tests/unit/build/networks.h"

#include <cmath>
#include <random>

#include "engine/ir/schema.h"

namespace pare::test {
namespace {

class Builder {
 public:
  Graph graph;

  ValueId input(const char* name, DType type, Dims dims) {
    Value value;
    value.name = name;
    value.dtype = type;
    value.shape = Shape(dims);
    const ValueId id = graph.add_value(std::move(value));
    graph.inputs.push_back(id);
    return id;
  }
  ValueId random(Dims dims, float scale, float mean = 0) {
    Tensor t = Tensor::allocate(DType::kF32, std::move(dims));
    std::normal_distribution<float> normal(mean, scale);
    for (std::int64_t i = 0; i < t.size(); ++i) t.mut<float>()[i] = normal(rng_);
    return graph.add_constant("w", std::move(t));
  }
  ValueId ints(const std::vector<std::int64_t>& v) { return graph.add_constant("shape", Tensor::ints(v)); }
  ValueId number(float v) { return graph.add_constant("number", Tensor::scalar(v)); }
  ValueId add(const char* op, std::vector<ValueId> in, Attributes attrs = {}) {
    Node node;
    node.op = op;
    node.name = std::string(op) + std::to_string(++count_);
    node.in = std::move(in);
    node.attrs = std::move(attrs);
    Value out;
    out.name = node.name + "_out";
    const ValueId id = graph.add_value(std::move(out));
    node.out = {id};
    graph.add_node(std::move(node));
    return id;
  }
  ValueId conv(ValueId x, std::int64_t from, std::int64_t to, std::int64_t k, std::int64_t stride) {
    const float scale = std::sqrt(2.0f / static_cast<float>(from * k * k));
    const std::vector<std::int64_t> pads(4, k == stride ? 0 : k / 2), strides{stride, stride};
    return add("Conv", {x, random({to, from, k, k}, scale), random({to}, 0.1f)},
               {{"pads", pads}, {"strides", strides}, {"kernel_shape", std::vector<std::int64_t>{k, k}}});
  }
  // Through codes of that type and back.
  ValueId coded(ValueId x, float scale, DType type) {
    const ValueId step = number(scale),
                  zero = graph.add_constant("zero", Tensor::copy_of(type, {}, "", 1));  // a byte of 0
    return add("DequantizeLinear", {add("QuantizeLinear", {x, step, zero}), step, zero});
  }
  ValueId coded_conv(ValueId x, std::int64_t from, std::int64_t to, std::int64_t k, std::int64_t stride,
                     DType type, std::int64_t group = 1) {
    const float size = std::sqrt(2.0f / static_cast<float>(from / group * k * k));
    const ValueId w = random({to, from / group, k, k}, size);
    const std::vector<std::int64_t> pads(4, k / 2), strides{stride, stride};
    return add("Conv", {x, coded(w, type == DType::kI8 ? size / 32 : size / 100, type), random({to}, 0.1f)},
               {{"pads", pads},
                {"strides", strides},
                {"kernel_shape", std::vector<std::int64_t>{k, k}},
                {"group", group}});
  }
  ValueId linear(ValueId x, std::int64_t from, std::int64_t to) {
    const ValueId product =
        add("MatMul", {x, random({from, to}, 0.3f / std::sqrt(static_cast<float>(from)))});
    return add("Add", {product, random({to}, 0.1f)});
  }
  ValueId norm(ValueId x, std::int64_t width) {
    return add("LayerNormalization", {x, random({width}, 0.1f, 1), random({width}, 0.1f)},
               {{"axis", std::int64_t{-1}}, {"epsilon", 1e-6f}});
  }
  Graph finish(ValueId out) {
    graph.outputs.push_back(out);
    graph.opset = 20;
    infer_shapes(graph);
    verify(graph);
    return std::move(graph);
  }

 private:
  std::mt19937 rng_{11};
  int count_ = 0;
};

using Ints = std::vector<std::int64_t>;

}  // namespace

Graph resnet50() {
  Builder b;
  ValueId x = b.input("image", DType::kF32, {1, 3, 64, 64});
  x = b.add("Relu", {b.conv(x, 3, 8, 7, 2)});
  x = b.add("MaxPool", {x},
            {{"kernel_shape", Ints{3, 3}}, {"pads", Ints{1, 1, 1, 1}}, {"strides", Ints{2, 2}}});
  std::int64_t from = 8;
  const int blocks[] = {3, 4, 6, 3};
  for (int stage = 0; stage < 4; ++stage) {
    const std::int64_t width = std::int64_t{8} << stage;
    for (int i = 0; i < blocks[stage]; ++i) {
      const std::int64_t stride = i == 0 && stage > 0 ? 2 : 1;
      ValueId y = b.add("Relu", {b.conv(x, from, width, 1, 1)});
      y = b.add("Relu", {b.conv(y, width, width, 3, stride)});
      y = b.conv(y, width, 4 * width, 1, 1);
      if (i == 0)
        x = stride == 1
                ? b.conv(x, from, 4 * width, 1, 1)
                : b.add("Conv", {x, b.random({4 * width, from, 1, 1}, 0.2f), b.random({4 * width}, 0.1f)},
                        {{"strides", Ints{2, 2}}, {"kernel_shape", Ints{1, 1}}});
      x = b.add("Relu", {b.add("Add", {y, x})});
      from = 4 * width;
    }
  }
  x = b.add("Flatten", {b.add("GlobalAveragePool", {x})});
  return b.finish(
      b.add("Gemm", {x, b.random({40, from}, 0.1f), b.random({40}, 0.1f)}, {{"transB", std::int64_t{1}}}));
}

Graph image_codes(DType type, Dims image) {
  Builder b;
  const float step = type == DType::kI8 ? 1.0f / 32 : 1.0f / 100;
  const auto coded = [&](ValueId x) { return b.coded(x, step, type); };
  ValueId x = b.input("image", DType::kF32, std::move(image));
  x = b.add("Relu", {b.coded_conv(coded(x), 3, 64, 7, 2, type)});
  x = coded(b.add("MaxPool", {x},
                  {{"kernel_shape", Ints{3, 3}}, {"pads", Ints{1, 1, 1, 1}}, {"strides", Ints{2, 2}}}));
  const ValueId shortcut = b.coded_conv(x, 64, 128, 1, 1, type);
  x = coded(b.add("Relu", {b.coded_conv(x, 64, 64, 1, 1, type)}));
  x = coded(b.add("Relu", {b.coded_conv(x, 64, 64, 3, 1, type)}));
  x = b.add("Relu", {b.add("Add", {b.coded_conv(x, 64, 128, 1, 1, type), coded(shortcut)})});
  x = coded(b.add("HardSwish", {b.coded_conv(coded(x), 128, 128, 3, 1, type, 128)}));
  x = coded(b.add("Relu", {b.coded_conv(x, 128, 128, 5, 2, type, 128)}));
  x = b.add("Flatten", {b.add("GlobalAveragePool", {b.coded_conv(x, 128, 32, 1, 1, type)})});
  return b.finish(x);
}

Graph large_products(DType type) {
  Builder b;
  const std::int64_t rows = 5640, width = 192;
  const float most = type == DType::kI8 ? 127.0f : 448.0f;
  const auto product = [&](ValueId x, std::int64_t from, std::int64_t to) {
    const float size = 0.3f / std::sqrt(static_cast<float>(from));
    const ValueId w = b.coded(b.random({from, to}, size), 4 * size / most, type);
    return b.add("Add", {b.add("MatMul", {b.coded(x, 4 / most, type), w}), b.random({to}, 0.1f)});
  };
  const ValueId x = product(b.input("x", DType::kF32, {rows, 64}), 64, width);
  const ValueId y = b.add("Gelu", {product(b.norm(x, width), width, width)});
  const ValueId last = b.norm(b.add("Add", {product(y, width, width), x}), width);
  return b.finish(b.add("Add", {product(last, width, width), last}));
}

Graph vit(int layers) {
  Builder b;
  const std::int64_t batch = 2, width = 96, heads = 6, size = 16, tokens = 5;
  ValueId x = b.input("image", DType::kF32, {batch, 3, 32, 32});
  x = b.conv(x, 3, width, 16, 16);
  x = b.add("Transpose", {b.add("Reshape", {x, b.ints({batch, width, 4})})}, {{"perm", Ints{0, 2, 1}}});
  x = b.add("Concat", {b.random({batch, 1, width}, 1), x}, {{"axis", std::int64_t{1}}});
  x = b.add("Add", {x, b.random({1, tokens, width}, 1)});
  for (int i = 0; i < layers; ++i) {
    ValueId y = b.linear(b.norm(x, width), width, 3 * width);
    y = b.add("Reshape", {y, b.ints({batch, tokens, 3, heads, size})});
    y = b.add("Transpose", {y}, {{"perm", Ints{2, 0, 3, 1, 4}}});
    ValueId part[3];
    for (std::int64_t p = 0; p < 3; ++p)
      part[p] =
          b.add("Squeeze", {b.add("Slice", {y, b.ints({p}), b.ints({p + 1}), b.ints({0})}), b.ints({0})});
    const ValueId keys = b.add("Transpose", {part[1]}, {{"perm", Ints{0, 1, 3, 2}}});
    ValueId s = b.add("Div", {b.add("MatMul", {part[0], keys}), b.number(4)});
    s = b.add("MatMul", {b.add("Softmax", {s}, {{"axis", std::int64_t{-1}}}), part[2]});
    s = b.add("Reshape",
              {b.add("Transpose", {s}, {{"perm", Ints{0, 2, 1, 3}}}), b.ints({batch, tokens, width})});
    x = b.add("Add", {x, b.linear(s, width, width)});
    y = b.add("Gelu", {b.linear(b.norm(x, width), width, 4 * width)});
    x = b.add("Add", {x, b.linear(y, 4 * width, width)});
  }
  x = b.add(
      "Gather",
      {b.norm(x, width), b.graph.add_constant("first", Tensor::from<std::int64_t>(DType::kI64, {}, {0}))},
      {{"axis", std::int64_t{1}}});
  return b.finish(
      b.add("Gemm", {x, b.random({40, width}, 0.1f), b.random({40}, 0.1f)}, {{"transB", std::int64_t{1}}}));
}

Graph bert(int layers, std::int64_t batch) {
  Builder b;
  const std::int64_t width = 96, heads = 6, size = 16, tokens = 16;
  const ValueId ids = b.input("input_ids", DType::kI64, {batch, tokens});
  ValueId x = b.add("Gather", {b.random({100, width}, 1), ids}, {{"axis", std::int64_t{0}}});
  x = b.add("Add", {b.add("Add", {x, b.random({1, tokens, width}, 1)}), b.random({1, 1, width}, 1)});
  x = b.norm(x, width);
  for (int i = 0; i < layers; ++i) {
    ValueId part[3];
    for (ValueId& p : part) {
      p = b.add("Reshape", {b.linear(x, width, width), b.ints({batch, tokens, heads, size})});
      p = b.add("Transpose", {p}, {{"perm", Ints{0, 2, 1, 3}}});
    }
    ValueId keys = b.add("Reshape", {part[1], b.ints({batch * heads, tokens, size})});
    keys = b.add("Transpose", {keys}, {{"perm", Ints{0, 2, 1}}});
    keys = b.add("Reshape", {keys, b.ints({batch, heads, size, tokens})});
    ValueId s =
        b.add("MatMul", {b.add("Mul", {part[0], b.number(0.5f)}), b.add("Mul", {keys, b.number(0.5f)})});
    s = b.add("Softmax", {b.add("Add", {s, b.random({1, 1, tokens, tokens}, 1)})},
              {{"axis", std::int64_t{-1}}});
    s = b.add("Where", {b.add("IsNaN", {s}), b.number(0), s});
    s = b.add("Transpose", {b.add("MatMul", {s, part[2]})}, {{"perm", Ints{0, 2, 1, 3}}});
    s = b.add("Reshape", {s, b.ints({batch, tokens, width})});
    x = b.norm(b.add("Add", {b.linear(s, width, width), x}), width);
    const ValueId y = b.add("Gelu", {b.linear(x, width, 4 * width)});
    x = b.norm(b.add("Add", {b.linear(y, 4 * width, width), x}), width);
  }
  return b.finish(x);
}

}  // namespace pare::test
