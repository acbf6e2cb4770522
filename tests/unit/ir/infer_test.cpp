// Shape rules: a table of one-node graphs with symbols and numbers, chains of sizes, contradictions, and the
// same rules with numbers.
#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "engine/ir/schema.h"
#include "engine/ir/slice.h"
#include "engine/ir/window.h"

namespace pare {
namespace {

using Ints = std::vector<std::int64_t>;

// "b,3,?" -> [b,3,?]; "scalar" -> []; "..." -> unranked.
Shape parse(const std::string& text) {
  if (text == "...") return {};
  std::vector<Dim> dims;
  if (text == "scalar") return Shape(dims);
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const std::string word = text.substr(at, end - at);
    if (word == "?") {
      dims.push_back({});
    } else if (std::isdigit(static_cast<unsigned char>(word[0])) != 0) {
      dims.push_back(Dim::of(std::stoll(word)));
    } else {
      dims.push_back(Dim::named(word));
    }
    at = end + 1;
  }
  return Shape(std::move(dims));
}

struct In {
  std::string shape;  // of a graph input, float32
  Tensor constant;    // or a constant

  In(const char* s) : shape(s) {}            // NOLINT: tables read better
  In(Ints v) : constant(Tensor::ints(v)) {}  // NOLINT
  In(Tensor t) : constant(std::move(t)) {}   // NOLINT
};

struct Built {
  Graph graph;
  NodeId node = NodeId::kNone;
};

Built build(const char* op, const std::vector<In>& in, Attributes attrs, int outputs = 1) {
  Built built;
  Graph& graph = built.graph;
  Node node;
  node.op = op;
  node.name = "n";
  node.attrs = std::move(attrs);
  for (const In& input : in) {
    if (!input.constant.empty()) {
      node.in.push_back(graph.add_constant("c", input.constant));
    } else if (input.shape.empty()) {
      node.in.push_back(ValueId::kNone);
    } else {
      Value value;
      value.name = "x";
      value.dtype = DType::kF32;
      value.shape = parse(input.shape);
      node.in.push_back(graph.add_value(value));
      graph.inputs.push_back(node.in.back());
    }
  }
  for (int i = 0; i < outputs; ++i) {
    Value value;
    value.name = "y";
    node.out.push_back(graph.add_value(value));
    graph.outputs.push_back(node.out.back());
  }
  built.node = graph.add_node(node);
  return built;
}

// "float32 [b,3] float32 [b,1]", or "error".
std::string inferred(const char* op, const std::vector<In>& in, Attributes attrs = {}, int outputs = 1) {
  Built built = build(op, in, std::move(attrs), outputs);
  try {
    infer_shapes(built.graph);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kBadFile) << error.what();
    EXPECT_NE(std::string(error.what()).find(op), std::string::npos) << error.what();
    return "error";
  }
  std::string text;
  for (const ValueId id : built.graph.outputs) {
    const Value& value = built.graph.value(id);
    text += (text.empty() ? "" : " ") + std::string(name(value.dtype)) + " " + to_string(value.shape);
  }
  return text;
}

Attribute ints(Ints v) { return v; }
Attribute number(std::int64_t v) { return v; }

TEST(Infer, Broadcasting) {
  EXPECT_EQ(inferred("Add", {"b,3,1", "4"}), "float32 [b,3,4]");
  EXPECT_EQ(inferred("Add", {"b,3", "b,1"}), "float32 [b,3]");
  EXPECT_EQ(inferred("Add", {"b,3", "c,3"}), "float32 [?,3]");
  EXPECT_EQ(inferred("Add", {"b,3", "7,3"}), "float32 [7,3]");  // b can only be 7 or 1
  EXPECT_EQ(inferred("Add", {"2,3", "4,3"}), "error");
  EXPECT_EQ(inferred("Add", {"...", "4,3"}), "float32 [...]");
  EXPECT_EQ(inferred("Add", {"0,3", "1,3"}), "float32 [0,3]");
  EXPECT_EQ(inferred("Add", {"scalar", "scalar"}), "float32 []");
  EXPECT_EQ(inferred("Add", {"3", Ints{1, 2, 3}}), "error");  // float32 and int64
  EXPECT_EQ(inferred("Less", {"b,3", "3"}), "bool [b,3]");
  EXPECT_EQ(inferred("Max", {"b,1", "1,3", "3"}), "float32 [b,3]");
  EXPECT_EQ(inferred("PRelu", {"b,3,8", "3,1"}), "float32 [b,3,8]");
  EXPECT_EQ(inferred("PRelu", {"3", "2,3"}), "error");
}

