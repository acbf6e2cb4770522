// Elementwise operators, normalizations, Softmax and data movement at the shapes of the fashion models,
// batch 64. Every kernel but the reference is compared with the reference before it is timed. Usage:
// ops_bench [threads = 2] [part of a name]
#include <cmath>
#include <cstdlib>

#include "engine/base/error.h"
#include "engine/ir/schema.h"
#include "engine/ops/registry.h"
#include "tests/bench/bench.h"

namespace {

using namespace pare;  // NOLINT: a program of its own

struct Row {
  const char* what;
  const char* op;
  std::vector<Tensor> in;
  Attributes attrs;
};

Tensor floats(Dims dims) {
  Tensor t = Tensor::allocate(DType::kF32, std::move(dims));
  std::uint32_t state = 1;
  for (std::int64_t i = 0; i < t.size(); ++i) {
    state = state * 1664525u + 1013904223u;
    t.mut<float>()[i] = static_cast<float>(static_cast<std::int32_t>(state)) * 0x1p-29F;
  }
  return t;
}

using Ints = std::vector<std::int64_t>;

std::vector<Row> rows() {
  return {
      {"vit", "Softmax", {floats({64, 6, 50, 50})}, {}},
      {"vit", "LayerNormalization", {floats({64, 50, 192}), floats({192}), floats({192})}, {}},
      {"vit", "Gelu", {floats({64, 50, 768})}, {}},
      {"vit", "Div", {floats({64, 6, 50, 50}), floats({})}, {}},
      {"vit residual", "Add", {floats({64, 50, 192}), floats({64, 50, 192})}, {}},
      {"vit bias", "Add", {floats({64, 50, 768}), floats({768})}, {}},
      {"vit split heads", "Transpose", {floats({64, 50, 3, 6, 32})}, {{"perm", Ints{2, 0, 3, 1, 4}}}},
      {"vit keys", "Transpose", {floats({64, 6, 50, 32})}, {{"perm", Ints{0, 1, 3, 2}}}},
      {"vit values",
       "Slice",
       {floats({3, 64, 6, 50, 32}), Tensor::ints({2}), Tensor::ints({3}), Tensor::ints({0})},
       {}},
      {"resnet", "Relu", {floats({64, 32, 28, 28})}, {}},
      {"resnet",
       "BatchNormalization",
       {floats({64, 32, 28, 28}), floats({32}), floats({32}), floats({32}),
        Tensor::from<float>(DType::kF32, {32}, std::vector<float>(32, 1.5F))},
       {}},
      {"resnet", "GlobalAveragePool", {floats({64, 256, 4, 4})}, {}},
      {"mobilenet", "HardSwish", {floats({64, 96, 14, 14})}, {}},
      {"mobilenet squeeze", "GlobalAveragePool", {floats({64, 96, 14, 14})}, {}},
      {"mobilenet excite", "Mul", {floats({64, 96, 14, 14}), floats({64, 96, 1, 1})}, {}},
      {"mobilenet excite, channels last", "Mul", {floats({64, 14, 14, 96}), floats({64, 1, 1, 96})}, {}},
  };
}

struct Prepared {
  Node node;
  std::vector<TensorView> in, early, out;
  std::vector<Tensor> outputs;
};

Prepared prepare(const Row& row) {
  Prepared p;
  p.node.op = row.op;
  p.node.attrs = row.attrs;
  Graph graph;
  for (const Tensor& t : row.in) {
    p.in.push_back(t.view());
    p.early.push_back(t.view());
    p.node.in.push_back(graph.add_value({}));
  }
  p.early[0].data = nullptr;  // the others are constants
  p.node.out = {graph.add_value({})};
  for (const OutputType& type : infer_node(graph, p.node, p.in, nullptr)) {
    p.outputs.push_back(Tensor::allocate(type.dtype, type.dims));
    p.out.push_back(p.outputs.back().view());
  }
  return p;
}

bool close(const Tensor& got, const Tensor& want) {
  for (std::int64_t i = 0; i < got.size(); ++i) {
    const float a = got.as<float>()[i], b = want.as<float>()[i];
    if (!(std::fabs(a - b) <= 1e-5F + 1e-4F * std::fabs(b)) && !(std::isnan(a) && std::isnan(b)))
      return false;
  }
  return true;
}

void time_kernels(const Row& row, int threads) {
  Prepared p = prepare(row);
  ThreadPool pool(threads);
  Scratch scratch;
  OpCall call;
  call.node = &p.node;
  call.in = p.early;
  call.out = p.out;
  call.pool = &pool;
  call.scratch = &scratch;
  const auto kernels = cpu_registry().candidates("", row.op, Backend::kCpu);
  std::vector<const Kernel*> takers;
  for (const Kernel* kernel : kernels)
    if (kernel->why_not(call).empty()) takers.push_back(kernel);
  Tensor want;
  for (auto it = takers.rbegin(); it != takers.rend(); ++it) {
    const Kernel& kernel = **it;
    std::shared_ptr<const void> prepared;
    call.in = p.early;
    if (kernel.prepare != nullptr) prepared = kernel.prepare(call);
    call.prepared = prepared.get();
    call.in = p.in;
    if (want.empty()) {
      kernel.run(call);
      want = p.outputs[0].clone();
      if (takers.size() > 1) continue;  // the reference is not timed, unless it is all there is
    }
    pare::bench::Work work;
    work.name = std::string(kernel.name) + "/" + row.what;
    work.run = [&] { kernel.run(call); };
    work.correct = [&] { return close(p.outputs[0], want); };
    work.bytes =
        p.outputs[0].bytes() + (std::string(row.op) == "Slice" ? p.outputs[0].bytes() : row.in[0].bytes());
    pare::bench::measure(work);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  const std::string part = argc > 2 ? argv[2] : "";
  for (const Row& row : rows())
    if (part.empty() || std::string(row.op).find(part) != std::string::npos) time_kernels(row, threads);
  return 0;
}
