// A plan computes what its graph does, in as many kernels as it should, in memory that nobody else is using.
//
// Tolerance in float32: the plan's reference sums in double and rounds once a layer, the session sums in
// float32 over at most 1152 products; 60 layers of relative error 2^-24 * sqrt(1152) stay far below 1e-4 (80
// dB). In float16 each layer rounds its output to 2^-12 relative at most, inputs and weights too; random
// errors of 60 layers add as squares: 60 * 3 * (2^-12)^2 / 3 gives 54 dB, 45 leaves room for cancellation in
// residual sums.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/build/engine_file.h"
#include "engine/build/lower/lower_cpu.h"
#include "engine/build/plan/make_plan.h"
#include "engine/build/plan/memory_plan.h"
#include "engine/build/plan/plan_json.h"
#include "engine/build/plan/plan_reference.h"
#include "engine/build/plan/plan_view.h"
#include "engine/build/precision_choice.h"
#include "engine/build/profile.h"
#include "engine/ir/schema.h"
#include "engine/run/session.h"
#include "tests/unit/build/add_op.h"
#include "tests/unit/build/networks.h"

namespace pare {
namespace {

Tensor random_input(const Value& value, unsigned seed) {
  Tensor t = Tensor::allocate(value.dtype, value.shape.sizes());
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  for (std::int64_t i = 0; i < t.size(); ++i) {
    if (value.dtype == DType::kI64)
      t.mut<std::int64_t>()[i] = static_cast<std::int64_t>(rng() % 100);
    else
      t.mut<float>()[i] = normal(rng);
  }
  return t;
}

double sqnr(const Tensor& want, const Tensor& got) {
  EXPECT_EQ(want.dims(), got.dims());
  double signal = 0, noise = 0;
  for (std::int64_t i = 0; i < want.size(); ++i) {
    const auto a = static_cast<double>(want.as<float>()[i]), d = a - static_cast<double>(got.as<float>()[i]);
    signal += a * a;
    noise += d * d;
  }
  return noise == 0 ? 999 : 10 * std::log10(signal / noise);
}

void expect_same_function(const Graph& graph) {
  std::vector<Tensor> inputs;
  for (const ValueId id : graph.inputs) inputs.push_back(random_input(graph.value(id), 3));
  ThreadPool pool(2);
  Session session(lower_for_cpu(graph).graph, {&pool, true, false});
  const Tensor want = session.run(inputs)[0];
  for (const DType precision : {DType::kF32, DType::kF16}) {
    PlanOptions options;
    options.precision = precision;
    const EnginePlan plan = make_plan(graph, options);
    EXPECT_GT(sqnr(want, run_plan_reference(plan, inputs)[0]), precision == DType::kF32 ? 80 : 45)
        << name(precision);
  }
}

TEST(EnginePlan, ComputesWhatTheGraphDoes) {
  {
    SCOPED_TRACE("resnet50");
    expect_same_function(test::resnet50());
  }
  {
    SCOPED_TRACE("vit");
    expect_same_function(test::vit(2));
  }
  {
    SCOPED_TRACE("bert");
    expect_same_function(test::bert(2, 2));
  }
}

int count(const EnginePlan& plan, LayerKind kind) {
  int n = 0;
  for (const PlanLayer& layer : plan.layers) n += layer.kind == kind ? 1 : 0;
  return n;
}

// The goals are 54, 62 and 64.
TEST(EnginePlan, KernelsOfKnownNetworks) {
  const EnginePlan resnet = make_plan(test::resnet50());
  EXPECT_EQ(count_kernels(resnet), 57);  // image, 53 convolutions, two pools, the classifier
  EXPECT_EQ(count(resnet, LayerKind::kPointwise), 1);
  PlanOptions inside;
  inside.shortcuts = true;
  EXPECT_EQ(count_kernels(make_plan(test::resnet50(), inside)),
            53);  // shortcuts in the products that add them
  PlanOptions apart;
  apart.fold_norms = false;
  for (const bool folded : {true, false}) {
    const EnginePlan bert = folded ? make_plan(test::bert(12, 2)) : make_plan(test::bert(12, 2), apart);
    // Embeddings; qkv, attention, out, up, down; the last norm. Apart: a norm behind out and down.
    EXPECT_EQ(count_kernels(bert), folded ? 1 + 12 * 5 + 1 : 1 + 12 * 7);
    EXPECT_EQ(count(bert, LayerKind::kAttention), 12);
    EXPECT_EQ(count(bert, LayerKind::kPointwise), 0);
    const EnginePlan vit = folded ? make_plan(test::vit(12)) : make_plan(test::vit(12), apart);
    // Patches, their product, the first norm; the classifier takes the last norm with it.
    EXPECT_EQ(count_kernels(vit), folded ? 3 + 12 * 5 + 1 : 2 + 12 * 7 + 2);
    EXPECT_EQ(count(vit, LayerKind::kAttention), 12);
  }
}

// Every layer of a quantized image network reads and writes codes, its pool too: the quantizer behind moves
// in front.
TEST(EnginePlan, CodesBetweenAllLayersOfAnImageNetwork) {
  for (const DType type : {DType::kI8, DType::kE4M3FN}) {
    const Graph graph = test::image_codes(type);
    const EnginePlan plan = make_plan(graph);
    EXPECT_EQ(count_kernels(plan), 12) << to_text(plan);  // image, eight convolutions, two pools, the output
    for (const PlanLayer& layer : plan.layers) {
      if (layer.op != "MaxPool") continue;
      EXPECT_EQ(plan.tensors[static_cast<std::size_t>(layer.in[0].tensor)].dtype, type);
      EXPECT_EQ(plan.tensors[static_cast<std::size_t>(layer.out[0].tensor)].dtype, type);
    }
    for (const Realized& row : plan.realized) EXPECT_EQ(row.why, "") << row.node;
    ThreadPool pool(2);
    std::vector<Tensor> inputs = {random_input(graph.value(graph.inputs[0]), 3)};
    Session session(lower_for_cpu(graph).graph, {&pool, true, false});
    EXPECT_GT(sqnr(session.run(inputs)[0], run_plan_reference(plan, inputs)[0]), 30) << name(type);

    // The shortcut inside of the product that adds it: the same codes, in every layer's arithmetic.
    PlanOptions inside;
    inside.shortcuts = true;
    const EnginePlan shorter = make_plan(graph, inside);
    EXPECT_EQ(count_kernels(shorter), 11) << to_text(shorter);
    EXPECT_EQ(std::count_if(shorter.layers.begin(), shorter.layers.end(), has_shortcut), 1);
    const Tensor apart = run_plan_reference(plan, inputs)[0],
                 together = run_plan_reference(shorter, inputs)[0];
    EXPECT_EQ(std::memcmp(apart.data(), together.data(), static_cast<std::size_t>(apart.bytes())), 0);
    EnginePlan kept = shorter;
    plan_memory(kept);
    const Json json = plan_to_json(kept);
    EnginePlan again = plan_from_json(json, "a plan");
    check_plan(again, "a plan");
    EXPECT_EQ(plan_to_json(again), json);
    for (PlanLayer& layer : again.layers)  // a shortcut that is not as large as what it is added to
      if (has_shortcut(layer)) ++layer.shortcut.conv.oh;
    EXPECT_THROW(check_plan(again, "a plan"), Error);

    // All layers float: no quantizer is left, not even that of the shortcut.
    Graph changed = graph;
    drop_quantization(changed, low_precision_nodes(plan));
    const EnginePlan flat = make_plan(changed);
    EXPECT_EQ(count_kernels(flat), 12) << to_text(flat);
    for (const PlanTensor& tensor : flat.tensors) EXPECT_NE(bits(tensor.dtype), 8) << tensor.name;
  }
}

// Attention between quantized products, as `pare quantize` writes it: x -> q, k, v -> softmax -> product.
struct QuantizedAttention {
  Graph graph;
  std::mt19937 random{5};
  int count = 0;