TEST(Infer, Layers) {
  EXPECT_EQ(inferred("MatMul", {"b,5,3", "3,4"}), "float32 [b,5,4]");
  EXPECT_EQ(inferred("MatMul", {"3", "3"}), "float32 []");
  EXPECT_EQ(inferred("MatMul", {"b,5,3", "4,4"}), "error");
  EXPECT_EQ(inferred("Gemm", {"b,3", "4,3", "4"}, {{"transB", number(1)}}), "float32 [b,4]");
  EXPECT_EQ(inferred("Conv", {"b,3,32,h", "8,3,3,3"}, {{"pads", ints({1, 1, 1, 1})}}), "float32 [b,8,32,h]");
  EXPECT_EQ(
      inferred("Conv", {"b,3,32,32", "8,3,3,3"}, {{"pads", ints({1, 1, 1, 1})}, {"strides", ints({2, 2})}}),
      "float32 [b,8,16,16]");
  EXPECT_EQ(inferred("Conv", {"b,4,8,8", "4,1,3,3"}, {{"group", number(4)}}), "float32 [b,4,6,6]");
  EXPECT_EQ(inferred("Conv", {"b,4,8,8", "4,2,3,3"}, {{"group", number(4)}}), "error");
  EXPECT_EQ(inferred("Conv", {"b,3,2,2", "8,3,3,3"}), "error");  // the window does not fit
  EXPECT_EQ(inferred("Conv", {"b,3,8,8", "8,3,3,3", "7"}), "error");
  EXPECT_EQ(inferred("Conv", {"b,3,8,8", "8,3,3,3"}, {{"strides", ints({0, 1})}}), "error");
  EXPECT_EQ(inferred("Conv", {"b,3,8,8", "8,3,3,3"}, {{"dilations", ints({INT64_MAX, 1})}}), "error");
  EXPECT_EQ(inferred("Conv", {"b,3,7,7", "8,3,3,3"},
                     {{"auto_pad", std::string("SAME_UPPER")}, {"strides", ints({2, 2})}}),
            "float32 [b,8,4,4]");
  EXPECT_EQ(
      inferred("ConvTranspose", {"b,3,4,4", "3,2,3,3"},
               {{"strides", ints({2, 2})}, {"pads", ints({1, 1, 1, 1})}, {"output_padding", ints({1, 1})}}),
      "float32 [b,2,8,8]");
  EXPECT_EQ(
      inferred("MaxPool", {"b,3,6,6"},
               {{"kernel_shape", ints({3, 3})}, {"strides", ints({2, 2})}, {"ceil_mode", number(1)}}, 2),
      "float32 [b,3,3,3] int64 [b,3,3,3]");
  EXPECT_EQ(inferred("AveragePool", {"b,3,6,6"}), "error");  // no kernel_shape
  EXPECT_EQ(inferred("GlobalAveragePool", {"b,3,h,w"}), "float32 [b,3,1,1]");
  EXPECT_EQ(inferred("LayerNormalization", {"b,5,8", "8", "8"}, {}, 3),
            "float32 [b,5,8] float32 [b,5,1] float32 [b,5,1]");
  EXPECT_EQ(inferred("LayerNormalization", {"b,5,8", "7", "8"}), "error");
  EXPECT_EQ(inferred("BatchNormalization", {"b,3,4,4", "3", "3", "3", "2"}), "error");
  EXPECT_EQ(inferred("Resize", {"b,3,4,4", "", "", Ints{1, 3, 8, 8}}), "float32 [1,3,8,8]");
  EXPECT_EQ(inferred("Resize", {"b,3,4,5", "", Tensor::from<float>(DType::kF32, {4}, {1, 1, 2, 1.5F})}),
            "float32 [b,3,8,7]");
  EXPECT_EQ(inferred("Softmax", {"b,3"}, {{"axis", number(2)}}), "error");
}

