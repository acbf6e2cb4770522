// Every pass on any readable model: what it makes must verify (run_passes does, and blames the pass by
// kInternal).
//
// The length of the file chooses the passes: one alone, all of simplify, or all with recognition. So the
// corpus of the reader serves, and each of its files cut short at every length meets every pass.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>

#include "engine/base/error.h"
#include "graphsurgeon/onnx/read.h"
#include "graphsurgeon/passes/passes.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const auto bytes = std::as_bytes(std::span(data, size));
    pare::Graph graph = pare::read_onnx_bytes(bytes, nullptr, "", "fuzz");
    pare::RunPassesOptions options;
    options.max_rounds = 4;
    options.context.growth_left = 1 << 20;
    const auto all = pare::all_passes();
    const std::size_t which = size % (all.size() + 2);
    if (which < all.size())
      pare::run_passes(graph, all.subspan(which, 1), options);
    else
      pare::run_passes(graph, which == all.size() ? pare::simplify_passes() : all, options);
  } catch (const pare::Error& error) {
    if (error.code() != pare::ErrorCode::kBadFile && error.code() != pare::ErrorCode::kUnsupported) {
      std::fprintf(stderr, "%s\n", error.what());
      std::abort();
    }
  }
  return 0;
}
