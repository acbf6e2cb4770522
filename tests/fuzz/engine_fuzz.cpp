// The reader of engine files: any document in front of a block of zeros gives a plan whose weights and
// kernels may all be read and whose memory can be planned again, or an Error that blames the file. The header
// is made here, so that the bytes are the document alone and the checksum does not stand in the way.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "engine/base/error.h"
#include "engine/build/engine_file.h"
#include "engine/build/plan/memory_plan.h"
#include "tests/fuzz/blame.h"

namespace {

constexpr std::size_t kHeader = 72, kPage = 4096, kBlock = 1 << 16;

void read_all(const pare::Tensor& tensor) {
  volatile std::uint8_t sum = 0;
  for (const std::byte byte : tensor.byte_span())
    sum = static_cast<std::uint8_t>(sum + std::to_integer<std::uint8_t>(byte));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::size_t block = (kHeader + size + kPage - 1) / kPage * kPage;
  const auto file = std::make_shared<std::vector<std::byte>>(block + kBlock);
  std::byte* at = file->data();
  const std::uint32_t version = 3;
  const std::uint64_t lengths[] = {size, block, kBlock};
  std::memcpy(at, "PAREENG1", 8);
  std::memcpy(at + 8, &version, sizeof version);
  std::memcpy(at + 16, lengths, sizeof lengths);
  if (size > 0) std::memcpy(at + kHeader, data, size);
  try {
    pare::EngineFile engine = pare::parse_engine(*file, file, "fuzz.engine", false);
    for (const pare::PlanTensor& tensor : engine.plan.tensors)
      if (tensor.role == pare::PlanRole::kWeight) read_all(tensor.data);
    for (const auto& entry : engine.plan.binaries) read_all(entry.second);
    pare::plan_memory(engine.plan);
    pare::to_text(engine.plan);
    if (engine.graph != nullptr) {
      pare::to_text(*engine.graph);
      for (std::size_t i = 0; i < engine.graph->value_count(); ++i) {
        const pare::Value& value = engine.graph->value(static_cast<pare::ValueId>(i));
        if (value.is_constant() && value.dtype != pare::DType::kString) read_all(value.constant);
      }
    }
  } catch (const pare::Error& error) {
    pare::fuzz::expect_blames_input(error);
  }
  return 0;
}