TEST(Infer, Movement) {
  EXPECT_EQ(inferred("Reshape", {"b,192,7,7", Ints{0, 192, -1}}), "float32 [b,192,49]");
  EXPECT_EQ(inferred("Reshape", {"b,5,192", Ints{-1, 5, 3, 64}}), "float32 [b,5,3,64]");
  EXPECT_EQ(inferred("Reshape", {"b,5,192", Ints{-1, 192}}), "float32 [?,192]");
  EXPECT_EQ(inferred("Reshape", {"2,6", Ints{5, -1}}), "error");
  EXPECT_EQ(inferred("Reshape", {"2,6", Ints{3, 5}}), "error");
  EXPECT_EQ(inferred("Reshape", {"2,6", Ints{-1, -1}}), "error");
  EXPECT_EQ(inferred("Reshape", {"2,6", Ints{-2, 6}}), "error");
  EXPECT_EQ(inferred("Reshape",
                     {
                         "0,6",
                         Ints{0, 3},
                     },
                     {{"allowzero", number(1)}}),
            "float32 [0,3]");
  EXPECT_EQ(inferred("Reshape", {"b,6", "..."}), "float32 [...]");
  EXPECT_EQ(inferred("Transpose", {"b,3,4"}, {{"perm", ints({0, 2, 1})}}), "float32 [b,4,3]");
  EXPECT_EQ(inferred("Transpose", {"b,3,4"}), "float32 [4,3,b]");
  EXPECT_EQ(inferred("Transpose", {"b,3,4"}, {{"perm", ints({0, 2, 2})}}), "error");
  EXPECT_EQ(inferred("Slice", {"b,s,768", Ints{0, 0, 0}, Ints{INT32_MAX, 1, INT64_MAX}}),  // onnx/onnx#2619
            "float32 [b,?,768]");
  EXPECT_EQ(inferred("Slice", {"4", Ints{0}, Ints{INT64_MIN}, Ints{0}, Ints{-1}}), "float32 [1]");
  EXPECT_EQ(inferred("Slice", {"0,4", Ints{3}, Ints{INT64_MIN}, Ints{0}, Ints{-1}}),  // onnx/onnx#7735
            "float32 [0,4]");
  EXPECT_EQ(inferred("Slice", {"4", Ints{0}, Ints{4}, Ints{0}, Ints{0}}), "error");
  EXPECT_EQ(inferred("Slice", {"4,4", Ints{0, 1}, Ints{4, 2}, Ints{0, 0}}), "error");
  EXPECT_EQ(inferred("Concat", {"b,2", "b,3"}, {{"axis", number(1)}}), "float32 [b,5]");
  EXPECT_EQ(inferred("Concat", {"2,2", "3,3"}, {{"axis", number(1)}}), "error");
  EXPECT_EQ(inferred("Concat", {Ints{}, Ints{1, 2, 3}}, {{"axis", number(0)}}), "int64 [3]");
  EXPECT_EQ(inferred("Gather", {"b,9,4", Ints{1, 2}}, {{"axis", number(1)}}), "float32 [b,2,4]");
  EXPECT_EQ(inferred("Squeeze", {"1,5000,1,1", Ints{-1}}), "float32 [1,5000,1]");
  EXPECT_EQ(inferred("Squeeze", {"1,5", Ints{1}}), "error");
  EXPECT_EQ(inferred("Squeeze", {"1,5,1"}), "float32 [5]");
  EXPECT_EQ(inferred("Unsqueeze", {"b,5", Ints{0, -1}}), "float32 [1,b,5,1]");
  EXPECT_EQ(inferred("Flatten", {"b,3,4"}), "float32 [b,12]");
  EXPECT_EQ(inferred("Expand", {"3,1", Ints{2, 1, 6}}), "float32 [2,3,6]");
  EXPECT_EQ(inferred("Shape", {"1,3,224,224"}, {{"start", number(2)}, {"end", number(4)}}), "int64 [2]");
  EXPECT_EQ(inferred("ConstantOfShape", {Ints{2, 3}}), "float32 [2,3]");
  EXPECT_EQ(inferred("ConstantOfShape", {Ints{2, -3}}), "error");
  EXPECT_EQ(inferred("Range", {Ints{10}, Ints{4}, Ints{-4}}), "int64 [2]");
  EXPECT_EQ(inferred("Range", {Ints{10}, Ints{4}, Ints{0}}), "error");
  EXPECT_EQ(inferred("Split", {"b,7"}, {{"axis", number(1)}, {"num_outputs", number(3)}}, 3),
            "float32 [b,3] float32 [b,3] float32 [b,1]");
  EXPECT_EQ(inferred("Split", {"b,7", Ints{3, 5}}, {{"axis", number(1)}}, 2), "error");
  EXPECT_EQ(inferred("Pad", {"b,4", Ints{0, 1, 0, 2}}), "float32 [b,7]");
  EXPECT_EQ(inferred("Pad", {"b,4", Ints{0, -3, 0, -2}}), "error");
  EXPECT_EQ(inferred("Tile", {"b,4", Ints{1, 2}}), "float32 [b,8]");
  EXPECT_EQ(inferred("ReduceMean", {"b,4,5", Ints{-1}}), "float32 [b,4,1]");
  EXPECT_EQ(inferred("ReduceMean", {"b,4,5", Ints{1, 2}}, {{"keepdims", number(0)}}), "float32 [b]");
  EXPECT_EQ(inferred("ReduceMean", {"b,4,5", Ints{1, -2}}), "error");
  EXPECT_EQ(inferred("ArgMax", {"b,4"}, {{"axis", number(1)}, {"keepdims", number(0)}}), "int64 [b]");
  EXPECT_EQ(inferred("ArgMax", {"b,0"}, {{"axis", number(1)}}), "error");
  EXPECT_EQ(inferred("TopK", {"b,9", Ints{3}}, {}, 2), "float32 [b,3] int64 [b,3]");
  EXPECT_EQ(inferred("TopK", {"b,2", Ints{3}}, {}, 2), "error");
}