  ValueId op(const char* name, std::vector<ValueId> in, Attributes attrs = {}) {
    return add_op(graph, name, ++count, std::move(in), std::move(attrs));
  }
  ValueId constant(Tensor t) { return graph.add_constant("c" + std::to_string(++count), std::move(t)); }
  Tensor floats(Dims dims, float size) {
    Tensor t = Tensor::allocate(DType::kF32, std::move(dims));
    std::normal_distribution<float> draw(0, size);
    for (std::int64_t i = 0; i < t.size(); ++i) t.mut<float>()[i] = draw(random);
    return t;
  }
  ValueId fake(ValueId x, float scale, DType type) {
    const std::uint8_t zero = 0;
    const ValueId s = constant(Tensor::scalar(scale)), z = constant(Tensor::copy_of(type, {}, &zero, 1));
    return op("DequantizeLinear", {op("QuantizeLinear", {x, s, z}), s, z});
  }
  // Scales that put 4 deviations at the end of the codes.
  static float step(DType type, float deviation) {
    return 4 * deviation / (type == DType::kI8 ? 127.0f : 448.0f);
  }

  QuantizedAttention(DType type, bool values_too) {
    Value input;
    input.name = input.origin = "x";
    input.dtype = DType::kF32;
    input.shape = Shape(Dims{2, 6, 64});
    const ValueId x = graph.add_value(std::move(input));
    graph.inputs = {x};
    const ValueId codes = fake(x, step(type, 1), type);
    const auto heads = [&](bool turned) {
      const ValueId w = fake(constant(floats({64, 64}, 0.125f)), step(type, 0.125f), type);
      const ValueId y = op("Add", {op("MatMul", {codes, w}), constant(floats({64}, 0.1f))});
      return op("Transpose", {op("Reshape", {y, constant(Tensor::ints({2, 6, 2, 32}))})},
                {{"perm", std::vector<std::int64_t>{0, 2, turned ? 3 : 1, turned ? 1 : 3}}});
    };
    const ValueId q = fake(heads(false), step(type, 1), type), k = fake(heads(true), step(type, 1.1f), type);
    const ValueId raw = heads(false), v = values_too ? fake(raw, step(type, 1.2f), type) : raw;
    ValueId p = op("Softmax", {op("Mul", {op("MatMul", {q, k}), constant(Tensor::scalar(0.17f))})});
    if (values_too) p = fake(p, 1 / (type == DType::kI8 ? 127.0f : 448.0f), type);
    const ValueId y =
        op("Transpose", {op("MatMul", {p, v})}, {{"perm", std::vector<std::int64_t>{0, 2, 1, 3}}});
    const ValueId flat = fake(op("Reshape", {y, constant(Tensor::ints({2, 6, 64}))}), step(type, 0.6f), type);
    const ValueId w = fake(constant(floats({64, 32}, 0.125f)), step(type, 0.125f), type);
    graph.outputs = {op("MatMul", {flat, w})};
    infer_shapes(graph);
  }
};

// float16 rounding (2^-11) moves a value over the boundary of a code with probability 2^-11 / step, and then
// costs a step: E4M3 has steps of 2^-3 of a value, so 2^-8 * (2^-3)^2 of its power, 42 dB; int8 has 1/32 of a
// deviation and loses less. Four such places in a row leave 36 dB; 30 is asked for.
TEST(EnginePlan, QuantizersMoveIntoTheLayersBeforeThem) {
  ThreadPool pool(2);
  for (const DType type : {DType::kE4M3FN, DType::kI8})
    for (const bool values_too : {true, false}) {
      SCOPED_TRACE(std::string(name(type)) + (values_too ? " all" : " scores"));
      if (type == DType::kE4M3FN && !values_too) continue;  // codes among floats are int8
      const QuantizedAttention net(type, values_too);
      const EnginePlan plan = make_plan(net.graph);
      // The input's codes; q, k and v in one product; attention; the last product.
      EXPECT_EQ(count_kernels(plan), 4) << to_text(plan);
      EXPECT_EQ(plan.realized.size(), values_too ? 6u : 5u);
      for (const Realized& row : plan.realized) EXPECT_EQ(row.why, "") << row.node;
      std::vector<Tensor> inputs = {random_input(net.graph.value(net.graph.inputs[0]), 3)};
      Session session(lower_for_cpu(net.graph).graph, {&pool, true, false});
      EXPECT_GT(sqnr(session.run(inputs)[0], run_plan_reference(plan, inputs)[0]), 30);
    }
}

// A convolution of 3 channels pads its input in the kernel that quantizes it, also when that kernel computes
// something in front of the quantizer (a recogniser in int8 could not be planned).
TEST(EnginePlan, APaddedInputThatIsComputedAndQuantized) {
  QuantizedAttention net(DType::kI8, true);  // for its helpers
  Graph& g = net.graph = Graph();
  Value input;
  input.name = input.origin = "x";
  input.dtype = DType::kF32;
  input.shape = Shape(Dims{2, 3, 10, 10});
  g.inputs = {g.add_value(std::move(input))};
  const ValueId x =
      net.op("Mul", {net.op("Tanh", {g.inputs[0]}), net.constant(net.floats({1, 3, 1, 1}, 0.5f))});
  const ValueId w =
      net.fake(net.constant(net.floats({16, 3, 3, 3}, 0.2f)), net.step(DType::kI8, 0.2f), DType::kI8);
  g.outputs = {net.op("Conv", {net.fake(x, 0.01f, DType::kI8), w})};
  infer_shapes(g);
  const EnginePlan plan = make_plan(g);
  EXPECT_EQ(plan.realized.at(0).why, "");
  ThreadPool pool(1);
  const std::vector<Tensor> inputs = {random_input(g.value(g.inputs[0]), 3)};
  Session session(lower_for_cpu(g).graph, {&pool, true, false});
  EXPECT_GT(sqnr(session.run(inputs)[0], run_plan_reference(plan, inputs)[0]), 30);
}

// Without its Q/DQ a layer rounds nothing; what was 30 dB from fake quantization stays within what its codes
// cost.
TEST(EnginePlan, LayersThatAreNotFasterInLowPrecisionStayFloat) {
  const QuantizedAttention net(DType::kI8, true);
  EnginePlan low = make_plan(net.graph);
  const std::set<std::string> nodes = low_precision_nodes(low);
  EXPECT_EQ(nodes.size(), 6u);
  Graph changed = net.graph;
  EXPECT_EQ(drop_quantization(changed, {"no such node"}), 0);
  EXPECT_EQ(drop_quantization(changed, nodes), 8);  // four products of one activation, two of two
  EnginePlan flat = make_plan(changed);
  for (const PlanLayer& layer : flat.layers)
    for (const PlanView& view : layer.out)
      EXPECT_NE(bits(flat.tensors[static_cast<std::size_t>(view.tensor)].dtype), 8) << layer.name;
  std::vector<Tensor> inputs = {random_input(net.graph.value(net.graph.inputs[0]), 3)};
  EXPECT_GT(sqnr(run_plan_reference(low, inputs)[0], run_plan_reference(flat, inputs)[0]), 20);

  // q, k and v are one layer: decided together, by that layer's time.
  for (PlanLayer& layer : low.layers) layer.microseconds = layer.kind == LayerKind::kAttention ? 5 : 10;
  for (PlanLayer& layer : flat.layers)
    layer.microseconds = layer.kind == LayerKind::kAttention ? 4 : layer.out[0].dims.back() == 32 ? 11 : 10;
  const auto faster = faster_as_float(low, flat);
  EXPECT_EQ(faster.size(), 5u);  // all but the last product; equal is not faster in low precision
  explain_float(flat, low, faster);
  EXPECT_EQ(left_float(flat).size(), 5u);
  EXPECT_EQ(low_precision_nodes(low).size(), 6u);
}

// x -> norm -> product, and the norm is also a residual: one kernel leaves both forms of it.
TEST(EnginePlan, FloatsAndCodesOfOneValueAreOneLayersOutputs) {
  for (const DType type : {DType::kE4M3FN, DType::kI8}) {
    QuantizedAttention net(type, true);
    Graph& g = net.graph;
    const ValueId x = g.outputs[0];
    const ValueId ones = net.constant(net.floats({32}, 1)), norm = net.op("LayerNormalization", {x, ones});
    const auto layer = [&](ValueId in) {
      const ValueId w = net.fake(net.constant(net.floats({32, 32}, 0.2f)), net.step(type, 0.2f), type);
      return net.op("MatMul", {net.fake(in, net.step(type, 1), type), w});
    };
    const ValueId first = net.op("Relu", {net.op("Add", {layer(norm), norm})});
    g.outputs = {net.op("Add", {layer(first), first})};
    infer_shapes(g);
    const EnginePlan plan = make_plan(g);
    // The four of the attention, the norm, two products; no quantizer is a kernel of its own but the input's.
    EXPECT_EQ(count_kernels(plan), 7) << to_text(plan);
    EXPECT_EQ(std::count_if(plan.layers.begin(), plan.layers.end(), copies_codes), 2);
    ThreadPool pool(2);
    std::vector<Tensor> inputs = {random_input(g.value(g.inputs[0]), 3)};
    Session session(lower_for_cpu(g).graph, {&pool, true, false});
    EXPECT_GT(sqnr(session.run(inputs)[0], run_plan_reference(plan, inputs)[0]), 25);
  }
}

TEST(EnginePlan, MemoryIsSharedOnlyByValuesOfDifferentTimes) {
  EnginePlan plan = make_plan(test::resnet50());
  const std::int64_t apart = plan_memory(plan);
  EXPECT_LT(plan.arena_bytes, apart / 3);
  std::vector<std::pair<int, int>> life(plan.tensors.size(), {-1, -1});
  for (std::size_t l = 0; l < plan.layers.size(); ++l)
    for (const auto* views : {&plan.layers[l].in, &plan.layers[l].out})
      for (const PlanView& view : *views) {
        if (!view.present()) continue;
        auto& [first, last] = life[static_cast<std::size_t>(view.tensor)];
        if (first < 0) first = static_cast<int>(l);
        last = static_cast<int>(l);
      }
  int pairs = 0;
  for (std::size_t a = 0; a < plan.tensors.size(); ++a)
    for (std::size_t b = a + 1; b < plan.tensors.size(); ++b) {
      const PlanTensor &x = plan.tensors[a], &y = plan.tensors[b];
      if (x.role != PlanRole::kActivation || y.role != PlanRole::kActivation) continue;
      if (life[a].first > life[b].second || life[b].first > life[a].second) continue;
      ++pairs;
      EXPECT_TRUE(x.offset + x.bytes() <= y.offset || y.offset + y.bytes() <= x.offset)
          << x.name << " " << y.name;
    }
  EXPECT_GT(pairs, 50);
}

struct ReshapeCase {
  Dims dims, strides, to, want;  // want empty: no strides
};
TEST(PlanView, Reshape) {
  const ReshapeCase cases[] = {
      {{2, 3, 4}, {12, 4, 1}, {6, 4}, {4, 1}},
      {{2, 3, 4}, {12, 4, 1}, {24}, {1}},
      {{24}, {1}, {2, 12}, {12, 1}},
      {{24}, {5}, {2, 12}, {60, 5}},
      {{2, 3, 4}, {1, 8, 2}, {6, 4}, {}},            // transposed axes do not join
      {{2, 3, 4}, {100, 4, 1}, {2, 12}, {100, 1}},   // a gap in front stays
      {{2, 3, 4}, {100, 4, 1}, {24}, {}},            // and cannot be joined
      {{1, 3, 1, 4}, {0, 4, 0, 1}, {3, 4}, {4, 1}},  // sizes of 1 have no say
      {{4, 6}, {0, 1}, {2, 2, 6}, {0, 0, 1}},        // broadcast
      {{4, 6}, {6, 1}, {3, 8}, {8, 1}},
      {{4, 6}, {7, 1}, {3, 8}, {}},
  };
  for (const ReshapeCase& c : cases) {
    PlanView view{0, c.dims, c.strides, 5};
    const bool works = view_reshape(view, c.to);
    EXPECT_EQ(works, !c.want.empty()) << to_string(c.dims) << to_string(c.strides) << to_string(c.to);
    if (!works) {
      EXPECT_EQ(view.dims, c.dims);  // left alone
      continue;
    }
    EXPECT_EQ(view.dims, c.to);
    EXPECT_EQ(view.offset, 5);
    for (std::size_t i = 0; i < c.to.size(); ++i) {
      if (c.to[i] == 1) continue;
      EXPECT_EQ(view.strides[i], c.want[i]) << to_string(c.to);
    }
  }
}

TEST(EnginePlan, SaysWhatItCannotDo) {
  Graph graph = test::vit(1);
  for (const NodeId id : graph.nodes())
    if (graph.node(id).is("Gelu")) graph.node(id).op = "Asinh";
  try {
    make_plan(graph);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_NE(std::string(error.what()).find("Asinh"), std::string::npos) << error.what();
  }
}

TEST(EnginePlan, OpenSizesAreAskedFor) {
  Graph graph = test::vit(1);
  graph.value(graph.inputs[0]).shape.dims[2] = Dim::named("height");
  EXPECT_THROW(fix_sizes(graph, 1, {}), Error);
  const Graph fixed = fix_sizes(graph, 1, {{"image", {2, 3, 32, 32}}});
  EXPECT_TRUE(fixed.value(fixed.outputs[0]).shape.concrete());
  EXPECT_THROW(fix_sizes(graph, 1, {{"picture", {2, 3, 32, 32}}}), Error);
}

TEST(EnginePlan, TooLittleMemoryNamesTheLargestBatch) {
  EnginePlan plan = make_plan(test::vit(1));  // two images
  plan_memory(plan);
  const std::int64_t peak = planned_memory(plan).peak();
  EXPECT_GT(planned_memory(plan).weights, 0);
  EXPECT_NO_THROW(check_fits(plan, 2, peak));
  EXPECT_EQ(largest_batch(plan, 2, peak), 2);
  EXPECT_EQ(largest_batch(plan, 2, peak - (planned_memory(plan).activations + planned_memory(plan).io) / 2),
            1);
  const auto refused = [&](std::int64_t bytes, const char* words) {
    try {
      check_fits(plan, 2, bytes);
      ADD_FAILURE() << bytes;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kDevice);
      EXPECT_NE(std::string(error.hint()).find(words), std::string::npos) << error.hint();
    }
  };
  refused(peak - 1, "largest batch that fits is about 1");
  refused(planned_memory(plan).weights, "not even one sample");
  refused(0, "not even one sample");
}

TEST(EnginePlan, EqualWeightsLieInOnePlace) {
  EnginePlan plan = make_plan(test::bert(2, 1));
  plan_memory(plan);
  const std::int64_t before = plan.weight_bytes;
  PlanTensor *first = nullptr, *second = nullptr;
  for (PlanTensor& t : plan.tensors)
    for (PlanTensor& u : plan.tensors)
      if (first == nullptr && &t != &u && t.role == PlanRole::kWeight && u.role == PlanRole::kWeight &&
          t.dtype == u.dtype && t.dims == u.dims && t.hash != u.hash)
        first = &t, second = &u;
  ASSERT_NE(first, nullptr);
  second->data = first->data;
  second->hash.clear();
  hash_weights(plan);
  EXPECT_EQ(second->hash, first->hash);
  plan_memory(plan);
  EXPECT_EQ(second->offset, first->offset);
  EXPECT_EQ(plan.weight_bytes, before - (first->bytes() + 255) / 256 * 256);
}

TEST(EnginePlan, Tf32IsAskedOfProductsOnly) {
  PlanOptions options;
  options.precision = DType::kF32;
  options.tf32 = true;
  const EnginePlan plan = make_plan(test::vit(1), options);
  EXPECT_EQ(plan.precision, "tf32");
  int products = 0;
  for (const PlanLayer& layer : plan.layers) {
    const bool product = layer.kind == LayerKind::kGemm || layer.kind == LayerKind::kConv;
    products += product ? 1 : 0;
    EXPECT_EQ(layer.requested, product ? "tf32" : "float32") << layer.name;
  }
  EXPECT_GT(products, 0);
  PlanOptions read;
  set_precision(read, plan.precision);
  EXPECT_TRUE(read.tf32);
  EXPECT_EQ(read.precision, DType::kF32);
  set_precision(read, "bfloat16");
  EXPECT_FALSE(read.tf32);
  EXPECT_EQ(read.precision, DType::kBF16);
  EXPECT_THROW(set_precision(read, "float8"), Error);
}

}  // namespace
}  // namespace pare
