// Conversion keeps what a graph computes: a small graph (graph_maker.h) in another opset, written, read back
// and run.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>

#include "engine/base/error.h"
#include "engine/run/session.h"
#include "graphsurgeon/onnx/convert_opset.h"
#include "graphsurgeon/onnx/read.h"
#include "graphsurgeon/onnx/write.h"
#include "graphsurgeon/passes/passes.h"
#include "tests/fuzz/graph_maker.h"

namespace {

using pare::Graph;
using pare::Tensor;

std::vector<Tensor> run(const Graph& graph, const std::vector<Tensor>& inputs) {
  static pare::ThreadPool pool(1);
  pare::SessionOptions options;
  options.pool = &pool;
  pare::Session session(std::make_shared<const Graph>(graph), options);
  return session.run(inputs);
}

void compare_all(const pare::fuzz::Made& made, std::size_t size) {
  const std::vector<Tensor> want = run(made.graph, made.inputs);
  const auto check = [&](const Graph& changed, const char* what) {
    if (pare::fuzz::close(run(changed, made.inputs), want)) return;
    std::fprintf(stderr, "%s changed what the graph computes:\n%s\ninto\n%s\n", what,
                 pare::to_text(made.graph).c_str(), pare::to_text(changed).c_str());
    std::abort();
  };
  for (const pare::Pass* pass : pare::simplify_passes()) {
    Graph changed = made.graph;
    const pare::Pass* const alone[] = {pass};
    pare::run_passes(changed, alone, {});
    check(changed, pass->name);
  }
  Graph simple = made.graph;
  pare::run_passes(simple, pare::simplify_passes(), {});
  check(simple, "all passes");
  constexpr int kOpsets[] = {7, 9, 11, 13, 17, 21, 25, 27};
  const int opset = kOpsets[size % std::size(kOpsets)];
  Graph converted = made.graph;
  try {
    pare::convert_opset(converted, opset);
  } catch (const pare::Error& error) {
    if (error.code() != pare::ErrorCode::kUnsupported) throw;
    return;
  }
  pare::WriteReport report;
  const std::string bytes = pare::onnx_bytes(converted, {}, &report);
  if (report.opset != opset) std::abort();
  check(pare::read_onnx_bytes(std::as_bytes(std::span(bytes)), nullptr, "", "converted"), "the conversion");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const pare::fuzz::Made made = pare::fuzz::make_graph(data, size, pare::fuzz::Meaning::kSettled);
  try {
    compare_all(made, size);
  } catch (const pare::Error& error) {
    std::fprintf(stderr, "%s\n%s\n", error.what(), pare::to_text(made.graph).c_str());
    std::abort();
  }
  return 0;
}