TEST(Infer, SizesBeyondAnyMemoryAreRefused) {
  for (const char* op : {"Relu", "Softmax", "Flatten"}) {
    Built built = build(op, {"b,9223372036854775807"}, {});
    try {
      infer_shapes(built.graph);
      FAIL() << op;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kBadFile);
    }
  }
  EXPECT_EQ(inferred("Tile", {"2,65536", Ints{1, std::int64_t{1} << 40}}), "error");
  EXPECT_EQ(inferred("Tile", {"2,65536", Ints{1, std::int64_t{1} << 60}}), "float32 [2,?]");
  EXPECT_EQ(inferred("Pad", {"2,3", Ints{0, INT64_MIN, 0, INT64_MAX}}), "error");
  EXPECT_EQ(inferred("ConvTranspose", {"1,1,36028797018963968", "1,1,3"}, {{"strides", ints({2147483648})}}),
            "error");
  EXPECT_EQ(inferred("MaxPool", {"1,1,36028797018963968"},
                     {{"kernel_shape", ints({2147483648})}, {"dilations", ints({2147483648})}}),
            "error");
}

TEST(Infer, Quantization) {
  const Tensor scale = Tensor::scalar(0.5F);
  const Tensor s8 = Tensor::from<std::int8_t>(DType::kI8, {}, {0});
  const Tensor three = Tensor::from<float>(DType::kF32, {3}, {1, 2, 3});
  EXPECT_EQ(inferred("QuantizeLinear", {"b,3", scale}), "uint8 [b,3]");
  EXPECT_EQ(inferred("QuantizeLinear", {"b,3", scale, s8}), "int8 [b,3]");
  EXPECT_EQ(inferred("QuantizeLinear", {"b,3", scale, s8}, {{"output_dtype", number(3)}}),
            "int8 [b,3]");  // S5
  EXPECT_EQ(inferred("QuantizeLinear", {"b,3", scale, s8}, {{"output_dtype", number(2)}}), "error");
  EXPECT_EQ(inferred("QuantizeLinear", {"b,3", scale}, {{"output_dtype", number(17)}}),
            "float8_e4m3fn [b,3]");
  EXPECT_EQ(inferred("QuantizeLinear", {"b,3", three}), "uint8 [b,3]");
  EXPECT_EQ(inferred("QuantizeLinear", {"b,4", three}), "error");
  EXPECT_EQ(inferred("QuantizeLinear", {"b,4", three}, {{"axis", number(0)}}), "uint8 [b,4]");
  EXPECT_EQ(inferred("QuantizeLinear", {"b,70", "b,3"}, {{"block_size", number(32)}}), "uint8 [b,70]");
  EXPECT_EQ(inferred("QuantizeLinear", {"b,70", "b,2"}, {{"block_size", number(32)}}), "error");
  EXPECT_EQ(inferred("DequantizeLinear", {s8, scale}), "float32 []");
}

