// The readers of .npy and .npz: any bytes give tensors whose elements may all be read, or an Error that
// blames the file.
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "datasets/npy.h"
#include "datasets/npz.h"
#include "engine/base/error.h"
#include "tests/fuzz/blame.h"

namespace {

// Reads every byte, so that the sanitizer sees a tensor that reaches past its data.
void read_all(const pare::Tensor& tensor) {
  volatile std::uint8_t sum = 0;
  for (const std::byte byte : tensor.byte_span())
    sum = static_cast<std::uint8_t>(sum + std::to_integer<std::uint8_t>(byte));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  const std::shared_ptr<const void> owner(data, [](const void*) {});
  try {
    read_all(pare::npy_tensor(bytes, owner, "fuzz.npy"));
  } catch (const pare::Error& error) {
    pare::fuzz::expect_blames_input(error);
  }
  try {
    for (const auto& entry : pare::parse_npz(bytes, owner, "fuzz.npz")) read_all(entry.tensor);
  } catch (const pare::Error& error) {
    pare::fuzz::expect_blames_input(error);
  }
  return 0;
}
