// Gradients by layer outputs against differences of the float model's own logits, and the second moments made
// of them: their size, and the same bits for any threads and batches.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "calib/backward.h"
#include "calib/gradient_grams.h"
#include "datasets/npy.h"
#include "engine/base/error.h"
#include "engine/build/lower/lower_cpu.h"
#include "engine/run/session.h"
#include "graphsurgeon/families/family.h"
#include "graphsurgeon/open_checkpoint.h"
#include "graphsurgeon/simplify.h"
#include "tests/unit/datasets/temporary.h"
#include "tests/unit/test_paths.h"

namespace pare {
namespace {

Graph tiny_llama() {
  BuildOptions options;
  options.views = false;
  Graph graph = build_graph(open_checkpoint(source_path("tests/golden/families/llama")), options);
  simplify(graph, {});
  return graph;
}

Tensor token_rows(std::int64_t rows, std::int64_t length) {
  Tensor ids = Tensor::allocate(DType::kI64, {rows, length});
  for (std::int64_t i = 0; i < ids.size(); ++i) ids.mut<std::int64_t>()[i] = (i * 7 + 3) % 30;
  return ids;
}

std::vector<NodeId> layers_of(const Graph& graph) {
  std::vector<NodeId> layers;
  for (const NodeId id : graph.nodes()) {
    const Node& node = graph.node(id);
    if (node.is("MatMul") && graph.is_constant(node.in[1])) layers.push_back(id);
  }
  return layers;
}

std::vector<Tensor> run(const Graph& graph, const Tensor& ids, ThreadPool& pool) {
  SessionOptions options;
  options.pool = &pool;
  return Session(lower_for_cpu(graph).graph, options).run({ids});
}

// L = sum of R logits with a fixed R. Along a change E of one layer's weight the slope of L is
// sum over positions of g^T (x E); by central differences with step h its error is O(h^2) of the third
// derivative, and float32 noise of L over h: both below a part in 200 here.
TEST(Backward, IsTheSlopeOfTheModel) {
  ThreadPool pool(2);
  const Graph graph = tiny_llama();
  const std::vector<NodeId> layers = layers_of(graph);
  ASSERT_EQ(layers.size(), 15u);  // two blocks of seven, the head
  const ValueId logits = graph.outputs[0];
  const Tensor ids = token_rows(2, 9);
  Backward backward(graph, logits, layers, pool);
  Graph watched = graph;
  watched.outputs = backward.needed();
  watched.outputs.push_back(logits);
  const std::vector<Tensor> results = run(watched, ids, pool);
  std::map<ValueId, Tensor> values;
  for (std::size_t i = 0; i < results.size(); ++i) values[watched.outputs[i]] = results[i];
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  Tensor r = Tensor::allocate(DType::kF32, results.back().dims());
  for (std::int64_t i = 0; i < r.size(); ++i) r.mut<float>()[i] = normal(random);
  std::vector<Tensor> gradients(layers.size());
  backward.run(values, r, [&](std::size_t layer, const Tensor& g) { gradients[layer] = g; });
  const auto loss = [&](const Graph& changed) {
    const Tensor y = run(changed, ids, pool)[0];
    double sum = 0;
    for (std::int64_t i = 0; i < y.size(); ++i)
      sum += static_cast<double>(y.as<float>()[i]) * static_cast<double>(r.as<float>()[i]);
    return sum;
  };
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    const Node& node = graph.node(layers[layer]);
    const Tensor& w = graph.value(node.in[1]).constant;
    const std::int64_t n = w.dims()[0], m = w.dims()[1];
    ASSERT_FALSE(gradients[layer].empty());
    // E along the slope's own direction, sum over positions of x g^T: the slope is its squared length, far
    // from zero.
    const Tensor& x = values.at(node.in[0]);
    std::vector<double> e(static_cast<std::size_t>(n * m), 0.0);
    for (std::int64_t t = 0; t < x.size() / n; ++t)
      for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t j = 0; j < m; ++j)
          e[static_cast<std::size_t>(i * m + j)] +=
              static_cast<double>(x.as<float>()[t * n + i]) *
              static_cast<double>(gradients[layer].as<float>()[t * m + j]);
    double length = 0;
    for (const double v : e) length += v * v;
    length = std::sqrt(length);
    ASSERT_GT(length, 0);
    constexpr double kStep = 1e-2;
    double sides[2];
    for (const int side : {0, 1}) {
      Graph changed = graph;
      Tensor moved = Tensor::allocate(DType::kF32, w.dims());
      for (std::int64_t i = 0; i < w.size(); ++i)
        moved.mut<float>()[i] =
            static_cast<float>(static_cast<double>(w.as<float>()[i]) +
                               (side == 0 ? 1 : -1) * kStep * e[static_cast<std::size_t>(i)] / length);
      changed.value(node.in[1]).constant = moved;
      sides[side] = loss(changed);
    }
    EXPECT_NEAR((sides[0] - sides[1]) / (2 * kStep), length, 0.01 * length) << graph.value(node.in[1]).name;
  }
}

TEST(Backward, RefusesWhatHasNoDerivativeHere) {
  ThreadPool pool(1);
  Graph graph = tiny_llama();
  const NodeId first = layers_of(graph).front();
  const ValueId y = graph.node(first).out[0];
  Value value;
  value.name = "turned";
  value.dtype = DType::kF32;
  value.shape = graph.value(y).shape;
  const ValueId turned = graph.add_value(value);
  graph.replace_uses(y, turned);
  Node node;
  node.op = "Tanh";
  node.in = {y};
  node.out = {turned};
  graph.insert_after(first, node);
  try {
    Backward backward(graph, graph.outputs[0], {first}, pool);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_NE(std::string(error.what()).find("Tanh 'turned'"), std::string::npos) << error.what();
  }
}

TEST(GradientGrams, AreTheSameForAnyThreadsAndBatches) {
  const Graph graph = tiny_llama();
  std::vector<NodeId> layers = layers_of(graph);
  layers.pop_back();  // the head
  TemporaryFolder folder;
  const std::string path = folder.file("tokens.npy");
  write_npy(path, token_rows(6, 11).view());
  const auto collect = [&](int threads, std::int64_t batch) {
    ThreadPool pool(threads);
    DatasetSpec spec;
    spec.path = path;
    Dataset data(spec,
                 {{"input_ids", graph.value(graph.inputs[0]).dtype, graph.value(graph.inputs[0]).shape}});
    GramOptions options;
    options.pool = &pool;
    options.batch = batch;
    return collect_gradient_grams(graph, layers, data, options);
  };
  const auto once = collect(1, 1), again = collect(2, 4);
  ASSERT_EQ(once.size(), layers.size());
  for (std::size_t i = 0; i < once.size(); ++i) {
    EXPECT_EQ(once[i]->inputs.count, 66u);
    EXPECT_EQ(once[i]->inputs.sums, again[i]->inputs.sums);
    EXPECT_EQ(once[i]->outputs.sums, again[i]->outputs.sums);
    double trace = 0;
    for (std::int64_t k = 0; k < once[i]->outputs.n; ++k) trace += once[i]->outputs.at(0, k, k);
    EXPECT_NEAR(trace / 66 / static_cast<double>(once[i]->outputs.n), 1, 1e-9);
  }
}

}  // namespace
}  // namespace pare