TEST(Infer, KeepsWhatIsDeclaredAndFindsContradictions) {
  Built built = build("Relu", {"b,?"}, {});
  built.graph.value(built.graph.outputs[0]).shape = parse("?,10");
  infer_shapes(built.graph);
  EXPECT_EQ(to_string(built.graph.value(built.graph.outputs[0]).shape), "[b,10]");
  built.graph.value(built.graph.outputs[0]).shape = parse("b,10,1");
  EXPECT_THROW(infer_shapes(built.graph), Error);
  built.graph.value(built.graph.outputs[0]).shape = parse("b,10");
  built.graph.value(built.graph.outputs[0]).dtype = DType::kF16;
  EXPECT_THROW(infer_shapes(built.graph), Error);
}

// Adds a node with one output to a graph.
ValueId add(Graph& graph, const char* op, std::vector<ValueId> in, Attributes attrs = {}) {
  Node node;
  node.op = op;
  node.in = std::move(in);
  node.attrs = std::move(attrs);
  Value value;
  value.name = op;
  node.out = {graph.add_value(value)};
  graph.add_node(node);
  return node.out[0];
}

ValueId constant(Graph& graph, Ints v) { return graph.add_constant("c", Tensor::ints(v)); }

// The way exporters write x.view(b, -1, 8) and cls.expand(b, -1, -1).
TEST(Infer, FollowsSizesThroughArithmetic) {
  Graph g;
  Value x;
  x.name = "x";
  x.dtype = DType::kF32;
  x.shape = parse("b,6,8,h");
  const ValueId in = g.add_value(x);
  g.inputs = {in};
  const ValueId shape = add(g, "Shape", {in});
  const ValueId zero = g.add_constant("i", Tensor::ints({0}).reshaped({}));
  const ValueId batch = add(g, "Gather", {shape, zero}, {{"axis", number(0)}});
  const ValueId batch1 = add(g, "Unsqueeze", {batch, constant(g, {0})});
  const ValueId six = add(g, "Slice", {shape, constant(g, {1}), constant(g, {2})});
  const ValueId half = add(g, "Div", {six, constant(g, {2})});
  const ValueId target =
      add(g, "Concat", {batch1, half, constant(g, {-1}), constant(g, {8})}, {{"axis", number(0)}});
  const ValueId y = add(g, "Reshape", {in, target});

  const ValueId wish = add(g, "Concat", {batch1, constant(g, {-1, -1})}, {{"axis", number(0)}});
  const ValueId ones = add(g, "ConstantOfShape", {add(g, "Shape", {wish})}, {{"value", Tensor::ints({1})}});
  const ValueId minus = add(g, "Mul", {ones, constant(g, {-1})});
  const ValueId sizes = add(g, "Where", {add(g, "Equal", {wish, minus}), ones, wish});
  const ValueId cls = g.add_constant("cls", Tensor::allocate(DType::kF32, {1, 1, 8}));
  const ValueId expanded = add(g, "Expand", {cls, sizes});
  infer_shapes(g);
  EXPECT_EQ(to_string(g.value(y).shape), "[b,3,?,8]");
  EXPECT_EQ(to_string(g.value(expanded).shape), "[b,1,8]");
  verify(g);
}

TEST(Infer, SubgraphsSeeWhatTheyCapture) {
  auto branch = [](const char* op) {
    auto body = std::make_shared<Graph>();
    Value outer;
    outer.name = "outer";
    const ValueId captured = body->add_value(outer);
    body->captures = {{1, captured}};
    body->outputs = {add(*body, op, {captured})};
    return body;
  };
  Built built = build("If", {Tensor::from<std::uint8_t>(DType::kBool, {}, {1}), "b,3"}, {});
  Node& node = built.graph.node(built.node);
  node.declared_inputs = 1;
  node.attrs["then_branch"] = branch("Relu");
  node.attrs["else_branch"] = branch("GlobalAveragePool");
  Graph copy = built.graph;
  infer_shapes(built.graph);
  EXPECT_EQ(to_string(built.graph.value(built.graph.outputs[0]).shape), "[b,3]");
  // The copy's subgraphs are untouched.
  const auto& other = std::get<std::shared_ptr<Graph>>(copy.node(built.node).attrs["then_branch"]);
  EXPECT_EQ(other->value(other->outputs[0]).dtype, DType::kUndefined);
}

