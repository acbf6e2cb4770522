// The ONNX reader: any bytes give a graph that verifies, or an Error that blames the file. What was read is
// looked at as `pare inspect` and the passes do: its text, its hash, every byte of its constants.
#include <cstdint>
#include <cstdlib>

#include "engine/base/error.h"
#include "engine/ir/graph.h"
#include "graphsurgeon/graph_hash.h"
#include "graphsurgeon/onnx/read.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  try {
    const pare::Graph graph = pare::read_onnx_bytes(bytes, nullptr, "", "fuzz.onnx");
    pare::graph_hash(graph);
  } catch (const pare::Error& error) {
    if (error.code() != pare::ErrorCode::kBadFile && error.code() != pare::ErrorCode::kUnsupported)
      std::abort();
  }
  return 0;
}
