// The reader of .safetensors: any bytes give tensors whose elements may all be read, or an Error that blames
// the file.
#include <cstdint>
#include <cstdlib>

#include "engine/base/error.h"
#include "graphsurgeon/checkpoint/safetensors.h"
#include "tests/fuzz/blame.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  try {
    const pare::SafetensorsFile file = pare::parse_safetensors(bytes, nullptr, "fuzz.safetensors");
    volatile unsigned sum = 0;
    for (const auto& entry : file.tensors)
      for (const std::byte byte : entry.second.byte_span()) sum = sum + std::to_integer<unsigned>(byte);
  } catch (const pare::Error& error) {
    pare::fuzz::expect_blames_input(error);
  }
  return 0;
}
