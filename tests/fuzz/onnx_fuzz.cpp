// The ONNX reader: any bytes give a graph that verifies, or an Error that blames the file. What was read is
// looked at as `pare inspect` and the passes do: its text, its hash, every byte of its constants. What can be
// written reads back, and is then written as the same bytes.
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include "engine/base/error.h"
#include "engine/ir/graph.h"
#include "graphsurgeon/graph_hash.h"
#include "graphsurgeon/onnx/read.h"
#include "graphsurgeon/onnx/write.h"
#include "tests/fuzz/blame.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  std::string written;
  try {
    const pare::Graph graph = pare::read_onnx_bytes(bytes, nullptr, "", "fuzz.onnx");
    pare::graph_hash(graph);
    try {
      written = pare::onnx_bytes(graph);
    } catch (const pare::Error&) {
      return 0;  // what was read may break rules that only the checker of whole models knows
    }
  } catch (const pare::Error& error) {
    pare::fuzz::expect_blames_input(error);
    return 0;
  }
  const pare::Graph again =
      pare::read_onnx_bytes(std::as_bytes(std::span(written)), nullptr, "", "written.onnx");
  if (pare::onnx_bytes(again) != written) std::abort();
  return 0;
}