TEST(Infer, NodesOfARunHaveNumbers) {
  Built built = build("Reshape", {"b,6", Ints{0, 2, -1}}, {});
  const Tensor x = Tensor::allocate(DType::kF32, {4, 6});
  const Tensor shape = Tensor::ints({0, 2, -1});
  bool read = true;
  const Node& node = built.graph.node(built.node);
  auto out = infer_node(built.graph, node, {x.view(), shape.view()}, &read);
  EXPECT_EQ(out[0].dims, (Dims{4, 2, 3}));
  EXPECT_FALSE(read);  // the shape is a constant
  Built other = build("Reshape", {"b,6", "3"}, {});
  out = infer_node(other.graph, other.graph.node(other.node), {x.view(), shape.view()}, &read);
  EXPECT_EQ(out[0].dims, (Dims{4, 2, 3}));
  EXPECT_TRUE(read);
  Built none = build("NonZero", {"b,6"}, {});
  out = infer_node(none.graph, none.graph.node(none.node), {x.view()}, &read);
  EXPECT_EQ(out[0].dims, (Dims{2, -1}));  // what only the operator's own work can tell
  EXPECT_TRUE(out[0].open());
}

TEST(Slice, IndexRule) {
  struct Case {
    std::int64_t start, end, step, size, first, count;
  };
  for (const Case& c : std::vector<Case>{{0, 4, 1, 4, 0, 4},
                                         {1, INT64_MAX, 2, 6, 1, 3},
                                         {-2, INT64_MAX, 1, 6, 4, 2},
                                         {INT64_MIN, 3, 1, 6, 0, 3},
                                         {5, INT64_MIN, -1, 6, 5, 6},
                                         {20, 0, -4, 20, 19, 5},
                                         {3, 1, 1, 6, 3, 0},
                                         {0, 6, INT64_MAX, 6, 0, 1},
                                         {5, -7, INT64_MIN, 6, 5, 1},
                                         {0, 0, 1, 0, 0, 0}}) {
    const SliceAxis slice = resolve_slice(c.start, c.end, c.step, c.size);
    EXPECT_EQ(slice.count, c.count) << c.start << ':' << c.end << ':' << c.step;
    if (c.count > 0) {
      EXPECT_EQ(slice.start, c.first) << c.start << ':' << c.end << ':' << c.step;
    }
  }
}

TEST(Window, SameAndCeil) {
  Node node;
  node.op = "Conv";
  node.attrs = {{"auto_pad", std::string("SAME_LOWER")}, {"strides", ints({2})}};
  Window window = read_window(node, {4});
  EXPECT_EQ(window_output(window, 0, 7), 4);
  resolve_pads(window, {7});
  EXPECT_EQ(window.pads_begin, (Ints{2}));  // 3 in all: the odd one in front
  EXPECT_EQ(window.pads_end, (Ints{1}));
  EXPECT_EQ(window_output(window, 0, 7), 4);
  // ceil_mode leaves out a window that would start in the padding behind: in 2, pads 0 1, k 1, stride 2.
  node.attrs = {{"ceil_mode", number(1)}, {"strides", ints({2})}, {"pads", ints({0, 1})}};
  EXPECT_EQ(window_output(read_window(node, {1}), 0, 2), 1);
}

TEST(Schemas, AreSortedAndFound) {
  for (const OpSchema* schema : all_schemas()) {
    EXPECT_EQ(find_schema(schema->domain, schema->op), schema);
    EXPECT_TRUE(schema->max_in < 0 || schema->max_in >= schema->min_in) << schema->op;
    EXPECT_TRUE(schema->max_out < 0 || schema->max_out >= schema->min_out) << schema->op;
  }
  EXPECT_EQ(find_schema("", "NoSuchOperator"), nullptr);
  EXPECT_EQ(find_schema("pare.none", "Add"), nullptr);
}

}  // namespace
}  // namespace pare
